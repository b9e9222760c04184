"""The body of an island (`jax.shard_map`) on one device of a plan: its collectives along the plan's axes.

Problem: a body names axes of its own mesh; around it is one `shard_map` over the plan's axes, which have prime sizes. Method:
each name stands for a run of the plan's axes, and collectives are called along these; all else runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive

from sporax.ir.placement import Axes
from sporax.lowering.execute.redistribute import permute
from sporax.lowering.ingest.islands import COLLECTIVES, named_axes

Array = jax.Array
"""A jax.Array or a tracer."""


@dataclass(frozen=True, slots=True)
class IslandAxes:
    """The axes of islands around an equation.

    Attributes:
        runs: the plan's axes by name, in the order of the island's mesh.
        names: of the plan's axes in the surrounding `shard_map`.
    """

    runs: Mapping[str, Axes]
    names: tuple[str, ...]

    def run(
        self, primitive: Primitive, params: Mapping[str, Any], operands: Sequence[Array], shapes: Any
    ) -> list[Array]:
        """An equation that names axes.

        Args:
            primitive: what is bound.
            params: its parameters.
            operands: what it reads.
            shapes: of its results.
        """
        name, axes = str(primitive.name), self._axes(params)
        along = tuple(self.names[axis] for axis in axes)
        dims = _dims(params)
        if name == "axis_index":
            return [jnp.asarray(jax.lax.axis_index(along) if along else 0, jnp.int32)]
        if name in _SENDS_NOTHING or not (along or dims):
            # Along axes of one device nothing is sent, either.
            return [jnp.reshape(x, shape) for x, shape in zip(operands, shapes, strict=True)]
        if name == "ppermute":
            return [permute(x, self._in_order(axes), self.names, params["perm"]) for x in operands]
        if name in _PLAIN:
            return [_PLAIN[name](x, along, params) for x in operands]
        named = {"axes": (*along, *dims)} if "axes" in params else {"axis_name": along}
        results = primitive.bind(*operands, **{**params, **named})
        return list(results) if primitive.multiple_results else [results]

    def _axes(self, params: Mapping[str, Any]) -> Axes:
        return tuple(axis for name in named_axes(params) for axis in self.runs.get(name, ()))

    def _in_order(self, axes: Axes) -> Axes:
        """The same axes in the order of the island's mesh, in which JAX counts places."""
        return tuple(axis for run in self.runs.values() for axis in run if axis in axes)


def _dims(params: Mapping[str, Any]) -> tuple[int, ...]:
    """Dimensions next to axes, which `jax.vmap` makes of names."""
    return tuple(entry for entry in params.get("axes", ()) if isinstance(entry, int))


def _sum(x: Array, along: tuple[str, ...], params: Mapping[str, Any]) -> Array:
    summed: Array = jax.lax.psum(x, along)
    return summed


def _gather(x: Array, along: tuple[str, ...], params: Mapping[str, Any]) -> Array:
    gathered: Array = jax.lax.all_gather(x, along, axis=params["all_gather_dimension"], tiled=params["tiled"])
    return gathered


_SENDS_NOTHING = frozenset(["pvary", "pbroadcast"])
_PLAIN: Mapping[str, Callable[[Array, tuple[str, ...], Mapping[str, Any]], Array]] = {
    "psum_invariant": _sum,
    "all_gather_invariant": _gather,
}
"""Collectives whose types JAX checks in islands alone, by what computes the same."""
NAMING = frozenset([*COLLECTIVES, *_SENDS_NOTHING, "axis_index"])
"""Primitives that name axes."""
