"""`Symbol`: what is known of a dimension whose size differs from call to call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, TypeAlias

from sporax.base.errors import For, SporaxValueError
from sporax.runtime.session import SESSION

Shapes: TypeAlias = Mapping[int, Sequence[int]]
_MOST_ELEMENTS = 1 << 24  # of a Tensor that stands for its shape alone; larger ones have 1 where sizes are open


class Symbol:
    """A dynamic dimension of a Tensor that describes an input (`Cell.set_inputs`). Same as MindSpore.

    Programs are compiled for each shape they meet; a call whose sizes do not fit is refused (`check_described`).

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
            For("Symbol").typed(name, value, "an int", int, takes_bool=False)
            For("Symbol").refuse(value < least, f"'{name}' must be >= {least}", value)
        For("Symbol").typed("unique", unique, "a bool", bool)
        if remainder >= divisor:
            raise For("Symbol").error("'remainder' must be less than 'divisor'", f"{remainder} and {divisor}")
        self.max, self.min, self.divisor, self.remainder, self.unique = max, min, divisor, remainder, unique
        # A rule that nothing fits is a mistake.
        if max and self.smallest > max:
            raise For("Symbol").error(f"some size must fit, but the smallest is {self.smallest} and 'max' {max}")

    def fits(self, size: int) -> bool:
        """Whether a dimension may have this size."""
        return self.min <= size <= (self.max or size) and size % self.divisor == self.remainder

    @property
    def smallest(self) -> int:
        """The smallest size that fits, from `divisor` on if `max` allows: ``x[:, :-1]`` has elements."""
        # The first numbers from `min` and from the divisor on that leave the remainder.
        sizes = [least + (self.remainder - least) % self.divisor for least in (self.min, max(self.min, self.divisor))]
        return sizes[0] if 0 < self.max < sizes[1] else sizes[1]

    def __repr__(self) -> str:
        limits = f"max={self.max}, min={self.min}, divisor={self.divisor}, remainder={self.remainder}"
        return f"Symbol({limits}{', unique=True' if self.unique else ''})"


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


def has_open_sizes(shape: object) -> bool:
    """Whether `shape` has a Symbol or None."""
    return isinstance(shape, tuple | list) and any(size is None or isinstance(size, Symbol) for size in shape)


def check_described(
    where: str,
    setting: str,
    described: Sequence[Any],
    inputs: Sequence[Any],
    of_dtype: type[Exception] = SporaxValueError,
) -> None:
    """Refuse inputs that differ from the Tensors that describe them.

    Args:
        where, setting: what has which setting, for messages.
        described: Tensors; other entries describe nothing.
        inputs: of a call.
        of_dtype: what is raised for another dtype.

    Raises:
        SporaxValueError: another number of inputs, or shape.
    """
    if len(inputs) != len(described):
        raise For(where).error(f"'{setting}' names {len(described)} tensors, but the call has {len(inputs)}")
    sizes: dict[Symbol, int] = {}  # of unique ones
    for index, (declared, actual) in enumerate(zip(described, inputs, strict=True)):
        if not hasattr(declared, "shape") or not hasattr(actual, "shape"):
            continue
        shape = getattr(declared, "open_shape", declared.shape)
        fits = shape is None or (len(shape) == actual.ndim and all(map(_fits, shape, actual.shape, repeat(sizes))))
        if not fits or actual.dtype != declared.dtype:
            wanted = " of any shape" if shape is None else list(shape)
            raise (of_dtype if fits else SporaxValueError)(
                f"For '{where}', input {index} must be {declared.dtype}{wanted} by '{setting}', but got "
                f"{actual.dtype}{list(actual.shape)}."
            )


def _fits(entry: object, size: int, sizes: dict[Symbol, int]) -> bool:
    if isinstance(entry, Symbol):
        return entry.fits(size) and (not entry.unique or sizes.setdefault(entry, size) == size)
    return entry in (None, -1, size)


def with_sizes_that_fit(compile_for: Callable[[Shapes], None], arguments: Sequence[Any]) -> None:
    """Compile for Tensors that describe inputs of open sizes.

    They stand for their smallest sizes, which may not fit those of other inputs, as in a sum of both. A size is then tried that
    another input has, the largest first: compiling shows that there is a size for which the network can be compiled.

    Args:
        compile_for: compiles for the arguments, of which some by number have these shapes.
        arguments: Tensors, and what else a network takes.

    Raises:
        SporaxValueError: no size fits; the error is that of the smallest.
    """
    try:
        return compile_for({})
    except SporaxValueError as error:
        first = error
    for shapes in _other_shapes(arguments):
        with suppress(SporaxValueError):
            return compile_for(shapes)
    raise first


def _other_shapes(arguments: Sequence[Any]) -> Iterator[Shapes]:
    """Shapes of the arguments of open sizes, by number: with each size that is known, the largest first."""
    shapes = {at: argument.shape for at, argument in enumerate(arguments) if hasattr(argument, "shape")}
    opened = {at: shape for at in shapes if (shape := getattr(arguments[at], "open_shape", None))}
    known = {size for shape in {**shapes, **opened}.values() for size in shape if isinstance(size, int)}
    for size in sorted(known, reverse=True) if opened else ():
        yield {
            at: [_sized(entry, size, least) for entry, least in zip(shape, shapes[at], strict=True)]
            for at, shape in opened.items()
        }


def _sized(entry: object, size: int, least: int) -> int:
    return size if not isinstance(entry, int) and _fits(entry, size, {}) else least
