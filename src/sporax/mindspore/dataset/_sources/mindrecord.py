"""`MindDataset`: rows from MindRecord files. The files themselves are in `sporax.mindspore.mindrecord`."""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.mindspore._declared import Argument
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._cache import check_cache
from sporax.mindspore.dataset._checks import ConflictingArgumentsError, in_words, refuse
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._rows import Array, Block, Row, block_of
from sporax.mindspore.dataset._sources import format as arg
from sporax.mindspore.dataset._sources.format import FormatDataset, Rows, opened, words_of_shuffle
from sporax.mindspore.dataset._steps.ends import SourceDataset
from sporax.mindspore.dataset._streams import Indices, Table
from sporax.mindspore.dataset.samplers import (
    BuiltinSampler,
    DistributedSampler,
    PKSampler,
    RandomSampler,
    Shuffle,
    select_sampler,
)
from sporax.mindspore.mindrecord._schema import Field, Schema
from sporax.mindspore.mindrecord._shard import Shard, open_shards


class MindRecordTable(Table):
    """The rows of MindRecord files, and rows to fill up with behind them.

    Args:
        shards: the files.
        columns: fields to read.
        padding: the row to fill up with.
        num_padded: how many of them.
    """

    def __init__(self, shards: Sequence[Shard], columns: Sequence[str], padding: Row | None, num_padded: int) -> None:
        self._shards = list(shards)
        self._columns = tuple(columns)
        self._padding = padding
        self._num_padded = num_padded
        self._fields = [shards[0].header.schema.field(name) for name in columns]
        self._starts = np.cumsum([0, *(shard.size for shard in shards)]).tolist()
        self.size = self._starts[-1] + num_padded

    def __reduce__(self) -> tuple[Any, ...]:
        # Processes open the files themselves.
        return MindRecordTable, (self._shards, self._columns, self._padding, self._num_padded)

    def gather(self, indices: Indices) -> Block:
        return block_of([self._row(int(index)) for index in indices])

    def origin(self, index: int) -> str:
        if index >= self._starts[-1]:
            return "the padded sample"
        shard, number = self._place(index)
        return f"row {number} of {shard.path}"

    def files(self) -> NDArray[np.int64]:
        """For every row the number of its file; rows to fill up with count as another file."""
        sizes = [*(shard.size for shard in self._shards), self._num_padded]
        # Rows to fill up with must not be shuffled among those of a file.
        return np.repeat(np.arange(len(sizes)), sizes)

    def classes(self, column: str) -> NDArray[Any]:
        """For every row the value of a column of numbers or strings, for PKSampler."""
        # Reads all rows once; only PKSampler needs classes.
        values = [shard.read(number, [column]).get(column) for shard in self._shards for number in range(shard.size)]
        return np.array(values)

    def _place(self, index: int) -> tuple[Shard, int]:
        file = bisect.bisect_right(self._starts, index) - 1
        return self._shards[file], index - self._starts[file]

    def _row(self, index: int) -> Row:
        if index >= self._starts[-1]:
            assert self._padding is not None
            # A new dict, since `map` replaces columns in it.
            return dict(self._padding)
        shard, number = self._place(index)
        row = shard.read(number, self._columns)
        return {field.name: _value(shard, number, field, row[field.name]) for field in self._fields}


def _value(shard: Shard, number: int, field: Field, value: Any) -> Array:
    try:
        # Numbers in the file may exceed the schema's type.
        return as_column(field, value)
    except OverflowError as error:
        raise SporaxRuntimeError(
            f"For 'MindDataset', field {field.name!r} of row {number} of {str(shard.path)!r} must be {field.kind}, but is "
            f"{value!r}."
        ) from error


def as_column(field: Field, value: Any) -> Array:
    """A stored value as the array of a row: bytes as (1,) of their own length (`tobytes()` has zeros at their end, too).

    Raises:
        OverflowError: a number is too large for its type.
    """
    if field.kind == "bytes":
        return np.array([value], f"S{max(len(value), 1)}")
    if field.kind == "string":
        return np.array(value, np.str_)
    return np.asarray(value, field.kind)


