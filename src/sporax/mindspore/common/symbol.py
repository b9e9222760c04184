"""`Symbol`: what is known of a dimension whose size differs from call to call."""

from __future__ import annotations

import math
from typing import Any

from sporax.base.errors import SporaxValueError, check_type
from sporax.runtime.session import SESSION

_MOST_ELEMENTS = 1 << 24  # of a Tensor that stands for its shape alone; larger ones have 1 where sizes are open


class Symbol:
    """A dynamic dimension of a Tensor that describes an input (`Cell.set_inputs`). Same as MindSpore.

    Programs are compiled for each shape they meet, so a Symbol restricts nothing at run time; it is checked when it is made.

    Args:
        max, min: largest (0: none) and smallest size.
        divisor, remainder: sizes are ``divisor * n + remainder``.
        unique: two dimensions with one Symbol have one size.

    Raises:
        SporaxTypeError: a number that is not an int, or `unique` not a bool.
        SporaxValueError: a number out of range, or no size fits.

    Example:
        >>> Tensor(shape=[Symbol(divisor=8), 1, 28, 28], dtype=ms.float32).shape
        (8, 1, 28, 28)
    """

    def __init__(self, max: int = 0, min: int = 1, divisor: int = 1, remainder: int = 0, unique: bool = False) -> None:
        for name, value, least in (
            ("max", max, 0),
            ("min", min, 1),
            ("divisor", divisor, 1),
            ("remainder", remainder, 0),
        ):
            check_type("Symbol", name, value, "an int", int, takes_bool=False)
            SporaxValueError.raise_if(value < least, "Symbol", name, f"be >= {least}", value)
        check_type("Symbol", "unique", unique, "a bool", bool)
        if remainder >= divisor:
            raise SporaxValueError.must("Symbol", "remainder", "be less than 'divisor'", f"{remainder} and {divisor}")
        self.max, self.min, self.divisor, self.remainder, self.unique = max, min, divisor, remainder, unique
        # A rule that nothing fits is a mistake.
        if max and self.smallest > max:
            raise SporaxValueError(
                f"For 'Symbol', some size must fit, but the smallest is {self.smallest} and 'max' {max}."
            )

    @property
    def smallest(self) -> int:
        """The smallest size that fits, from `divisor` on if `max` allows: ``x[:, :-1]`` has elements."""
        # The first numbers from `min` and from the divisor on that leave the remainder.
        sizes = [least + (self.remainder - least) % self.divisor for least in (self.min, max(self.min, self.divisor))]
        return sizes[0] if 0 < self.max < sizes[1] else sizes[1]

    def __repr__(self) -> str:
        return f"Symbol(max={self.max}, min={self.min}, divisor={self.divisor}, remainder={self.remainder})"


def smallest_shape(shape: Any) -> Any:
    """`shape` with the smallest sizes in place of Symbols and of None (any size).

    In the global view a None stands for as many as there are devices, which every strategy divides.
    """
    if not isinstance(shape, tuple | list):
        return shape
    sizes = [dim.smallest if isinstance(dim, Symbol) else dim for dim in shape]
    # None is MindSpore's way to leave a size open.
    open_size = SESSION.sharded_over() if None in sizes else 1
    found = tuple(open_size if size is None else size for size in sizes)
    if open_size > 1 and math.prod(size for size in found if isinstance(size, int)) > _MOST_ELEMENTS:
        return tuple(1 if size is None else size for size in sizes)
    return found
