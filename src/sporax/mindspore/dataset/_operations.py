"""Operations: what `Dataset.map` applies to columns, transform or plain Python function.

An operation takes some columns of a row and returns some. Deterministic transforms that numpy can apply to many rows at
once also say how (`_many`), with bitwise the same result, so that `map` followed by `batch` costs one call per batch.
Random transforms get a generator that depends on the row alone.
"""

from __future__ import annotations

import abc
import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, dataclass_transform

import numpy as np

from sporax.base.errors import For, SporaxError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import config
from sporax.mindspore.dataset._arguments import Recorded, argument
from sporax.mindspore.dataset._checks import in_user_code, in_words
from sporax.mindspore.dataset._random import CallStream, Draws, RowKey
from sporax.mindspore.dataset._rows import Array, Column, as_value, boxed, is_pillow, opened, stacked
from sporax.mindspore.dataset._streams import Indices

Values = tuple[Array, ...]

#: Transforms that MindSpore has for arrays alone: they give arrays of Pillow images.
_OF_ARRAYS = frozenset(
    """
    AdjustSharpness Affine AutoAugment BoundingBoxAugment ConvertColor Crop CutMixBatch CutOut Erase GaussianBlur
    HorizontalFlip MixUpBatch Normalize NormalizePad PadToSize Posterize RandAugment RandomAdjustSharpness
    RandomAutoContrast RandomCropDecodeResize RandomCropWithBBox RandomEqualize RandomHorizontalFlipWithBBox RandomInvert
    RandomPosterize RandomResize RandomResizeWithBBox RandomResizedCropWithBBox RandomSelectSubpolicy RandomSolarize
    RandomVerticalFlipWithBBox Rescale ResizeWithBBox ResizedCrop Rotate SlicePatches Solarize ToType TrivialAugmentWide
    VerticalFlip
    """.split()
)


#: What images and sound are no values of, where a transform is called directly.
_NO_ARRAYS = (list, tuple, int, float, str, bytes, dict, set, type(None))


class Operation(abc.ABC):
    """Some columns of a row in, some out."""

    only_looks: bool = False
    """Whether it stands between two others without being one of them."""

    makes_patches: bool = False
    """Whether its results are patches of one image."""

    draws: bool = False
    """Whether results are random."""

    takes: int = 0
    """How many numbers of its engine MindSpore takes for a row; see `Draws`."""

    @abc.abstractmethod
    def on_row(self, values: Values, rng: Draws) -> Values:
        """Apply to one row."""

    def on_block(self, columns: Sequence[Column], rows: Indices, key: RowKey) -> list[Column]:
        """Apply to all rows of a block; `rows` are their numbers, from which random operations draw."""
        results = [
            self.on_row(tuple(column[i] for column in columns), generator)
            for i, generator in enumerate(key.draws(rows, self.takes))
        ]
        return [list(column) for column in zip(*results, strict=True)]


