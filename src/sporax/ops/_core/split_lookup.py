"""A lookup inside a planned step whose table is cut into parts by hand (`manual_split`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sporax.common.tensor import Tensor, wrap
from sporax.lowering.part_lookup import part_lookup
from sporax.ops._core.forms import FunctionalForm
from sporax.planner.operators.manual_split import ATTRIBUTES, LOOKUPS, split_of


def looked_up_by_part(
    operator: FunctionalForm, said: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Tensor | None:
    """What a lookup finds when its fields and its table's parts go together.

    Args:
        operator: what runs.
        said: marks of the user.
        args, kwargs: its arguments.

    Returns:
        None for every other operator, and for parts that do not fit, which the plan refuses.
    """
    if operator.name not in LOOKUPS or said.keys().isdisjoint(ATTRIBUTES):
        return None
    split = split_of(said)
    given = operator.__signature__.bind(*args, **kwargs).arguments
    table, indices = given["input_params"], given["input_indices"]
    if split is None or not split.fits(table.shape, indices.shape, given.get("axis", 0)):
        return None
    return wrap(part_lookup(table.array, indices.array, split.rows.rows, split.offsets))
