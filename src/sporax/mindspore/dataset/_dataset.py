"""`Dataset`: the pipeline under MindSpore's method names.

Every method returns a new Dataset over a longer description; nothing is read before an iterator is made, and one
dataset may be the beginning of several pipelines. What a step is, its checks included, is said by its class in `_steps`.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sporax.base.errors import For, SporaxAttributeError, SporaxRuntimeError, SporaxTypeError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._all_ranks import for_all_ranks
from sporax.mindspore.dataset._cache import DatasetCache
from sporax.mindspore.dataset._callbacks import DSCallback
from sporax.mindspore.dataset._checks import in_words, refuse
from sporax.mindspore.dataset._described import Arguments, Described, first_pass, split_counts
from sporax.mindspore.dataset._iterators import DictIterator, RowIterator, TupleIterator, save_rows
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Row, visible_columns
from sporax.mindspore.dataset._streams import rows_of
from sporax.mindspore.dataset._workers import StepWorkers

#: Methods of MindSpore's that serve its C++ runtime.
_NOT_OFFERED = frozenset({"recv", "send"})

steps: dict[str, Callable[..., Dataset]] = {}
"""Name -> class of what each step makes; `StepDataset` fills it."""

R = TypeVar("R", bound=RowIterator)


@dataclasses.dataclass(frozen=True, slots=True)
class BatchInfo:
    """What `per_batch_map` and a callable batch size receive."""

    batch_num: int
    epoch_num: int

    def get_batch_num(self) -> int:
        """Number of the batch within the epoch, from 0."""
        return self.batch_num

    def get_epoch_num(self) -> int:
        """Number of the epoch, from 0."""
        return self.epoch_num


class Dataset(Described):
    """A description of an input pipeline; base of all datasets. Users start from a source such as `MnistDataset`."""

    # Iterators without a seed differ by their number, see `first_pass`.
    _iterators_made = 0

    def __init__(self, columns: Sequence[str], children: Sequence[Dataset] = ()) -> None:
        # MindSpore's base class cannot be made by users either.
        For("Dataset").refuse_type(type(self) is Dataset, "start from a source, e.g. GeneratorDataset or MnistDataset")
        super().__init__(columns, children)

    # -- steps -------------------------------------------------------------------------------------------------------

    def map(
        self, operations: Any, input_columns: str | list[str] | None = None,
        output_columns: str | list[str] | None = None, num_parallel_workers: int | None = None,
        python_multiprocessing: bool = False, cache: DatasetCache | None = None,
        callbacks: DSCallback | list[DSCallback] | None = None, **options: Any,
    ) -> Dataset:  # fmt: skip
        """Apply operations to some columns of every row.

        Args:
            operations: a transform or function, or a list applied one after the other. A function takes one array per
                column and returns one value, or a tuple for several columns.
            input_columns: columns the first operation takes; the first column by default.
            output_columns: names for the results; by default the input columns' names.
            num_parallel_workers: threads (or processes) that work on rows.
            python_multiprocessing: use processes, for slow Python functions.
            cache: keeps the results for the next epochs; the operations must not be random.
            callbacks: called as rows are worked on; one thread then works on them in order.
            options: `max_rowsize` warns; MindSpore's other arguments are not offered.

        Raises:
            SporaxRuntimeError: a column does not exist, or an output column exists already.
            SporaxTypeError, SporaxValueError: an argument is not valid.
        """
        arguments = (operations, input_columns, output_columns, num_parallel_workers, python_multiprocessing)
        return self._then("MapDataset", *arguments, cache, callbacks, **options)

    def batch(
        self, batch_size: int | Callable[[BatchInfo], int], drop_remainder: bool = False,
        num_parallel_workers: int | None = None, *, per_batch_map: Callable[..., Any] | None = None,
        input_columns: str | list[str] | None = None, output_columns: str | list[str] | None = None,
        python_multiprocessing: bool = False, **options: Any,
    ) -> Dataset:  # fmt: skip
        """Collate runs of rows; every column gets a leading batch dimension.

        Args:
            batch_size: rows per batch, or a function from BatchInfo to that number.
            drop_remainder: leave out a last, shorter batch.
            num_parallel_workers: threads (or processes) that work on batches.
            per_batch_map: (one list of arrays per input column, …, BatchInfo) -> tuple of one list per output column.
            input_columns: columns `per_batch_map` takes; all by default.
            output_columns: names for its results; by default the input columns' names.
            python_multiprocessing: run `per_batch_map` in processes.
            options: see `map`.

        Raises:
            SporaxRuntimeError: (when iterated) rows of one batch differ in shape or dtype.
        """
        named = {"per_batch_map": per_batch_map, "input_columns": input_columns, "output_columns": output_columns}
        options |= {"python_multiprocessing": python_multiprocessing} | named
        return self._then("BatchDataset", batch_size, drop_remainder, num_parallel_workers, **options)

    def padded_batch(
        self, batch_size: int | Callable[[BatchInfo], int], drop_remainder: bool = False,
        num_parallel_workers: int | None = None, pad_info: dict[str, Any] | None = None,
    ) -> Dataset:  # fmt: skip
        """Like `batch`, with rows padded to one shape.

        Args:
            batch_size: rows per batch, or a function from BatchInfo to that number.
            drop_remainder: leave out a last, shorter batch.
            num_parallel_workers: threads that work on batches.
            pad_info: column -> (shape, value). None in the shape means the longest row of the batch; a row longer than
                a given length is truncated. An empty dict pads every column to its longest row with zeros; None pads nothing.
        """
        return self._then("PaddedBatchDataset", batch_size, drop_remainder, num_parallel_workers, pad_info)

    def bucket_batch_by_length(
        self, column_names: str | list[str], bucket_boundaries: list[int], bucket_batch_sizes: list[int],
        element_length_function: Callable[..., int] | None = None, pad_info: dict[str, Any] | None = None,
        pad_to_bucket_boundary: bool = False, drop_remainder: bool = False,
    ) -> Dataset:  # fmt: skip
        """Batch rows of similar length together.

        Args:
            column_names: columns that determine the length.
            bucket_boundaries: increasing lengths; a row goes to the first bucket whose boundary is above its length.
            bucket_batch_sizes: batch size of each bucket, one more than boundaries.
            element_length_function: the columns -> length; by default the first dimension of the only column.
            pad_info: see `padded_batch`.
            pad_to_bucket_boundary: pad unknown dimensions to the boundary minus one.
            drop_remainder: leave out buckets that are not full at the end.
        """
        arguments = (column_names, bucket_boundaries, bucket_batch_sizes, element_length_function, pad_info)
        return self._then("BucketBatchByLengthDataset", *arguments, pad_to_bucket_boundary, drop_remainder)

    def shuffle(self, buffer_size: int) -> Dataset:
        """Shuffle through a buffer of `buffer_size` >= 2 rows, in another order each epoch."""
        return self._then("ShuffleDataset", buffer_size)

    def repeat(self, count: int | None = None) -> Dataset:
        """The pipeline so far `count` times in one epoch; None or -1 for ever."""
        return self._then("RepeatDataset", count)

    def skip(self, count: int) -> Dataset:
        """Leave out the first `count` rows."""
        return self._then("SkipDataset", count)

    def take(self, count: int = -1) -> Dataset:
        """At most the first `count` rows; -1 for all."""
        return self._then("TakeDataset", count)

    def project(self, columns: str | list[str]) -> Dataset:
        """Only these columns, in this order. One patch of several may stand for all of them: see `_all_ranks`."""
        return self._then("ProjectDataset", columns)

    def rename(self, input_columns: str | list[str], output_columns: str | list[str]) -> Dataset:
        """New names for some columns."""
        return self._then("RenameDataset", input_columns, output_columns)

    def zip(self, datasets: Dataset | tuple[Dataset, ...]) -> Dataset:
        """This dataset and others side by side, as long as the shortest; columns must differ."""
        check.instance("zip", "datasets", datasets, tuple, Dataset)
        return steps["ZipDataset"]((self, *(datasets if isinstance(datasets, tuple) else (datasets,))))

    def concat(self, datasets: Dataset | list[Dataset]) -> Dataset:
        """This dataset followed by others with the same columns."""
        check.instance("concat", "datasets", datasets, list, Dataset)
        return steps["ConcatDataset"]([self, *([datasets] if isinstance(datasets, Dataset) else datasets)])

    def __add__(self, datasets: Dataset | list[Dataset]) -> Dataset:
        return self.concat(datasets)

    def filter(
        self,
        predicate: Callable[..., Any],
        input_columns: str | list[str] | None = None,
        num_parallel_workers: int | None = None,
    ) -> Dataset:
        """Only rows for which `predicate` of the columns is true. Rows are then read in order.

        Args:
            predicate: one array per column -> truth value.
            input_columns: its columns; all by default.
            num_parallel_workers: threads that call `predicate`; the rows keep their order.
        """
        return self._then("FilterDataset", predicate, input_columns, num_parallel_workers)

    def sync_wait(
        self, condition_name: str, num_batch: int = 1, callback: Callable[[Any], Any] | None = None
    ) -> Dataset:
        """Rows wait here until `sync_update` releases them; operations behind then know what came of earlier batches.

        Args:
            condition_name: name of the condition.
            num_batch: batches that pass without release at the beginning of each epoch, and with each release.
            callback: called with the data of each release.

        Raises:
            SporaxRuntimeError: the name is that of an earlier condition.
        """
        return self._then("SyncWaitDataset", condition_name, num_batch, callback)

    def sync_update(self, condition_name: str, num_batch: int | None = None, data: Any = None) -> None:
        """Release batches that wait at a condition, after calling its callback with `data`.

        Args:
            condition_name: name of the condition.
            num_batch: how many; by default as many as `sync_wait` says.
            data: handed to the callback.

        Raises:
            SporaxRuntimeError: there is no such condition, or `num_batch` is not a positive int. No row waits any more then.
        """
        check.independent("sync_update", "Dataset sync update")
        if num_batch is not None and (not isinstance(num_batch, int) or num_batch <= 0):
            # Waiting rows are let through before an error: the reading thread would block for ever.
            self.disable_sync()
            words = f"Sync_update batch size can only be positive integer, got: {num_batch}."
            raise in_words(SporaxRuntimeError, "sync_update", words)
        name = check.text("sync_update", "condition_name", condition_name)
        gates = {gate.name: (gate, rows) for gate, rows in self._gates()}
        if name not in gates:
            self.disable_sync()
            raise in_words(SporaxRuntimeError, "sync_update", "Condition name not found.", name)
        gate, rows = gates[name]
        # Gates count rows; the user counts batches of the whole pipeline.
        gate.release(rows * (gate.num_batch if num_batch is None else num_batch), data)

    def disable_sync(self) -> None:
        """Let the rows at all conditions pass."""
        for gate, _ in self._gates():
            gate.open()

    def is_sync(self) -> bool:
        """Whether rows wait at a condition."""
        return any(True for _ in self._gates())

    def flat_map(self, func: Callable[..., Dataset]) -> Dataset:
        """The datasets that `func` makes of each row's columns (as arrays), one after the other.

        Raises:
            SporaxTypeError: `func` is not callable or does not return a Dataset.
        """
        refuse(not callable(func), SporaxTypeError, "flat_map", "func must be a function.", func)
        parts: list[Dataset] = []
        for row in self._rows_once():
            part = func(*(row[name] for name in self._column_names))
            if not isinstance(part, Dataset):
                raise in_words(SporaxTypeError, "flat_map", "flat_map must return a Dataset object.", part)
            parts.append(part)
        For("flat_map").refuse_state(not parts, "the dataset has no rows")
        return parts[0].concat(parts[1:])

    def apply(self, apply_func: Callable[[Dataset], Dataset]) -> Dataset:
        """`apply_func(self)`, checked to be a Dataset."""
        refuse(not callable(apply_func), SporaxTypeError, "apply", "apply_func must be a function.", apply_func)
        result = apply_func(self)
        refuse(not isinstance(result, Dataset), SporaxTypeError, "apply", "apply_func must return a dataset.", result)
        return result

    def split(self, sizes: list[int] | list[float], randomize: bool = True) -> tuple[Dataset, ...]:
        """Parts without common rows; the parts keep their rows in all epochs.

        Args:
            sizes: rows of each part, or fractions that add up to 1.
            randomize: shuffle (by the seed) before splitting.

        Raises:
            SporaxRuntimeError: the sizes do not add up to the dataset's size, a part would be empty, or the dataset is
                sharded.
        """
        check.boolean("split", "randomize", randomize)
        # The parts of a shard would not be parts of the data set.
        refuse(self.is_sharded(), SporaxRuntimeError, "split", "Dataset should not be sharded before split.")
        # Rows of the whole, so this reads a sequential pipeline once.
        counts = split_counts(sizes, self.get_dataset_size())
        starts = itertools.accumulate(counts, initial=0)
        return tuple(self._part(start, count, randomize) for start, count in zip(starts, counts, strict=False))

    def device_que(
        self, send_epoch_end: bool = True, create_data_info_queue: bool = False, queue_name: str = ""
    ) -> Dataset:
        """Batches for a queue of the device: see `TransferDataset`."""
        return self._then("TransferDataset", send_epoch_end, create_data_info_queue, queue_name)

    # -- reading -----------------------------------------------------------------------------------------------------

    def create_tuple_iterator(
        self, columns: str | list[str] | None = None, num_epochs: int = -1, output_numpy: bool = False,
        do_copy: bool = False,
    ) -> TupleIterator:  # fmt: skip
        """An iterator over rows as lists.

        Args:
            columns: only these columns; all by default.
            num_epochs: epochs the iterator is for; -1 for any number.
            output_numpy: give numpy arrays instead of Tensors.
            do_copy: whether values may be changed in place. They always may here: no value is shared with the pipeline.
        """
        names = self._chosen("create_tuple_iterator", columns, self._column_names, argument="column_names")
        where = "create_tuple_iterator"
        return self._begun(TupleIterator(*self._iterator_arguments(where, names, num_epochs, output_numpy, do_copy)))

    def create_dict_iterator(
        self, num_epochs: int = -1, output_numpy: bool = False, do_copy: bool = False
    ) -> DictIterator:
        """An iterator over rows as dicts column name -> value. Arguments: see `create_tuple_iterator`."""
        where = "create_dict_iterator"
        arguments = self._iterator_arguments(where, self._column_names, num_epochs, output_numpy, do_copy)
        return self._begun(DictIterator(*arguments))

    def _begun(self, iterator: R) -> R:
        if step := self.get_init_step():
            iterator._reset(step, self.get_dataset_size())
        return iterator

    def save(self, file_name: str, num_files: int = 1, file_type: str = "mindrecord") -> None:
        """Write the rows of one epoch to MindRecord files that `MindDataset` reads.

        Numbers become int32, int64, float32 or float64, whichever holds them; strings and bytes stay.

        Args:
            file_name: the file; several files have a number appended.
            num_files: how many files to spread the rows over, 1 to 1000.
            file_type: only ``"mindrecord"``.

        Raises:
            SporaxTypeError: an argument has the wrong type.
            SporaxValueError: an argument is out of range, or a column cannot be stored.
            SporaxRuntimeError: there are no rows, or a file exists.
        """
        save_rows(self._column_names, self._rows_once(), file_name, num_files, file_type)

    def to_json(self, filename: str = "") -> dict[str, Any]:
        """The pipeline as `dataset.serialize` writes it, also into the file `filename` if that is given."""
        document: dict[str, Any] = importlib.import_module("sporax.mindspore.dataset._json").document(self)
        if filename:
            Path(check.text("serialize", "json_filepath", filename)).write_text(json.dumps(document))
        return document

    def __iter__(self) -> Iterator[list[Any]]:
        # A plain `for` loop is one epoch; an explicit iterator may go on.
        return self.create_tuple_iterator(num_epochs=1)

    def _iterator_arguments(
        self, where: str, columns: Sequence[str], num_epochs: object, output_numpy: object, do_copy: object
    ) -> tuple[Dataset, Pass, Sequence[str], int, bool]:
        epochs = check.integer(where, "num_epochs", num_epochs, -1, check.INT32_MAX)
        refuse(
            epochs == 0, SporaxRuntimeError, where, "num_epochs should be either -1 or positive integer, num_epochs: 0"
        )
        check.boolean(where, "do_copy", do_copy)
        # Fixed here, not at the first row: two iterators made in one order must not swap their seeds.
        first = first_pass(self._iterators_made)
        self._iterators_made += 1
        return (
            self._snapshot(),
            first,
            visible_columns(columns),
            epochs,
            check.boolean(where, "output_numpy", output_numpy),
        )

    # -- what belongs to it ------------------------------------------------------------------------------------------

    def reset(self) -> None:
        # Without a seed the number of iterators decides the seed of the next one, see `first_pass`.
        """Forget the iterators made so far: the next one starts like the first."""
        self._iterators_made = 0

    def __getattr__(self, name: str) -> Any:
        # Named separately, so that the message says it is a decision and not a typing error.
        if name in _NOT_OFFERED:
            raise SporaxAttributeError(
                f"For '{type(self).__name__}', the method '{name}' is not offered; docs/dataset.md says what is."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _first_rows(self) -> Iterator[Row]:
        return itertools.islice(rows_of(for_all_ranks(self)(Pass(0, 0, is_query=True))), 1)

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _then(self, kind: str, *arguments: Any, **options: Any) -> Dataset:
        """A dataset of the class `kind` (see `steps`) that continues this one."""
        return steps[kind](self, *arguments, **options)

    def _chosen(
        self, where: str, value: object, default: Sequence[str], argument: str = "input_columns"
    ) -> tuple[str, ...]:
        """Checked names of columns of this dataset, `default` for None."""
        if value is None and default:
            return tuple(default)
        names = check.names(where, argument, value)
        check.columns_exist(where, names, self._column_names)
        return names

    def _part(self, start: int, count: int, randomize: bool) -> Dataset:
        """`count` rows of a split, in one order for all epochs."""
        if self.is_shuffled():
            # Parts would be taken from another order in each epoch.
            warnings.warn("For 'split', the dataset is shuffled again each epoch, so its parts will share rows.")
        return self._then("SplitDataset", start, count, randomize)


class StepDataset(Dataset):
    """What a step makes of the datasets before it. Programs test for these classes with `isinstance`, and a few make them.

    A class has the arguments of the method of `Dataset` as attributes, checked, under their names.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # The first of a name: programs may have a subclass of the same name.
        steps.setdefault(cls.__name__, cls)

    def _arguments(self) -> Arguments:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters if hasattr(self, name)}

    def _flow_workers(self) -> StepWorkers:
        """Workers for a flow: one thread where rows wait, since others would request rows that are not released."""
        waits = any(self._gates()) or any(step._events for step in self._walk())
        return StepWorkers(1 if waits else self.num_parallel_workers or 1, self.python_multiprocessing)

    def _table_workers(self) -> StepWorkers:
        """Processes for the table before it, where a step below requests some."""
        return StepWorkers(max(step._num_processes() for step in self._walk()), processes=True)
