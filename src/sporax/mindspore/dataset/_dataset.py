"""`Dataset`: the pipeline under MindSpore's method names. Thin: it checks arguments and adds a node.

Every method returns a new Dataset over a longer description; nothing is read before an iterator is made, and one
dataset may be the beginning of several pipelines.
"""

from __future__ import annotations

import importlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sporax.base.errors import SporaxAttributeError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks
from sporax.mindspore.dataset._cache import DatasetCache, check_cache
from sporax.mindspore.dataset._callbacks import DSCallback, Gate, check_callbacks
from sporax.mindspore.dataset._checks import in_user_code, in_words
from sporax.mindspore.dataset._described import Described, split_counts
from sporax.mindspore.dataset._iterators import DictIterator, TupleIterator, save_rows
from sporax.mindspore.dataset._nodes import batches
from sporax.mindspore.dataset._nodes.all_ranks import for_all_ranks, selected
from sporax.mindspore.dataset._nodes.batches import Batch
from sporax.mindspore.dataset._nodes.maps import CachedMap, Map
from sporax.mindspore.dataset._nodes.node import (
    Concat,
    Limit,
    Node,
    Repeat,
    Rewritten,
    Select,
    Shuffle,
    SyncWait,
    Zip,
    first_pass,
    first_row,
    gates_of,
    replaced_columns,
)
from sporax.mindspore.dataset._operations import Recorded, as_operations
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Row, opened, visible_columns
from sporax.mindspore.dataset._streams import ENDLESS, in_order

#: Methods of MindSpore's that serve its C++ runtime.
_NOT_OFFERED = frozenset({"recv", "send"})


