"""Tables whose row for padding is zero, made in slices like others."""

from __future__ import annotations

from typing import Any

from sporax.mindspore.common._draws import Draw
from sporax.mindspore.common.initializer import Initializer, Shape
from sporax.mindspore.common.tensor import Tensor


def without_row(table: Tensor, row: int) -> Tensor:
    """`table`, new from `initializer`, with zeros in one row; a lazy one stays lazy."""
    bound = table._initializer
    if bound is not None and bound.may_wait:
        # With the same place in the random stream.
        bound.recipe = _WithoutRow(bound.recipe, row)
        return table
    # The row can be set only when the values are there.
    values = Tensor(table.init_data() if table.has_init else table)
    values[row] = 0
    return values


class _WithoutRow(Initializer):
    """What another recipe gives, with zeros in one row."""

    def __init__(self, recipe: Initializer, row: int) -> None:
        self.recipe = recipe
        self.row = row
        self.random = recipe.random

    @property
    def may_be_sharded(self) -> bool:
        """As the other recipe."""
        return self.recipe.may_be_sharded

    def settings(self) -> tuple[Any, ...]:
        """Those of the other recipe as well."""
        return type(self.recipe), self.recipe.settings(), self.row

    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """The other recipe's but for the row."""
        return draw.without_row(self.recipe.values(draw, shape, dtype), self.row)
