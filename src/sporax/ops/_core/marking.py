"""An operator inside a planned step: its tensors pass a mark at the entrance and one at the exit."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax

from sporax.common import _integer_slopes
from sporax.common.tensor import Tensor, wrap
from sporax.ir.layout import HasLayout
from sporax.ir.marks import Cuts, OperatorMark, Side
from sporax.lowering.marks import apply_mark, next_number
from sporax.ops._core.forms import ClassForm, FunctionalForm


class _Said(threading.local):
    """What the surroundings say of operators that say nothing themselves."""

    following: bool = False
    batch_parallel: bool = False
    strategy: tuple[Any, Any] | None = None


_said = _Said()


@contextmanager
def following() -> Iterator[None]:
    """Context in which operators without a strategy take their inputs as they come."""
    before, _said.following = _said.following, True
    try:
        yield
    finally:
        _said.following = before


@contextmanager
def kept_batch_parallel() -> Iterator[None]:
    """Context in which operators without a strategy are batch-parallel, also where a search decides (`set_data_parallel`)."""
    before, _said.batch_parallel = _said.batch_parallel, True
    try:
        yield
    finally:
        _said.batch_parallel = before


@contextmanager
def next_operator(in_strategy: Any, out_strategy: Any) -> Iterator[None]:
    """Context in which the first operator that runs has this strategy."""
    before, _said.strategy = _said.strategy, (in_strategy, out_strategy)
    try:
        yield
    finally:
        _said.strategy = before


def between_marks(
    operator: FunctionalForm,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    constants: tuple[Any, ...] = (),
    primitive: ClassForm | None = None,
) -> Any:
    """Run `operator` between marks that say what it is and what the user said of it.

    Args:
        operator: what runs.
        args, kwargs, constants: as `Operator.run` takes them.
        primitive: its class form, which carries a strategy.

    An operator made of others leaves the marks to these; the first of them has the strategy.
    """
    if operator.composed:
        return _run_composed(operator, args, kwargs, constants, primitive)
    kwargs = {name: kwargs[name] for name in sorted(kwargs, key=operator.place_of)}
    leaves, tree = jax.tree.flatten((args, list(kwargs.values())), is_leaf=_is_tensor)
    tensors = [position for position, leaf in enumerate(leaves) if _is_tensor(leaf)]
    said = {name: _comparable(value) for name, value in primitive.attrs.items()} if primitive is not None else {}
    if _said.following:
        said["follow"] = True
    if _said.batch_parallel:
        said["strategy_gen_mode"] = "data_parallel"
    if _said.strategy is not None:
        (said["in_strategy"], said["out_strategy"]), _said.strategy = _said.strategy, None
    if not any(isinstance(leaves[position].array, jax.core.Tracer) for position in tensors):
        # MindSpore folds constants before it reads strategies, so that of an operator on constants alone has no effect.
        said = {name: value for name, value in said.items() if name not in ("in_strategy", "out_strategy")}
    strategy = cuts_of(said.get("in_strategy"))
    entrance = OperatorMark(
        operator.name,
        next_number(),
        Side.IN,
        None if strategy is None else _of_tensors(operator, strategy, args, kwargs),
        cuts_of(said.get("out_strategy")),
        _attributes({**_named(operator, args, kwargs), **(primitive._attributes if primitive else {}), **said}),
    )
    operands = [leaves[position].array for position in tensors]
    marked = apply_mark(operands, entrance)
    _integer_slopes.follow(operands, marked)
    for position, array in zip(tensors, marked, strict=True):
        leaves[position] = wrap(array)
    args, values = jax.tree.unflatten(tree, leaves)
    kwargs = dict(zip(kwargs, values, strict=True))
    result = operator.run_between_marks(args, kwargs, constants, said)
    outputs, structure = jax.tree.flatten(result, is_leaf=_is_tensor)
    results = [output.array for output in outputs]
    arrays = apply_mark(results, replace(entrance, side=Side.OUT))
    _integer_slopes.follow(results, arrays)
    return jax.tree.unflatten(structure, list(map(wrap, arrays)))


def cuts_of(strategy: Any) -> Cuts | None:
    """A strategy as a plan reads it: tuples of ints, or the values behind the user's Layouts."""
    if strategy is None:
        return None
    return tuple(entry.__layout__() if isinstance(entry, HasLayout) else entry for entry in strategy)


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Tensor)


def _run_composed(
    operator: FunctionalForm,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    constants: tuple[Any, ...],
    primitive: ClassForm | None,
) -> Any:
    strategy = primitive.attrs.get("in_strategy") if primitive is not None else None
    if primitive is None or strategy is None:
        return operator.run(args, kwargs, constants)
    with next_operator(strategy, primitive.attrs.get("out_strategy")):
        return operator.run(args, kwargs, constants)


def _of_tensors(operator: FunctionalForm, strategy: Cuts, args: Sequence[Any], kwargs: dict[str, Any]) -> Cuts:
    """The entries of the tensors; numbers among the inputs have empty ones. What does not fit is for the planner to refuse."""
    takes = [
        _is_tensor(leaf)
        for place, arg in (*enumerate(args), *kwargs.items())
        for leaf in jax.tree.leaves(arg, is_leaf=_is_tensor)
        if _is_tensor(leaf) or (place in operator.operands and isinstance(leaf, int | float))
    ]
    if len(takes) != len(strategy):
        return strategy
    return tuple(entry for entry, is_tensor in zip(strategy, takes, strict=True) if is_tensor)


def _named(operator: FunctionalForm, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, as far as they are given."""
    return {**dict(zip(operator.__signature__.parameters, args, strict=False)), **kwargs}


def _attributes(said: dict[str, Any]) -> tuple[tuple[str, Hashable], ...]:
    """Attributes and further marks, those that a plan can compare."""
    plain = {name: value for name, value in said.items() if isinstance(value, str | int | float | bool | tuple)}
    hashable = {name: value for name, value in plain.items() if not name.endswith("_strategy") and _hashable(value)}
    return tuple(sorted(hashable.items()))


def _comparable(value: Any) -> Any:
    """A mark of the user; a list as text, so that the plan can name it where a tuple is expected."""
    return str(value) if isinstance(value, list) else value


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return not (isinstance(value, tuple) and any(_is_tensor(item) for item in value))
