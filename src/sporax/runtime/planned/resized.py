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
from jax.sharding import NamedSharding

from sporax.base.errors import SporaxValueError
from sporax.ir.graph import Input, OperatorGraph, Role
from sporax.ir.operation import Shape

Plans = Callable[[tuple[Any, ...], Mapping[str, Any], Sequence[Shape]], tuple[Callable[..., Any], Sequence[Any]]]
"""From arguments, keywords and the shapes of all arrays to the function of a new plan and its shardings by position."""


def check_shapes(leaves: Sequence[Any], inputs: Sequence[Input], graph: OperatorGraph) -> None:
    """Raise if an argument has another shape than the plan is for.

    Args:
        leaves: the arrays.
        inputs: what the plan calls them.
        graph: the step.

    Raises:
        SporaxValueError: one has.
    """
    for leaf, entry in zip(leaves, inputs, strict=False):
        planned = graph.tensors[entry.tensor].shape
        if jnp.shape(leaf) != planned:
            raise SporaxValueError(
                f"For 'plan', args{entry.name} must have the shape that was planned, {planned}, but got {jnp.shape(leaf)}. "
                "`planned.function(resize=True)` plans again for other shapes."
            )


@dataclass(slots=True)
class OfOneShape:
    """A compiled function whose errors say first where an argument has another shape.

    Arrays of one device come where the plan has them first, without weak types: `jax.jit` would compile a step for the state as
    it was made, and again for the state that the first step returns.

    Attributes:
        jitted: the function, as `jax.jit` makes it; what this has (``lower``), it has.
        inputs, graph: as in `check_shapes`.
        shardings: of all arrays; none where they stay where they are.
    """

    jitted: Any
    inputs: Sequence[Input]
    graph: OperatorGraph
    shardings: Sequence[NamedSharding] = ()
    _looked_at: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        # Of what is carried one array and the numbers tell: later calls have what this one returns.
        carried = [place for place, entry in enumerate(self.inputs) if entry.role is not Role.DATA]
        tell = {*carried[:1], *(place for place in carried if not self.graph.tensors[self.inputs[place].tensor].shape)}
        self._looked_at = tuple(
            place for place, entry in enumerate(self.inputs) if entry.role is Role.DATA or place in tell
        )

    def __call__(self, *args: Any) -> Any:
        """Call it."""
        try:
            return self.jitted(*self._brought(args))
        except ValueError:
            leaves = jax.tree.leaves(args)
            check_shapes(leaves if len(leaves) == len(self.inputs) else (), self.inputs, self.graph)
            if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
                raise
            # Only the outermost program has options.
            return jax.jit(self.jitted.__wrapped__)(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.jitted, name)

    def _brought(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        leaves, tree = jax.tree.flatten(args)
        if len(leaves) != len(self.shardings) or not jax.sharding.get_abstract_mesh().empty:
            return args
        if not any(_is_elsewhere(leaves[place]) for place in self._looked_at):
            return args
        moved = [place for place, leaf in enumerate(leaves) if _is_elsewhere(leaf)]
        there = jax.device_put([_strong(leaves[place]) for place in moved], [self.shardings[place] for place in moved])
        for place, leaf in zip(moved, there, strict=True):
            leaves[place] = leaf
        return tuple(jax.tree.unflatten(tree, leaves))


def _is_elsewhere(leaf: Any) -> bool:
    """Whether an array is on no mesh, or has a weak type."""
    if isinstance(leaf, jax.core.Tracer):
        return False
    return not isinstance(getattr(leaf, "sharding", None), NamedSharding) or jax.typeof(leaf).weak_type


def _strong(leaf: Any) -> Any:
    """An array without a weak type."""
    kind = jax.typeof(leaf)
    return np.asarray(leaf, kind.dtype) if kind.weak_type else leaf


def of_any_shape(
    function: Callable[..., Any],
    shapes: Sequence[Shape],
    states: Callable[[Sequence[Any]], Sequence[Any]],
    plans: Plans,
) -> Callable[..., Any]:
    """A planned function that plans again for arguments of other shapes.

    Args:
        function: the planned function.
        shapes: of the arrays that it is for, those of arguments by keyword last.
        states: the arguments, with arrays in place of objects.
        plans: makes another plan.
    """
    own = tuple(shapes)
    functions: dict[tuple[Shape, ...], tuple[Callable[..., Any], Sequence[Any]]] = {own: (function, ())}

    def call(*args: Any, **keywords: Any) -> Any:
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
