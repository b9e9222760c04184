"""What takes rows out of a pipeline: iterators, and `Dataset.save`, which writes them as MindRecord files.

Iterators count epochs, turn columns into Tensors, and can be saved in mid-epoch. One lives over several epochs: it ends one with
StopIteration, and the next `for` loop over it reads the next.

MindRecord holds int32, int64, float32, float64, strings and bytes; pipelines hold more dtypes. So the schema follows the first
row as in MindSpore 2.10 (recorded with it): each dtype is stored in the smallest of these that holds its values, and the first
dimension of an array may differ from row to row.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np

from sporax.base.errors import For, SporaxAttributeError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import in_words, refuse
from sporax.mindspore.dataset._described import Described
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Array, Row, as_numpy, convert_leaves, opened
from sporax.mindspore.dataset._streams import ENDLESS
from sporax.mindspore.mindrecord import FileWriter
from sporax.runtime.session import SESSION


class EpochReader(Protocol):
    """Rows of epoch after epoch."""

    def next_row(self) -> Row | None:
        """The next row, or None at the end of an epoch."""

    def seek(self, epoch: int, row: int) -> None:
        """Go to row number `row` of epoch number `epoch`."""

    def close(self) -> None:
        """Stop the workers."""


# What `get_state` writes; another set comes from another version.
_STATE_KEYS = {"columns", "seed", "shared_seed", "epoch", "row"}


ITERATORS_LIST: list[weakref.ref[RowIterator]] = []
"""Iterators that live, the oldest first, under MindSpore's name for the list."""

_TRAINING: list[RowIterator] = []
_is_released = False


def check_iterator_cleanup() -> bool:
    """Whether `_cleanup` released all iterators and none was made since."""
    return _is_released


def _set_iterator_cleanup(released: bool = True) -> None:
    global _is_released
    _is_released = released


def _unset_iterator_cleanup() -> None:
    _set_iterator_cleanup(False)


def _forget(reference: weakref.ref[RowIterator]) -> None:
    if reference in ITERATORS_LIST:
        ITERATORS_LIST.remove(reference)


def _cleanup() -> None:
    """Release all iterators."""
    _set_iterator_cleanup()
    for reference in reversed(ITERATORS_LIST):
        iterator = reference()
        if iterator is not None:
            iterator.release()


def _set_training_dataset(iterator: RowIterator) -> None:
    """Name the iterator that `_reset_training_dataset` sets back."""
    _TRAINING[:] = [iterator]


def _get_training_dataset() -> RowIterator | None:
    """The iterator of the training, or None."""
    return _TRAINING[0] if _TRAINING else None


def _reset_training_dataset(global_step: int, dataset_size: int) -> None:
    """The training's iterator continues behind `global_step` steps, `dataset_size` of which are an epoch."""
    For("_reset_training_dataset").refuse_state(not _TRAINING, "Training dataset is not set")
    _TRAINING[0]._reset(global_step, dataset_size)


