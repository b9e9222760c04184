"""Transforms for any data: `mindspore.dataset.transforms`."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._arguments import argument, of
from sporax.mindspore.dataset._checks import in_words, numpy_dtype, refuse, type_error
from sporax.mindspore.dataset._operations import (
    Elementwise,
    OneToOne,
    PythonFunction,
    Transform,
    Values,
    as_transform,
    handed_on,
    is_python,
    on_columns,
    on_values,
    pixels,
)
from sporax.mindspore.dataset._random import Draws, RowKey
from sporax.mindspore.dataset._rows import Array, Column, as_value, is_pillow
from sporax.mindspore.dataset._streams import Indices

# Lets `import mindspore.dataset.transforms.c_transforms` work, as for a package.
__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = """
    Compose Concatenate Duplicate Fill Mask OneHot PadEnd PyTensorOperation RandomApply RandomChoice RandomOrder
    Relational Slice TypeCast Unique
""".split()

answer_missing_names(__name__)


class PyTensorOperation:
    """Base of a program's own transforms in Python, which define `__call__` or `_execute_py`.

    Example:
        >>> class Invert(PyTensorOperation):
        ...     def _execute_py(self, image):
        ...         return 255 - image
    """

    def __init__(self) -> None:
        self.transforms: list[Any] = []
        self.output_type: Any = None

    def __call__(self, *inputs: Any) -> Any:
        """Apply to one row's values."""
        # MindSpore's two ways to write a transform: `__call__` replaces this method.
        return self._execute_py(*inputs)

    def _execute_py(self, *inputs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __call__ or _execute_py.")


class TypeCast(Elementwise):
    """Cast to a dtype; floats are truncated towards zero, integers wrap."""

    # A cast image has no Pillow mode in general.
    keeps_pillow = False

    data_type: Any = argument(numpy_dtype, "a `mindspore` dtype, a numpy dtype, or its name.")

    def _one(self, value: Array) -> Array:
        if value.dtype.kind in "USO":
            fault = f"TypeCast does not support cast from {'bytes' if value.dtype.kind == 'S' else 'string'} to {self.data_type}"
            raise self.fault(f"TypeCast: {fault}; use text.ToNumber.")
        if value.dtype.kind == "f" and self.data_type.kind == "u":
            # A negative float has no defined unsigned value in C; through int64 it wraps like an integer.
            return value.astype(np.int64).astype(self.data_type)
        return value.astype(self.data_type)


class OneHot(OneToOne):
    """Labels () or (n,) or (n, 1) to rows of zeros with a one: (n, num_classes), without dimensions of size 1.

    Raises:
        SporaxRuntimeError: (when applied) a label is not an int in [0, num_classes).
    """

    num_classes: int = argument(of(int), "number of classes.")
    smoothing_rate: float = argument(
        None, "share of the one that is spread over all classes; the result is then float64.", default=0.0
    )

    def _prepare(self) -> None:
        refuse(self.num_classes < 1, SporaxValueError, "OneHot", "Input must be greater than 0.", self.num_classes)
        check.number("OneHot", "smoothing_rate", self.smoothing_rate, 0.0, 1.0, types=(int, float))

    def _one(self, value: Array) -> Array:
        if value.dtype.kind not in "iu":
            raise self.fault(f"OneHot: Only support input of int type, but got: {value.dtype}.")
        if not value.size:
            raise self.fault(f"there must be a label, but got the shape {value.shape}.")
        if value.ndim > 1 and value.shape != (len(value), 1):
            raise self.fault(f"labels must have the shape (), (n,) or (n, 1), but got {value.shape}.")
        # (n, 1) becomes (n,), which compares against all classes at once.
        labels = value.reshape(value.shape[:1])
        if not (labels.min() >= 0 and labels.max() < self.num_classes):
            bad = labels.max() if labels.max() >= self.num_classes else labels.min()
            fault = f"index values should not bigger than num classes: {self.num_classes}, but got: {bad}"
            raise self.fault(f"OneHot: {fault}.")
        # `squeeze`, as in MindSpore: a single label gives (num_classes,).
        hot = (np.arange(self.num_classes) == labels[..., None]).squeeze()
        if not self.smoothing_rate:
            return hot.astype(value.dtype)
        # The spread goes to all classes, the right one included.
        spread = self.smoothing_rate / self.num_classes
        return np.where(hot, 1 - self.smoothing_rate + spread, spread)

    def _many(self, values: Array) -> Array | None:
        # With one class or one row `squeeze` would drop the dimension of rows.
        return self._one(values) if values.ndim == 1 and len(values) > 1 and self.num_classes > 1 else None


_VALUES = (str, float, bool, int, bytes)


class Fill(Elementwise):
    """Every element becomes `fill_value`, cast to the array's dtype."""

    fill_value: Any = argument(of(*_VALUES))

    def _one(self, value: Array) -> Array:
        text = value.dtype.kind in "US"
        # numpy would turn numbers into text.
        if text != isinstance(self.fill_value, (str, bytes)):
            raise self.fault(
                "fill_value and the input tensor must be of the same data type (strings or numbers), but got "
                f"{self.fill_value!r} and {value.dtype}."
            )
        # Strings find their own length; numbers are cast like MindSpore's.
        return np.full(value.shape, np.array(self.fill_value), None if text else value.dtype)


class Relational(enum.IntEnum):
    """How `Mask` compares."""

    EQ, NE, GT, GE, LT, LE = range(6)


_COMPARE = {
    Relational.EQ: np.equal,
    Relational.NE: np.not_equal,
    Relational.GT: np.greater,
    Relational.GE: np.greater_equal,
    Relational.LT: np.less,
    Relational.LE: np.less_equal,
}


def _mask_dtype(where: str, name: str, value: Any) -> np.dtype[Any] | None:
    return None if str(value).lower() == "string" else numpy_dtype(where, name, value)


class Mask(Elementwise):
    """Where elements compare true with a constant."""

    operator: Relational = argument(of(Relational), "a Relational.")
    constant: Any = argument(of(*_VALUES), "what elements are compared with.")
    dtype: Any = argument(_mask_dtype, "of the result; bool by default.", default=np.bool_)

    def _one(self, value: Array) -> Array:
        if (value.dtype.kind in "US") != isinstance(self.constant, (str, bytes)):
            raise self.fault(f"input datatype does not match the value datatype: {value.dtype} and {self.constant!r}.")
        if self.dtype is None:
            raise self.fault("Mask: Only supports bool or numeric datatype for generated mask type, but got:string")
        # A fraction is compared with whole numbers as one, as in MindSpore.
        as_integer = value.dtype.kind in "iub" and isinstance(self.constant, float)
        # numpy compares with promotion, so a large constant does not wrap.
        compared = _COMPARE[self.operator](value, int(self.constant) if as_integer else self.constant)
        return np.asarray(compared).astype(self.dtype)


class PadEnd(OneToOne):
    """Pad at the end, or truncate, to a shape."""

    pad_shape: Sequence[int | None] = argument(of(list), "the size of each dimension; None leaves it as it is.")
    pad_value: Any = argument(None, 'the value in the padding; 0 or "" by default.', default=None)

    def _prepare(self) -> None:
        for size in self.pad_shape:
            if size is not None and not isinstance(size, int):
                raise in_words(SporaxTypeError, "PadEnd", "a value in the list is not an integer.", self.pad_shape)
            if size is not None and size <= 0:
                raise in_words(SporaxValueError, "PadEnd", "Input pad_shape must be greater than 0.", self.pad_shape)
        if self.pad_value is not None:
            check.instance("PadEnd", "pad_value", self.pad_value, *_VALUES)

    def _one(self, value: Array) -> Array:
        # A scalar has no end, whatever the shape.
        if not value.ndim:
            return value
        if value.ndim != len(self.pad_shape):
            raise self.fault(
                f"PadEnd: invalid pad shape, as rank of input is: {value.ndim}, and rank of pad value: {len(self.pad_shape)}."
            )
        text = value.dtype.kind in "US"
        blank = ("" if text else 0) if self.pad_value is None else self.pad_value
        if text != isinstance(blank, (str, bytes)):
            raise self.fault(
                f"PadEnd: can not pad numeric and string tensors together, but got {blank!r} for {value.dtype}."
            )
        shape = [have if want is None else want for have, want in zip(value.shape, self.pad_shape, strict=True)]
        # Strings of the padding may be longer.
        longest = np.result_type(value, np.array(blank).astype(value.dtype.kind)) if text else value.dtype
        padded = np.full(shape, blank, longest)
        region = tuple(slice(min(have, want)) for have, want in zip(value.shape, shape, strict=True))
        padded[region] = value[region]
        return padded


class Slice(OneToOne):
    """Extract parts; every argument speaks for one dimension and none is dropped.

    Args:
        slices: int, list of int, slice, None or True (all) or … (all of the remaining dimensions).

    Raises:
        SporaxTypeError: another kind of value.
        SporaxRuntimeError: (when applied) an index is out of bounds, or a list is empty.
    """

    def __init__(self, *slices: Any) -> None:
        for item in slices:
            if not (item is None or item is Ellipsis or isinstance(item, (int, list, slice))):
                raise type_error("Slice", "slice", "int, list of int, slice, bool, None or Ellipsis", item)
            for i, number in enumerate(item if isinstance(item, list) else ()):
                check.instance("Slice", f"slice_option[{i}]", number, int)
        self.slices = slices

    def _one(self, value: Array) -> Array:
        picks = list(self.slices)
        if Ellipsis in picks:
            place = picks.index(Ellipsis)
            # As many dimensions as the other picks leave.
            picks[place : place + 1] = [None] * (value.ndim - len(picks) + 1)
        self.refuse(len(picks) > value.ndim, f"{len(picks)} slices are too many for the shape {value.shape}.")
        for dim, pick in enumerate(picks):
            self.refuse(pick is False or pick == [], "Both indices and slices can not be empty.")
            try:
                # One dimension at a time: numpy would combine several lists element by element.
                value = value if pick is None or pick is True else value[(slice(None),) * dim + (self._range(pick),)]
            except IndexError as error:
                bad = next(i for i in np.atleast_1d(pick) if not -value.shape[dim] <= i < value.shape[dim])
                raise self.fault(f"Index {bad} is out of bounds. Shape: {value.shape}.") from error
        return value

    @staticmethod
    def _range(pick: Any) -> Any:
        # A list keeps the dimension, an int would drop it.
        return [pick] if isinstance(pick, int) else pick


class Concatenate(Transform):
    """Columns one after the other, between constants, along the only dimension."""

    axis: int = argument(check.integer, "0 (or -1).", default=0)
    prepend: Any = argument(None, "array that comes first.", default=None)
    append: Any = argument(None, "array that comes last.", default=None)

    def _prepare(self) -> None:
        refuse(self.axis not in (0, -1), SporaxValueError, "Concatenate", "only 1D concatenation supported.", self.axis)
        self.prepend = None if self.prepend is None else as_value(self.prepend)
        self.append = None if self.append is None else as_value(self.append)
        for name, part in (("prepend", self.prepend), ("append", self.append)):
            if part is not None and part.ndim != 1:
                raise in_words(SporaxValueError, "Concatenate", f"can only {name} 1D arrays.", part.shape)

    def on_row(self, values: Values, rng: Draws) -> Values:
        """See Operation."""
        parts = [part for part in (self.prepend, *values, self.append) if part is not None]
        # Kinds and not dtypes: numbers of several widths are promoted, strings of several lengths too.
        mixed = any(part.dtype.kind != parts[0].dtype.kind for part in parts)
        if mixed or any(part.ndim != 1 for part in parts):
            fault = "input datatype does not match" if mixed else "only 1D input supported"
            raise self.fault(f"Concatenate: {fault}, but got {[(part.shape, str(part.dtype)) for part in parts]}.")
        return (np.concatenate(parts),)


class Duplicate(Transform):
    """One column becomes two equal ones."""

    def on_row(self, values: Values, rng: Draws) -> Values:
        """See Operation."""
        # A copy: one column may be changed in place later.
        return self.only(values), values[0].copy()


class Unique(Transform):
    """The different elements in ascending order, for each element its place among them, and how often each occurs.

    One column in, three out: (values, int32 places, int32 counts).
    """

    def on_row(self, values: Values, rng: Draws) -> Values:
        """See Operation."""
        # `reshape`, as newer numpy gives places in the shape of the input.
        uniques, indices, counts = np.unique(self.only(values), return_inverse=True, return_counts=True)
        return uniques, indices.reshape(-1).astype(np.int32), counts.astype(np.int32)


class _OfSeveral(Transform):
    """Base of what applies several operations."""

    transforms: list[Any] = argument(None, "transforms or functions.")

    def _prepare(self) -> None:
        check.instance(self.name, "transforms list", self.transforms, list)
        refuse(not self.transforms, SporaxValueError, self.name, "transforms list can not be empty.")
        self.operations = tuple(as_transform(self.name, f"transforms[{i}]", t) for i, t in enumerate(self.transforms))
        # With functions of the user MindSpore has it in Python.
        self.takes = 0 if is_python(self) else self.takes


class Compose(_OfSeveral):
    """Several operations as one, applied one after the other."""

    takes_boxes = True

    def _prepare(self) -> None:
        super()._prepare()
        self.draws = any(operation.draws for operation in self.operations)

    def __call__(self, *inputs: Any) -> Any:
        """Apply to one row's values. As in MindSpore, Pillow images go from call to call, and the result is a tuple then."""
        makes_pillow = any(getattr(operation, "gives_pillow", False) for operation in self.operations)
        if len(inputs) != 1 or not (is_pillow(inputs[0]) or makes_pillow):
            return super().__call__(*inputs)
        values: Any = inputs
        for operation in self.operations:
            # The user's function itself, which expects the image and not our box.
            call: Any = operation.function if isinstance(operation, PythonFunction) else operation
            result = call(*values)
            values = result if isinstance(result, tuple) else (result,)
        return values

    def on_row(self, values: Values, rng: Draws) -> Values:
        """See Operation."""
        before = None
        for number, operation in enumerate(self.operations):
            # Called directly, a function gets arrays even of a function that gives Pillow images.
            behind_function = isinstance(before, PythonFunction) and isinstance(operation, PythonFunction)
            columns = [[pixels(value) if behind_function else value] for value in values]
            inputs = handed_on(before, operation, columns)
            values = on_values(operation, tuple(column[0] for column in inputs), rng.inner(number, operation.takes))
            before = operation
        return values

    def on_block(self, columns: Sequence[Column], rows: Indices, key: RowKey) -> list[Column]:
        """See Operation."""
        values = list(columns)
        for number, operation in enumerate(self.operations):
            before = self.operations[number - 1] if number else None
            # A key for each, so that equal transforms in one list draw different numbers.
            values = on_columns(operation, handed_on(before, operation, values), rows, key.sub(number))
        return values


class RandomApply(_OfSeveral):
    """Several operations, all of them or none."""

    draws = takes_boxes = True
    takes = 2

    prob: float = argument(check.number, "probability of applying them.", default=0.5, low=0, high=1)

    def on_row(self, values: Values, rng: Draws) -> Values:
        """See Operation."""
        if rng.double() <= self.prob:
            for number, operation in enumerate(self.operations):
                values = on_values(operation, values, rng.inner(number, operation.takes))
        return values


class RandomChoice(_OfSeveral):
    """One of several operations, each as likely."""

    draws = takes_boxes = True
    takes = 1

    def on_row(self, values: Values, rng: Draws) -> Values:
        """See Operation."""
        chosen = rng.integer(0, len(self.operations) - 1)
        return on_values(self.operations[chosen], values, rng.inner(chosen, self.operations[chosen].takes))


class RandomOrder(_OfSeveral):
    """Several operations in random order."""

    only_pillow = draws = takes_boxes = True

    def on_row(self, values: Values, rng: Draws) -> Values:
        """See Operation."""
        # Drawn per row, so rows of a batch may differ in order.
        for place in rng.order(len(self.operations)):
            values = on_values(self.operations[place], values, rng.inner(place, self.operations[place].takes))
        return values
