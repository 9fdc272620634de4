"""Predicted speed: decode from bytes per token and bandwidth, prefill from rates of computing and links.

A prediction is what the machine's limits allow, so it is a ceiling: what launches on this hardware reached of it so
far stands beside it, and once there is any, the expected speed is the ceiling times that share.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kt_tui.hardware.calibration import Calibration, load_calibration
from kt_tui.hardware.fingerprint import fingerprint
from kt_tui.hardware.machine import Machine
from kt_tui.hardware.rated import gpu_memory_estimate, link_estimate, memory_estimate
from kt_tui.launch.record import Measured, read_measured, seen
from kt_tui.launch.work import Work, work_of_checkpoint, work_of_shape
from kt_tui.paths import Paths

if TYPE_CHECKING:
    from kt_tui.catalog import ModelEntry
    from kt_tui.launch.plan import LaunchPlan

PROMPT_TOKENS = 2048
CALIBRATE = "`kt-tui hardware --calibrate` measures it within ten seconds"


@dataclass(frozen=True)
class Rate:
    """A rate per second, whether it was measured, and in words what it is."""

    value: float
    measured: bool
    told: str


@dataclass(frozen=True)
class Ceiling:
    """Tokens per second that the limits allow; None with the reason when a limit is not known."""

    value: float | None
    measured: bool
    told: str


@dataclass(frozen=True)
class Split:
    """How an engine divides a model: all on the processor, or attention and some experts on GPUs.

    Attributes:
        gpus: GPUs that compute; 0 leaves everything to the processor.
        gpu_experts: Routed experts of a layer that lie on GPUs.
        layerwise_from: Prompt tokens from which experts are copied to the GPU layer by layer; None for never.
        chunk: Prompt tokens computed at once.
    """

    gpus: int = 0
    gpu_experts: int = 0
    layerwise_from: int | None = None
    chunk: int = PROMPT_TOKENS


def memory_rate(machine: Machine, calibration: Calibration | None, size: int) -> Rate | None:
    """Bandwidth of reading ``size`` bytes of weights again and again; estimated without a calibration."""
    if calibration is not None and (measured := calibration.bandwidth(size)):
        return Rate(measured, True, f"weights read at {measured / 1e9:.1f} GB/s")
    if estimate := memory_estimate(machine):
        return Rate(estimate[0], False, f"memory estimated at {estimate[0] / 1e9:.0f} GB/s: {estimate[1]}")
    return None


def decode_ceiling(work: Work, split: Split, machine: Machine, calibration: Calibration | None) -> Ceiling:
    """Tokens per second of one conversation with a short context."""
    on_gpu = split.gpu_experts / work.experts if split.gpus and work.experts else 0.0
    host = work.chosen_bytes * (1.0 - on_gpu) + (0 if split.gpus else work.other_bytes)
    card = work.bytes_per_token - host if split.gpus else 0.0
    memory = memory_rate(machine, calibration, work.total_bytes)
    if host and memory is None:
        return Ceiling(None, False, f"the memory's bandwidth is not known; {CALIBRATE}")
    seconds, told, measured = 0.0, [], True
    if host and memory is not None:
        seconds, told, measured = host / memory.value, [memory.told], memory.measured
    if card:
        rate = _card_rate(machine, calibration)
        if rate is None:
            told.append("the GPU's share of the time is left out, its bandwidth is not known")
            measured = False
        else:
            seconds += card / (rate.value * split.gpus)
            told.append(rate.told)
            measured = measured and rate.measured
    return Ceiling(1.0 / seconds if seconds else None, measured, "; ".join(told))


def prefill_ceiling(
    work: Work,
    split: Split,
    machine: Machine,
    calibration: Calibration | None,
    tokens: int = PROMPT_TOKENS,
) -> Ceiling:
    """Prompt tokens per second of one prompt of so many tokens."""
    kernel = _kernel_rate(work, calibration)
    memory = memory_rate(machine, calibration, work.total_bytes)
    rest = tokens * work.other_ops + work.attention_ops * tokens * tokens / 2
    on_gpu = split.gpu_experts / work.experts if split.gpus and work.experts else 0.0
    if split.gpus and split.layerwise_from is not None and tokens >= split.layerwise_from:
        link, card = _link_rate(machine, calibration), _card_ops(calibration)
        if link is None:
            return Ceiling(None, False, f"the link to the GPU is not known; {CALIBRATE}")
        chunks = -(-tokens // max(1, split.chunk))
        copied = chunks * work.expert_bytes * (1.0 - on_gpu) / (link.value * split.gpus)
        computed = (rest + tokens * work.chosen_ops) / (card * split.gpus) if card else 0.0
        told = link.told + ("" if card else "; computing on the GPU is left out, its rate is not known")
        return Ceiling(tokens / max(copied, computed), link.measured and card is not None, told)
    if kernel is None or memory is None:
        return Ceiling(None, False, f"how fast the processor computes is not known; {CALIBRATE}")
    experts = tokens * work.chosen_ops * (1.0 - on_gpu)
    card = _card_ops(calibration) if split.gpus else None
    on_cpu = experts if split.gpus else experts + rest
    reads = work.expert_bytes_touched(min(tokens, split.chunk)) * (1.0 - on_gpu)
    reads += 0 if split.gpus else work.other_bytes
    chunks = -(-tokens // max(1, split.chunk))
    seconds = max(on_cpu / kernel.value, chunks * reads / memory.value)
    seconds += rest / (card * split.gpus) if card else 0.0
    return Ceiling(tokens / seconds, kernel.measured and memory.measured, kernel.told)


def _kernel_rate(work: Work, calibration: Calibration | None) -> Rate | None:
    rates = calibration.kernels if calibration is not None else {}
    if not rates:
        return None
    if work.kernel in rates:
        value, name = rates[work.kernel], work.kernel
    else:
        name, value = min(rates.items(), key=lambda item: item[1])
    return Rate(value, True, f"{name} kernels compute {value / 1e9:.0f} GFLOP/s")


def _card_rate(machine: Machine, calibration: Calibration | None) -> Rate | None:
    measured = [gpu.read for gpu in calibration.gpus if gpu.read] if calibration is not None else []
    if measured:
        return Rate(min(measured), True, f"GPU memory read at {min(measured) / 1e9:.0f} GB/s")
    stated = [rate for gpu in machine.gpus if (rate := gpu_memory_estimate(gpu))]
    return (
        Rate(min(stated), False, f"GPU memory of {min(stated) / 1e9:.0f} GB/s as stated") if stated else None
    )


def _link_rate(machine: Machine, calibration: Calibration | None) -> Rate | None:
    measured = [gpu.to_device for gpu in calibration.gpus if gpu.to_device] if calibration is not None else []
    if measured:
        return Rate(min(measured), True, f"experts copied to the GPU at {min(measured) / 1e9:.1f} GB/s")
    rated = [rate for gpu in machine.gpus if (rate := link_estimate(gpu))]
    return Rate(min(rated), False, f"link estimated at {min(rated) / 1e9:.0f} GB/s") if rated else None


def _card_ops(calibration: Calibration | None) -> float | None:
    rates = [gpu.bf16 for gpu in calibration.gpus if gpu.bf16] if calibration is not None else []
    return min(rates) if rates else None


def speed_document(
    model: str,
    engine: str,
    work: Work | None,
    *,
    split: Split,
    machine: Machine,
    calibration: Calibration | None,
    history: Sequence[Measured] = (),
    published: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The ``speed`` object of a plan.

    ``decode`` and ``prefill`` hold ``ceiling_tokens_per_s``, ``expected_tokens_per_s`` (null before the first measured
    launch), ``basis`` (``measured``, ``estimated``, ``unknown``), ``reason`` and ``error`` (runs, and median, lowest
    and highest of measured divided by ceiling).
    """
    if work is None:
        document: dict[str, Any] = {"note": "not predicted: the model's size is not known"}
    else:
        mark = fingerprint(machine)
        document = {"bytes_per_token": work.bytes_per_token, "prompt_tokens": PROMPT_TOKENS}
        for what, ceiling in (
            ("decode", decode_ceiling(work, split, machine, calibration)),
            ("prefill", prefill_ceiling(work, split, machine, calibration)),
        ):
            so_far = seen(history, model, mark, engine, what)
            expected = ceiling.value * so_far.median if ceiling.value and so_far else None
            basis = "unknown" if ceiling.value is None else "measured" if ceiling.measured else "estimated"
            document[what] = {
                "ceiling_tokens_per_s": ceiling.value,
                "expected_tokens_per_s": expected,
                "basis": basis,
                "reason": ceiling.told,
                "error": dataclasses.asdict(so_far) if so_far else None,
            }
        document["note"] = (
            "`at most` is what bandwidth and computing allow one conversation; launches tell what is reached of it"
        )
    return document | ({"published": [dict(row) for row in published]} if published else {})


