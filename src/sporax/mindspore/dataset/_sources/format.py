"""Constructors of data sets, built from specifications.

Problem: MindSpore reads about sixty published formats. Their constructors are nearly the same, yet each has its own order of
arguments, its own defaults and a few arguments of its own.

Method: a format is one row, a `Format`, in the class statement: the arguments in order and the names of the columns; the static
method `_read` (or a function, `read`) reads the files. `constructor` makes `__init__` of it: a signature that `inspect`, `help`
and editors see, one check per argument, and a reader that waits for the first use. The bases `FormatDataset` and `FileDataset`
say how the rows are sampled: those of the first can give any row at any time, those of the second are text files. The arguments
that formats share are behind them.

Order of text files: MindSpore gives rows out through a shuffle buffer; here `shuffle=True` is a full permutation. Without it
the order is MindSpore's: its workers get the files in turn, and rows are taken from the workers in turn.

Reference: MindSpore's signatures in `mindspore.dataset` (r2.2); tests/mindspore/golden compares them.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore._declared import REQUIRED, Argument, Check, documented, published, signature_of
from sporax.mindspore.dataset import _checks, config
from sporax.mindspore.dataset._arguments import record_constructor, recorded_arguments
from sporax.mindspore.dataset._cache import DatasetCache, check_cache
from sporax.mindspore.dataset._checks import SharesOfAll
from sporax.mindspore.dataset._described import Arguments
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._shuffles import buffer_order, shuffled
from sporax.mindspore.dataset._sources.reading import ArrayTable, Files, Stored, find_files
from sporax.mindspore.dataset._steps.ends import MappableDataset, SourceDataset
from sporax.mindspore.dataset._streams import Flow, Stream, Table, rows_of
from sporax.mindspore.dataset.samplers import BuiltinSampler, Order, PKSampler, Shuffle, select_sampler

_BUFFER, _FILES_IN_BUFFER = 10_000, 4
"""MindSpore's buffer for rows of files: so many of them, or the rows of so many files of middle size."""


