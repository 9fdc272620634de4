"""A launch, worked out in full before anything starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.budget import bytes_read_per_token, default_total_tokens
from kt_tui.hardware.machine import Machine
from kt_tui.launch import checks
from kt_tui.launch.checks import Findings, Problem, Values
from kt_tui.launch.command import API_KEY_VARIABLE, embedded_argv, engine_environment, preview
from kt_tui.launch.inputs import Model, SavedLaunch
from kt_tui.launch.memory import (
    DeviceMemory,
    MemoryPlan,
    ModelFacts,
    host_memory,
    memory_plan,
    plan_budget,
    read_facts,
)
from kt_tui.launch.resolve import Origin, Resolved, Settings, Sources, resolve
from kt_tui.launch.schema import EMBEDDED, ENGINES, Parameter, parameters_for

HIDDEN = "***"
MAXIMUM_SHOWN = 200


@dataclass(frozen=True)
class LaunchPlan:
    """Everything about one launch.

    Attributes:
        model: The model's name.
        engine: ``embedded`` or ``sglang``.
        argv: Exactly what is run; empty if there is nothing to run.
        env: Variables laid over this process's own; may hold the API key, so it is never printed.
        parameters: Option name -> value with its origin.
        memory: What each byte is for.
        speed: What is known of the speed without measuring.
        warnings: Sentences.
        errors: Facts and predictions that speak against the launch.
        facts: What the plan knows of the model; hand it to the next `plan_launch` to save reading headers again.
    """

    model: str
    engine: str
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    parameters: Mapping[str, Resolved] = field(default_factory=dict, repr=False)
    memory: MemoryPlan = MemoryPlan(DeviceMemory(None, None))  # noqa: RUF009 (frozen)
    speed: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    errors: tuple[Problem, ...] = ()
    facts: ModelFacts = ModelFacts()  # noqa: RUF009 (frozen)

    @property
    def model_name(self) -> str:
        """The model's name."""
        return self.model

    @property
    def fits(self) -> bool | None:
        """Whether memory suffices; None if unknown."""
        return self.memory.fits

    @property
    def host(self) -> str:
        """Address that the server binds."""
        return str(self._value("host") or "127.0.0.1")

    @property
    def port(self) -> int:
        """Port that the server binds; 0 if the one asked for is no number."""
        value = self._value("port")
        return value if isinstance(value, int) else 0

    @property
    def served_name(self) -> str:
        """The model's id for clients."""
        return str(self._value("served-model-name") or self.model)

    @property
    def public_env(self) -> dict[str, str]:
        """`env` with secrets masked."""
        return {name: HIDDEN if name == API_KEY_VARIABLE else value for name, value in self.env.items()}

    @property
    def preview(self) -> str:
        """The command as a line for a shell; secrets masked."""
        return preview(self.argv, self.public_env)

    def blocking(self, *, force: bool = False) -> tuple[Problem, ...]:
        """The errors that forbid the launch; ``force`` overrules predictions."""
        return tuple(error for error in self.errors if not (force and error.prediction))

    def to_json(self) -> dict[str, Any]:
        """The document of ``kt-tui plan --json``; secrets masked."""
        return {
            "model": self.model,
            "engine": self.engine,
            "argv": list(self.argv),
            "env": self.public_env,
            "parameters": {
                name: {"value": self._shown(name, resolved), "origin": str(resolved.origin)}
                for name, resolved in self.parameters.items()
            },
            "memory": self.memory.to_json(),
            "fits": self.fits,
            "speed": dict(self.speed),
            "warnings": list(self.warnings),
            "errors": [error.text for error in self.errors],
            "problems": [dataclasses.asdict(error) for error in self.errors],
            "preview": self.preview,
        }

    def _value(self, name: str) -> object:
        resolved = self.parameters.get(name)
        return resolved.value if resolved else None

    @staticmethod
    def _shown(name: str, resolved: Resolved) -> object:
        return HIDDEN if name == "api-key" and resolved.value is not None else resolved.value


