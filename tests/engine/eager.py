"""Single operations of a plan on tensors, run at once."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine import _csrc, plan
from engine.batch import make_batch
from engine.cpu import Team
from engine.pages import PageTable


def apply(
    team: Team,
    step: _csrc.Step,
    width: int,
    tell: Callable[..., object],
    *inputs: torch.Tensor,
) -> torch.Tensor:
    """Tell ``tell(*rows of the inputs, out)``, run it, and give ``out`` ``[rows, width]``. Inputs may be changed."""
    told = plan.Plan(team)
    rows = [told.given(tensor.shape[1]) for tensor in inputs]
    out = torch.full((step.rows, width), torch.nan)
    tell(*rows, told.given(width))
    told.run(step, *inputs, out)
    return out


def plain_step(rows: int) -> _csrc.Step:
    """One sequence without a past."""
    return make_batch([([0] * rows, 0, PageTable([(0, rows)]), False)]).step


def rms_norm(team: Team, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`engine.plan.rms_norm` to new rows."""
    return apply(
        team, plain_step(len(x)), x.shape[1], lambda x, out: plan.rms_norm(x, weight, eps, out), x.clone()
    )


def rms_norm_inside(
    team: Team, x: torch.Tensor, weight: torch.Tensor, eps: float, begin: int, end: int
) -> torch.Tensor:
    """``x`` with some columns normalised where they lie."""
    told, x = plan.Plan(team), x.clone()
    part = told.given(x.shape[1]).columns(begin, end)
    plan.rms_norm(part, weight, eps, out=part)
    told.run(plain_step(len(x)), x)
    return x


def attend(
    team: Team,
    step: _csrc.Step,
    shape: plan.AttentionShape,
    rope: object,
    qkv: torch.Tensor,
    cache: torch.Tensor,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """`engine.plan.attend`; ``qkv`` is kept as it is."""
    width = shape.heads * shape.head_dim
    return apply(
        team,
        step,
        width,
        lambda qkv, out: plan.attend(shape, rope, qkv, cache, sinks=sinks, out=out),  # type: ignore[arg-type]
        qkv.clone(),
    )
