"""An operator inside a planned step: its tensors pass a mark at the entrance and one at the exit.

A plan works on JAX's trace, which consists of JAX's own primitives. The marks say which of them are one operator of
MindSpore's, and carry what the user said of it: strategy, layout, attributes.

Attributes, `add_prim_attr(name, value)`: any name may have any value, so a mistyped name, or a value that no code expects,
would do nothing. A table has those that something reads, each with its check; others are kept, since programs keep notes
there, with a warning.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError
from sporax.ir import FIXED, HasLayout, OperatorMark, Shardings, Side, next_number
from sporax.lowering import marks as trace_marks
from sporax.mindspore.common import _integer_gradients
from sporax.mindspore.common.tensor import Tensor, is_tensor, wrap
from sporax.runtime.state import ordered_trees

if TYPE_CHECKING:  # they call marks
    from sporax.mindspore.ops._core.operator import Operator
    from sporax.mindspore.ops._core.primitive import Primitive

Check = Callable[[str, str, Any], None]
"""``check(operator, mark, value)`` raises where the value is none."""


def _flag(operator: str, mark: str, value: Any) -> None:
    For(operator).typed(mark, value, "a bool", bool)


def _natural(operator: str, mark: str, value: Any) -> None:
    For(operator).typed(mark, value, "an int", int, takes_bool=False)
    For(operator).refuse(value < 0, f"'{mark}' must be >= 0", value)


def _target(operator: str, mark: str, value: Any) -> None:
    if value not in ("", "CPU", "GPU", "Ascend", "Device", "DEVICE"):  # "": none is requested
        raise SporaxRuntimeError(
            f"For '{operator}', '{mark}' ('device_target' of set_device) must be 'CPU', 'GPU' or 'Ascend', but got {value!r}."
        )


def _strategy(operator: str, mark: str, value: Any) -> None:
    if value is not None:
        strategy_form(operator, mark, value)


def _generation(operator: str, mark: str, value: Any) -> None:
    For(operator).refuse(value != "data_parallel", f"'{mark}' must be 'data_parallel'", value, show=repr)


def _of_lookup(operator: str, mark: str, value: Any) -> None:
    # The rows themselves are checked with the table, when the step is planned.
    if operator not in LOOKUPS:
        warn_unread(operator, mark, f"only lookups ({', '.join(sorted(LOOKUPS))}) have rows that can be split by hand")


def _anything(operator: str, mark: str, value: Any) -> None:
    """Checked by who sets it, or a note."""


LOOKUPS = frozenset({"Gather", "GatherV2", "SparseGatherV2", "EmbeddingLookup"})
"""Operators that read `manual_split`."""

MARKS: dict[str, Check] = {
    "recompute": _flag,
    "offload": _natural,
    "primitive_target": _target,
    "stage": _natural,
    "place": _natural,
    "in_strategy": _strategy,
    "out_strategy": _strategy,
    "strategy_gen_mode": _generation,
    "manual_split": _of_lookup,
    "manual_split_with_offset": _of_lookup,
    "self_define_shard": _flag,
    "enable_nd_tp": _flag,
    "forward_reduce_scatter": _flag,
    "input_names": _anything,
    "output_names": _anything,
}
"""Those that something reads."""


def check_mark(operator: str, mark: str, value: object) -> None:
    """Check a mark of an operator; one that nothing reads is reported.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxRuntimeError: a value that it must not have.
    """
    if mark in MARKS:
        MARKS[mark](operator, mark, value)
    else:
        warn_unread(operator, mark, "nothing reads a mark of this name")


def warn_unread(operator: str, mark: str, why: str) -> None:
    """Warn of a mark that nothing reads.

    Args:
        operator: its name.
        mark: its name.
        why: nothing reads it.
    """
    warnings.warn(f"For '{operator}', the mark '{mark}' has no effect: {why}.", stacklevel=5)


def strategy_form(name: str, what: str, strategy: Any) -> str:
    """``"tuple"`` or ``"layout"``: what a strategy is written in.

    Raises:
        SporaxTypeError: neither.
    """
    For(name).typed(what, strategy, "a tuple", tuple)
    form = "tuple"
    for entry in strategy:
        # A list of tensors may have one entry, a tuple of those of its tensors.
        if all(map(_is_layout, entry if isinstance(entry, tuple) and entry else (entry,))):
            form = "layout"
        elif not isinstance(entry, tuple):
            raise For(name).type_error(f"the entries of '{what}' must be tuples or Layouts", repr(entry))
        # A tuple among the numbers is an axis that several device axes shard.
        elif any(not isinstance(slices, int | tuple) or isinstance(slices, bool) for slices in entry):
            raise SporaxTypeError(f"For '{name}', the numbers of slices in '{what}' must be ints, but got {entry!r}.")
    return form


def _is_layout(entry: object) -> bool:
    # By attributes and not by type: Layouts are of a layer above.
    return hasattr(entry, "tensor_map") or hasattr(entry, "to_dict")


class _Surroundings(threading.local):
    """Marks of the surrounding code, for operators without marks of their own."""

    following: bool = False
    batch_parallel: bool = False
    fixed: bool = False
    strategy: tuple[Any, Any] | None = None


_surroundings = _Surroundings()


@contextmanager
def _surrounded(name: str, value: object) -> Iterator[None]:
    before = getattr(_surroundings, name)
    setattr(_surroundings, name, value)
    try:
        yield
    finally:
        setattr(_surroundings, name, before)


def following() -> AbstractContextManager[None]:
    """Context in which operators without a strategy take their inputs as they come."""
    return _surrounded("following", True)


def staying_batch_parallel() -> AbstractContextManager[None]:
    """Context in which operators without a strategy are batch-parallel, also where a search decides (`set_data_parallel`)."""
    return _surrounded("batch_parallel", True)


@contextmanager
def fixed_strategies() -> Iterator[None]:
    """Context whose strategies all searches keep, since the user's gradients count on them."""
    with _surrounded("fixed", True):
        yield