def plan_launch(
    model: Model,
    machine: Machine,
    settings: Settings | None = None,
    profile: SavedLaunch | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    extra: Sequence[str] = (),
    engine: str | None = None,
    facts: ModelFacts | None = None,
    bind_problem: Callable[[str, int], str | None] | None = None,
) -> LaunchPlan:
    """Work out a launch. Never raises for what a user typed: the plan's errors say what is wrong.

    Args:
        model: What to run.
        machine: Where.
        settings: ``config.toml``.
        profile: A saved launch to start from.
        environ: Environment of this process.
        options: Launch options that the user gave, by long name without dashes.
        extra: Options that kt-tui does not know.
        engine: ``embedded`` or ``sglang``; None takes the profile's, else ``embedded``.
        facts: The model's facts from an earlier plan; None, or facts of another checkpoint, reads its headers.
        bind_problem: Tells why a server could not listen on host and port; None for a machine elsewhere.
    """
    environment = environ or {}
    chosen = engine or (profile.engine if profile else None) or EMBEDDED
    if chosen != EMBEDDED:
        return _refused(model, machine, chosen)
    parameters = parameters_for(chosen)
    findings = Findings()
    sources = Sources(
        cli=options or {},
        profile=profile.options if profile else {},
        environ=environment,
        settings=settings,
        model=_model_values(model),
        hardware=_hardware_values(machine),
    )
    values, unreadable = resolve(parameters, sources)
    for name, sentence in unreadable.items():
        findings.refuse(sentence, name)
    path, readable = _model_path(model, values["model-path"].value, findings)
    if path is not None and values["model-path"].value is None:
        values["model-path"] = Resolved(str(path), Origin.MODEL)
    checkpoint = path if readable else None
    if facts is None or not facts.still_good_for(checkpoint):
        facts = read_facts(checkpoint, model.name)
    if facts.problem:
        findings.refuse(facts.problem)
    kept = _as_stored(facts, values)
    values = _solve(parameters, values, kept, machine)

    typed = Values(values)
    words = (*(profile.extra if profile else ()), *extra)
    budget = None
    tokens, chunk = typed.integer("max-total-tokens"), typed.integer("chunked-prefill-size")
    running = typed.integer("max-running-requests")
    if tokens is not None and chunk is not None and running is not None and min(tokens, chunk, running) > 0:
        budget = plan_budget(kept, typed.integer("context-length"), tokens, chunk, running)
    memory = memory_plan(machine, budget)
    checks.check_ranges(parameters, typed, findings)
    checks.check_threads(machine, typed, findings)
    checks.check_tokens(kept, typed, findings)
    checks.check_memory(memory, kept, typed, findings)
    checks.check_device(machine, typed, findings)
    checks.check_server(typed, findings, bind_problem)
    checks.check_extra(words, findings)
    if profile and profile.model not in (model.name, str(model.path)):
        findings.warn(
            f"the profile {profile.name} was saved for the model {profile.model}, not for {model.name}"
        )
    for name in options or {}:
        if name not in values:
            findings.refuse(f"there is no launch option {name[:MAXIMUM_SHOWN]!r}", name)
    for name in profile.options if profile else ():
        if name not in values:
            findings.warn(f"the profile's option {name[:MAXIMUM_SHOWN]!r} is not known and has no effect")

    env = engine_environment(environment, gpus=bool(machine.gpus))
    if (key := typed.text("api-key")) is not None:
        env[API_KEY_VARIABLE] = key
    return LaunchPlan(
        model=model.name,
        engine=chosen,
        argv=embedded_argv(values, words) if path else (),
        env=env,
        parameters=values,
        memory=memory,
        speed=_speed(kept),
        warnings=tuple(findings.warnings),
        errors=tuple(findings.errors),
        facts=facts,
    )


def _refused(model: Model, machine: Machine, engine: str) -> LaunchPlan:
    if engine in ENGINES:
        text = f"this version launches only the embedded engine, not {engine}: leave --engine out"
    else:
        text = f"there is no engine {engine[:MAXIMUM_SHOWN]!r}; the engines are {', '.join(ENGINES)}"
    return LaunchPlan(
        model.name, engine, memory=memory_plan(machine, None), errors=(Problem(text, "engine"),)
    )


def _model_values(model: Model) -> dict[str, object]:
    name = model.served_name or (
        Path(model.name).name.removesuffix(".gguf") if "/" in model.name else model.name
    )
    return {"served-model-name": name, **model.defaults}


def _hardware_values(machine: Machine) -> dict[str, object]:
    cores = machine.cpu.usable_physical_cores
    return {} if not cores else {"cpu-threads": cores}


def _model_path(model: Model, given: object, findings: Findings) -> tuple[Path | None, bool]:
    """The checkpoint, and whether it is there to be read; says what is wrong with the model."""
    if isinstance(given, str):
        path = Path(given)
        if not path.exists():
            findings.refuse(f"model-path: {given} does not exist", "model-path")
        return path, True
    if model.state == "complete":
        return model.path, True
    if model.preparable:
        findings.warn(f"{model.name} is made on this machine before its first launch")
        return model.target or model.path, False
    reason = "; ".join(model.problems) or "it is not on this machine"
    findings.refuse(f"{model.name} cannot be launched ({model.state}): {reason}")
    return model.path, False


def _as_stored(facts: ModelFacts, values: Mapping[str, Resolved]) -> ModelFacts:
    """The facts with weights as large as they become in memory."""
    store = values.get("cpu-store")
    if facts.weights is None or store is None:
        return facts
    return dataclasses.replace(facts, weights=facts.weights.stored(str(store.value)))


def _solve(
    parameters: Sequence[Parameter], values: dict[str, Resolved], facts: ModelFacts, machine: Machine
) -> dict[str, Resolved]:
    """Fill in what follows from the model's header and the machine's memory, where nobody said otherwise."""
    if facts.shape is None:
        return values
    solved = dict(values)
    if solved["context-length"] == Resolved(None, Origin.DEFAULT):
        solved["context-length"] = Resolved(facts.shape.context_length, Origin.MODEL)
    if solved["max-total-tokens"] == Resolved(None, Origin.DEFAULT):
        context = Values(solved).integer("context-length")
        limit = facts.shape.context_length
        shape = dataclasses.replace(facts.shape, context_length=max(1, min(context or limit, limit)))
        _, available = host_memory(machine)
        weights = facts.weights.total if facts.weights else 0
        tokens = default_total_tokens(shape, None if available is None else available - weights)
        # Without room for a page the plan does not fit anyway; the smallest cache shows by how much.
        minimum = next((p.minimum for p in parameters if p.name == "max-total-tokens"), None) or 1
        solved["max-total-tokens"] = Resolved(max(minimum, tokens), Origin.HARDWARE)
    return solved


def _speed(facts: ModelFacts) -> dict[str, Any]:
    if facts.shape is None or facts.weights is None:
        return {"note": "not predicted: the model's size is not known"}
    return {
        "bytes_per_token": bytes_read_per_token(facts.shape, facts.weights),
        "note": "bytes of weights that decoding one token reads, computed from the checkpoint; "
        "tokens per second are measured while the engine runs, not predicted",
    }