class Dataset(Recorded, Described):
    """A description of an input pipeline; base of all datasets.

    Args:
        node: the description so far. Users start from a source such as `MnistDataset` instead.
    """

    def __init__(self, node: Node) -> None:
        # MindSpore's base class cannot be made by users either.
        if not isinstance(node, Node):
            raise SporaxTypeError("For 'Dataset', start from a source, e.g. GeneratorDataset or MnistDataset.")
        self._node = node
        self._children: tuple[Dataset, ...] = ()
        # Iterators without a seed differ by their number, see `first_pass`.
        self._iterators_made = 0

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
            python_multiprocessing: use processes, for slow Python functions. The script then needs the
                ``if __name__ == "__main__":`` guard of Python's `spawn`.
            cache: keeps the results for the next epochs; the operations must not be random.
            callbacks: called as rows are worked on; one thread then works on them in order.
            options: `max_rowsize` warns; MindSpore's other arguments are not offered.

        Raises:
            SporaxRuntimeError: a column does not exist, or an output column exists already.
            SporaxTypeError, SporaxValueError: an argument is not valid.
        """
        _checks.check_options("map", options)
        checked = as_operations("map", operations)
        inputs = self._columns("map", input_columns, self._node.columns[:1])
        outputs = inputs if output_columns is None else _checks.check_names("map", "output_columns", output_columns)
        workers = _checks.check_workers("map", num_parallel_workers)
        processes = _checks.check_bool("map", "python_multiprocessing", python_multiprocessing)
        called = check_callbacks("map", callbacks)
        checked_cache = check_cache("map", cache)
        arguments = (self._node, checked, inputs, outputs, workers, processes, called)
        return self._then(
            "MapDataset", Map(*arguments) if checked_cache is None else CachedMap(*arguments, cache=checked_cache)
        )

    def batch(
        self, batch_size: int | Callable[[batches.BatchInfo], int], drop_remainder: bool = False,
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
        _checks.check_options("batch", options)
        fixed = batches.check_size("batch", batch_size)
        # Checked in MindSpore's order, so that two mistakes give the same first error.
        _checks.check_bool("batch", "drop_remainder", drop_remainder)
        if per_batch_map is None and input_columns is not None:
            words = "input_columns can be specified only when per_batch_map is set."
            raise in_words(SporaxValueError, "batch", words)
        inputs = self._columns("batch", input_columns, self._node.columns)
        outputs = inputs if output_columns is None else _checks.check_names("batch", "output_columns", output_columns)
        if per_batch_map is None:  # as in MindSpore, names of results have no effect without it
            outputs = inputs
        if per_batch_map is not None and not callable(per_batch_map):
            raise _checks.type_error("batch", "per_batch_map", "callable", per_batch_map)
        columns = replaced_columns("batch", self._node.columns, inputs, outputs)
        collate = (
            batches.collate_all
            if per_batch_map is None
            else batches.PerBatchMap(per_batch_map, inputs, outputs, columns)
        )
        return self._then(
            "BatchDataset",
            Batch(
                self._node,
                batches.size_function(batch_size),
                fixed,
                drop_remainder,
                collate,
                columns,
                python=per_batch_map is not None,
                workers=_checks.check_workers("batch", num_parallel_workers),
                processes=_checks.check_bool("batch", "python_multiprocessing", python_multiprocessing),
            ),
        )

    def padded_batch(
        self, batch_size: int | Callable[[batches.BatchInfo], int], drop_remainder: bool = False,
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
        fixed = batches.check_size("padded_batch", batch_size)
        _checks.check_bool("padded_batch", "drop_remainder", drop_remainder)
        collate: Any = batches.collate_all
        if pad_info is not None:
            collate = batches.PaddedCollate(batches.check_pad_info("padded_batch", pad_info, self._node.columns))
        workers = _checks.check_workers("padded_batch", num_parallel_workers)
        size_of = batches.size_function(batch_size)
        node = Batch(self._node, size_of, fixed, drop_remainder, collate, self._node.columns, workers=workers)
        return self._then("PaddedBatchDataset", node)

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
        where = "bucket_batch_by_length"
        names = self._columns(where, column_names, (), argument="column_names")
        if element_length_function is None and len(names) != 1:
            words = "If element_length_function is not specified, exactly one column name should be passed."
            raise in_words(SporaxValueError, where, words, names)
        if element_length_function is not None and not callable(element_length_function):
            raise in_words(SporaxTypeError, where, "element_length_function object is not callable.")
        edges, sizes = batches.check_buckets(where, bucket_boundaries, bucket_batch_sizes)
        pads = None if pad_info is None else batches.check_pad_info(where, pad_info, self._node.columns)
        rewrite = batches.Buckets(
            names,
            edges,
            sizes,
            element_length_function,
            pads,
            _checks.check_bool(where, "pad_to_bucket_boundary", pad_to_bucket_boundary),
            _checks.check_bool(where, "drop_remainder", drop_remainder),
        )
        node = Rewritten(self._node, rewrite, self._node.columns)
        node.makes_batches = True
        return self._then("BucketBatchByLengthDataset", node)

    def shuffle(self, buffer_size: int) -> Dataset:
        """Shuffle through a buffer of `buffer_size` >= 2 rows, in another order each epoch."""
        size = _checks.check_int("shuffle", "buffer_size", buffer_size, 2, _checks.INT32_MAX)
        if self.is_sync():
            # A shuffle buffer would wait for rows that are only released by its own output.
            raise in_words(SporaxRuntimeError, "shuffle", "No shuffle after sync operators.")
        return self._then("ShuffleDataset", Shuffle(self._node, size))

    def repeat(self, count: int | None = None) -> Dataset:
        """The pipeline so far `count` times in one epoch; None or -1 for ever."""
        _checks.check_instance("repeat", "repeat", count, int, type(None))
        times = -1 if count is None else count
        if times != -1 and not 0 < times <= _checks.INT32_MAX:
            words = "count should be either -1 or positive integer, range[1, INT32_MAX]."
            raise in_words(SporaxValueError, "repeat", words, count)
        return self._then("RepeatDataset", Repeat(self._node, ENDLESS if times == -1 else times))

    def skip(self, count: int) -> Dataset:
        """Leave out the first `count` rows."""
        number = _checks.check_int("skip", "count", count, 0, _checks.INT32_MAX)
        return self._then("SkipDataset", Limit(self._node, number, ENDLESS))

    def take(self, count: int = -1) -> Dataset:
        """At most the first `count` rows; -1 for all."""
        _checks.check_instance("take", "count", count, int)
        if count != -1 and not 0 < count <= _checks.INT32_MAX:
            words = (
                f"count should be either -1 or within the required interval of (0, {_checks.INT32_MAX}], got {count}."
            )
            raise in_words(SporaxValueError, "take", words)
        return self._then("TakeDataset", Limit(self._node, 0, ENDLESS if count == -1 else count))

    def project(self, columns: str | list[str]) -> Dataset:
        """Only these columns, in this order. One patch of several may stand for all of them: see `all_ranks`."""
        names = self._columns("project", columns, (), argument="columns")
        return self._then("ProjectDataset", selected(self._node, names))

    def rename(self, input_columns: str | list[str], output_columns: str | list[str]) -> Dataset:
        """New names for some columns."""
        old = self._columns("rename", input_columns, ())
        new = _checks.check_names("rename", "output_columns", output_columns)
        if len(old) != len(new):
            words = "Number of column in input_columns and output_columns is not equal."
            raise in_words(SporaxValueError, "rename", words, (old, new))
        names = replaced_columns("rename", self._node.columns, old, new)
        return self._then("RenameDataset", Select(self._node, dict(zip(self._node.columns, names, strict=True))))

    def zip(self, datasets: Dataset | tuple[Dataset, ...]) -> Dataset:
        """This dataset and others side by side, as long as the shortest; columns must differ."""
        _checks.check_instance("zip", "datasets", datasets, tuple, Dataset)
        return zip_datasets((self, *(datasets if isinstance(datasets, tuple) else (datasets,))))

    def concat(self, datasets: Dataset | list[Dataset]) -> Dataset:
        """This dataset followed by others with the same columns."""
        _checks.check_instance("concat", "datasets", datasets, list, Dataset)
        others = [datasets] if isinstance(datasets, Dataset) else datasets
        for i, item in enumerate(others):
            _checks.check_instance("concat", f"dataset[{i}]", item, Dataset)
        return self._then("ConcatDataset", Concat([self._node, *(item._node for item in others)]), *others)

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
        if not callable(predicate):
            words = "Predicate should be a Python function or a callable Python object."
            raise in_words(SporaxTypeError, "filter", words, predicate)
        names = self._columns("filter", input_columns, self._node.columns)
        workers = _checks.check_workers("filter", num_parallel_workers) or 1
        # Rows at a gate must be asked for one by one.
        workers = 1 if self.is_sync() else workers

        def judged(row: Row) -> tuple[Row, bool]:
            try:
                return row, bool(predicate(*(opened(row[name]) for name in names)))
            # The predicate runs in a worker thread, whose traceback says little.
            except Exception as error:
                raise in_user_code("filter", error, "the predicate") from error

        def rewrite(rows: Iterator[Row], run: Pass) -> Iterator[Row]:
            # In order, since equal scripts must give equal rows whatever the number of threads.
            return (row for row, remains in in_order(rows, judged, workers) if remains)

        return self._then("FilterDataset", Rewritten(self._node, rewrite, self._node.columns, names, workers))

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
        where = "sync_wait"
        _checks.check_independent(where, "Dataset sync wait")
        name = _checks.check_str(where, "condition_name", condition_name)
        number = _checks.check_int(where, "num_batch", num_batch)
        if number < 1:
            raise in_words(SporaxValueError, where, "num_batch need to be greater than 0.", num_batch)
        if callback is not None and not callable(callback):
            raise _checks.type_error(where, "callback", "callable", callback)
        # `sync_update` addresses conditions by name, also across `zip` and `concat`.
        if any(gate.name == name for gate, _ in gates_of(self._node)):
            raise in_words(SporaxRuntimeError, where, "Condition name is already in use.", name)
        return self._then("SyncWaitDataset", SyncWait(self._node, Gate(name, number, callback)))

    def sync_update(self, condition_name: str, num_batch: int | None = None, data: Any = None) -> None:
        """Release batches that wait at a condition, after calling its callback with `data`.

        Args:
            condition_name: name of the condition.
            num_batch: how many; by default as many as `sync_wait` says.
            data: handed to the callback.

        Raises:
            SporaxRuntimeError: there is no such condition, or `num_batch` is not a positive int. No row waits any more then.
        """
        _checks.check_independent("sync_update", "Dataset sync update")
        if num_batch is not None and (not isinstance(num_batch, int) or num_batch <= 0):
            # Waiting rows are let through before an error: the reading thread would block for ever.
            self.disable_sync()
            words = f"Sync_update batch size can only be positive integer, got: {num_batch}."
            raise in_words(SporaxRuntimeError, "sync_update", words)
        name = _checks.check_str("sync_update", "condition_name", condition_name)
        gates = {gate.name: (gate, rows) for gate, rows in gates_of(self._node)}
        if name not in gates:
            self.disable_sync()
            raise in_words(SporaxRuntimeError, "sync_update", "Condition name not found.", name)
        gate, rows = gates[name]
        # Gates count rows; the user counts batches of the whole pipeline.
        gate.release(rows * (gate.num_batch if num_batch is None else num_batch), data)

    def disable_sync(self) -> None:
        """Let the rows at all conditions pass."""
        for gate, _ in gates_of(self._node):
            gate.open()

    def is_sync(self) -> bool:
        """Whether rows wait at a condition."""
        return any(True for _ in gates_of(self._node))

    def flat_map(self, func: Callable[..., Dataset]) -> Dataset:
        """The datasets that `func` makes of each row's columns (as arrays), one after the other.

        Raises:
            SporaxTypeError: `func` is not callable or does not return a Dataset.
        """
        if not callable(func):
            raise in_words(SporaxTypeError, "flat_map", "func must be a function.", func)
        parts: list[Dataset] = []
        for row in self._rows_once():
            part = func(*(row[name] for name in self._node.columns))
            if not isinstance(part, Dataset):
                raise in_words(SporaxTypeError, "flat_map", "flat_map must return a Dataset object.", part)
            parts.append(part)
        if not parts:
            raise SporaxRuntimeError("For 'flat_map', the dataset has no rows.")
        return parts[0].concat(parts[1:])

    def apply(self, apply_func: Callable[[Dataset], Dataset]) -> Dataset:
        """`apply_func(self)`, checked to be a Dataset."""
        if not callable(apply_func):
            raise in_words(SporaxTypeError, "apply", "apply_func must be a function.", apply_func)
        result = apply_func(self)
        if not isinstance(result, Dataset):
            raise in_words(SporaxTypeError, "apply", "apply_func must return a dataset.", result)
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
        _checks.check_bool("split", "randomize", randomize)
        # The parts of a shard would not be parts of the data set.
        if self.is_sharded():
            raise in_words(SporaxRuntimeError, "split", "Dataset should not be sharded before split.")
        # Rows of the whole, so this reads a sequential pipeline once.
        counts = split_counts(sizes, self.get_dataset_size())
        starts = itertools.accumulate(counts, initial=0)
        return tuple(self._part(start, count, randomize) for start, count in zip(starts, counts, strict=False))

    def device_que(
        self, send_epoch_end: bool = True, create_data_info_queue: bool = False, queue_name: str = ""
    ) -> Dataset:
        """Batches for a queue of the device: see `TransferDataset`."""
        transfer: Any = steps["TransferDataset"]
        result: Dataset = transfer(self, send_epoch_end, create_data_info_queue, queue_name)
        return result

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
        names = self._columns("create_tuple_iterator", columns, self._node.columns, argument="column_names")
        return TupleIterator(
            *self._iterator_arguments("create_tuple_iterator", names, num_epochs, output_numpy, do_copy)
        )

    def create_dict_iterator(
        self, num_epochs: int = -1, output_numpy: bool = False, do_copy: bool = False
    ) -> DictIterator:
        """An iterator over rows as dicts column name -> value. Arguments: see `create_tuple_iterator`."""
        where = "create_dict_iterator"
        return DictIterator(*self._iterator_arguments(where, self._node.columns, num_epochs, output_numpy, do_copy))

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
        save_rows(self._node.columns, self._rows_once(), file_name, num_files, file_type)

    def to_json(self, filename: str = "") -> dict[str, Any]:
        """The pipeline as `dataset.serialize` writes it, also into the file `filename` if that is given."""
        document: dict[str, Any] = importlib.import_module("sporax.mindspore.dataset._json_pipelines").serialize(
            self, filename
        )
        return document

    def __iter__(self) -> Iterator[list[Any]]:
        # A plain `for` loop is one epoch; an explicit iterator may go on.
        return self.create_tuple_iterator(num_epochs=1)

    def _iterator_arguments(
        self, where: str, columns: Sequence[str], num_epochs: object, output_numpy: object, do_copy: object
    ) -> tuple[Node, Pass, Sequence[str], int, bool]:
        epochs = _checks.check_int(where, "num_epochs", num_epochs, -1, _checks.INT32_MAX)
        if epochs == 0:
            raise in_words(
                SporaxRuntimeError, where, "num_epochs should be either -1 or positive integer, num_epochs: 0"
            )
        _checks.check_bool(where, "do_copy", do_copy)
        # Fixed here, not at the first row: two iterators made in one order must not swap their seeds.
        first = first_pass(self._iterators_made)
        self._iterators_made += 1
        return (
            self._node,
            first,
            visible_columns(columns),
            epochs,
            _checks.check_bool(where, "output_numpy", output_numpy),
        )

    # -- what belongs to it ------------------------------------------------------------------------------------------

    def num_classes(self) -> int | None:
        """Number of classes, where the source (the last of several) knows it."""
        # The last source for the number of classes and the first for their names, as in MindSpore.
        return self._children[-1].num_classes() if self._children else None

    def get_class_indexing(self) -> dict[str, Any]:
        """Class name -> label, where the source (the first of several) knows it."""
        return self._children[0].get_class_indexing() if self._children else {}

    @property
    def children(self) -> list[Dataset]:
        """The datasets that this one continues; none for a source."""
        return list(self._children)

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

    def _first_row(self) -> Row:
        return first_row(for_all_ranks(self._node))

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _then(self, kind: str, node: Node, *others: Dataset) -> Dataset:
        """A dataset of the class `kind` (see `steps`) that continues this one, and perhaps others."""
        step = steps[kind]
        # Without `__init__`, since classes of steps take other arguments in MindSpore's signature.
        result = step.__new__(step)
        Dataset.__init__(result, node)
        result._children = (self, *others)
        return result

    def _columns(
        self, where: str, value: object, default: Sequence[str], argument: str = "input_columns"
    ) -> tuple[str, ...]:
        if value is None and default:
            return tuple(default)
        names = _checks.check_names(where, argument, value)
        _checks.check_columns_exist(where, names, self._node.columns)
        return names

    def _part(self, start: int, count: int, randomize: bool) -> Dataset:
        """`count` rows of a split, in one order for all epochs."""
        if self.is_shuffled():
            # Parts would be taken from another order in each epoch.
            warnings.warn("For 'split', the dataset is shuffled again each epoch, so its parts will share rows.")
        # A buffer that holds all rows gives a full permutation; 10000 is MindSpore's least size.
        size = max(10000, self.get_dataset_size())
        part = Limit(Shuffle(self._node, size, fixed=True) if randomize else self._node, start, count)
        return self._then("TakeDataset", part)


def zip_datasets(datasets: tuple[Dataset, ...]) -> Dataset:
    """Datasets side by side, as long as the shortest: `mindspore.dataset.zip`.

    Raises:
        SporaxTypeError: not a tuple of datasets.
        SporaxValueError: fewer than two.
        SporaxRuntimeError: two of them share a column name.
    """
    _checks.check_instance("zip", "datasets", datasets, tuple)
    if len(datasets) < 2:
        raise in_words(SporaxValueError, "zip", "Can't zip empty or just one dataset!")
    for item in datasets:
        if not isinstance(item, Dataset):
            words = f"Invalid dataset, expected Dataset object, but got {type(item)}!"
            raise in_words(SporaxTypeError, "zip", words)
    first, *others = datasets
    return first._then("ZipDataset", Zip([item._node for item in datasets]), *others)


# Filled by `_subclasses`, which imports this module; the classes subclass `Dataset`.
steps: dict[str, type[Dataset]] = {}
"""Name -> class of what each step makes; `_subclasses` has them."""
