"""A function inside a planned step whose inputs and outputs are as the user says; the operators inside follow.

`shard`: a function or Cell whose inputs are sharded as the user says; what is inside follows.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.ir import HasLayout, LayoutMark, Shardings, next_number
from sporax.lowering import marks as trace_marks
from sporax.mindspore.common import Parameter, Tensor, wrap
from sporax.mindspore.common.jit import Compiled
from sporax.mindspore.common.sharded_part import is_inside_eager_code, run_part
from sporax.mindspore.ops._core.marking import following, next_operator, readable_strategy
from sporax.mindspore.ops._core.operator import MINT, Operator
from sporax.mindspore.ops._core.primitive import strategy_form
from sporax.runtime.state import frames


def sharded_call(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    in_strategy: Any,
    out_strategy: Any,
    parameters: Mapping[Parameter, Any],
) -> Any:
    """Run `function` with its tensors marked.

    Args:
        name: what messages call it.
        function, args, kwargs: the call; inside it, operators without a strategy follow their inputs.
        in_strategy, out_strategy: one entry per Tensor among inputs and outputs; None to leave one to the planner.
        parameters: shardings of the Parameters it reads.

    Raises:
        SporaxRuntimeError: not one entry per Tensor.
    """
    if not frames.planning():
        return function(*args, **kwargs)
    # A strategy of one operator is its own and is not passed on as marks around a function.
    if is_operator(function):
        requested = None if out_strategy is None or all(entry is None for entry in out_strategy) else out_strategy
        with next_operator(in_strategy, requested):
            return function(*args, **kwargs)
    args, kwargs = _marked(name, "in_strategy", (args, dict(kwargs)), readable_strategy(in_strategy))
    values = {
        # Parameters are marked where they are read, so that the sharding for use is as given.
        parameter: trace_marks.apply_mark(
            [frames.read(parameter)], LayoutMark(parameter.name, next_number(), readable_strategy((sharding,)) or ())
        )[0]
        for parameter, sharding in parameters.items()
    }
    with following():
        # In a frame of its own: reads of these Parameters give the marked arrays.
        result, updates = frames.isolate(lambda: function(*args, **kwargs), values)
    frames.commit(updates)
    return _marked(name, "out_strategy", result, readable_strategy(out_strategy))


def check_options(where: str, device: Any, level: Any) -> None:
    """Check the settings of `shard` that are about MindSpore's devices and search.

    Raises:
        SporaxTypeError: neither of those that there are.
    """
    For(where).one_of("device", device, ("Ascend", "GPU", "CPU"), kind=SporaxTypeError)
    if level not in (0, 1, 2) or isinstance(level, bool):
        raise SporaxTypeError(f"For '{where}', 'level' must be 0, 1 or 2, but got {level!r}.")
    if level:
        warnings.warn(
            f"For '{where}', level={level} changes nothing: operators inside follow their inputs, there is no search to steer.",
            stacklevel=4,
        )


def is_operator(function: Any) -> bool:
    """Whether `function` is one operator, so that a strategy is the operator's own."""
    # Functions of `mint` with renamed parameters are plain functions around operators.
    return isinstance(function, Operator) or any(function is operator for operator in MINT.values())


def checked_plan(where: str, cell: Any, plan: Mapping[str, Any]) -> dict[str, Any]:
    """A `parameter_plan` by the Parameters' paths inside `cell`; their names may change when it becomes part of another.

    Args:
        where: what messages call the function.
        cell: whose Parameters are named, by their present names or by their paths, ``self.`` before them or not.
        plan: shardings by name. Unknown names are left out with a warning.

    Raises:
        SporaxTypeError: a name is no string, or a sharding neither a tuple nor a Layout.
        SporaxValueError: a sharding that does not fit its Parameter.
    """
    paths: dict[str, Parameter] = dict(cell.parameters_and_names()) if plan else {}
    by_name = {parameter.name: path for path, parameter in paths.items()}
    # Users may write the path or the name.
    plans: dict[str, Any] = {}
    for name, sharding in plan.items():
        if not isinstance(name, str) or not (isinstance(sharding, tuple) or isinstance(sharding, HasLayout)):
            raise SporaxTypeError(
                f"For '{where}', 'parameter_plan' must hold tuples or Layouts by name, but got {type(name).__name__} and "
                f"{type(sharding).__name__} for {name!r}."
            )
        short = name.removeprefix("self.")
        path = by_name.get(short, short)
        # MindSpore warns as well: a plan may be written for several networks.
        if path not in paths:
            warnings.warn(
                f"For '{where}', 'parameter_plan' names '{name}', which is not a Parameter of {type(cell).__name__}: "
                f"ignored. There are {sorted(by_name)}.",
                stacklevel=4,
            )
            continue
        _check_fits(where, name, sharding, tuple(paths[path].shape))
        plans[path] = sharding
    return plans


def _check_fits(where: str, name: str, sharding: Any, shape: tuple[int, ...]) -> None:
    # A Layout says axes; the numbers of slices follow from its device matrix.
    parts = sharding.__layout__().split if isinstance(sharding, HasLayout) else sharding
    if len(parts) != len(shape):
        raise SporaxValueError(
            f"For '{where}', the sharding of '{name}' in 'parameter_plan' must have {len(shape)} numbers for its shape {shape}, "
            f"but got {sharding}."
        )
    for dim, (size, part) in enumerate(zip(shape, parts, strict=True)):
        if not isinstance(part, int) or isinstance(part, bool) or part < 1 or size % part:
            raise SporaxValueError(
                f"For '{where}', the sharding of '{name}' in 'parameter_plan' must have positive ints that divide its shape "
                f"{shape}, but dimension {dim} has size {size} and got {part!r}."
            )


def parameters_by_plan(cell: Any, plan: Mapping[str, Any]) -> dict[Parameter, Any]:
    """The Parameters of a checked plan, with their shardings."""
    paths = dict(cell.parameters_and_names()) if plan else {}
    return {paths[path]: sharding for path, sharding in plan.items() if path in paths}


def _marked(name: str, what: str, values: Any, sharding: Shardings | None) -> Any:
    """The same values; their tensors have passed a mark."""
    if sharding is None:
        return values
    leaves, tree = jax.tree.flatten(values, is_leaf=lambda leaf: isinstance(leaf, Tensor))
    tensors = [position for position, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    if len(sharding) != len(tensors):
        raise SporaxRuntimeError(
            f"For '{name}', '{what}' must have one entry for each of the {len(tensors)} Tensors, but got {len(sharding)}."
        )
    arrays = trace_marks.apply_mark(
        [leaves[position].array for position in tensors], LayoutMark(name, next_number(), sharding)
    )
    for position, array in zip(tensors, arrays, strict=True):
        leaves[position] = wrap(array)
    return jax.tree.unflatten(tree, leaves)


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
    For("shard").refuse_type(not callable(fn), "'fn' must be a function or a Cell", type(fn).__name__)
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
    For("shard").typed("in_strategy", in_strategy, "a tuple", tuple)
    # None leaves an input to the planner and is no strategy to check.
    strategy_form("shard", "in_strategy", tuple(entry for entry in in_strategy if entry is not None))
    if out_strategy is not None:
        checked_outputs("shard", out_strategy)
    check_options("shard", device, level)
