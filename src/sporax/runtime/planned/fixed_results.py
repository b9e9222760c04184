"""Results of a function whose shardings the user has fixed: `out_shardings` of `sporax.plan`.

Problem: a plan decides where results are; users of JAX say it, as `jax.jit` takes it. Method: the traced function marks the
results, and the planner keeps what marks say. A result that takes an argument's place fixes this argument, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.marks import LayoutMark
from sporax.ir.placement import Placement
from sporax.lowering.marks.mark_primitive import apply_mark
from sporax.lowering.marks.numbers import next_number
from sporax.runtime.planned.fixed_arguments import by_leaf, placement_of
from sporax.runtime.planned.named_mesh import NamedAxes


@dataclass(slots=True)
class FixedResults:
    """The shardings that the user wants for results.

    Attributes:
        shardings: one for all results, or a structure of them; None leaves results to the planner.
        mesh: the devices, with axes of prime sizes.
        axes: the user's axes, if they have names.
        placements: of each result's arrays, once the function is traced; None where nothing is said.
    """

    shardings: Any
    mesh: DeviceMatrix
    axes: NamedAxes | None
    placements: list[Placement | None] = field(default_factory=list)

    def marked(self, results: Any) -> Any:
        """The results of the traced function with marks."""
        if self.shardings is None:
            return results
        paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(results)[0]]
        leaves, tree = jax.tree.flatten(results)
        self.placements = [
            None if one is None else self._placement(one, leaf, f"result{jax.tree_util.keystr(path)}")
            for one, leaf, path in zip(
                by_leaf(self.shardings, results, "out_shardings", "the results"), leaves, paths, strict=True
            )
        ]
        return jax.tree.unflatten(tree, map(self._mark, leaves, self.placements))

    def fix_arguments(self, graph: OperatorGraph, placements: Mapping[int, Placement]) -> dict[int, Placement]:
        """The placements of inputs, with those of arguments whose place a result takes.

        Args:
            graph: the step.
            placements: of inputs that are fixed, by number of the tensor.

        Raises:
            SporaxValueError: argument and result are to have different shardings.
        """
        fixed = {**placements}
        for place, number in graph.aliases if self.placements else ():
            wanted, argument = self.placements[place], graph.inputs[number]
            if wanted is not None and fixed.setdefault(argument.tensor, wanted) != wanted:
                raise SporaxValueError(
                    f"For 'plan', 'out_shardings' must be those of the arguments that results take the place of, but "
                    f"args{argument.name} is {fixed[argument.tensor]}, and its result {wanted}."
                )
        return fixed

    def _placement(self, one: Any, leaf: Any, name: str) -> Placement:
        return placement_of(one, tuple(jax.typeof(leaf).shape), name, self.mesh, self.axes, "out_shardings")

    def _mark(self, leaf: Any, placement: Placement | None) -> Any:
        if placement is None:
            return leaf
        return apply_mark(
            [jnp.asarray(leaf)], LayoutMark("out_shardings", next_number(), (placement.to_layout(self.mesh),))
        )[0]
