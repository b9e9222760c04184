"""Looking at plans: what the global view makes of a step, and where the slices of a tensor are. Not in MindSpore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError
from sporax.ir import HasLayout, Layout as LayoutValue
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.parallel._placement_picture import picture
from sporax.report.console import show_plan
from sporax.runtime.planned import PipelinedStep, PlannedStep
from sporax.runtime.program import Program

__all__ = ["plan_of", "show_layout", "show_plan"]


def plan_of(step: Any, *args: Any, **kwargs: Any) -> PlannedStep | PipelinedStep:
    """How a step is sharded over the devices, without compiling or running it.

    Args:
        step: a Cell (a TrainOneStepCell, a network) or what `jit` returned.
        args, kwargs: what it would be called with.

    Returns:
        The planned step: ``.graph``, ``.plan`` (which ``.to_json()`` saves), and ``.summary()``, tables for people.

    Raises:
        SporaxTypeError: `step` is neither a Cell nor a compiled function.
        SporaxRuntimeError: no plan is made for it: another parallel mode, or one device.

    Example:
        >>> print(plan_of(train_step, images, labels).summary())
    """
    program = getattr(step, "program", None)
    if not isinstance(program, Program):
        raise For("plan_of").type_error("'step' must be a Cell or a function compiled by jit", type(step).__name__)
    planned = program.plan(*args, **kwargs)
    if planned is None:
        raise SporaxRuntimeError(
            "For 'plan_of', the step must be sharded by a plan, but it is not: after init() 'parallel_mode' must be "
            f"'semi_auto_parallel' or 'auto_parallel' on more than one device, and there are {jax.device_count()} devices."
        )
    return planned


def show_layout(tensor: Any) -> str:
    """A picture of the slices of a tensor: in each box the ranks that hold this part.

    Args:
        tensor: a Parameter or Tensor, as it is at present, or a Layout that has been called.

    Returns:
        The picture as text: the last dimension runs across, another one downwards; those that are not sharded are left out.

    Raises:
        SporaxTypeError: something else.
        SporaxValueError: more than two dimensions are sharded, or the Layout has not been called yet.

    Example:
        >>> layout = Layout((2, 2), ("dp", "mp"))
        >>> print(show_layout(layout("dp", "mp")))
        2×2 slices, each on 1 rank
        ┌───┬───┐
        │ 0 │ 1 │
        ├───┼───┤
        │ 2 │ 3 │
        └───┴───┘
    """
    value = tensor.__layout__() if isinstance(tensor, HasLayout) else tensor
    holders: Mapping[tuple[int, ...], Sequence[int]]
    if isinstance(value, LayoutValue):
        holders, title = value.holders(), ""
    elif isinstance(value, Tensor):
        holders, shape = _holders(value.array), "×".join(map(str, value.shape)) or "scalar"
        title = f"{getattr(value, 'name', None) or 'tensor'} ({shape}): "
    else:
        raise SporaxTypeError(
            f"For 'show_layout', the argument must be a Parameter, a Tensor or a Layout, but got {type(tensor).__name__}."
        )
    split = [max(numbers) + 1 for numbers in zip(*holders, strict=True)]
    copies = len(next(iter(holders.values())))
    ranks = "1 rank" if copies == 1 else f"{copies} ranks"
    return f"{title}{'×'.join(map(str, split)) or 1} slices, each on {ranks}\n{picture(holders)}"


def _holders(array: jax.Array) -> dict[tuple[int, ...], list[int]]:
    """For every slice of an array, by its place in the grid of slices, the ranks that hold it."""
    if isinstance(array, jax.core.Tracer):
        raise For("show_layout").error("the tensor must have a value", "one inside a compiled function")
    # JAX's devices are in rank order, whatever their ids are.
    ranks = {device: rank for rank, device in enumerate(jax.devices())}
    starts: dict[tuple[int, ...], list[int]] = {}
    for device, index in array.sharding.devices_indices_map(array.shape).items():
        starts.setdefault(tuple(span.start or 0 for span in index), []).append(ranks[device])
    # Slices may have unequal sizes, so their places come from sorted starts and not from a division.
    positions = [
        {start: place for place, start in enumerate(sorted(set(column)))} for column in zip(*starts, strict=True)
    ]
    return {
        tuple(place[start] for place, start in zip(positions, key, strict=True)): sorted(held)
        for key, held in starts.items()
    }
