"""Constructors of data sets, built from specifications.

Problem: MindSpore reads about sixty published formats. Their constructors are nearly the same, yet each has its own order of
arguments, its own defaults and a few arguments of its own.

Method: a format is one row, a `Format`, in the class statement: the arguments in order, the names of the columns, and the
function that reads the files. `constructor` makes `__init__` of it: a signature that `inspect`, `help` and editors see, one
check per argument, and a reader that waits for the first use. The bases `FormatDataset` and `FileDataset` say how the rows are
sampled: those of the first can give any row at any time, those of the second are text files.

Order of text files: MindSpore gives rows out through a shuffle buffer; here `shuffle=True` is a full permutation. Without it
the order is MindSpore's: its workers get the files in turn, and rows are taken from the workers in turn.

Reference: MindSpore's signatures in `mindspore.dataset` (r2.2); tests/mindspore/golden compares them.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks, config
from sporax.mindspore.dataset._cache import check_cache
from sporax.mindspore.dataset._checks import SharesOfAll
from sporax.mindspore.dataset._described import Arguments
from sporax.mindspore.dataset._operations import record_constructor, recorded_arguments
from sporax.mindspore.dataset._random import Pass
from sporax.mindspore.dataset._sources.columns import ArrayTable, Files, Stored
from sporax.mindspore.dataset._steps.ends import MappableDataset, SourceDataset
from sporax.mindspore.dataset._streams import Table
from sporax.mindspore.dataset.samplers import BuiltinSampler, Order, PKSampler, Shuffle, select_sampler


class FileSampler(BuiltinSampler):
    """Order and shards of rows that come from files.

    A shard is a run of neighbouring rows: rank r of S reads ceil(n / S) rows from row r * ceil(n / S) on, wrapping to
    the beginning. Shuffling rearranges the rows of a rank; FILES rearranges the files before they are split into shards.

    Args:
        shuffle: a Shuffle.
        shards: (number of ranks, this rank), or None.
        num_samples: at most this many rows.
        own_files: the files are one rank's share already.
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

    def _order(self, num_rows: int, run: Pass, labels: NDArray[Any] | None) -> Order:
        """`labels` are the numbers of the files the rows come from."""
        order = np.arange(num_rows)
        limited = self.shuffle is Shuffle.GLOBAL and self.num_samples is not None
        if (self.shuffle is Shuffle.FILES or limited) and labels is not None and num_rows:
            # `shared`: all ranks must agree on the order before it is split into shards.
            files = run.shuffler(shared=True).permutation(int(labels[-1]) + 1)
            order = np.concatenate([np.flatnonzero(labels == file) for file in files])
        if self.shards is not None and num_rows:
            count, rank = self.shards.of_rank(run.rank) if isinstance(self.shards, SharesOfAll) else self.shards
            # Rounded up: the last shards wrap, so that all ranks take equally many steps.
            share = -(-num_rows // count)
            order = order[(rank * share + np.arange(share)) % num_rows]
        if limited:
            # MindSpore shuffles the rows that it has read, which are the first ones.
            order = (order if labels is None else _taken_in_turn(order, labels[order], self._workers))[
                : self.num_samples
            ]
        if self.shuffle is Shuffle.GLOBAL:
            # Ranks with shards shuffle by the shared seed: their shares must come from one permutation.
            return run.shuffler(shared=self.shards is not None).permutation(order)
        return order if labels is None else _taken_in_turn(order, labels[order], self._workers)


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


REQUIRED = inspect.Parameter.empty

#: (data set, argument, value) -> the value in the form that the reader wants; raises where the value is not valid.
Check = Callable[[str, str, Any], Any]

#: Columns by name, or a table that keeps them in its own way.
Rows = Mapping[str, Stored] | Table


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a constructor.

    Attributes:
        name: MindSpore's name for it.
        annotation: its type.
        doc: its line in the documentation.
        default: MindSpore's default, or REQUIRED.
        check: see `Check`; None for an argument that says how rows are sampled: the base class checks it, and the reader
            does not get it.
    """

    name: str
    annotation: Any
    doc: str
    default: Any = REQUIRED
    check: Check | None = None

    def parameter(self) -> inspect.Parameter:
        """Its place in the signature."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(self.name, kind, default=self.default, annotation=self.annotation)


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
        if read is not None:
            format = Format(arguments, columns, read, prepare)
        if format is not None:
            cls._format = format
            cls.__doc__ = _documentation(cls.__doc__, format)
            record_constructor(cls, constructor(cls, format))

    def __init__(self, *positional: Any, **named: Any) -> None:
        raise SporaxTypeError(
            f"For '{type(self).__name__}', there is no constructor: start from one of its subclasses."
        )

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
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    signature = inspect.Signature([this, *(argument.parameter() for argument in row.arguments)], return_annotation=None)

    def build(self: SpecifiedDataset, /, *positional: Any, **named: Any) -> None:
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

    build.__name__, build.__qualname__, build.__module__ = (
        "__init__",
        f"{owner.__qualname__}.__init__",
        owner.__module__,
    )
    build.__doc__ = "See the class for what the arguments mean."
    build.__annotations__ = {argument.name: argument.annotation for argument in row.arguments} | {"return": None}
    # `vars`, since the type checker knows no such attribute of functions.
    vars(build)["__signature__"] = signature
    return build


def _documentation(text: str | None, row: Format) -> str:
    """The text of a class with a line for each argument, and the errors of all data sets."""
    lines = [
        textwrap.fill(f"{a.name}: {a.doc}", 116, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for a in row.arguments
    ]
    # The errors are written once, in the base class.
    errors = inspect.cleandoc(SpecifiedDataset.__doc__ or "").partition("Raises:")
    return "\n".join([inspect.cleandoc(text or ""), "", "Args:", *lines, "", errors[1] + errors[2]])


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
        raise SporaxRuntimeError(f"For '{where}', there must be at least one sample, but its files hold none.")
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
        if isinstance(sampler, PKSampler) and "label" not in columns:
            raise _checks.in_words(SporaxValueError, where, f"{where} doesn't support PKSampler.")
        # The classes of most data sets are in one column.
        if isinstance(sampler, PKSampler) and sampler.class_column != "label":
            raise SporaxValueError.must(where, "'class_column' of PKSampler", "be 'label'", repr(sampler.class_column))
        workers = _checks.workers(where, sampling["num_parallel_workers"])
        labels = label_column if "label" in columns else None
        # Formats begin with their folder; a few make their rows.
        place = next((str(value) for value in self._values[:1] if isinstance(value, Path)), "the source")
        table = functools.partial(opened, where, tuple(columns), read, place, decrypt)
        SourceDataset.__init__(self, columns, table, sampler, labels, workers, cache)


def label_column(table: Table) -> Any:
    """The class of every row, for PKSampler; None where a row has no single number."""
    label = table.columns["label"] if isinstance(table, ArrayTable) else None
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
            raise SporaxValueError(f"For '{where}', 'shuffle' must not be Shuffle.INFILE: only MindDataset has it.")
        # Both save memory in MindSpore; all rows are in memory here anyway.
        if shuffle in (Shuffle.ADAPTIVE, Shuffle.PARTIAL):
            shuffle = Shuffle.GLOBAL
        shards = _checks.shards(where, sampling["num_shards"], sampling["shard_id"])
        num_samples = _checks.num_samples(where, sampling["num_samples"])
        workers = _checks.workers(where, sampling["num_parallel_workers"])
        sampler = FileSampler(shuffle, shards, num_samples, own_files, workers)
        table = functools.partial(opened, where, tuple(columns), read)
        SourceDataset.__init__(self, columns, table, sampler, _file_numbers, workers, cache)

    def _arguments(self) -> Arguments:
        asked = recorded_arguments(self)
        shuffle = asked["shuffle"]
        if not isinstance(shuffle, Shuffle):
            shuffle = Shuffle.FALSE if shuffle is False else Shuffle.GLOBAL
        shards = {"num_shards": asked["num_shards"] or 1, "shard_id": asked["shard_id"] or 0}
        return asked | {"shuffle": shuffle, "num_samples": asked["num_samples"] or 0} | shards


def _file_numbers(table: Table) -> NDArray[np.int64]:
    # Every table of a text data set has this attribute; the type of the base has not.
    return vars(table)["files"]