def _sampler(where: str, sampling: Mapping[str, Any]) -> BuiltinSampler:
    shuffle, sampler = sampling["shuffle"], sampling["sampler"]
    by_file = shuffle in (Shuffle.FILES, Shuffle.INFILE)
    if isinstance(shuffle, Shuffle):
        # FILES and INFILE become a child sampler; the one on top only shards or limits.
        shuffle = False if by_file else shuffle is not Shuffle.FALSE
    elif shuffle is not None and not isinstance(shuffle, bool):
        raise words_of_shuffle(where, shuffle)
    names = ("num_samples", "num_shards", "shard_id")
    count, num_shards, shard_id = (sampling[name] for name in names)
    if by_file and count:
        words = "'Shuffle.FILES' or 'Shuffle.INFILE' and 'num_samples' cannot be specified at the same time."
        raise in_words(SporaxValueError, where, words, count)
    chosen = select_sampler(where, count, sampler, shuffle, num_shards, shard_id, by_file=True)
    if not by_file:
        return chosen
    order = RandomSampler(shuffle=sampling["shuffle"])
    order.afresh = isinstance(chosen, DistributedSampler)
    if not order.afresh:
        return order
    chosen.add_child(order)
    return chosen


def _labels(table: Table, sampler: BuiltinSampler) -> NDArray[Any]:
    assert isinstance(table, MindRecordTable)
    # A PKSampler may be below another sampler.
    link: BuiltinSampler | None = sampler
    while link is not None:
        if isinstance(link, PKSampler):
            return table.classes(link.class_column)
        link = link.get_child()
    # Numbers of files serve the shuffles by file.
    return table.files()


def _files(where: str, name: str, value: object) -> list[Path] | Path:
    """Existing files: one stands for all that were written with it."""
    if isinstance(value, list) and value:
        return [check.file(where, f"{name}[{i}]", item) for i, item in enumerate(value)]
    return check.file(where, name, value)


def _padded_count(where: str, name: str, value: object) -> int:
    return 0 if value is None else check.integer(where, name, value, 0, check.INT32_MAX)


def _padded_sample(where: str, name: str, value: object) -> dict[str, Any] | None:
    check.instance(where, name, {} if value is None else value, dict)
    return cast(dict[str, Any], value) or None


def _prepare(
    where: str, files: list[Path] | Path, columns: tuple[str, ...] | None, sample: dict[str, Any] | None,
    num_padded: int,
) -> tuple[Any, ...]:  # fmt: skip
    shards = open_shards([str(file) for file in files] if isinstance(files, list) else str(files))
    schema = _common_schema(where, shards)
    fields = [field.name for field in schema.fields]
    check.columns_exist(where, columns or (), fields)
    # Any of them without the others would be ignored.
    words = ""
    if sample is None and num_padded:
        words = "num_padded is specified but padded_sample is not."
    elif sample is not None and not num_padded:
        words = "padded_sample is specified and requires num_padded as well."
    elif sample is not None and columns is None:
        words = "padded_sample is specified and requires columns_list as well."
    refuse(words, SporaxRuntimeError, where, words)
    padding = None if sample is None else _padding_row(where, schema, columns or (), sample)
    return shards, columns or tuple(fields), padding, num_padded


def _common_schema(where: str, shards: Sequence[Shard]) -> Schema:
    schema = shards[0].header.schema
    other = next((shard for shard in shards if shard.header.schema.fields != schema.fields), None)
    if other is not None:
        raise SporaxRuntimeError(
            f"For '{where}', all files must have one schema, but {str(shards[0].path)!r} has {schema.content()} and "
            f"{str(other.path)!r} has {other.header.schema.content()}."
        )
    return schema