def with_speed(plan: LaunchPlan, entry: ModelEntry, machine: Machine, paths: Paths) -> LaunchPlan:
    """The plan with its predicted speed. Reads the kept calibration and the launches so far."""
    speed = speed_document(
        entry.name,
        plan.engine,
        _work(plan, entry),
        split=_split(plan, entry, machine),
        machine=machine,
        calibration=load_calibration(paths, fingerprint(machine)),
        history=read_measured(paths),
        published=[row.to_json() for row in entry.published],
    )
    return dataclasses.replace(plan, speed=speed)


def _work(plan: LaunchPlan, entry: ModelEntry) -> Work | None:
    facts, store = plan.facts, plan.parameters.get("cpu-store")
    if facts.shape is not None and facts.weights is not None:
        name = str(store.value) if store is not None else "keep"
        fmt = entry.format or "" if name == "keep" else name.partition("_")[0]
        return work_of_checkpoint(facts.shape, facts.weights.stored(name), fmt)
    return work_of_shape(entry.shape, entry.formats) if entry.shape is not None else None


def _split(plan: LaunchPlan, entry: ModelEntry, machine: Machine) -> Split:
    def number(*names: str) -> int | None:
        for name in names:
            resolved = plan.parameters.get(name)
            value = resolved.value if resolved is not None else entry.defaults.get(name)
            if type(value) is int:
                return value
        return None

    chunk = number("chunked-prefill-size")
    if plan.engine != "sglang" or not machine.gpus:
        return Split(chunk=chunk or PROMPT_TOKENS)
    return Split(
        gpus=max(1, min(number("tensor-parallel-size") or 1, len(machine.gpus))),
        gpu_experts=number("gpu-experts", "kt-num-gpu-experts") or 0,
        layerwise_from=number("kt-gpu-prefill-threshold", "kt-gpu-prefill-token-threshold"),
        chunk=chunk or PROMPT_TOKENS,
    )