class FileSampler(BuiltinSampler):
    """Order and shards of rows that come from files.

    A shard is a run of neighbouring rows: rank r of S reads ceil(n / S) rows from row r * ceil(n / S) on, wrapping to
    the beginning; or files r, r + S, … Shuffling rearranges the rows of a rank, and the files before they are split into shards.

    Args:
        shuffle: a Shuffle.
        shards: (number of ranks, this rank), or None.
        num_samples: at most this many rows.
        own_files: a shard is whole files; without `shards` these are all.
        workers: among how many the files are dealt out; `config.get_num_parallel_workers()` if None.
    """

    def __init__(
        self, shuffle: Shuffle, shards: tuple[int, int] | None, num_samples: int | None, own_files: bool = False,
        workers: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_samples)
        self._workers = config.get_num_parallel_workers() if workers is None else workers
        self.shuffle = shuffle
        self.shards = shards
        self._draws = shuffle is not Shuffle.FALSE
        self.own_files = own_files

    def is_sharded(self) -> bool:
        """Whether only one rank's share is read."""
        return self.own_files or super().is_sharded()

    def share_of_unequal(self, files: NDArray[Any]) -> int | None:
        """The rows of a rank's files before any are drawn, where unequal ones are dealt out again in each pass; else None.

        Args:
            files: the file of each row.
        """
        rows = np.bincount(files)
        if self.shards is None or not (self.own_files and self._draws) or len(set(rows)) == 1:
            return None
        share = int(rows[self.shards[1] :: self.shards[0]].sum())
        return share if self.num_samples is None else min(share, self.num_samples)

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        """`labels` are the numbers of the files the rows come from."""
        order = self._own_rows(num_rows, run, labels)
        if labels is not None:
            order = _taken_in_turn(order, labels[order], self._workers)
        if self.shuffle is not Shuffle.GLOBAL:
            return order
        # MindSpore shuffles the rows that it has read, which are the first ones.
        order = order[: self.num_samples]
        num_files = 1 if labels is None or not num_rows else int(labels[-1]) + 1
        per_file = -(-num_rows // (1 if self.shards is None else self.shards[0])) // num_files
        buffer = min(_FILES_IN_BUFFER * per_file or _BUFFER, _BUFFER)
        drawn = run.index * len(order)
        if labels is not None and self.share_of_unequal(labels) is not None:
            # What earlier passes have drawn: a number for each of their rows.
            rows, earlier = np.bincount(labels), map(run.at, range(run.index))
            drawn = sum(min(int(rows[self._files(labels, one)].sum()), self.num_samples or num_rows) for one in earlier)
        return order[buffer_order(len(order), buffer, run.seed, drawn)]

    def _files(self, labels: NDArray[Any], run: Pass) -> NDArray[Any]:
        """The files that are read, in the order that is drawn."""
        # Shards begin with the seed 1, so all ranks agree on the order before it is split.
        seed, step = (run.seed, run.step) if self.shards is None else (1, 1)
        files = shuffled(int(labels[-1]) + 1, seed, run.index, step=step)
        # Dealt out again in each pass, which therefore has more or fewer rows where files are of unequal sizes.
        return files if self.shards is None or not self.own_files else files[self.shards[1] :: self.shards[0]]

    def _own_rows(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        """The rows of this rank, file after file, the files in the order that is drawn."""
        order = np.arange(num_rows)
        if self._draws and labels is not None and num_rows:
            files = self._files(labels, run)
            order = np.concatenate([np.flatnonzero(labels == file) for file in files])
        if self.shards is not None and num_rows and not self.own_files:
            count, rank = self.shards.of_rank(run.rank) if isinstance(self.shards, SharesOfAll) else self.shards
            # Rounded up: the last shards wrap, so that all ranks take equally many steps.
            share = -(-num_rows // count)
            order = order[(rank * share + np.arange(share)) % num_rows]
        return order


def _taken_in_turn(order: Order, files: NDArray[Any], workers: int) -> Order:
    """The rows as `workers` give them in turn, each with every `workers`-th run of rows of one file.

    Args:
        order: row numbers, file after file.
        files: the file of each.
        workers: how many take part.
    """
    # A run is a stretch of rows of one file; each goes to the next worker.
    run = np.concatenate([[0], np.cumsum(np.diff(files) != 0)])
    worker = run % workers
    turn = np.empty(len(order), np.int64)
    for number in range(min(workers, int(run[-1]) + 1 if len(order) else 0)):
        own = worker == number
        turn[own] = np.arange(np.count_nonzero(own))
    # First all first rows in order of workers, then the second ones, and so on.
    return order[np.lexsort((worker, turn))]


#: Columns by name, or a table that keeps them in its own way.
Rows = Mapping[str, Stored] | Table


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """The specification of a data set.

    `columns` and `read` get the name of the data set (for messages) and then the checked values of all arguments that have
    a check, in their order.

    Attributes:
        arguments: of the constructor, in MindSpore's order.
        columns: names of the columns, or the function that chooses them.
        read: reads the files, when the first row is requested. What it gives beyond `columns` is left out.
        prepare: checks arguments against one another; gets the same, and returns the values for `columns` and `read`.
    """

    arguments: tuple[Argument, ...]
    columns: Sequence[str] | Callable[..., Sequence[str]]
    read: Callable[..., Rows]
    prepare: Callable[..., tuple[Any, ...]] | None = None


def words_of_shuffle(where: str, value: object) -> SporaxTypeError:
    """The error for a `shuffle` of another kind."""
    modes = " or ".join(f"'Shuffle.{name}'" for name in ("ADAPTIVE", "GLOBAL", "PARTIAL", "FILES", "INFILE"))
    words = f"shuffle must be of boolean or enum of 'Shuffle' values like {modes}."
    return _checks.in_words(SporaxTypeError, where, words, value)


class SpecifiedDataset(abc.ABC):
    """Base of data sets whose class statement has a `format`, or the values of one; it gives them their constructor.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxRuntimeError: (when read) a file is missing or broken; the message names the file and the place in it.
    """

    _format: ClassVar[Format]
    _values: tuple[Any, ...]

    def __init_subclass__(
        cls, *, format: Format | None = None, arguments: tuple[Argument, ...] = (),
        columns: Sequence[str] | Callable[..., Sequence[str]] = ("image", "label"), read: Callable[..., Rows] | None = None,
        prepare: Callable[..., tuple[Any, ...]] | None = None,
    ) -> None:  # fmt: skip
        super().__init_subclass__()
        if read is not None or "_read" in vars(cls):
            format = Format(arguments, columns, read or vars(cls)["_read"].__func__, prepare)
        if format is not None:
            cls._format = format
            # The errors are written once, in the base class.
            errors = inspect.cleandoc(SpecifiedDataset.__doc__ or "").partition("\n\n")[2]
            cls.__doc__ = f"{documented(cls.__doc__, format.arguments)}\n\n{errors}"
            record_constructor(cls, constructor(cls, format))

    def __init__(self, *positional: object, **named: Any) -> None:
        raise For(type(self).__name__).type_error("there is no constructor: start from one of its subclasses")

    @abc.abstractmethod
    def _open(self, where: str, columns: Sequence[str], read: Callable[[], Rows], sampling: Mapping[str, Any]) -> None:
        """Become the data set of these rows.

        Args:
            where: name of the data set, for messages.
            columns: names of the columns.
            read: finds the rows; called at the first use.
            sampling: the values of the arguments without a check.
        """


def constructor(owner: type, row: Format) -> Callable[..., None]:
    """The `__init__` of a data set.

    Args:
        owner: its class, of which messages give the name.
        row: its specification.
    """
    where = owner.__name__
    signature = signature_of(row.arguments)

    def build(self: SpecifiedDataset, /, *positional: object, **named: Any) -> None:
        try:
            bound = signature.bind(self, *positional, **named)
        # MindSpore's errors about arguments are TypeErrors with the name of the API.
        except TypeError as error:
            names = ", ".join(argument.name for argument in row.arguments)
            raise SporaxTypeError(f"For '{where}', the arguments are {names}, but got: {error}.") from None
        bound.apply_defaults()
        checked = [(a.check, a.name, bound.arguments[a.name]) for a in row.arguments]
        values = tuple(check(where, name, value) for check, name, value in checked if check is not None)
        self._values = values if row.prepare is None else row.prepare(where, *values)
        columns = row.columns(where, *self._values) if callable(row.columns) else row.columns
        # Files are read at the first row, so that describing a pipeline reads none.
        read = functools.partial(row.read, where, *self._values)
        self._open(where, columns, read, {name: value for check, name, value in checked if check is None})

    return published(owner, build, signature)


def opened(
    where: str, columns: Sequence[str], read: Callable[[], Rows], place: str = "the source",
    decrypt: Callable[[str], bytes] | None = None,
) -> Table:  # fmt: skip
    """The table of a data set, whose images `decrypt` may read.

    Raises:
        SporaxRuntimeError: it has no rows, or a file is missing or broken.
    """
    rows = read()
    if isinstance(rows, Table):
        return rows
    for column in rows.values():
        if isinstance(column, Files) and decrypt is not None:
            column.decrypt = decrypt
    # Readers may give more columns than the task has.
    table = ArrayTable({name: rows[name] for name in columns}, place)
    if not table.size:
        words = f"Invalid data, no valid data matching the dataset API {where}. Its files hold none."
        raise _checks.in_words(SporaxRuntimeError, where, words)
    return table


class FormatDataset(SpecifiedDataset, MappableDataset):
    """Base of data sets that can give any row at any time: their rows are sampled as those of `NumpySlicesDataset`."""

    def _open(self, where: str, columns: Sequence[str], read: Callable[[], Rows], sampling: Mapping[str, Any]) -> None:
        decrypt = sampling.get("decrypt")
        if decrypt is not None and not callable(decrypt):
            words = f"Argument decrypt is not a callable object, but got {type(decrypt)}"
            raise _checks.in_words(SporaxTypeError, where, words)
        cache = check_cache(where, sampling.get("cache"))
        names = ("num_samples", "sampler", "shuffle", "num_shards", "shard_id")
        sampler = select_sampler(where, *(sampling.get(name) for name in names))
        # CIFAR-100 has two; MindSpore takes the first one.
        label = next((name for name in columns if name in ("label", "coarse_label")), None)
        if isinstance(sampler, PKSampler) and label is None:
            raise _checks.in_words(SporaxValueError, where, f"{where} doesn't support PKSampler.")
        # The classes of most data sets are in one column.
        if isinstance(sampler, PKSampler) and sampler.class_column != "label":
            raise For(where).error("'class_column' of PKSampler must be 'label'", repr(sampler.class_column))
        workers = _checks.workers(where, sampling["num_parallel_workers"])
        labels = functools.partial(label_column, label) if label else None
        # Formats begin with their folder; a few make their rows.
        place = next((str(value) for value in self._values[:1] if isinstance(value, Path)), "the source")
        table = functools.partial(opened, where, tuple(columns), read, place, decrypt)
        SourceDataset.__init__(self, columns, table, sampler, labels, workers, cache)


def label_column(name: str, table: Table) -> Any:
    """The class of every row, for PKSampler; None where a row has no single number."""
    label = table.columns[name] if isinstance(table, ArrayTable) else None
    # Images with several labels have no class to sample by.
    return label if isinstance(label, np.ndarray) and label.ndim == 1 else None


class FileDataset(SpecifiedDataset, SourceDataset):
    """Base of data sets in text files: a rank reads neighboring rows, and files can be shuffled as wholes."""

    def _open(
        self, where: str, columns: Sequence[str], read: Callable[[], Rows], sampling: Mapping[str, Any],
        own_files: bool = False,
    ) -> None:  # fmt: skip
        """See SpecifiedDataset. `own_files`: the files are one rank's share already."""
        cache = check_cache(where, sampling["cache"])
        shuffle = sampling["shuffle"]
        # None means the default, as in MindSpore.
        if isinstance(shuffle, bool) or shuffle is None:
            shuffle = Shuffle.FALSE if shuffle is False else Shuffle.GLOBAL
        if not isinstance(shuffle, Shuffle):
            raise words_of_shuffle(where, shuffle)
        if shuffle is Shuffle.INFILE:
            warnings.warn(f"For '{where}', Shuffle.INFILE shuffles nothing, as in MindSpore: only MindDataset does.")
            shuffle = Shuffle.FALSE
        # Both save memory in MindSpore; all rows are in memory here anyway.
        if shuffle in (Shuffle.ADAPTIVE, Shuffle.PARTIAL):
            shuffle = Shuffle.GLOBAL
        shards = _checks.shards(where, sampling["num_shards"], sampling["shard_id"])
        num_samples = _checks.num_samples(where, sampling["num_samples"])
        workers = _checks.workers(where, sampling["num_parallel_workers"])
        sampler = FileSampler(shuffle, shards, num_samples, own_files, workers)
        table = functools.partial(opened, where, tuple(columns), read)
        SourceDataset.__init__(self, columns, table, sampler, _file_numbers, workers, cache)

    def _stream(self, run: Pass) -> Stream:
        stream = super()._stream(run)
        # Without a size, as that of the next pass is another.
        return stream if self._share_of_unequal() is None else Flow(lambda: rows_of(stream))

    def _share_of_unequal(self) -> int | None:
        sampler = self._picking("[]")
        return sampler.share_of_unequal(_file_numbers(self._store())) if isinstance(sampler, FileSampler) else None

    def _count(self) -> int:
        # MindSpore counts the rows of the files in the order of their list, too.
        share = self._share_of_unequal()
        return super()._count() if share is None else share

    def _arguments(self) -> Arguments:
        requested = recorded_arguments(self)
        shuffle = requested["shuffle"]
        if not isinstance(shuffle, Shuffle):
            shuffle = Shuffle.FALSE if shuffle is False else Shuffle.GLOBAL
        shards = {"num_shards": requested["num_shards"] or 1, "shard_id": requested["shard_id"] or 0}
        return requested | {"shuffle": shuffle, "num_samples": requested["num_samples"] or 0} | shards


def _file_numbers(table: Table) -> NDArray[np.int64]:
    # Every table of a text data set has this attribute; the type of the base has not.
    return vars(table)["files"]


def folder(doc: str) -> Argument:
    """`dataset_dir`, an existing folder."""
    return Argument("dataset_dir", str, doc, check=lambda where, _, value: _checks.directory(where, value))


def file(name: str, doc: str) -> Argument:
    """An existing file."""
    return Argument(name, str, doc, check=_checks.file)


def with_files(names: Callable[..., Iterable[str]]) -> Callable[..., tuple[Any, ...]]:
    """`prepare` of a `Format` whose files MindSpore looks for at once; `names` gets what follows the folder.

    A name that ends with a slash is a folder.
    """

    def prepare(where: str, folder: Path, *values: object) -> tuple[Any, ...]:
        for name in names(*values):
            if name.endswith("/"):
                _checks.directory(where, str(folder / name))
            else:
                _checks.file(where, "dataset_dir", str(folder / name))
        return folder, *values

    return prepare


def dataset_files(pattern: str) -> Argument:
    """`dataset_files`, text files."""
    doc = f'a file, a pattern such as "{pattern}", or a list of them.'
    return Argument("dataset_files", str | list[str], doc, check=lambda where, _, value: find_files(where, value))


def usage(*choices: str, doc: str = "") -> Argument:
    """`usage`, the part to read: "all" by default where it is one of `choices`, else the first."""
    return choice("usage", *choices, doc=doc, missing="all" if "all" in choices else "")


def choice(
    name: str, *choices: str, doc: str = "", default: object = None, missing: str = "", words: str = ""
) -> Argument:
    """One of a few strings.

    Args:
        name: of the argument.
        choices: the strings.
        doc: the strings by default.
        default: MindSpore's default, or REQUIRED.
        missing: what None means where it is the default; the first by default.
        words: MindSpore's about another string, with {} for it, where they are not the usual ones.
    """
    missing = missing or choices[0]
    doc = doc or f"{quoted(choices)}{'' if default is REQUIRED else f'; {default or missing!r} by default'}."

    def check(where: str, name: str, value: object) -> str:
        if value is None and default is None:
            return missing
        if words and isinstance(value, str) and value not in choices:
            raise _checks.in_words(SporaxValueError, where, words.format(value))
        return _checks.choice(where, name, value, choices)

    return Argument(name, str | None if default is None else str, doc, default, check)


def quoted(choices: tuple[str, ...]) -> str:
    """``"a", "b" or "c"``."""
    *first, last = (f'"{text}"' for text in choices)
    return f"{', '.join(first)} or {last}" if first else last


def flag(name: str, default: bool, doc: str) -> Argument:
    """True or False."""
    return Argument(name, bool, doc, default, _checks.boolean)


def text(name: str, default: str, doc: str) -> Argument:
    """Any string."""
    return Argument(name, str, doc, default, _checks.text)


def integer(name: str, default: int, doc: str, low: int = -_checks.INT32_MAX) -> Argument:
    """A whole number of 32 bits, at least `low`."""
    return Argument(name, int, doc, default, functools.partial(_checks.integer, low=low, high=_checks.INT32_MAX))


def optional(name: str, annotation: Any, doc: str, check: Check) -> Argument:
    """An argument that is checked unless it is None, the default."""

    def check_value(where: str, name: str, value: object) -> Any:
        return None if value is None else check(where, name, value)

    return Argument(name, annotation | None, doc, None, check_value)


def classes(doc: str) -> Argument:
    """`class_indexing`: class -> label."""
    return optional("class_indexing", dict[str, int], doc, _class_numbers)


def _class_numbers(where: str, name: str, value: object) -> dict[str, int] | None:
    if not isinstance(value, dict):
        raise _checks.type_error(where, name, "a dict of name -> int", value)
    # An empty one means all classes, as in MindSpore.
    return {
        _checks.text(where, name, kind): _checks.integer(where, f"{name}[{kind!r}]", label)
        for kind, label in value.items()
    } or None


EXTRA_METADATA = flag(
    "extra_metadata", False, "add the column `_meta-filename` () str, which iterators give once it was renamed."
)
EXTENSIONS = optional(
    "extensions",
    list[str],
    'only files with these endings, such as [".jpg", ".png"]; all files by default.',
    _checks.names,
)

_PIXELS = "pixels (H, W, 3) uint8 instead of the bytes (n,) uint8 of the image files (needs Pillow)."
DECODE = flag("decode", False, _PIXELS)
#: Some constructors have None as the default, which means False.
DECODE_OR_NONE = Argument(
    "decode",
    bool | None,
    _PIXELS,
    None,
    lambda where, name, value: value is not None and _checks.boolean(where, name, value),
)

# How rows are sampled: no checks here, see `FormatDataset` and `FileDataset`.

NUM_SAMPLES = Argument("num_samples", int | None, "at most this many rows.", None)
WORKERS = Argument("num_parallel_workers", int | None, "threads that prepare rows.", None)
ONE_WORKER = Argument("num_parallel_workers", int, "threads that prepare rows.", 1)
SHUFFLE = Argument("shuffle", bool | None, "shuffle each epoch in another order; the default.", None)
SAMPLER = Argument("sampler", Any, "a sampler or row numbers, instead of `shuffle`, `num_samples` and sharding.", None)
NUM_SHARDS = Argument("num_shards", int | None, "number of ranks that share the rows.", None)
SHARD_ID = Argument("shard_id", int | None, "this rank.", None)
CACHE = Argument("cache", DatasetCache | None, "keeps the rows for the next epochs.", None)
DECRYPT = Argument(
    "decrypt", Callable[[str], bytes] | None, "gives the content of an encrypted image file, whose path it gets.", None
)

#: Without `decode`, with it, and with it where MindSpore's constructor has no `cache`.
SAMPLED = (NUM_SAMPLES, WORKERS, SHUFFLE, SAMPLER, NUM_SHARDS, SHARD_ID, CACHE)
SAMPLED_IMAGES = (NUM_SAMPLES, WORKERS, SHUFFLE, DECODE, SAMPLER, NUM_SHARDS, SHARD_ID, CACHE)
SAMPLED_UNCACHED = (NUM_SAMPLES, ONE_WORKER, SHUFFLE, DECODE, SAMPLER, NUM_SHARDS, SHARD_ID)


def in_folder(doc: str, *own: Argument, sampled: tuple[Argument, ...] = SAMPLED) -> tuple[Argument, ...]:
    """`folder`, arguments of the format's own, and how its rows are sampled."""
    return folder(doc), *own, *sampled


images_in = functools.partial(in_folder, sampled=SAMPLED_IMAGES)


def text_shuffle(annotation: object = bool | Shuffle, default: object = Shuffle.GLOBAL) -> Argument:
    """`shuffle` of text files."""
    return Argument("shuffle", annotation, "True or Shuffle.GLOBAL (the default), Shuffle.FILES, or False.", default)


TEXT_SHUFFLE = text_shuffle()
NEIGHBORING_SHARDS = Argument(
    "num_shards", int | None, "number of ranks that share the rows; each reads neighboring rows.", None
)

#: The arguments of text files; a few constructors have the number of workers further back.
SAMPLED_FILES = (NUM_SAMPLES, WORKERS, TEXT_SHUFFLE, NEIGHBORING_SHARDS, SHARD_ID, CACHE)
SAMPLED_FILES_LATER = (NUM_SAMPLES, TEXT_SHUFFLE, NEIGHBORING_SHARDS, SHARD_ID, WORKERS, CACHE)


def replaced(arguments: tuple[Argument, ...], *others: Argument) -> tuple[Argument, ...]:
    """The arguments with `others` in the places of those of the same names."""
    by_name = {argument.name: argument for argument in others}
    return tuple(by_name.get(argument.name, argument) for argument in arguments)
