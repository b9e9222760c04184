"""Argument checks of the dataset package: each raises the builtin error MindSpore raises, at the user's line.

Every function takes the name of the API it speaks for (`where`) and the name of the argument, and returns the value in
the form the caller wants, so that a constructor reads as a list of checked assignments.
"""

from __future__ import annotations

import math
import numbers
import os
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sporax.base.errors import (
    SporaxError,
    SporaxNotImplementedError,
    SporaxRuntimeError,
    SporaxTypeError,
    SporaxValueError,
)
from sporax.runtime.session import SESSION

# Largest int32, the C++ type of most of MindSpore's arguments: bounds integers without a limit of their own.
INT32_MAX = 2**31 - 1
# Largest int64, that of counts of rows.
INT64_MAX = 2**63 - 1
# Largest uint32.
UINT32_MAX = 2**32 - 1
# Up to here float32 has all integers: MindSpore's limit of numbers without one of their own.
FLOAT32_MAX = 2**24


#: Sources about whose sampling MindSpore has words of its own.
IN_MEMORY = ("GeneratorDataset", "NumpySlicesDataset")


class ConflictingArgumentsError(SporaxRuntimeError, SporaxValueError):
    """Arguments that exclude or require one another. MindSpore raises either builtin, depending on the dataset."""


E = TypeVar("E", bound=SporaxError)
_MISSING = object()


def in_words(kind: type[E], where: str, words: str, got: object = _MISSING) -> E:
    """The error of exactly these words, MindSpore's; a note says whose argument it was, and what it got."""
    error = kind(words)
    error.add_note(f"For '{where}'{'' if got is _MISSING else f', got {got!r}'}.")
    return error


def refuse(wrong: object, kind: type[SporaxError], where: str, words: str, got: object = _MISSING) -> None:
    """Raise the error of `in_words` if something is `wrong`."""
    if wrong:
        raise in_words(kind, where, words, got)


def type_error(where: str, name: str, expected: str | tuple[type, ...], value: object) -> SporaxTypeError:
    """The error for an argument of a wrong Python type; MindSpore's words where types are expected."""
    listed: object = f"[{expected}]"
    if not isinstance(expected, str):
        listed = expected if isinstance(value, bool) and int in expected else [*expected]
    printed = '""' if isinstance(value, str) and not value else value
    words = f"Argument {name} with value {printed} is not of type {listed}, but got {type(value)}."
    return in_words(SporaxTypeError, where, words)


def instance(where: str, name: str, value: object, *types: type[Any]) -> None:
    """An object of these types; a bool is an int only where bool is one of them."""
    no_bool = isinstance(value, bool) and int in types and bool not in types
    if no_bool or not isinstance(value, types):
        raise type_error(where, name, types, value)


def range_error(where: str, name: str, interval: str, value: object) -> SporaxValueError:
    """The error for a number outside of an interval."""
    words = f"Input {name and f'{name} '}is not within the required interval of {interval}."
    return in_words(SporaxValueError, where, words, value)


def integer(
    where: str, name: str, value: Any, low: int = -INT32_MAX - 1, high: int = INT32_MAX, *, ranged: str | None = None
) -> int:
    """An int (numpy's too, bool not) within [low, high]; errors about the range say `ranged` for the name, which may be empty."""
    if not isinstance(value, np.integer):
        instance(where, name, value, int)
    if not low <= value <= high:
        raise range_error(where, name if ranged is None else ranged, f"[{low}, {high}]", value)
    return int(value)


def boolean(where: str, name: str, value: object) -> bool:
    """A bool."""
    if not isinstance(value, np.bool_):
        instance(where, name, value, bool)
    return bool(value)


def number(
    where: str, name: str, value: Any, low: float = -FLOAT32_MAX, high: float = FLOAT32_MAX, *,
    open_low: bool = False, open_high: bool = False, types: tuple[type, ...] = (float, int), ranged: str | None = None,
) -> float:  # fmt: skip
    """A real number within [low, high], without an end that is open; errors name `types`, and see `integer`."""
    # `numbers.Real` includes numpy's floats; bool is a Real as well.
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        instance(where, name, value, *types)
    if not low <= value <= high or (open_low and value == low) or (open_high and value == high):
        interval = f"{'[('[open_low]}{low}, {high}{'])'[open_high]}"
        raise range_error(where, name if ranged is None else ranged, interval, value)
    return float(value)


def positive(where: str, name: str, value: Any, types: tuple[type, ...] = (int, float)) -> float:
    """A number > 0."""
    if number(where, name, value, -math.inf, math.inf, types=types) <= 0:
        raise in_words(SporaxValueError, where, f"Input {name} must be greater than 0.", value)
    return float(value)


def probability(where: str, name: str, value: object) -> float:
    """A probability."""
    return number(where, name, value, 0.0, 1.0)


def text(where: str, name: str, value: Any) -> str:
    """A string."""
    instance(where, name, value, str)
    return value


