"""The numbers of an answer in words: one footer line, one handle for the reasoning."""

from __future__ import annotations

from kt_tui.chat import Message, Metrics, Status, Usage

SEPARATOR = " · "


def footer_text(message: Message) -> str:
    """What stands under an answer: times, speed, the server's token counts, and how it ended if not by itself."""
    parts = [*metrics_parts(message.metrics or Metrics()), *usage_parts(message.usage or Usage())]
    if message.status is Status.STOPPED:
        parts.append("stopped by you")
    elif message.note:
        parts.append(message.note)
    return SEPARATOR.join(parts)


def metrics_parts(metrics: Metrics) -> list[str]:
    """TTFT, TPOT and speed; what was not measured is left out."""
    parts = []
    if metrics.ttft_s is not None:
        parts.append(f"TTFT {seconds(metrics.ttft_s)}")
    if metrics.tpot_s is not None:
        parts.append(f"TPOT {metrics.tpot_s * 1000:.0f} ms")
    if metrics.tokens_per_s is not None:
        parts.append(f"{metrics.tokens_per_s:.1f} tok/s")
    return parts


def usage_parts(usage: Usage) -> list[str]:
    """Tokens in and out as the server counted them."""
    if usage.prompt_tokens is None and usage.completion_tokens is None:
        return []
    both = f"{_count(usage.prompt_tokens)} in + {_count(usage.completion_tokens)} out"
    return [both if not usage.cached_tokens else f"{both} ({usage.cached_tokens} cached)"]


def thinking_text(elapsed_s: float | None, tokens: int | None, *, exact: bool) -> str:
    """The handle of the reasoning: ``thinking  8.4 s · 212 tok``; a count of pieces is marked ``~``."""
    parts = []
    if elapsed_s is not None:
        parts.append(seconds(elapsed_s))
    if tokens:
        parts.append(f"{'' if exact else '~'}{tokens} tok")
    return "thinking  " + SEPARATOR.join(parts) if parts else "thinking"


def seconds(value: float) -> str:
    """A duration: two decimals below ten seconds, then one, then minutes."""
    if value < 10:
        return f"{value:.2f} s"
    if value < 100:
        return f"{value:.1f} s"
    return f"{value // 60:.0f} min {value % 60:.0f} s"


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else f"{tokens:,}"