@dataclass_transform(eq_default=False, field_specifiers=(argument,))
class Transform(Recorded, Operation):
    """Base of all transforms, which can also be called directly on arrays and images, those of text and of `transforms` on
    Tensors, too.

    A direct call of a random transform follows `dataset.config` 's seed. As in MindSpore, a seed of the user makes each call
    draw the same, unless MindSpore has the transform in Python.
    """

    # Made at the first direct call, so that transforms in pipelines stay small and can be pickled.
    _calls: CallStream | None = None

    gives_pillow: bool = False
    """Whether images that it gives are Pillow's, whatever it took."""

    keeps_pillow: bool = True
    """Whether images that it makes of Pillow's are Pillow's again; those in `_OF_ARRAYS` are not."""

    only_pillow: bool = False
    """Whether it works on Pillow images alone in MindSpore."""

    refusal: str = "Input should be NumPy or PIL image, got {}."
    """What is said where it is called on something that is no image, if images are all it takes; "" where it takes all."""

    takes_boxes: bool = False
    """Whether it hands values on as they are; others get the pixels of Pillow images."""

    def for_pillow(self) -> Transform:
        """What is applied to Pillow images: another transform where MindSpore lets Pillow calculate."""
        return self

    @property
    def name(self) -> str:
        """The name used in messages."""
        return type(self).__name__

    def fault(self, words: str) -> SporaxRuntimeError:
        """The error for a value that it cannot be applied to."""
        return SporaxRuntimeError(f"For '{self.name}', {words}")

    def refuse(self, wrong: object, words: str) -> None:
        """Raise `fault` if something is `wrong`."""
        if wrong:
            raise self.fault(words)

    def only(self, values: Values) -> Array:
        """The value of the one column that the transform takes.

        Raises:
            SporaxRuntimeError: there are several.
        """
        if len(values) != 1:
            raise self.fault(
                f"map operation: [{self.name}] failed. The op is OneToOne, can only accept one tensor as input. Got "
                f"{len(values)}; map each column by itself."
            )
        return values[0]

    def __call__(self, *inputs: Any) -> Any:
        """Apply to one row's values; returns one array, or a tuple of them."""
        self.refuse(not inputs, "Input Tensor is not valid. At least one input is required, but got none.")
        self._check_kinds(inputs)
        # Direct calls have no row number to draw from.
        if self._calls is None:
            self._calls = CallStream()
        # Images keep their kind here, since users of transforms outside of pipelines may work with Pillow.
        values = tuple(
            boxed(value) if is_pillow(value) else as_value(np.array(value) if isinstance(value, list) else value)
            for value in inputs
        )
        for value, array in zip(inputs, values, strict=True):
            if not (self.takes_boxes or is_pillow(opened(array))):
                self._check_array(value, array)
        draws = self._calls.next(config.get_seed(), config.is_seed_set(), self.takes)
        results = tuple(map(opened, on_values(self, values, draws)))
        return results[0] if len(results) == 1 else results

    def _check_kinds(self, inputs: tuple[Any, ...]) -> None:
        of_sound, of_images = (f".dataset.{kind}." in type(self).__module__ for kind in ("audio", "vision"))
        for value in inputs if (of_sound or of_images) and self.refusal else ():
            # Tensors by attribute, as in `as_value`.
            if isinstance(value, _NO_ARRAYS) or hasattr(value, "asnumpy") or (of_sound and is_pillow(value)):
                # MindSpore's words name its own class.
                kind = str(type(value)).replace("sporax.", "")
                raise SporaxTypeError(f"For '{self.name}', {self.refusal.format(kind)}")

    def _check_array(self, value: Any, array: Array) -> None:
        # Neither objects nor complex numbers are values of MindSpore's pipelines.
        if array.dtype.kind in "Oc":
            words = f"Invalid user input. Got {type(value)}: {value}, cannot be converted into tensor."
            raise in_words(SporaxTypeError, self.name, words)
        self.refuse(not array.size, f"{self.name}: the input has no data, its shape is {array.shape}.")


def on_values(operation: Operation, values: Values, rng: Draws) -> Values:
    """`operation.on_row`, also for Pillow images."""
    applied, gives_pillow = _for(operation, values)
    if applied is None:
        return operation.on_row(values, rng)
    results = applied.on_row(tuple(map(pixels, values)), rng)
    return tuple(map(_as_pillow, results)) if gives_pillow else results


def on_columns(operation: Operation, columns: Sequence[Column], rows: Indices, key: RowKey) -> list[Column]:
    """`operation.on_block`, also for Pillow images."""
    # Arrays of numbers cannot hold Pillow images, so only lists are searched.
    lists = (value for column in columns if isinstance(column, list) for value in column)
    applied, gives_pillow = _for(operation, lists)
    if applied is None:
        return operation.on_block(columns, rows, key)
    results = applied.on_block([as_pixels(column) for column in columns], rows, key)
    return [[_as_pillow(value) for value in column] for column in results] if gives_pillow else results