def choice(where: str, name: str, value: object, choices: Sequence[str]) -> str:
    """One of a few strings."""
    chosen = text(where, name, value)
    if chosen not in choices:
        raise in_words(SporaxValueError, where, f"Input {name} is not within the valid set of {[*choices]}.", chosen)
    return chosen


def names(where: str, name: str, value: object) -> tuple[str, ...]:
    """One column name or a list of different ones, as a tuple."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)):
        raise type_error(where, name, (list, str), value)
    empty = next((f"{name}[{i}] should not be empty." for i, item in enumerate(names) if not item), "")
    if empty or not names:
        words = f"{name} should not be an empty str." if value == "" else empty or f"{name} should not be empty."
        raise in_words(SporaxValueError, where, words)
    for i, item in enumerate(names):
        text(where, f"{name}[{i}]", item)
    if len(set(names)) != len(names):
        words = "Every column name should not be same with others in column_names."
        raise in_words(SporaxValueError, where, words, names)
    return tuple(names)


_ABSENT = {
    "map": "Invalid parameter, input column name: {} doesn't exist in the dataset columns.",
    "filter": "Invalid parameter, column name: {} does not exist in the dataset columns.",
    "batch": "Invalid input_columns, '{}' of 'input_columns' doesn't exist.",
    "padded_batch": "Invalid pad_info, column name: {} does not exist.",
    "rename": "Invalid column, column to be renamed does not exist.",
    "bucket_batch_by_length": "Invalid column, BucketBatchByLength couldn't find the specified column({}) in the dataset.",
    "MindDataset": "Invalid data, column name: {} does not exist.",
}
"""MindSpore's words about a column that is not there, where they are not the usual ones."""


def columns_exist(where: str, columns: Sequence[str], have: Sequence[str]) -> None:
    """Refuse names that are not columns of the dataset."""
    missing = next((column for column in columns if column not in have), None)
    if missing is not None:
        words = _ABSENT.get(where, "Invalid column, column name: {} does not exist.").format(missing)
        raise SporaxRuntimeError(f"For '{where}', {words} The columns are {list(have)}.")


def in_user_code(where: str, error: Exception, what: str, end: str = "") -> SporaxRuntimeError:
    """The error for one in a function of the user's; it holds the traceback, which is lost between processes otherwise.

    Args:
        where: name of the step.
        error: what the function raised.
        what: the function, and when it was called.
        end: the last sentence.
    """
    first, _, *rest = traceback.format_exception(error)  # the second is this package's own line
    calls = "".join([first, *rest])
    return SporaxRuntimeError(
        f"For '{where}', Exception thrown from user defined Python function in dataset: {what} failed with "
        f"{type(error).__name__}: {error}\nPython Call Stack:\n{calls}{end}".rstrip()
    )


def workers(where: str, value: object) -> int | None:
    """A number of parallel workers, or None. MindSpore refuses more than there are cores; here a large machine's are accepted."""
    return None if value is None else _bounded(where, "num_parallel_workers", value, 1, max(192, os.cpu_count() or 1))


def num_samples(where: str, value: object) -> int | None:
    """A cap on the number of rows; None and 0 mean no cap."""
    # 0 means all rows in MindSpore.
    return None if value is None else _bounded(where, "num_samples", value, 0, INT64_MAX) or None


def _bounded(where: str, name: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, np.integer):
        instance(where, name, value, int)
    if not low <= value <= high:
        bound = f"{high}(INT64_MAX)" if high == INT64_MAX else high
        raise in_words(SporaxValueError, where, f"{name} exceeds the boundary between {low} and {bound}!", value)
    return int(value)


