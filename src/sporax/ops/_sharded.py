"""A function inside a planned step whose inputs and outputs lie as the user says; the operators inside follow."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax

from sporax.common.parameter import Parameter
from sporax.common.tensor import Tensor, wrap
from sporax.ir.errors import SporaxRuntimeError, SporaxTypeError
from sporax.ir.marks import Cuts, LayoutMark
from sporax.lowering.marks import apply_mark, next_number
from sporax.ops._marked import cuts_of, following, next_operator
from sporax.ops._operator import MINT, Operator
from sporax.runtime import state


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
        parameters: cuts of the Parameters it reads.

    Raises:
        SporaxRuntimeError: not one entry per Tensor.
    """
    if not state.planning():
        return function(*args, **kwargs)
    if is_operator(function):
        with next_operator(in_strategy, out_strategy):
            return function(*args, **kwargs)
    args, kwargs = _marked(name, "in_strategy", (args, dict(kwargs)), cuts_of(in_strategy))
    values = {
        parameter: apply_mark(
            [state.read(parameter)], LayoutMark(parameter.name, next_number(), cuts_of((cut,)) or ())
        )[0]
        for parameter, cut in parameters.items()
    }
    with following():
        result, updates = state.isolate(lambda: function(*args, **kwargs), values)
    state.commit(updates)
    return _marked(name, "out_strategy", result, cuts_of(out_strategy))


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
    return isinstance(function, Operator) or any(function is each for each in MINT.values())


def parameters_by_plan(cell: Any, plan: Mapping[str, Any]) -> dict[Parameter, Any]:
    """The Parameters that a `parameter_plan` names, with their cuts.

    Raises:
        SporaxTypeError: a cut is neither a tuple nor a Layout.
        SporaxValueError: a cut that does not fit its Parameter.
    """
    known = {parameter.name: parameter for parameter in cell.get_parameters()} if plan else {}
    found: dict[Parameter, Any] = {}
    for name, cut in plan.items():
        parameter = known.get(name.removeprefix("self."))
        if parameter is None:
            warnings.warn(
                f"For 'shard', 'parameter_plan' names '{name}', which is not a Parameter: ignored.", stacklevel=3
            )
            continue
        if not isinstance(cut, tuple) and not hasattr(cut, "__layout__"):
            raise SporaxTypeError(
                f"For 'shard', the cut of '{name}' must be a tuple or a Layout, but got {type(cut).__name__}."
            )
        found[parameter] = cut
    return found


def _marked(name: str, what: str, values: Any, cuts: Cuts | None) -> Any:
    """The same values; their tensors have passed a mark."""
    if cuts is None:
        return values
    leaves, tree = jax.tree.flatten(values, is_leaf=lambda leaf: isinstance(leaf, Tensor))
    tensors = [position for position, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    if len(cuts) != len(tensors):
        raise SporaxRuntimeError(
            f"For '{name}', '{what}' must have one entry for each of the {len(tensors)} Tensors, but got {len(cuts)}."
        )
    arrays = apply_mark([leaves[position].array for position in tensors], LayoutMark(name, next_number(), cuts))
    for position, array in zip(tensors, arrays, strict=True):
        leaves[position] = wrap(array)
    return jax.tree.unflatten(tree, leaves)
