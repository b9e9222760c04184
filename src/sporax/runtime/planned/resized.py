"""A planned function of arguments of several shapes: a last, smaller batch gets a plan of its own.

Problem: a plan is of the shapes that it was made for. Method: where an argument has another shape, the function is planned again.
What has the shape that it had is sharded as it was, so that no state moves; what has not is brought where the new plan has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core.primitives import convert_element_type_p
from jax.sharding import NamedSharding

from sporax.base.errors import For, SporaxValueError
from sporax.ir.graph import Input, OperatorGraph, Role
from sporax.ir.operation import Shape

Plans = Callable[[tuple[Any, ...], Mapping[str, Any], Sequence[Shape]], tuple[Callable[..., Any], Sequence[Any]]]
"""From arguments, keywords and the shapes of all arrays to the function of a new plan and its shardings by position."""


def as_planned(leaves: Sequence[Any], inputs: Sequence[Input], graph: OperatorGraph) -> list[Any]:
    """The arguments in the dtypes of the plan, which numbers take as they take those of arrays in an operator.

    Args:
        inputs: what the plan calls them.

    Raises:
        SporaxValueError: one has another shape or dtype than the plan is for.
    """
    arrays = list(leaves)
    for number, (leaf, entry) in enumerate(zip(leaves, inputs, strict=False)):
        planned, kind = graph.tensors[entry.tensor], jax.typeof(leaf)
        taken = jax.dtypes.canonicalize_dtype(kind.dtype, allow_extended_dtype=True)
        is_number = kind.weak_type or not kind.shape
        if is_number and not planned.dtype.startswith("key"):
            taken = jnp.result_type(leaf, planned.dtype)
        for what, expected, got, remedy in (
            ("shape", planned.shape, kind.shape, "`planned.function(resize=True)` plans again for other shapes."),
            ("dtype", planned.dtype, str(taken), "Convert it, or plan with such an array."),
        ):
            if expected != got:
                raise SporaxValueError(
                    f"For 'plan', args{entry.name} must have the {what} that was planned, {expected}, but got {got}. {remedy}"
                )
        is_traced, dtype = isinstance(leaf, jax.core.Tracer), planned.dtype
        if is_number and (kind.dtype != taken or (kind.weak_type and is_traced)):
            arrays[number] = jnp.asarray(leaf, dtype) if is_traced else np.asarray(leaf, dtype)
    return arrays


def typed(arrays: Sequence[jax.Array], weak: Sequence[bool]) -> list[jax.Array]:
    """The arrays with weak types where `weak` says so, and with none elsewhere."""
    return [
        array
        if jax.typeof(array).weak_type == is_weak
        else convert_element_type_p.bind(array, new_dtype=array.dtype, weak_type=is_weak, sharding=None)
        for array, is_weak in zip(arrays, weak, strict=True)
    ]


def check_structure(planned: object, received: object) -> None:
    """Raise `SporaxTypeError` if arguments have another structure than they were planned with: that would be another plan."""
    if planned != received:
        raise For("plan").type_error(f"the arguments must have the structure {planned}", received)


# JAX finds functions again by weak references, and by their identity.
@dataclass(slots=True, weakref_slot=True, eq=False)
class OfOneShape:
    """A compiled function whose errors say first which argument is not as it was planned.

    Arrays of one device come where the plan has them first, with weak types where the plan has some: `jax.jit` would compile a
    step for the state as it was made, and again for the state that the first step returns.

    Attributes:
        jitted: the function, as `jax.jit` makes it; what this has (``lower``), it has.
        tree: structure of the arguments.
        inputs, graph: as in `as_planned`.
        weak: which arrays have weak types.
        shardings: of all arrays; none where they stay where they are.
    """

    jitted: Any
    tree: object
    inputs: Sequence[Input]
    graph: OperatorGraph
    weak: Sequence[bool]
    shardings: Sequence[NamedSharding] = ()
    _looked_at: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        # Of what is carried one array and the numbers are the key: later calls have what this one returns.
        carried = [place for place, entry in enumerate(self.inputs) if entry.role is not Role.DATA]
        keys = {*carried[:1], *(place for place in carried if not self.graph.tensors[self.inputs[place].tensor].shape)}
        self._looked_at = tuple(
            place for place, entry in enumerate(self.inputs) if entry.role is Role.DATA or place in keys
        )

    def __call__(self, *args: Any, **keywords: object) -> Any:
        """Call it."""
        For("plan").refuse_type(
            keywords, f"the function must be called by position, as it was planned, but got {list(keywords)} by keyword"
        )
        try:
            return self.jitted(*self._brought(args))
        except (TypeError, ValueError):
            self._check(args)
            if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
                raise
            # Only the outermost program has options.
            return jax.jit(self.jitted.__wrapped__)(*args)

    def _check(self, args: Sequence[object]) -> None:
        """Raise if arguments are not as they were planned."""
        leaves, tree = jax.tree.flatten(args)
        check_structure(self.tree, tree)
        as_planned(leaves, self.inputs, self.graph)
        for leaf, entry, sharding in zip(leaves, self.inputs, self.shardings, strict=False):
            if isinstance(leaf, jax.core.Tracer) or _is_on_no_mesh(leaf) or not getattr(leaf, "committed", False):
                continue
            if not leaf.sharding.is_equivalent_to(sharding, leaf.ndim):
                raise SporaxValueError(
                    f"For 'plan', args{entry.name} must be where the plan has it, {sharding}, but got {leaf.sharding}. "
                    "`jax.device_put(args, planned.in_shardings)` brings the arguments there."
                )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.jitted, name)

    def _brought(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        leaves, tree = jax.tree.flatten(args)
        if len(leaves) != len(self.shardings) or not jax.sharding.get_abstract_mesh().empty:
            return args
        if not any(self._is_otherwise(leaves[place], place) for place in self._looked_at):
            return args
        moved = [place for place, leaf in enumerate(leaves) if self._is_otherwise(leaf, place)]
        arrays = as_planned([leaves[place] for place in moved], [self.inputs[place] for place in moved], self.graph)
        there = jax.device_put(arrays, [self.shardings[place] for place in moved])
        for place, leaf in zip(moved, typed(there, [self.weak[place] for place in moved]), strict=True):
            leaves[place] = leaf
        return tuple(jax.tree.unflatten(tree, leaves))

    def _is_otherwise(self, leaf: object, place: int) -> bool:
        is_traced, is_weak = isinstance(leaf, jax.core.Tracer), self.weak[place]
        return not is_traced and (_is_on_no_mesh(leaf) or jax.typeof(leaf).weak_type != is_weak)


def _is_on_no_mesh(leaf: object) -> bool:
    return not isinstance(getattr(leaf, "sharding", None), NamedSharding)


def of_any_shape(
    function: Callable[..., Any],
    shapes: Sequence[Shape],
    states: Callable[[Sequence[Any]], Sequence[Any]],
    names: Sequence[str],
    plans: Plans,
) -> Callable[..., Any]:
    """A planned function that plans again for arguments of other shapes.

    Args:
        shapes: of the arrays that it is for, those of arguments by keyword last.
        states: the arguments, with arrays in place of objects.
        names: keywords of the last arguments.
    """
    own = tuple(shapes)
    functions: dict[tuple[Shape, ...], tuple[Callable[..., Any], Sequence[Any]]] = {own: (function, ())}

    def call(*args: Any, **received: Any) -> Any:
        # The plan has them in its own order, whatever that of a call is.
        keywords = {name: received[name] for name in (*names, *received) if name in received}
        each = [[jnp.shape(leaf) for leaf in jax.tree.leaves(arg)] for arg in states((*args, *keywords.values()))]
        now = tuple(shape for one in each for shape in one)
        if len(now) == len(own) and now not in functions:
            functions[now] = plans(args, keywords, now)
        chosen, shardings = functions.get(now, functions[own])
        if not shardings:
            return chosen(*args, **keywords)
        before = iter(own)
        is_as_before = [one == [next(before) for _ in one] for one in each]
        placed = [
            arg if as_before else jax.device_put(arg, sharding)
            for arg, as_before, sharding in zip((*args, *keywords.values()), is_as_before, shardings, strict=True)
        ]
        return chosen(*placed[: len(args)], **dict(zip(keywords, placed[len(args) :], strict=True)))

    return call