def speed_lines(speed: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The object in words: (label, text)."""
    rows: list[tuple[str, str]] = []
    for what in ("decode", "prefill"):
        figure = speed.get(what)
        if not isinstance(figure, Mapping):
            continue
        ceiling, expected, error = (
            figure[key] for key in ("ceiling_tokens_per_s", "expected_tokens_per_s", "error")
        )
        if ceiling is None:
            rows.append((what, f"unknown: {figure['reason']}"))
            continue
        if expected is not None:
            spread = f"{error['lowest']:.0%} to {error['highest']:.0%}"
            rows.append(
                (
                    what,
                    f"{_figure(expected)} tokens/s expected: {error['runs']} run(s) reached {spread} of the ceiling",
                )
            )
        kind = "at most" if figure["basis"] == "measured" else "estimate: at most"
        label = what if expected is None else ""
        rows.append((label, f"{kind} {_figure(ceiling)} tokens/s ({figure['reason']})"))
    rows.extend(("published", published_text(row)) for row in speed.get("published", ()))
    return rows


def _figure(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def published_text(row: Mapping[str, Any]) -> str:
    """One published measurement as a line."""
    parts = [
        f"{name} {' / '.join(f'{value:g}' for value in row[name])} tokens/s"
        for name in ("prefill", "decode")
        if row.get(name)
    ]
    at = " / ".join(str(tokens) for tokens in row.get("prompt") or ())
    return f"{row['machine']}: {', '.join(parts)}{f' at {at} prompt tokens' if at else ''} ({row['source']})"
