"""`shard`: a function or Cell whose inputs are sharded as the user says; what is inside follows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from sporax.base.errors import SporaxTypeError, check_type
from sporax.mindspore.common.jit import Compiled
from sporax.mindspore.common.sharded_part import is_inside_eager_code, run_part
from sporax.mindspore.ops._core.primitive import strategy_form
from sporax.mindspore.ops._core.sharded_call import check_options, sharded_call
from sporax.runtime.state import frames


def shard(
    fn: Callable[..., Any],
    in_strategy: Any,
    out_strategy: Any = None,
    parameter_plan: dict[str, Any] | None = None,
    device: str = "Ascend",
    level: int = 0,
) -> Callable[..., Any]:
    """A callable that runs `fn` with its inputs sharded as specified, in semi-automatic and automatic parallelism.

    Elsewhere (one device, data parallel) it runs `fn` as it is. Outside a compiled step it is a step of its own.

    Args:
        fn: a function of Tensors, an operator, or a Cell.
        in_strategy: one entry per Tensor: number of slices of each dimension, a Layout, or None to leave it to the planner.
        out_strategy: likewise for the outputs, or None.
        parameter_plan: shardings of a Cell's Parameters by name, ``{"fc.weight": (8, 1)}``.
        device: ``"Ascend"``, ``"GPU"`` or ``"CPU"``; the devices at hand are used, whatever is said.
        level: 0, 1 or 2; of MindSpore's search, so others than 0 are accepted with a warning.

    Raises:
        SporaxTypeError: an argument of the wrong kind, or a `parameter_plan` for something that is not a Cell.
        SporaxValueError: `parameter_plan` has a sharding that does not fit its Parameter.
        SporaxRuntimeError: when called: not one entry per Tensor, or shardings that do not fit.

    Example:
        >>> matmul = shard(mint.matmul, in_strategy=((2, 4), (4, 1)))
    """
    if not callable(fn):
        raise SporaxTypeError(f"For 'shard', 'fn' must be a function or a Cell, but got {type(fn).__name__}.")
    if hasattr(fn, "cells_and_names"):  # a Cell; operators know nothing of Cells
        cast("Any", fn).shard(in_strategy, out_strategy, parameter_plan, device, level)
        return fn
    if parameter_plan is not None:
        raise SporaxTypeError(
            f"For 'shard', 'parameter_plan' needs a Cell as 'fn', but got {type(fn).__name__}, which has no Parameters."
        )
    # Before the first call, so that a mistake is at the user's line.
    _check(in_strategy, out_strategy, device, level)
    name = getattr(fn, "__name__", type(fn).__name__)

    def inside(*args: Any, **kwargs: Any) -> Any:
        return sharded_call(name, fn, args, kwargs, in_strategy, out_strategy, {})

    inside.__name__ = name
    # Outside of a step the function is a step of its own: only those are planned.
    compiled = Compiled(inside)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_inside_eager_code():
            return run_part(compiled.program, args, kwargs)
        return inside(*args, **kwargs) if frames.current_frame() is not None else compiled(*args, **kwargs)

    return call


def checked_outputs(name: str, out_strategy: Any) -> None:
    """None as an entry leaves an output to the planner, as ``(None,)`` in MindSpore's documentation does.

    Raises:
        SporaxTypeError: `out_strategy` is no tuple, or an entry is neither None nor a strategy.
    """
    entries = out_strategy
    if isinstance(out_strategy, tuple):
        entries = tuple(entry for entry in out_strategy if entry is not None)
    strategy_form(name, "out_strategy", entries)


def _check(in_strategy: Any, out_strategy: Any, device: Any, level: Any) -> None:
    check_type("shard", "in_strategy", in_strategy, "a tuple", tuple)
    # None leaves an input to the planner and is no strategy to check.
    strategy_form("shard", "in_strategy", tuple(entry for entry in in_strategy if entry is not None))
    if out_strategy is not None:
        checked_outputs("shard", out_strategy)
    check_options("shard", device, level)
