"""Local variables of a rewritten function: reading and setting them, and taking their values apart.

A value is *static* where it is the same whatever happens while the step runs (None, strings, Cells, equal numbers), and an
array elsewhere. Containers are taken apart, so a list of tensors is arrays with a structure.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxTypeError, named
from sporax.mindspore.autograph._rewriter import PREFIX
from sporax.mindspore.autograph._tensor_conditions import CommonPart, Pair, UnlikeError, common_part
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor, to_array, wrap
from sporax.runtime.state import frames, ordered_trees

Attributes = tuple[tuple[Callable[[], Any], str], ...]
Contents = list[tuple[Any, Any]]
"""Containers and Tensors, each with what is in it."""


class _Unbound:
    """Stands for the value of a name that has none."""

    def __repr__(self) -> str:
        return "nothing"


UNBOUND = _Unbound()
ARRAY = object()
"""Stands for an array among the leaves of a value."""


def cells_of(functions: Iterable[Any]) -> dict[str, CellType]:
    """The variables that functions made by the rewriter share, by name."""
    cells: dict[str, CellType] = {}
    pending, seen = list(functions), set()
    # New functions call one another, so their closures are followed.
    while pending:
        function = pending.pop()
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            # Variables of the user; those with our prefix hold functions of the rewriter.
            if not name.startswith(PREFIX):
                cells.setdefault(name, cell)
            # Functions of the user may change what they close over.
            pending.append(read(cell))
    return cells


def read(cell: CellType) -> Any:
    """What a variable holds."""
    try:
        return cell.cell_contents
    except ValueError:
        # An empty cell: the variable is not bound yet.
        return UNBOUND


class Scope:
    """The variables and attributes that a statement may change.

    Args:
        functions: the pieces that the statement was made into.
        names: variables it may bind or change.
        needed: those that are read later.
        attributes: attributes it may set: the owner as a function, and the attribute's name.
    """

    def __init__(
        self, functions: Iterable[Any], names: tuple[str, ...], needed: tuple[str, ...], attributes: Attributes
    ) -> None:
        cells = cells_of(functions)
        # What it, or a function that it calls, may change in place.
        self.found: set[object] = {
            name for name, cell in cells.items() if type(read(cell)) in _CHANGING and name not in names
        }
        self.cells = {name: cell for name, cell in cells.items() if name in names or name in self.found}
        found = {(f"{type(cell).__name__}.{name}", id(cell)): (cell, name) for cell, name in frames.containers()}
        self.owners: dict[Any, tuple[Any, str]] = {}
        for owner, attribute in attributes:
            try:
                holder = owner()
            except NameError:
                # The owner is not bound, so its attribute cannot be set either.
                continue
            # A Parameter is a variable of the program, which its frame follows.
            if not isinstance(holder, Tensor) and not isinstance(getattr(holder, attribute, None), Parameter):
                self.owners[f"{type(holder).__name__}.{attribute}", id(holder)] = (holder, attribute)
        self.found |= found.keys() - self.owners.keys()
        self.owners |= found
        self.needed = frozenset(needed)

    def values(self) -> dict[Any, Any]:
        """What variables and attributes hold now."""
        values: dict[Any, Any] = {name: read(cell) for name, cell in self.cells.items()}
        for key, (holder, attribute) in self.owners.items():
            values[key] = getattr(holder, attribute, UNBOUND)
        return values

    def put(self, values: Mapping[Any, Any]) -> None:
        """Give variables and attributes these values; the others of the scope none."""
        for name, cell in self.cells.items():
            value = values.get(name, UNBOUND)
            if value is not UNBOUND:
                cell.cell_contents = value
            elif read(cell) is not UNBOUND:
                # A cell that should be empty must not keep the value of the other way.
                del cell.cell_contents
        for key, (holder, attribute) in self.owners.items():
            value = values.get(key, UNBOUND)
            if value is not UNBOUND and getattr(holder, attribute, UNBOUND) is not value:
                if type(value) is CommonPart:
                    # A Cell would look into it; and it is no value of the attribute after the step.
                    frames.note_assignment(holder, attribute)
                    object.__setattr__(holder, attribute, value)
                else:
                    setattr(holder, attribute, value)

    def is_needed(self, key: Any) -> bool:
        """Whether somebody reads this variable or attribute later."""
        return key in self.owners or key in self.needed or key in self.found


_CHANGING = (list, tuple, dict, set, Tensor, CommonPart)


def contents(value: Any) -> Contents:
    """A container or Tensor and all in it, each with what is in it now."""
    if type(value) is Tensor:
        return [(value, value.array)]
    if type(value) is CommonPart:
        return contents(value.known)
    if type(value) not in (list, tuple, dict, set):
        return []
    inner = value.values() if type(value) is dict else value
    return [(value, type(value)(value)), *itertools.chain.from_iterable(map(contents, inner))]


def changed(before: Contents) -> Contents:
    """Those that have other contents than before."""
    return [(holder, held) for holder, held in before if not _holds(holder, held)]


def _holds(holder: Any, held: Any) -> bool:
    if type(holder) is Tensor:
        return holder.array is held
    if type(holder) is dict:
        return list(holder) == list(held) and all(map(operator.is_, holder.values(), held.values()))
    return len(holder) == len(held) and (type(holder) is set or all(map(operator.is_, holder, held)))


def restore(before: Mapping[Any, Contents]) -> None:
    """Give containers and Tensors back what was in them."""
    for holder, held in itertools.chain.from_iterable(map(changed, before.values())):
        _fill(holder, held)


def _fill(holder: Any, held: Any) -> None:
    if type(holder) is Tensor:
        holder._replace(held)
    elif type(holder) is list:
        # In place, so that other names see the change.
        holder[:] = held
    else:
        holder.clear()
        holder.update(held)


def take_over(target: Any, source: Any) -> Any:
    """`target` with the contents of `source`, if one can take over those of the other; else `source`."""
    if type(target) is not type(source) or type(target) not in (Tensor, list, dict, set):
        return source
    if target is not source:
        _fill(target, source.array if type(target) is Tensor else source)
    return target


@dataclass(frozen=True, slots=True)
class Value:
    """A value taken apart: its structure, and its leaves: `ARRAY` or something static."""

    tree: Any
    leaves: tuple[Any, ...]

    @property
    def size(self) -> int:
        """Number of arrays."""
        return sum(leaf is ARRAY for leaf in self.leaves)

    def spread(self, arrays: Sequence[Any]) -> list[tuple[Any, int | None, Any]]:
        """By leaf: the leaf, and the number of its array among `arrays` and the array, where it is one."""
        numbered = iter(enumerate(arrays))
        return [(leaf, *(next(numbered) if leaf is ARRAY else (None, None))) for leaf in self.leaves]

    def build(self, arrays: Iterable[Any]) -> Any:
        """The value with these arrays in it."""
        remaining = iter(arrays)
        leaves = [wrap(next(remaining)) if leaf is ARRAY else leaf for leaf in self.leaves]
        return jax.tree.unflatten(self.tree, leaves)


def take_apart(value: Any) -> tuple[Value, list[jax.Array]]:
    """A value's structure, and its arrays. A Parameter is its value; a numpy array stays one."""
    # None is a value here, not an empty tree.
    leaves, tree = ordered_trees.flatten(value, is_leaf=lambda leaf: leaf is None or isinstance(leaf, Tensor))
    described, arrays = [], []
    for leaf in leaves:
        # Exactly Tensor: a Parameter keeps its identity.
        if type(leaf) is Tensor:
            arrays.append(leaf.array)
            described.append(ARRAY)
        else:
            # A set is one leaf, whose contents may change.
            described.append(set(leaf) if type(leaf) is set else leaf)
    return Value(tree, tuple(described)), arrays