class RowIterator(abc.ABC):
    """Rows of `num_epochs` epochs (-1: any number).

    It can also be saved and restored, which MindSpore's cannot: `get_state()` is a small dict that JSON
    can hold; `set_state()` continues with the row that would have come next, in this process or another one.
    """

    def __init__(
        self, dataset: Described, first: Pass, columns: Sequence[str], num_epochs: int, output_numpy: bool
    ) -> None:
        self.dataset = dataset
        self._first = first
        self._columns = tuple(columns)
        self._num_epochs = ENDLESS if num_epochs == -1 else num_epochs
        # Chosen once per iterator and not per value.
        self._convert = as_numpy if output_numpy else _tensor_maker()
        self._epoch = 0
        self._row = 0
        self._reader: EpochReader | None = None
        self._released = False
        ITERATORS_LIST.append(weakref.ref(self, _forget))
        _unset_iterator_cleanup()

    def __iter__(self) -> RowIterator:
        return self

    def __next__(self) -> Any:
        # MindSpore raises at the call after the last epoch, not at its end.
        if self._released or self._epoch >= self._num_epochs:
            new = "make a new one with create_tuple_iterator or create_dict_iterator."
            if self._released:
                raise SporaxAttributeError(
                    f"For a dataset iterator, it was stopped: '{type(self).__name__}' object has no attribute "
                    f"'_runtime_context'; {new}"
                )
            raise SporaxRuntimeError(
                "For a dataset iterator, EOF buffer encountered. User tries to fetch data beyond the specified number of epochs. "
                f"All {self._num_epochs} epochs were read; {new}"
            )
        if self._reader is None:
            self._reader = self._open()
        row = self._reader.next_row()
        if row is None:
            self._epoch += 1
            self._row = 0
            if self._epoch == self._num_epochs:
                # Workers end with the last row; the iterator object may live on.
                self._reader.close()
            raise StopIteration
        self._row += 1
        return self._present(row)

    def _open(self) -> EpochReader:
        # grain is imported with the first row that is requested.
        engine = importlib.import_module("sporax.mindspore.dataset._engine")
        reader: EpochReader = engine.open_reader(self.dataset, self._first, self._num_epochs)
        if self._epoch or self._row:
            # `set_state` before the first row.
            reader.seek(self._epoch, self._row)
        # Only jobs with parameter servers read one row more than the user requested.
        return reader if SESSION.servers is None else _AnnouncingReader(reader, self._columns)

    @abc.abstractmethod
    def _present(self, row: Row) -> Any:
        """The row in the form the user requested."""

    def get_state(self) -> dict[str, Any]:
        """Where the iterator is: seeds, epoch and number of rows given in it."""
        return {
            "columns": list(self._columns),
            "seed": self._first.seed,
            "shared_seed": self._first.shared_seed,
            # Counts instead of generator states, since all random numbers follow from counts.
            "epoch": self._epoch,
            "row": self._row,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue where another iterator over an equal pipeline stood.

        Pipelines with random access jump there; sequential ones read the rows before once more and drop them.

        Raises:
            SporaxTypeError: `state` is not what `get_state` gives.
            SporaxValueError: it belongs to a pipeline with other columns.
        """
        # Keys are checked first, so that a state of another version gives this message and not a KeyError.
        if not isinstance(state, dict) or set(state) != _STATE_KEYS:
            raise SporaxTypeError(
                f"For 'set_state', the state must be a dict with the keys {sorted(_STATE_KEYS)}, but got {state!r}."
            )
        # Equal columns indicate an equal pipeline and are fast to compare.
        if tuple(state["columns"]) != self._columns:
            raise For("set_state").error(
                f"the state must come from a pipeline with the columns {list(self._columns)}, but got {state['columns']}"
            )
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._first = dataclasses.replace(self._first, seed=state["seed"], shared_seed=state["shared_seed"])
        self._epoch, self._row = state["epoch"], state["row"]

    def _reset(self, step: int, dataset_size: int) -> None:
        fault = "must be >= 0" if step < 0 else "must be less than dataset_size * num_epochs"
        if not 0 <= step < dataset_size * self._num_epochs:
            raise SporaxRuntimeError(
                f"For a dataset iterator, Cannot reset the pipeline, reset step {fault}. Got {step} of {dataset_size} * "
                f"{self._num_epochs}."
            )
        epoch, row = divmod(step, dataset_size)
        self.set_state(self.get_state() | {"epoch": epoch, "row": row})

    def get_col_names(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self._columns)

    def release(self) -> None:
        """Stop the workers; the iterator cannot be used any more."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._released = True
        ITERATORS_LIST[:] = [other for other in ITERATORS_LIST if other() not in (None, self)]

    stop = release


class _AnnouncingReader:
    """Reads one row ahead and passes both to the connection to parameter servers, so that rows of embedding tables that the
    next batch needs can be requested while the step of this one runs.

    Args:
        reader: where rows come from.
        columns: names of those that the user gets.
    """

    def __init__(self, reader: EpochReader, columns: Sequence[str]) -> None:
        self._reader = reader
        self._columns = columns
        self._rows: list[Row | None] = []

    def next_row(self) -> Row | None:
        """See EpochReader; the first row of an epoch is announced with the second, so that an epoch's end stays one."""
        # The first row of an epoch is not announced during the epoch before.
        if not self._rows:
            self._rows.append(self._reader.next_row())
        row = self._rows.pop()
        if row is None:
            return None
        following = self._reader.next_row()
        self._rows.append(following)
        if following is not None and SESSION.servers is not None:
            # Both batches, since the servers send the rows that the next one adds to this one.
            SESSION.servers.next_batches.announce(
                [row[name] for name in self._columns], [following[name] for name in self._columns]
            )
        return row

    def seek(self, epoch: int, row: int) -> None:
        # A row that was read ahead belongs to the old position.
        self._rows.clear()
        self._reader.seek(epoch, row)

    def close(self) -> None:
        self._reader.close()


class TupleIterator(RowIterator):
    """Each row as a list of its columns' values."""

    def _present(self, row: Row) -> list[Any]:
        convert = self._convert
        return [convert(row[name]) for name in self._columns]


class DictIterator(RowIterator):
    """Each row as a dict column name -> value."""

    def _present(self, row: Row) -> dict[str, Any]:
        convert = self._convert
        return {name: convert(row[name]) for name in self._columns}


def _tensor_maker() -> Callable[[Array], Any]:
    """What makes a Tensor of a column's value, a dict of Tensors of a dict; strings, which no Tensor holds, stay numpy arrays."""
    # A late import: Tensors load JAX, which worker processes and numpy output do not need.
    tensor = importlib.import_module("sporax.mindspore.common.tensor").Tensor

    def to_tensor(value: Array) -> Any:
        if value.dtype == object:
            inner = opened(value)
            return convert_leaves(inner, lambda leaf: to_tensor(np.asarray(leaf))) if isinstance(inner, dict) else value
        return value if value.dtype.kind in "US" else tensor(value)

    return to_tensor


_STORED = {
    "int32": "bool int8 uint8 int16 uint16 int32",
    "int64": "uint32 uint64 int64",
    "float32": "float16 float32",
    "float64": "float64",
}
_KIND = {dtype: kind for kind, dtypes in _STORED.items() for dtype in dtypes.split()}
# Files: MindSpore's limit, as in `FileWriter`.
_MOST_FILES = 1000
_ROWS_AT_ONCE = 1000
"""Rows that are handed to the writer together, which bounds the memory they take."""


def save_rows(columns: Sequence[str], rows: Iterator[Row], file_name: str, num_files: int, file_type: str) -> None:
    """Write rows to MindRecord files. Arguments and errors: see `Dataset.save`."""
    check.instance("save", "num_files", num_files, int)
    if not 0 < num_files <= _MOST_FILES:
        raise in_words(SporaxValueError, "save", "num_files should between 0 and 1000.", num_files)
    refuse(file_type != "mindrecord", SporaxValueError, "save", f"{file_type} dataset format is not supported.")
    first = next(rows, None)
    if first is None:
        raise For("save").state_error("the dataset must have rows, but has none")
    writer = FileWriter(file_name, num_files)
    writer.add_schema({name: _field(name, first[name]) for name in columns})
    remaining = chain([first], rows)
    while group := list(islice(remaining, _ROWS_AT_ONCE)):
        writer.write_raw_data([{name: _value(row[name], first[name]) for name in columns} for row in group])
    writer.commit()


def _field(name: str, value: np.ndarray[Any, Any]) -> dict[str, Any]:
    """How a column is stored, from its first value."""
    # Only single strings; arrays of them have no form in MindRecord. Bytes of MindRecord files are arrays of one.
    if value.dtype.kind in "US" and (value.ndim == 0 or (value.dtype.kind == "S" and value.shape == (1,))):
        return {"type": "string" if value.dtype.kind == "U" else "bytes"}
    kind = _KIND.get(value.dtype.name)
    if kind is None:
        raise SporaxValueError(
            f"For 'save', column '{name}' must hold numbers, or one string or bytes per row, but holds {value.dtype} of "
            f"shape {value.shape}."
        )
    # MindSpore records the first dimension as free, whatever the first row has.
    return {"type": kind, "shape": [-1, *value.shape[1:]]} if value.ndim else {"type": kind}


def _value(value: np.ndarray[Any, Any], first: np.ndarray[Any, Any]) -> Any:
    """A value in the form that a schema wants: arrays in the stored dtype, single values as Python's."""
    if value.shape[1:] != first.shape[1:]:
        words = (
            "Tensor with dynamic shape do not currently support saving. Except for the shape of dimension 0, the other "
            "dimension shapes must be fixed. You can reshape the Tensor to a fixed shape before saving."
        )
        raise in_words(SporaxRuntimeError, "save", words, (first.shape, value.shape))
    kind = _KIND.get(value.dtype.name)
    if value.dtype.kind == "S":
        return value.tobytes()
    if value.ndim == 0:
        single = value.item()
        # The schema knows no bool.
        return int(single) if isinstance(single, bool) else single
    return value.astype(kind)
