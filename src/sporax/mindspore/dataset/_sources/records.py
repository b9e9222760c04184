"""Sources that a schema may describe: TFRecord files, and random rows; and rows for filling up."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._cache import DatasetCache
from sporax.mindspore.dataset._rows import Array, Block, Row, block_of
from sporax.mindspore.dataset._sources import format as arg, tfrecord
from sporax.mindspore.dataset._sources.format import FileDataset, FormatDataset, Rows
from sporax.mindspore.dataset._sources.memory import GeneratorDataset
from sporax.mindspore.dataset._sources.reading import Computed, find_files, reading
from sporax.mindspore.dataset._streams import Indices, Table
from sporax.mindspore.dataset.samplers import Shuffle


class TFRecordDataset(FileDataset):
    """Rows from TFRecord files of `tf.train.Example` messages.

    Without a schema the columns are the features of the first row in alphabetical order: int64 (n,), float32 (n,), and bytes
    as uint8 (n,); several byte strings are put together, each filled with spaces to the length of the longest.

    Args:
        dataset_files: a file, a pattern such as "*.tfrecord", or a list of them.
        schema: a Schema or the name of its file: columns, dtypes and shapes, and how many rows to read.
        columns_list: only these columns.
        num_samples: at most this many rows.
        num_parallel_workers: threads that prepare rows.
        shuffle: True or Shuffle.GLOBAL (the default), Shuffle.FILES, or False.
        num_shards: number of ranks that share the rows.
        shard_id: this rank.
        shard_equal_rows: every rank reads equally many rows; False shares whole files.
        cache: keeps the rows for the next epochs.
        compression_type: None, "", "GZIP" or "ZLIB".

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxRuntimeError: a file is broken (the message names file and record), or lacks a column; fewer files than ranks.
    """

    def __init__(
        self, dataset_files: str | list[str], schema: tfrecord.Schema | str | None = None,
        columns_list: list[str] | None = None, num_samples: int | None = None,
        num_parallel_workers: int | None = None, shuffle: bool | Shuffle = Shuffle.GLOBAL,
        num_shards: int | None = None, shard_id: int | None = None, shard_equal_rows: bool = False,
        cache: DatasetCache | None = None, compression_type: str | None = None,
    ) -> None:  # fmt: skip
        where = "TFRecordDataset"
        paths = find_files(where, dataset_files)
        described = tfrecord.as_schema(where, schema)
        chosen = None if columns_list is None else check.names(where, "columns_list", columns_list)
        shards = check.shards(where, num_shards, shard_id)
        equal = check.boolean(where, "shard_equal_rows", shard_equal_rows)
        packed = check.choice(where, "compression_type", compression_type or "", ("", "GZIP", "ZLIB"))
        # MindSpore deals out whole files unless equal rows are requested.
        # One process that reads for all ranks has all files.
        own_files = shards is not None and not equal and not isinstance(shards, check.SharesOfAll)
        if shards is not None and own_files:
            dealt = _own_files(paths, *shards)
            if shuffle is False:  # the same in each pass
                paths, shards = dealt, None
        columns = _columns_of(where, paths, described, chosen, packed)
        count, rank = shards or (None, None)
        sampling = {
            # A schema may limit the rows, but the user's number counts first.
            "num_samples": num_samples or (None if described is None else described.num_rows),
            "num_parallel_workers": num_parallel_workers,
            "shuffle": shuffle,
            "num_shards": count,
            "shard_id": rank,
            "cache": cache,
        }
        read = functools.partial(RecordTable, where, paths, columns, packed)
        self._open(where, tuple(columns), read, sampling, own_files)


def _own_files(paths: Sequence[Path], count: int, rank: int) -> list[Path]:
    # A rank without a file would have nothing to read.
    if len(paths) < count:
        raise SporaxRuntimeError(
            "For 'TFRecordDataset', numbers of tfrecord file should not less than num_shards unless 'shard_equal_rows' is set. "
            f"Got {len(paths)} and {count}."
        )
    # In turn, so that files of growing size are shared evenly.
    return list(paths[rank::count])


def _columns_of(
    where: str, paths: Sequence[Path], schema: tfrecord.Schema | None, chosen: tuple[str, ...] | None, packed: str
) -> dict[str, tfrecord.SchemaColumn | None]:
    """Column -> what the schema says of it."""
    if schema is not None:
        columns: dict[str, tfrecord.SchemaColumn | None] = {column.name: column for column in schema.columns}
    elif chosen is not None:
        # Without a schema, columns that the user names are taken as they are stored.
        return dict.fromkeys(chosen)
    else:
        path, first = next(
            # The first file with a record shows the features.
            ((p, records[0]) for p in paths if (records := tfrecord.find_records(where, p, packed))),
            (paths[0], None),
        )
        if first is None:
            raise SporaxRuntimeError(f"For '{where}', the files must hold records, but {str(path)!r} … hold none.")
        with reading(where, path, "record 0"):
            # Alphabetical, as MindSpore's map gives them.
            columns = dict.fromkeys(sorted(tfrecord.parse_example(tfrecord.content_of(first))))
    missing = [name for name in chosen or () if name not in columns]
    if missing:
        raise SporaxValueError(f"For '{where}', 'columns_list' has {missing[0]!r}, but the schema {list(columns)}.")
    return {name: columns[name] for name in chosen or columns}


class RecordTable(Table):
    """The records of files, parsed when a row is requested.

    Attributes:
        files: for every row the number of its file.
    """

    def __init__(
        self, where: str, paths: Sequence[Path], columns: Mapping[str, tfrecord.SchemaColumn | None], packed: str
    ) -> None:
        files = [tfrecord.find_records(where, path, packed) for path in paths]
        self._arguments = (where, paths, columns, packed)
        # Views into mapped files: contents are looked at when rows are requested.
        self._records = [record for records in files for record in records]
        self._starts = np.cumsum([0, *map(len, files)])
        self.files = np.repeat(np.arange(len(paths)), [len(records) for records in files])
        self.size = len(self._records)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process maps the files itself.
        return RecordTable, self._arguments

    def gather(self, indices: Indices) -> Block:
        return block_of([self._row(int(index)) for index in indices])

    def origin(self, index: int) -> str:
        file = int(self.files[index])
        return f"record {index - self._starts[file]} of {self._arguments[1][file]}"

    def _row(self, index: int) -> Row:
        where, paths, columns, _ = self._arguments
        file = int(self.files[index])
        with reading(where, paths[file], f"record {index - self._starts[file]}"):
            # The checksum is compared here, with the row's number at hand.
            features = tfrecord.parse_example(tfrecord.content_of(self._records[index]))
            return {name: _value(name, features, column) for name, column in columns.items()}


def _value(name: str, features: Mapping[str, tfrecord.Values], column: tfrecord.SchemaColumn | None) -> Array:
    if name not in features:
        fault = f"Feature name: {name} is required in schema but could not be found in tfrecord file."
        if column is None:
            fault = f"Invalid columns_list, tfrecord file failed to find column name: {name}."
        raise ValueError(f"{fault} There are {sorted(features)}")
    values = features[name]
    # Bytes are read as strings or single bytes, and nothing else is read as strings.
    of_bytes, kinds = isinstance(values, list), ("string", "uint8")
    if column is not None and (column.kind not in kinds if of_bytes else column.kind == "string"):
        fault = f"The data type loaded from the example for feature name: {name} does not match the predefined type in schema"
        raise ValueError(f"{fault}: {'bytes' if isinstance(values, list) else values.dtype} and {column.kind}")
    if isinstance(values, list):
        value = _of_bytes(values, column)
    else:
        # A schema may request another width than the file's int64 and float32.
        value = values if column is None else values.astype(column.dtype)
    if column is None or column.shape is None:
        return value
    try:
        return value.reshape(column.shape)
    except ValueError as error:
        fault = f"Column shape of {name} defined in schema does not match the shape actually load"
        raise ValueError(f"{fault}: {error}") from error


def _of_bytes(values: list[bytes], column: tfrecord.SchemaColumn | None) -> Array:
    if column is not None and column.kind == "string":
        return np.array([value.decode() for value in values], np.str_)
    # Byte strings of one row are put together; MindSpore fills them with spaces.
    longest = max(map(len, values), default=0)
    joined = b"".join(value.ljust(longest) for value in values)
    return np.frombuffer(joined, np.uint8 if column is None else column.dtype).copy()


_RANDOM_TYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")


def _random_columns(names: tuple[str, ...] | None, rng: np.random.Generator) -> list[tfrecord.SchemaColumn]:
    # MindSpore makes up columns as well; here always the same ones.
    chosen = names or [f"c{i}" for i in range(int(rng.integers(1, 5)))]
    return [
        # Up to three dimensions of up to eight elements: small, as the content does not matter.
        tfrecord.SchemaColumn(
            name, str(rng.choice(_RANDOM_TYPES)), tuple(rng.integers(1, 9, rng.integers(0, 4)).tolist())
        )
        for name in chosen
    ]


def _random_values(
    where: str, total_rows: int | None, schema: tfrecord.Schema | None, names: tuple[str, ...] | None
) -> tuple[list[tfrecord.SchemaColumn], int]:
    """The columns, and the number of rows."""
    # A fixed seed, so that two runs have equal columns.
    rng = np.random.default_rng(0)
    columns = _random_columns(names, rng) if schema is None else schema.columns
    if schema is not None and names is not None:
        check.columns_exist(where, names, [column.name for column in columns])
        columns = [column for column in columns if column.name in names]
    text = next((column.name for column in columns if column.kind == "string"), None)
    if text is not None or not columns:
        problem = "there is none" if text is None else f"column {text!r} holds strings"
        raise SporaxValueError(f"For '{where}', the schema must have columns of numbers, but {problem}.")
    return columns, total_rows or int(rng.integers(1, 1000))


class RandomDataset(
    FormatDataset,
    arguments=(
        arg.optional("total_rows", int, "how many; random by default.", functools.partial(check.integer, low=1)),
        arg.optional(
            "schema",
            tfrecord.Schema | str,
            "a Schema or the name of its file; random columns by default.",
            lambda where, _, value: tfrecord.as_schema(where, value),
        ),
        arg.optional(
            "columns_list",
            list[str],
            "names of the columns (of a schema: only these); c0, c1, … by default.",
            check.names,
        ),
        *(arg.NUM_SAMPLES, arg.WORKERS, arg.CACHE, arg.SHUFFLE, arg.NUM_SHARDS, arg.SHARD_ID),
    ),
    columns=lambda where, columns, count: [column.name for column in columns],
    prepare=_random_values,
):
    """Random rows, for trying out a pipeline. The numbers are not MindSpore's."""

    @staticmethod
    def _read(where: str, columns: Sequence[tfrecord.SchemaColumn], count: int) -> Rows:
        def column_of(place: int, column: tfrecord.SchemaColumn) -> Computed:
            # -1 in a schema is any size.
            shape = tuple(max(size, 1) for size in column.shape or ())

            def value(row: int) -> Array:
                rng = np.random.default_rng((place, row))
                if column.dtype.kind == "f":
                    return np.asarray(rng.random(shape), column.dtype)
                # 127 fits in every integer type.
                limit = 2 if column.dtype.kind == "b" else 127
                return np.asarray(rng.integers(0, limit, shape), column.dtype)

            return Computed(count, value)

        return {column.name: column_of(place, column) for place, column in enumerate(columns)}


class PaddedDataset(GeneratorDataset):
    """Rows of the user's, mainly to be put behind a dataset so that its rows can be shared out evenly.

    Args:
        padded_samples: rows: column name -> array.

    Raises:
        SporaxTypeError: not a list of dicts.
        SporaxValueError: no rows, or rows of other columns than the first.
    """

    def __init__(self, padded_samples: list[dict[str, Any]]) -> None:
        where = "PaddedDataset"
        check.refuse(not padded_samples, SporaxValueError, where, "padded_samples cannot be empty.")
        check.instance(where, "padded_samples", padded_samples, list)
        for row in padded_samples:
            check.instance(where, "padded_element", row, dict)
        # Rows of several forms could not be batched.
        if any(row.keys() != padded_samples[0].keys() for row in padded_samples):
            raise SporaxValueError(f"For '{where}', 'padded_samples' must hold rows of the same columns, at least one.")
        names = list(padded_samples[0])
        rows = [tuple(row[name] for name in names) for row in padded_samples]
        # In the given order: they are put behind other rows.
        super().__init__(rows, names, shuffle=False)
        self.padded_samples = padded_samples