def same(first: Any, second: Any) -> bool:
    """Whether two static leaves are the same."""
    if first is second:
        return True
    # Only types whose equality means that they are the same.
    if type(first) is not type(second) or not isinstance(first, bool | int | float | str | tuple | set | np.generic):
        return False
    return bool(first == second)


def is_number(value: object) -> bool:
    """Whether a static leaf may become an array."""
    return isinstance(value, bool | int | float | Parameter | np.generic)


def as_array(value: Any, like: Any = None) -> jax.Array:
    """A number or Parameter as an array; of the dtype of `like`, if that is a number's array and can hold it."""
    array = to_array(value, None)
    if like is None or array.shape != like.shape or isinstance(value, Parameter | np.generic):
        return array
    # b: bool; i, u: integers; f, V: floats (V is bfloat16); c: complex.
    ranks = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}
    # A Python number gives way to a tensor that can hold it, as in MindSpore.
    fits = ranks.get(np.dtype(array.dtype).kind, 9) <= ranks.get(np.dtype(like.dtype).kind, -1)
    return array.astype(like.dtype) if fits else array


def describe(leaf: Any, array: Any) -> str:
    """A leaf, for messages."""
    return f"Tensor {array.dtype}{list(array.shape)}" if leaf is ARRAY else f"{type(leaf).__name__} {leaf!r}"