def _padding_row(where: str, schema: Schema, columns: Sequence[str], sample: Mapping[str, Any]) -> Row:
    lacking = next((name for name in columns if name not in sample), None)
    refuse(lacking is not None, ConflictingArgumentsError, where, "padded_sample cannot match columns_list.", lacking)
    return {name: _padding_value(where, schema.field(name), sample[name]) for name in columns}


def _padding_value(where: str, field: Field, value: Any) -> Array:
    try:
        column = as_column(field, value)
        # Bytes and strings have no shape.
        return column if field.shape is None else column.reshape(field.shape)
    except (OverflowError, TypeError, ValueError) as error:
        raise SporaxRuntimeError(
            f"For '{where}', 'padded_sample' must give {field.kind} of shape {list(field.shape or ())} for column "
            f"{field.name!r}, but got {value!r}."
        ) from error


def _columns(where: str, shards: Sequence[Shard], columns: Sequence[str], *padding: Any) -> Sequence[str]:
    return columns


class MindDataset(
    FormatDataset,
    arguments=(
        Argument(
            "dataset_files",
            str | list[str],
            "a MindRecord file, which stands for all files that were written together with it; or a list of files.",
            check=_files,
        ),
        arg.optional("columns_list", list[str], "only these columns.", check.names),
        arg.WORKERS,
        Argument(
            "shuffle",
            bool | Shuffle | None,
            "True, the default, shuffles all rows; Shuffle.FILES the files, Shuffle.INFILE the rows of each file.",
            None,
        ),
        arg.NUM_SHARDS,
        arg.SHARD_ID,
        arg.SAMPLER,
        Argument("padded_sample", dict[str, Any] | None, "a row that fills up the last shard.", None, _padded_sample),
        Argument("num_padded", int | None, "how many rows are filled up.", None, _padded_count),
        arg.NUM_SAMPLES,
        arg.CACHE,
    ),
    columns=_columns,
    prepare=_prepare,
):
    """Rows from MindRecord files, which `mindrecord.FileWriter` and MindSpore write.

    Columns: the fields of the schema in alphabetical order, or `columns_list`. Bytes are (1,) of numpy's type for
    them; before MindSpore 2.3 they were (n,) uint8.
    """

    @staticmethod
    def _read(
        where: str, shards: Sequence[Shard], columns: Sequence[str], padding: Row | None, num_padded: int
    ) -> MindRecordTable:
        table = MindRecordTable(shards, columns, padding, num_padded)
        For(where).refuse_state(not table.size, "there must be at least one sample, but its files hold none")
        return table

    # Not the base's: shuffling by file and labels of any column are special.
    def _open(self, where: str, columns: Sequence[str], read: Callable[[], Rows], sampling: Mapping[str, Any]) -> None:
        cache = check_cache(where, sampling["cache"])
        sampler = _sampler(where, sampling)
        shards, _, _, num_padded = self._values
        shares = check.shards(where, sampling["num_shards"], sampling["shard_id"])
        total = sum(shard.size for shard in shards) + num_padded
        # Otherwise ranks would take different numbers of steps.
        if num_padded and shares is not None and total % shares[0]:
            raise For(where).state_error(
                f"the number of rows with 'num_padded' must be divisible by 'num_shards', but got {total} and {shares[0]}"
            )
        workers = check.workers(where, sampling["num_parallel_workers"])
        labels = functools.partial(_labels, sampler=sampler)
        table = functools.partial(opened, where, columns, read)
        SourceDataset.__init__(self, columns, table, sampler, labels, workers, cache)

    def _order(self, run: Pass) -> Indices:
        return super()._order(dataclasses.replace(run, records=True))

    def __getitem__(self, index: int) -> list[Array]:
        """The columns of row number `index` of the first epoch (the sampler says which row that is).

        Raises:
            SporaxRuntimeError: there is no such row.
        """
        row = self._row(index)
        return [row[name] for name in self._column_names]