def next_operator(in_strategy: Any, out_strategy: Any) -> AbstractContextManager[None]:
    """Context in which the first operator that runs has this strategy."""
    return _surrounded("strategy", (in_strategy, out_strategy))


def between_marks(
    operator: Operator[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    constants: tuple[Any, ...] = (),
    primitive: Primitive | None = None,
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
    # In the order of parameters, since marks say their tensors by position.
    kwargs = {name: kwargs[name] for name in sorted(kwargs, key=operator.place_of)}
    leaves, tree = jax.tree.flatten((args, list(kwargs.values())), is_leaf=is_tensor)
    tensors = [position for position, leaf in enumerate(leaves) if is_tensor(leaf)]
    marks = _marks_on(primitive)
    if not any(isinstance(leaves[position].array, jax.core.Tracer) for position in tensors):
        # MindSpore folds constants before it reads strategies, so that of an operator on constants alone has no effect.
        marks = {name: value for name, value in marks.items() if name not in ("in_strategy", "out_strategy")}
    strategy = readable_strategy(marks.get("in_strategy"))
    entrance = OperatorMark(
        operator.name,
        next_number(),
        Side.IN,
        # Numbers among the operands are constants in the plan, so their entries are dropped.
        None if strategy is None else _of_tensors(operator, strategy, args, kwargs),
        readable_strategy(marks.get("out_strategy")),
        _attributes({**_named(operator, args, kwargs), **(primitive._attributes if primitive else {}), **marks}),
        dims=operator.dims,
    )
    operands = [leaves[position].array for position in tensors]
    marked = trace_marks.apply_mark(operands, entrance)
    # Integer tensors with slopes of their own are followed through the mark.
    _integer_gradients.follow(operands, marked)
    for position, array in zip(tensors, marked, strict=True):
        leaves[position] = wrap(array)
    args, values = jax.tree.unflatten(tree, leaves)
    kwargs = dict(zip(kwargs, values, strict=True))
    # Run between both marks: operators that compute something else under a mark look at it here.
    result = operator.run_between_marks(args, kwargs, constants, marks)
    outputs, structure = ordered_trees.flatten(result, is_leaf=is_tensor)
    results = [output.array for output in outputs]
    # The same mark with another side, so that a plan finds the pair by its number.
    arrays = trace_marks.apply_mark(results, replace(entrance, side=Side.OUT))
    _integer_gradients.follow(results, arrays)
    return jax.tree.unflatten(structure, list(map(wrap, arrays)))


def _marks_on(primitive: Primitive | None) -> dict[str, Any]:
    """The user's marks on the operator itself, completed by those of the surrounding code."""
    attributes = {} if primitive is None else primitive.attrs
    # A list as text, so that the plan can name it where a tuple is expected.
    marks = {name: str(value) if isinstance(value, list) else value for name, value in attributes.items()}
    if _surroundings.following:
        marks["follow"] = True
    if _surroundings.fixed:
        marks[FIXED] = True
    if _surroundings.batch_parallel:
        marks["strategy_gen_mode"] = "data_parallel"
    if _surroundings.strategy is not None:
        # Taken: only the first operator of the context has it.
        (marks["in_strategy"], marks["out_strategy"]), _surroundings.strategy = _surroundings.strategy, None
    return marks


def readable_strategy(strategy: Any) -> Shardings | None:
    """A strategy as a plan reads it: tuples of ints, or the values behind the user's Layouts."""
    if strategy is None:
        return None
    return tuple(map(_readable, strategy))


def _readable(entry: Any) -> Any:
    if isinstance(entry, tuple):
        return tuple(map(_readable, entry))
    return entry.__layout__() if isinstance(entry, HasLayout) else entry


def _run_composed(
    operator: Operator[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    constants: tuple[Any, ...],
    primitive: Primitive | None,
) -> Any:
    # The strategy goes to the first operator inside; those after it follow its placement.
    strategy = primitive.attrs.get("in_strategy") if primitive is not None else None
    if primitive is None or strategy is None:
        return operator.run(args, kwargs, constants)
    with next_operator(strategy, primitive.attrs.get("out_strategy")):
        return operator.run(args, kwargs, constants)


def _of_tensors(operator: Operator[Any], strategy: Shardings, args: Sequence[Any], kwargs: dict[str, Any]) -> Shardings:
    """The entries of the tensors; numbers among the inputs have empty ones. What does not fit is for the planner to refuse."""
    strategy = tuple(itertools.chain.from_iterable(map(_entries, strategy, (*args, *strategy))))
    leaves = [
        (place, leaf)
        for place, arg in (*enumerate(args), *kwargs.items())
        for leaf in jax.tree.leaves(arg, is_leaf=is_tensor)
        if isinstance(leaf, Tensor | int | float)
    ]
    # Numbers that are constants of the program may have empty entries as well.
    operands = [is_tensor(leaf) for place, leaf in leaves if is_tensor(leaf) or place in operator.operands]
    for takes in (operands, [is_tensor(leaf) for _, leaf in leaves]):
        if len(takes) == len(strategy):
            return tuple(entry for entry, has_entry in zip(strategy, takes, strict=True) if has_entry or entry)
    # A strategy of another length may speak of tensors only; the planner's message is the better one.
    return strategy


def _entries(entry: Any, arg: Any) -> tuple[Any, ...]:
    """The entry of an argument; those of its tensors where it is a list that has one for each."""
    if not isinstance(entry, tuple) or not isinstance(arg, tuple | list) or len(entry) != len(arg):
        return (entry,)
    listed = bool(arg) and all(map(is_tensor, arg)) and not any(isinstance(number, int) for number in entry)
    return entry if listed else (entry,)


def _named(operator: Operator[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, as far as they are given."""
    return {**dict(zip(operator.__signature__.parameters, args, strict=False)), **kwargs}


def _attributes(marks: dict[str, Any]) -> tuple[tuple[str, Hashable], ...]:
    """Attributes and further marks, those that a plan can compare."""
    # Strategies are part of the mark already; unhashable values cannot be compared.
    frozen = {name: tuple(value) if isinstance(value, list) else value for name, value in marks.items()}
    plain = {name: value for name, value in frozen.items() if isinstance(value, str | int | float | bool | tuple)}
    hashable = {name: value for name, value in plain.items() if not name.endswith("_strategy") and _hashable(value)}
    return tuple(sorted(hashable.items()))


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    # A tuple of Tensors may be hashable, but its values are not known to a plan.
    return not (isinstance(value, tuple) and any(is_tensor(item) for item in value))