Merged = tuple[Value, list[tuple[Any, Any]]]


def common(what: str, where: str, one: Value, two: Value) -> tuple[Any, list[Pair]]:
    """The structure that two values have in common, and for each leaf of it its number in either.

    Raises:
        UnlikeError: they have none.
    """
    if one.tree == two.tree:
        return one.tree, [Pair(number, number) for number in range(len(one.leaves))]
    numbers = (jax.tree.unflatten(value.tree, range(len(value.leaves))) for value in (one, two))
    pairs, tree = ordered_trees.flatten(common_part(where, what, *numbers), is_leaf=lambda leaf: isinstance(leaf, Pair))
    return tree, pairs


def _common(what: str, where: str, first: tuple[Value, Sequence[Any]], second: tuple[Value, Sequence[Any]]) -> Any:
    """As `common`; of values that have none, what stands for them."""
    one, two = first[0], second[0]
    try:
        return common(what, where, one, two)
    except UnlikeError:
        forms = f"{_form(*first)} and {_form(*second)}"
        error = For(where).type_error(f"{named(what)} must have one structure whichever way is taken", forms)
        # A variable without arrays, such as the status of an optimizer, is refused where it is read, if it is at all.
        if one.size or two.size or not what.isidentifier():
            raise error from None
        return jax.tree.structure(CommonPart(tuple, [], str(error))), []


def merge(what: str, where: str, first: tuple[Value, Sequence[Any]], second: tuple[Value, Sequence[Any]]) -> Merged:
    """The one structure that two outcomes of a value have, and where its arrays come from in each.

    Args:
        what: name of the value, for messages.
        where: the statement, for messages.
        first, second: structure and arrays (or their shapes and dtypes).

    Returns:
        The common structure, and per array of it a pair: a position among the arrays, or a constant array.

    Raises:
        SporaxTypeError: the two cannot be joined.
    """
    (one, one_arrays), (two, two_arrays) = first, second
    tree, pairs = _common(what, where, first, second)
    leaves: list[Any] = []
    sources: list[tuple[Any, Any]] = []
    left, right = one.spread(one_arrays), two.spread(two_arrays)
    for number, other in pairs:
        (a, *here), (b, *there) = left[number], right[other]
        if a is not ARRAY and b is not ARRAY and same(a, b):
            leaves.append(a)
            continue
        # Two numbers become what Python's arithmetic makes of both.
        likes = [as_array(leaf) if is_number(leaf) else place[1] for leaf, place in ((b, there), (a, here))]
        joined = (_source(a, here, likes[0]), _source(b, there, likes[1]))
        kinds = [
            arrays[value] if isinstance(value, int) else value
            for value, arrays in zip(joined, (one_arrays, two_arrays), strict=True)
            if value is not None
        ]
        if len(kinds) < 2 or kinds[0].shape != kinds[1].shape or kinds[0].dtype != kinds[1].dtype:
            raise SporaxTypeError(
                f"For '{where}', '{what}' must have one type and shape whichever way is taken, but got "
                f"{describe(a, here[1])} and {describe(b, there[1])}."
            )
        leaves.append(ARRAY)
        sources.append(joined)
    return Value(tree, tuple(leaves)), sources


def _source(leaf: Any, own: Sequence[Any], other: Any) -> Any:
    """Where an array comes from: its position, or a constant; None where there can be none."""
    if leaf is ARRAY:
        return own[0]
    if not is_number(leaf):
        return None
    if isinstance(leaf, Parameter):
        return leaf.array
    # Now, as a constant: a tracer of the branch would not be valid outside.
    with jax.ensure_compile_time_eval():
        return np.asarray(as_array(leaf, other))


def _form(value: Value, arrays: Sequence[Any]) -> str:
    leaves = [describe(leaf, array) for leaf, _, array in value.spread(arrays)]
    return (
        str(leaves[0])
        if len(leaves) == 1 and value.tree.num_nodes == 1
        else str(jax.tree.unflatten(value.tree, leaves))
    )


def pick(sources: Sequence[tuple[Any, Any]], side: int, arrays: Sequence[Any]) -> list[Any]:
    """The arrays of a joined value, from those of one side."""
    picked = [source[side] for source in sources]
    return [arrays[index] if isinstance(index, int) else jnp.asarray(index) for index in picked]