class SharesOfAll(tuple[int, int]):
    """(num_shards, the first shard_id) where this process counts for several ranks: in data parallelism it reads the share of
    each (`_all_ranks`), in other modes the rows of all of them as one shard. The mode counts in which reading starts.

    Attributes:
        own: for how many ranks it counts.
    """

    own = 1

    def of_rank(self, rank: int) -> tuple[int, int]:
        """(num_shards, shard_id) of a pass that reads for a rank, the first of which is 0 here."""
        count, first = self
        return (count, first + rank) if SESSION.by_rank() else (count // self.own, first // self.own)


def parallel_context() -> Any:
    """The context of ranks, loaded when it is read: it loads JAX, which reading data does not need."""
    from sporax.mindspore import context

    return context


def shards(where: str, num_shards: object, shard_id: object) -> tuple[int, int] | None:
    """(num_shards, shard_id), or None when the dataset is not sharded.

    Where there are as many shards as `get_group_size()` says, a process that counts for several ranks reads the rows of all of
    them (`SharesOfAll`).
    """
    if num_shards is None and shard_id is None:
        return None
    in_memory = where in IN_MEMORY
    if num_shards is None or shard_id is None:
        words = "shard_id is specified but num_shards is not."
        if shard_id is None:
            words = "num_shards is specified and currently requires shard_id as well."
        if in_memory:
            words = "num_shards and shard_id need to be passed in together."
        raise in_words(ConflictingArgumentsError, where, words)
    context = parallel_context()
    count = integer(where, "num_shards", num_shards, 1, INT32_MAX)
    shard = integer(where, "shard_id", shard_id, 0, INT32_MAX if in_memory else count - 1)
    refuse(shard >= count, SporaxValueError, where, "shard_id should be less than num_shards.", shard)
    own = context.ranks_of_process()
    if own == 1 or count != own * context.world_size() or shard % own:
        return count, shard
    shares = SharesOfAll((count, shard))
    shares.own = own
    return shares


def batch_sampler(where: str, batch_sampler: object, collate_fn: object, others: Sequence[object]) -> None:
    """Refuse a batch sampler together with other ways to choose rows, and `collate_fn` without one."""
    if collate_fn is not None and not callable(collate_fn):
        raise in_words(SporaxTypeError, where, "collate_fn should be callable.", collate_fn)
    if batch_sampler is None:
        if collate_fn is not None:
            raise in_words(SporaxValueError, where, "collate_fn can be specified only when batch_sampler is set.")
        return
    if not hasattr(batch_sampler, "__iter__"):
        raise in_words(
            SporaxTypeError, where, "batch_sampler should have __getitem__ or __iter__ method.", batch_sampler
        )
    if any(value is not None for value in others):
        excluded = "num_samples, shuffle, num_shards, shard_id and sampler"
        raise in_words(SporaxValueError, where, f"batch_sampler is mutually exclusive with {excluded}.")


def independent(where: str, feature: str) -> None:
    """Refuse what MindSpore refuses in the mode in which a process of its own reads the data.

    Raises:
        SporaxRuntimeError: MS_INDEPENDENT_DATASET requests that mode.
    """
    if os.environ.get("MS_INDEPENDENT_DATASET", "").strip() in ("True", "true"):
        raise in_words(SporaxRuntimeError, where, f"{feature} is not supported in Dataset Independent mode.")


def options(where: str, options: dict[str, Any]) -> None:
    """Take note of arguments that MindSpore has and Sporax does not.

    Raises:
        SporaxNotImplementedError: one of them is set to what is not offered.
        SporaxTypeError: an unknown argument.
    """
    for name, value in options.items():
        if name == "offload" and value is True:
            independent(where, "Dataset Offload")
            warnings.warn(f"For '{where}', 'offload' has no effect: the operations run here, with equal results.")
        elif name == "max_rowsize":
            # MindSpore limits rows in shared memory by it; a setting without effect must say so.
            if value is not None:
                instance(where, name, value, int, list)
                if isinstance(value, list) and len(value) != 2:
                    words = f"{name} should be a single integer or a list[in_rowsize, out_rowsize] of length 2."
                    raise in_words(SporaxTypeError, where, words, value)
                for i, size in enumerate(value if isinstance(value, list) else [value]):
                    integer(where, f"{name}[{i}]" if isinstance(value, list) else name, size, -1)
                warnings.warn(f"For '{where}', 'max_rowsize' has no effect: rows of any size pass between processes.")
        elif name == "column_order":
            words = f"The parameter '{name}' had been deleted in {where} operation."
            raise in_words(SporaxValueError, where, words + " Please use '.project' operation instead.")
        elif name != "offload":
            raise SporaxTypeError(f"For '{where}', got an unexpected keyword argument '{name}' with value {value!r}.")
        # False and None turn a feature off, which is what happens anyway.
        elif value is not None and value is not False:
            raise SporaxNotImplementedError(f"For '{where}', the argument '{name}' is not offered, but got {value!r}.")


def directory(where: str, value: object) -> Path:
    """An existing directory."""
    path = text(where, "dataset_dir", value)
    # The text itself: `Path("")` is the present folder.
    if not os.path.isdir(path):
        words = f"The folder {path} does not exist or is not a directory or permission denied!"
        raise in_words(SporaxValueError, where, words)
    return Path(path)


def file(where: str, name: str, value: object) -> Path:
    """An existing file."""
    if not isinstance(value, str):
        raise in_words(SporaxTypeError, where, f"path: {value} is not string", name)
    path = Path(value)
    if not path.is_file():
        raise in_words(SporaxValueError, where, f"The file {path.resolve()} does not exist or permission denied!")
    return path


def numpy_dtype(where: str, name: str, value: Any) -> np.dtype[Any]:
    """A numpy dtype from a numpy dtype or scalar type, its name, or a Sporax dtype (anything with `np_dtype`)."""
    # Sporax dtypes carry numpy's.
    value = getattr(value, "np_dtype", value)
    if isinstance(value, (np.dtype, str)) or (
        # Only scalar types: `np.dtype` would also accept classes such as `list` as object dtypes.
        isinstance(value, type) and issubclass(value, (np.generic, bool, int, float))
    ):
        try:
            return np.dtype(value)
        except TypeError:
            pass
    raise type_error(where, name, "<class 'mindspore._c_expression.typing.Type'>, <class 'numpy.dtype'>", value)
