"""Operators that look rows up in a table, which a plan may hold in uneven parts (`manual_split`).

Inside a planned step the marks of such an operator change what is computed: each field of the indices is looked up in its
own part of the table. Everywhere else these are ordinary operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sporax.lowering.execute.part_lookup import part_lookup
from sporax.mindspore.common.tensor import wrap
from sporax.mindspore.ops._core.operator import Operator
from sporax.planner.pins.manual_split import ATTRIBUTES, split_of


class TableLookup(Operator):
    """Functional form of `Gather`, `SparseGatherV2` and `EmbeddingLookup`."""

    def run_between_marks(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], constants: tuple[Any, ...], marks: Mapping[str, Any]
    ) -> Any:
        """Look up part by part where the marks name parts that fit; the plan refuses those that do not."""
        # No mark of uneven parts: the usual case, decided before anything is bound.
        if marks.keys().isdisjoint(ATTRIBUTES):
            return self.run_unmarked(args, kwargs, constants)
        split = split_of(marks)
        operands = self.__signature__.bind(*args, **kwargs).arguments
        table, indices = operands["input_params"], operands["input_indices"]
        # The plan refuses what does not fit, with a message about the user's marks.
        if split is None or not split.fits(table.shape, indices.shape, operands.get("axis", 0)):
            return self.run_unmarked(args, kwargs, constants)
        return wrap(part_lookup(table.array, indices.array, split.rows.rows, split.offsets))
