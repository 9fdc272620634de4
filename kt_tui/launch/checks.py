"""What is wrong or unwise about a launch, told before anything starts.

An error is a fact (the engine would refuse, or a file is missing) or a prediction (memory); only predictions can
be overruled by the user.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.budget import PAGE_TOKENS, kv_bytes_per_token
from kt_tui.hardware.machine import Machine
from kt_tui.launch.memory import GIB, MemoryPlan, ModelFacts
from kt_tui.launch.resolve import Origin, Resolved
from kt_tui.launch.schema import EMBEDDED, Parameter, parameters_for
from kt_tui.net import is_loopback


@dataclass(frozen=True)
class Problem:
    """One error: a sentence, the parameter it is about, and whether it is only a prediction."""

    text: str
    parameter: str | None = None
    prediction: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass
class Findings:
    """Collects warnings and errors in the order in which they are found."""

    warnings: list[str] = field(default_factory=list)
    errors: list[Problem] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Add a warning once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def refuse(self, text: str, parameter: str | None = None) -> None:
        """Add an error that is a fact."""
        self.errors.append(Problem(text, parameter))

    def predict(self, text: str, parameter: str | None = None) -> None:
        """Add an error that is a prediction."""
        self.errors.append(Problem(text, parameter, prediction=True))


class Values:
    """Typed access to resolved values."""

    def __init__(self, values: Mapping[str, Resolved]) -> None:
        self.values = values

    def integer(self, name: str) -> int | None:
        """An integer parameter's value."""
        value = self.values[name].value
        return value if isinstance(value, int) else None

    def text(self, name: str) -> str | None:
        """A text parameter's value."""
        value = self.values[name].value
        return value if isinstance(value, str) else None

    def origin(self, name: str) -> Origin:
        """Where a value comes from."""
        return self.values[name].origin


def check_ranges(parameters: Sequence[Parameter], values: Values, findings: Findings) -> None:
    """Each number within its parameter's range."""
    for parameter in parameters:
        value = values.values[parameter.name].value
        if value is not None and (problem := parameter.range_problem(value)):
            findings.refuse(problem, parameter.name)


def check_threads(machine: Machine, values: Values, findings: Findings) -> None:
    """Threads against the cores that this process may use."""
    threads, cores = values.integer("cpu-threads"), machine.cpu.usable_physical_cores
    if cores is None:
        findings.warn(
            "the number of usable cores is not known, so the thread count is the engine's own choice"
        )
    elif threads is not None and threads > cores:
        findings.warn(
            f"cpu-threads is {threads}, more than the {cores} usable physical cores; threads that share a core slow "
            f"each other down: use {cores} or fewer"
        )
    if machine.cpu.arch not in {None, "x86_64"}:
        findings.warn(
            f"the CPU is {machine.cpu.arch}: the fast kernels are for x86-64, so the engine will be slow"
        )
    elif machine.cpu.isa and "avx2" not in machine.cpu.isa:
        findings.warn("the CPU has no AVX2, which the fast kernels need, so the engine will be slow")


def check_tokens(facts: ModelFacts, values: Values, findings: Findings) -> None:
    """Chunk, cache and context against each other and the model."""
    chunk, tokens = values.integer("chunked-prefill-size"), values.integer("max-total-tokens")
    context = values.integer("context-length")
    limit = facts.shape.context_length if facts.shape else None
    if context is not None and limit is not None and context > limit:
        findings.refuse(
            f"context-length is {context}, but the model was made for {limit} tokens: ask for {limit} or fewer",
            "context-length",
        )
    if tokens is None:
        return
    if chunk is not None and chunk > tokens and values.origin("chunked-prefill-size") is not Origin.DEFAULT:
        findings.refuse(
            f"chunked-prefill-size is {chunk}, more than the max-total-tokens of {tokens} that the cache holds: "
            f"lower it to {tokens} or raise max-total-tokens",
            "chunked-prefill-size",
        )
    if context is not None and tokens < context:
        findings.warn(
            f"max-total-tokens is {tokens}, less than one context of {context} tokens: long conversations end early"
        )
    if tokens % PAGE_TOKENS:
        findings.warn(f"max-total-tokens is rounded up to whole pages of {PAGE_TOKENS} tokens")


def check_memory(memory: MemoryPlan, facts: ModelFacts, values: Values, findings: Findings) -> None:
    """What does not fit, and what to lower by how much."""
    host = memory.host
    if not host.parts:
        findings.warn("the model's size is not known, so nothing is said about memory")
        return
    if host.free_after is None:
        findings.warn(
            "this machine's free memory is not known, so whether the launch fits is not known either"
        )
        return
    if host.free_after >= 0 or host.available is None:
        return
    short = -host.free_after
    lead = f"needs {host.needed / GIB:.2f} GiB of memory, but {host.available / GIB:.2f} GiB are available"
    tokens = values.integer("max-total-tokens")
    each = kv_bytes_per_token(facts.shape) if facts.shape else None
    if tokens is not None and each and host.parts.get("kv_cache", 0) - short >= PAGE_TOKENS * each:
        fitting = (host.parts["kv_cache"] - short) // each // PAGE_TOKENS * PAGE_TOKENS
        findings.predict(f"{lead}: lower max-total-tokens from {tokens} to {fitting}", "max-total-tokens")
    else:
        findings.predict(
            f"{lead}, and a smaller cache does not make up for the missing {short / GIB:.2f} GiB: "
            "close other programs, raise this process's memory limit, or take a smaller model"
        )


def check_device(machine: Machine, values: Values, findings: Findings) -> None:
    """A GPU that is asked for, and GPUs that lie idle."""
    if values.text("device") == "cuda":
        findings.refuse(
            "device is cuda, but this version of the embedded engine computes on the CPU only: use auto or cpu",
            "device",
        )
    elif machine.gpus:
        findings.warn(
            f"{len(machine.gpus)} GPU(s) stay unused: this version's embedded engine computes on the CPU"
        )


def check_server(
    values: Values, findings: Findings, bind_problem: Callable[[str, int], str | None] | None
) -> None:
    """Address and port, and who can reach them."""
    host, port = values.text("host"), values.integer("port")
    if bind_problem and host and port and 1 <= port <= 65535 and (problem := bind_problem(host, port)):
        findings.refuse(problem, "port")
    if host and not is_loopback(host) and values.text("api-key") is None:
        findings.warn(
            f"host {host} makes the server reachable from the network, with no API key: anyone there can use it; "
            "set KT_ENGINE_API_KEY, or use 127.0.0.1"
        )
    if values.origin("api-key") is Origin.CLI:
        findings.warn(
            "an API key on the command line is visible to others while kt-tui runs; set KT_ENGINE_API_KEY"
        )


def check_extra(extra: Sequence[str], findings: Findings) -> None:
    """Options that kt-tui does not know: they go to the engine, and a near miss is named."""
    flags = [f"--{parameter.name}" for parameter in parameters_for(EMBEDDED)]
    for word in extra:
        name = word.partition("=")[0]
        if not name.startswith("-") or name in ("-", "--"):
            continue
        near = difflib.get_close_matches(name, flags, n=1, cutoff=0.75)
        hint = f"; did you mean {near[0]}?" if near else ""
        findings.warn(f"{name} is not an option of kt-tui and goes to the engine unchanged{hint}")
