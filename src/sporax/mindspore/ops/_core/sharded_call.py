"""A function inside a planned step whose inputs and outputs are as the user says; the operators inside follow."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.ir.layout import HasLayout
from sporax.ir.marks import LayoutMark, Shardings
from sporax.lowering import marks as trace_marks
from sporax.lowering.marks.numbers import next_number
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.ops._core.marking import following, next_operator, readable_strategy
from sporax.mindspore.ops._core.operator import MINT, Operator
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
        asked = None if out_strategy is None or all(entry is None for entry in out_strategy) else out_strategy
        with next_operator(in_strategy, asked):
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
    if device not in ("Ascend", "GPU", "CPU"):
        raise SporaxTypeError(f"For '{where}', 'device' must be 'Ascend', 'GPU' or 'CPU', but got {device!r}.")
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