def _for(operation: Operation, values: Iterable[Array]) -> tuple[Operation | None, bool]:
    """What is applied to pixels, None where values go in as they are; and whether Pillow images come out.

    MindSpore has two implementations of most image transforms, which differ in the last bits: OpenCV's for arrays and Pillow's
    for Pillow images.
    """
    if not isinstance(operation, Transform) or operation.takes_boxes:
        return None, False
    from_pillow = any(is_pillow(opened(value)) for value in values)
    if not from_pillow and not operation.gives_pillow:
        return None, False
    applied = operation.for_pillow() if from_pillow else operation
    return applied, operation.gives_pillow or (operation.keeps_pillow and operation.name not in _OF_ARRAYS)


def handed_on(before: Operation | None, operation: Operation, columns: Sequence[Column]) -> list[Column]:
    """What an operation gets of the one before.

    In MindSpore a transform continues with Pillow if the transform before it does. After a function it continues with arrays,
    also if the function gives Pillow images, unless it knows only these.
    """
    if isinstance(before, PythonFunction) and isinstance(operation, Transform) and not operation.only_pillow:
        return [as_pixels(column) for column in columns]
    return list(columns)


def pixels(value: Array) -> Array:
    """The array of a Pillow image; other values as they are."""
    inner = opened(value)
    return np.array(inner) if is_pillow(inner) else value


def as_pixels(column: Column) -> Column:
    """A column whose Pillow images are arrays."""
    # Arrays of numbers cannot hold Pillow images, so only lists are searched.
    holds_images = isinstance(column, list) and any(is_pillow(opened(value)) for value in column)
    return [pixels(value) for value in column] if holds_images else column


def _as_pillow(value: Array) -> Array:
    """The Pillow image of bytes (H, W) or (H, W, 1 to 4); other values as they are."""
    # Other dtypes and shapes have no Pillow mode in MindSpore.
    if value.dtype != np.uint8 or value.ndim not in (2, 3) or (value.ndim == 3 and value.shape[2] not in (1, 2, 3, 4)):
        return value
    # Pillow is optional; it has been imported if there are images of it.
    image = importlib.import_module("PIL.Image")
    return boxed(image.fromarray(value[..., 0] if value.shape[2:] == (1,) else value))


class OneToOne(Transform):
    """A transform of one column into one column."""

    def on_row(self, values: Values, rng: Draws) -> Values:
        return (self._one(self.only(values)),)

    def on_block(self, columns: Sequence[Column], rows: Indices, key: RowKey) -> list[Column]:
        if len(columns) == 1:
            # A block of equal rows can go through numpy in one call.
            block = stacked(columns[0])
            result = None if block is None else self._many(block)
            if result is not None:
                return [result]
            # No generator is needed, and making one costs more than many a transform.
            return [[self._one(value) for value in columns[0]]]
        # Raises the message that names the number of columns.
        self.on_row(tuple(column[0] for column in columns), next(key.draws(rows[:1], 0)))
        raise AssertionError("on_row refuses several columns")

    @abc.abstractmethod
    def _one(self, value: Array) -> Array:
        """Transform one value."""

    def _many(self, values: Array) -> Array | None:
        """Transform values (num_rows, *shape) at once, bitwise as `_one` would; None where that is not possible."""
        return None


class Elementwise(OneToOne):
    """A transform of each element by itself, so that rows and blocks are the same to it."""

    def _many(self, values: Array) -> Array | None:
        # The leading dimension makes no difference to an elementwise function.
        return self._one(values)


