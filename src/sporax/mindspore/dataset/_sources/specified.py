"""Bases of the data sets of the table: those that can give any row at any time, and those of text files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import SporaxValueError
from sporax.mindspore.dataset import _checks
from sporax.mindspore.dataset._cache import check_cache
from sporax.mindspore.dataset._dataset import Dataset
from sporax.mindspore.dataset._nodes.node import Source
from sporax.mindspore.dataset._sources.columns import ArrayTable
from sporax.mindspore.dataset._sources.file_sampling import FileSampler, Shuffle
from sporax.mindspore.dataset._sources.format import Rows, SpecifiedDataset, opened
from sporax.mindspore.dataset._streams import Table
from sporax.mindspore.dataset._subclasses import MappableDataset, SourceDataset
from sporax.mindspore.dataset.samplers import PKSampler, select_sampler


class FormatDataset(SpecifiedDataset, MappableDataset):
    """Base of data sets that can give any row at any time: their rows are sampled as those of `NumpySlicesDataset`."""

    def _open(self, where: str, columns: Sequence[str], read: Callable[[], Rows], sampling: Mapping[str, Any]) -> None:
        _checks.check_options(where, {"decrypt": sampling.get("decrypt")})
        cache = check_cache(where, sampling.get("cache"))
        names = ("num_samples", "sampler", "shuffle", "num_shards", "shard_id")
        sampler = select_sampler(where, *(sampling.get(name) for name in names))
        # The classes of most data sets are in one column.
        if isinstance(sampler, PKSampler) and sampler.class_column != "label":
            raise SporaxValueError(
                f"For '{where}', 'class_column' of PKSampler must be 'label', but got {sampler.class_column!r}."
            )
        workers = _checks.check_workers(where, sampling["num_parallel_workers"])
        labels = label_column if "label" in columns else None
        table = functools.partial(opened, where, tuple(columns), read)
        MappableDataset.__init__(self, Source(columns, table, sampler, labels=labels, workers=workers, cache=cache))


def label_column(table: Table) -> Any:
    """The class of every row, for PKSampler; None where a row has no single number."""
    label = table.columns["label"] if isinstance(table, ArrayTable) else None
    # Images with several labels have no class to sample by.
    return label if isinstance(label, np.ndarray) and label.ndim == 1 else None


class FileDataset(SpecifiedDataset, SourceDataset):
    """Base of data sets in text files: a rank reads neighboring rows, and files can be shuffled as wholes."""

    def _open(
        self,
        where: str,
        columns: Sequence[str],
        read: Callable[[], Rows],
        sampling: Mapping[str, Any],
        own_files: bool = False,
    ) -> None:
        """See SpecifiedDataset. `own_files`: the files are one rank's share already."""
        cache = check_cache(where, sampling["cache"])
        shuffle = sampling["shuffle"]
        # None means the default, as in MindSpore.
        if isinstance(shuffle, bool) or shuffle is None:
            shuffle = Shuffle.FALSE if shuffle is False else Shuffle.GLOBAL
        if not isinstance(shuffle, Shuffle):
            raise _checks.type_error(where, "shuffle", "a bool or a Shuffle", shuffle)
        if shuffle is Shuffle.INFILE:
            raise SporaxValueError(f"For '{where}', 'shuffle' must not be Shuffle.INFILE: only MindDataset has it.")
        # Both save memory in MindSpore; all rows are in memory here anyway.
        if shuffle in (Shuffle.ADAPTIVE, Shuffle.PARTIAL):
            shuffle = Shuffle.GLOBAL
        shards = _checks.check_shards(where, sampling["num_shards"], sampling["shard_id"])
        num_samples = _checks.check_num_samples(where, sampling["num_samples"])
        workers = _checks.check_workers(where, sampling["num_parallel_workers"])
        sampler = FileSampler(shuffle, shards, num_samples, own_files, workers)
        table = functools.partial(opened, where, tuple(columns), read)
        Dataset.__init__(self, Source(columns, table, sampler, labels=_file_numbers, workers=workers, cache=cache))


def _file_numbers(table: Table) -> NDArray[np.int64]:
    # Every table of a text data set has this attribute; the type of the base has not.
    files: NDArray[np.int64] = vars(table)["files"]
    return files
