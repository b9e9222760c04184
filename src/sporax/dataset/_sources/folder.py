"""The mould of sources in published formats: a folder (or file) whose rows are known before one is read.

A format says its columns and how to find their rows (`_load`); arguments, samplers and errors are the same for all. The
constructors differ in MindSpore by the place of `usage` and `decode` only, hence the few base classes.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sporax.dataset import _checks
from sporax.dataset._mappable import MappableDataset
from sporax.dataset._nodes import Source
from sporax.dataset._sources.columns import Stored
from sporax.dataset._sources.memory import ArrayTable
from sporax.dataset._tables import Table
from sporax.dataset.samplers import select_sampler
from sporax.ir.errors import SporaxRuntimeError

Load = Callable[[], Mapping[str, Stored]]


class FormatDataset(MappableDataset):
    """Base of sources in published formats.

    Args:
        columns: names of the columns.
        load: finds the rows; called at the first use. What it gives beyond `columns` is left out.
        num_samples: at most this many rows.
        num_parallel_workers: threads that prepare rows.
        shuffle: shuffle each epoch anew; the default.
        sampler: a sampler or row numbers, instead of `shuffle`, `num_samples` and sharding.
        num_shards: number of ranks that share the rows.
        shard_id: this rank.
        cache, decrypt: must be None: not offered.
    """

    def __init__(
        self,
        columns: Sequence[str],
        load: Load,
        num_samples: object,
        num_parallel_workers: object,
        shuffle: object,
        sampler: object,
        num_shards: object,
        shard_id: object,
        cache: object = None,
        decrypt: object = None,
    ) -> None:
        where = type(self).__name__
        _checks.check_options(where, {"cache": cache, "decrypt": decrypt})
        chosen = select_sampler(where, num_samples, sampler, shuffle, num_shards, shard_id)
        workers = _checks.check_workers(where, num_parallel_workers)
        labels = label_column if "label" in columns else None
        store = functools.partial(_opened, where, tuple(columns), load)
        super().__init__(Source(columns, store, chosen, labels=labels, workers=workers))


def _opened(where: str, columns: Sequence[str], load: Load) -> Table:
    found = load()
    table = ArrayTable({name: found[name] for name in columns})
    if not table.size:
        raise SporaxRuntimeError(f"For '{where}', there must be at least one sample, but its files hold none.")
    return table


def label_column(table: Table) -> Any:
    """The class of every row, for PKSampler; None where a row has no single number."""
    label = table.columns["label"] if isinstance(table, ArrayTable) else None
    return label if isinstance(label, np.ndarray) and label.ndim == 1 else None


class UsageDataset(FormatDataset, abc.ABC):
    """A folder with a part for each use. Formats give `_usages`, `_fields` (its columns) and `_load`.

    Args:
        dataset_dir: the folder.
        usage: the part to read; all of them by default.
        num_samples: see FormatDataset, like all further arguments.
        num_parallel_workers: see FormatDataset.
        shuffle: see FormatDataset.
        sampler: see FormatDataset.
        num_shards: see FormatDataset.
        shard_id: see FormatDataset.
        cache: see FormatDataset.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxRuntimeError: (when read) a file is missing or broken.
    """

    _usages: ClassVar[tuple[str, ...]] = ("train", "test", "all")
    _fields: ClassVar[tuple[str, ...]] = ("image", "label")

    def __init__(
        self,
        dataset_dir: str,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = type(self).__name__
        folder = _checks.check_directory(where, dataset_dir)
        part = checked_usage(where, usage, self._usages)
        load = self._load
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        super().__init__(self._fields, lambda: load(where, folder, part), *arguments)

    @staticmethod
    @abc.abstractmethod
    def _load(where: str, folder: Path, part: str) -> Mapping[str, Stored]:
        """The columns of a part."""


class UsageImageDataset(FormatDataset, abc.ABC):
    """A folder of images with a part for each use. Formats give `_usages`, `_fields` (its columns) and `_load`.

    Args:
        dataset_dir: the folder.
        usage: the part to read; all of them by default.
        num_samples: see FormatDataset.
        num_parallel_workers: see FormatDataset.
        shuffle: see FormatDataset.
        decode: pixels (H, W, 3) instead of the bytes of the files (needs Pillow).
        sampler: see FormatDataset.
        num_shards: see FormatDataset.
        shard_id: see FormatDataset.
        cache: see FormatDataset.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxRuntimeError: (when read) a file is missing or broken.
    """

    _usages: ClassVar[tuple[str, ...]] = ("train", "test", "all")

    def __init__(
        self,
        dataset_dir: str,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        decode: bool = False,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = type(self).__name__
        folder = _checks.check_directory(where, dataset_dir)
        part = checked_usage(where, usage, self._usages)
        decoded = _checks.check_bool(where, "decode", decode)
        load = self._load
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        super().__init__(self._column_names(part), lambda: load(where, folder, part, decoded), *arguments)

    @staticmethod
    def _column_names(part: str) -> tuple[str, ...]:
        """Names of the columns of a part."""
        return ("image", "label")

    @staticmethod
    @abc.abstractmethod
    def _load(where: str, folder: Path, part: str, decoded: bool) -> Mapping[str, Stored]:
        """The columns of a part."""


class ImageDataset(FormatDataset, abc.ABC):
    """A folder of images that is read as a whole. Formats give `_fields` (its columns) and `_load`.

    Args:
        dataset_dir: the folder.
        num_samples: see FormatDataset.
        num_parallel_workers: see FormatDataset.
        shuffle: see FormatDataset.
        decode: pixels (H, W, 3) instead of the bytes of the files (needs Pillow).
        sampler: see FormatDataset.
        num_shards: see FormatDataset.
        shard_id: see FormatDataset.
        cache: see FormatDataset.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxRuntimeError: (when read) a file is missing or broken.
    """

    _fields: ClassVar[tuple[str, ...]] = ("image", "label")

    def __init__(
        self,
        dataset_dir: str,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        decode: bool = False,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = type(self).__name__
        folder = _checks.check_directory(where, dataset_dir)
        decoded = _checks.check_bool(where, "decode", decode)
        load = self._load
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        super().__init__(self._fields, lambda: load(where, folder, decoded), *arguments)

    @staticmethod
    @abc.abstractmethod
    def _load(where: str, folder: Path, decoded: bool) -> Mapping[str, Stored]:
        """The columns."""


class PlainDataset(FormatDataset, abc.ABC):
    """A folder that is read as a whole and holds nothing to decode. Formats give `_fields` (its columns) and `_load`.

    Args:
        dataset_dir: the folder.
        num_samples: see FormatDataset.
        num_parallel_workers: see FormatDataset.
        shuffle: see FormatDataset.
        sampler: see FormatDataset.
        num_shards: see FormatDataset.
        shard_id: see FormatDataset.
        cache: see FormatDataset.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxRuntimeError: (when read) a file is missing or broken.
    """

    _fields: ClassVar[tuple[str, ...]] = ("image", "label")

    def __init__(
        self,
        dataset_dir: str,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = type(self).__name__
        folder = _checks.check_directory(where, dataset_dir)
        load = self._load
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        super().__init__(self._fields, lambda: load(where, folder), *arguments)

    @staticmethod
    @abc.abstractmethod
    def _load(where: str, folder: Path) -> Mapping[str, Stored]:
        """The columns."""


def checked_usage(where: str, usage: object, usages: tuple[str, ...]) -> str:
    """The part of a data set; the last of `usages` by default."""
    return usages[-1] if usage is None else _checks.check_choice(where, "usage", usage, usages)