class RandomTransform(Transform):
    """A random transform: one draw per row, the same for every column of the row (image and mask, say)."""

    draws = True

    def on_row(self, values: Values, rng: Draws) -> Values:
        # Drawn from the first column, so that image and mask get the same crop.
        choice = self._draw(values[0], rng)
        return tuple(self._apply(value, choice) for value in values)

    def on_block(self, columns: Sequence[Column], rows: Indices, key: RowKey) -> list[Column]:
        choices = [self._draw(value, rng) for value, rng in zip(columns[0], key.draws(rows, self.takes), strict=True)]
        return [self._apply_to_column(column, choices) for column in columns]

    def _apply_to_column(self, column: Column, choices: list[Any]) -> Column:
        # Stacking costs a copy, so only transforms that can use the block do it.
        block = stacked(column) if self._has_many else None
        result = None if block is None else self._apply_many(block, choices)
        if result is not None:
            return result
        return [self._apply(value, choice) for value, choice in zip(column, choices, strict=True)]

    _has_many = False
    """Whether there is `_apply_many`."""

    def _apply_many(self, values: Array, choices: list[Any]) -> Array | None:
        """Apply a choice to each of the values (num_rows, *shape), bitwise as `_apply` would; None where that is not possible."""
        raise NotImplementedError

    @abc.abstractmethod
    def _draw(self, value: Array, rng: Draws) -> Any:
        """Make the row's random choice, given its first column."""

    @abc.abstractmethod
    def _apply(self, value: Array, choice: Any) -> Array:
        """Apply the choice to one column."""


class PythonFunction(Operation):
    """A user's function: one argument per column; several results as a tuple.

    Raises:
        SporaxRuntimeError: the function failed, or returned None or an array of Python objects.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__name__)

    def on_row(self, values: Values, rng: Draws) -> Values:
        try:
            result = self.function(*map(opened, values))
        except SporaxError:
            raise
        except Exception as error:
            end = "map operation: [PyFunc] failed."
            raise in_user_code("map", error, f"the function {self.name!r}", end) from error
        return tuple(self._checked(item) for item in (result if isinstance(result, tuple) else (result,)))

    def on_block(self, columns: Sequence[Column], rows: Indices, key: RowKey) -> list[Column]:
        # User functions draw their own random numbers; none are made per row.
        unused = next(key.draws([0], 0))
        results = [self.on_row(tuple(column[i] for column in columns), unused) for i in range(len(rows))]
        # Later operations and columns rely on one number of values.
        if len({len(result) for result in results}) > 1:
            raise SporaxRuntimeError(f"For 'map', the function {self.name!r} must always return as many values.")
        return [list(column) for column in zip(*results, strict=True)]

    def _checked(self, item: Any) -> Array:
        # A function without `return` is the usual mistake.
        if item is None:
            raise For("map").state_error(
                f"the function {self.name!r} must return arrays, numbers, strings, dicts or images", type(item).__name__
            )
        if is_pillow(item):
            return boxed(item)
        value = as_value(item)
        # Objects other than dicts cannot be batched.
        if value.dtype == object and not isinstance(opened(value), dict):
            raise SporaxRuntimeError(f"For 'map', the function {self.name!r} returned an array of Python objects.")
        return value


def as_operation(where: str, operation: object) -> Operation:
    """The operation a user handed to `map` or to a composing transform.

    Raises:
        SporaxValueError: neither a transform nor callable.
    """
    if isinstance(operation, Operation):
        return operation
    # A class is callable, but handing one over is a forgotten pair of parentheses.
    if isinstance(operation, type) or not callable(operation):
        raise SporaxValueError(
            f"For '{where}', Parameter operations's element of method {where} should be a transform object or a callable, but "
            f"got {operation!r}."
        )
    return PythonFunction(operation)


def as_transform(where: str, name: str, operation: object) -> Operation:
    """`as_operation` of an argument of a transform.

    Raises:
        SporaxTypeError: it is not callable.
    """
    if not callable(operation):
        words = f"{name} is neither a transforms op (TensorOperation) nor a callable pyfunc."
        raise in_words(SporaxTypeError, where, words, operation)
    return as_operation(where, operation)


def as_operations(where: str, operations: object) -> tuple[Operation, ...]:
    """One operation or a non-empty list of them."""
    items = list(operations) if isinstance(operations, (list, tuple)) else [operations]
    For(where).refuse(not items, "the list of operations must not be empty")
    return tuple(as_operation(where, item) for item in items)


def is_python(operation: Operation) -> bool:
    """Whether user code runs in this operation, which may not be safe to run in several threads."""
    # Composed transforms may hold user functions.
    inner: Sequence[Operation] = getattr(operation, "operations", ())
    return isinstance(operation, PythonFunction) or any(map(is_python, inner))
