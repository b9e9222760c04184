"""The classes of what each step of a pipeline makes: `BatchDataset`, `MapDataset`, ….

Programs ask for them with `isinstance`, and a few make them by hand; both go through the methods of `Dataset`, which these
classes name. `StepDataset` registers each under its name, so that the methods find them.
"""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxValueError
from sporax.mindspore.dataset import _checks
from sporax.mindspore.dataset._dataset import Dataset, steps, zip_datasets
from sporax.mindspore.dataset._joined_nodes import Concat
from sporax.mindspore.dataset._nodes import Batch, Repeat
from sporax.mindspore.dataset._tables import ENDLESS
from sporax.mindspore.dataset.samplers import DistributedSampler, RandomSampler


class StepDataset(Dataset):
    """What a step makes.

    Args:
        input_dataset: the dataset before.
        arguments: those of the method of `Dataset` that makes this step.
        options: as `arguments`, by name.
    """

    _method: str

    def __init_subclass__(cls, method: str) -> None:
        super().__init_subclass__()
        cls._method = method
        # Into the table by name, so that `_dataset` need not import this module.
        steps[cls.__name__] = cls

    def __init__(self, input_dataset: Dataset, *arguments: Any, **options: Any) -> None:
        # By the method: arguments and checks are written once.
        self._become(getattr(input_dataset, self._method)(*arguments, **options))

    def _become(self, other: Dataset) -> None:
        Dataset.__init__(self, other._node)
        self._children = tuple(other.children)


class MapDataset(StepDataset, method="map"):
    """What `map` makes."""


class BatchDataset(StepDataset, method="batch"):
    """What `batch` makes."""

    @property
    def batch_size(self) -> int:
        """Rows of a batch; 1 where a function says it."""
        assert isinstance(self._node, Batch)
        return self._node.fixed_size or 1


class PaddedBatchDataset(StepDataset, method="padded_batch"):
    """What `padded_batch` makes."""


class BucketBatchByLengthDataset(StepDataset, method="bucket_batch_by_length"):
    """What `bucket_batch_by_length` makes."""


class SyncWaitDataset(StepDataset, method="sync_wait"):
    """What `sync_wait` makes."""


class ShuffleDataset(StepDataset, method="shuffle"):
    """What `shuffle` makes."""


class FilterDataset(StepDataset, method="filter"):
    """What `filter` makes."""


class RepeatDataset(StepDataset, method="repeat"):
    """What `repeat` makes."""

    @property
    def count(self) -> int:
        """How often; -1 for ever."""
        assert isinstance(self._node, Repeat)
        return -1 if self._node.count == ENDLESS else self._node.count


class SkipDataset(StepDataset, method="skip"):
    """What `skip` makes."""


class TakeDataset(StepDataset, method="take"):
    """What `take` and `split` make."""


class RenameDataset(StepDataset, method="rename"):
    """What `rename` makes."""


class ProjectDataset(StepDataset, method="project"):
    """What `project` makes."""


class ZipDataset(StepDataset, method="zip"):
    """What `zip` makes."""

    def __init__(self, datasets: tuple[Dataset, ...]) -> None:
        self._become(zip_datasets(datasets))


class ConcatDataset(StepDataset, method="__add__"):
    """Datasets one after the other: what `concat` and ``+`` give."""

    def __init__(self, datasets: list[Dataset]) -> None:
        first, *others = datasets
        self._become(first.concat(others))

    def use_sampler(self, sampler: DistributedSampler | RandomSampler) -> None:
        """Share the rows of all out, row i to rank i mod `num_shards`, or shuffle them.

        Args:
            sampler: a DistributedSampler that does not shuffle, or a RandomSampler without replacement; for all rows.

        Raises:
            SporaxTypeError: another sampler.
            SporaxValueError: one that shuffles shards, draws with replacement, or limits the rows.
        """
        if not isinstance(sampler, (DistributedSampler, RandomSampler)):
            raise _checks.type_error("use_sampler", "sampler", "a DistributedSampler or RandomSampler", sampler)
        # Replacement and shuffling would let shares overlap, since each rank samples by itself.
        drawn = sampler.replacement if isinstance(sampler, RandomSampler) else sampler.shuffle
        if drawn or sampler.get_num_samples() is not None:
            raise SporaxValueError(
                "For 'use_sampler' after 'concat', the sampler must not limit the rows, a DistributedSampler not shuffle and a "
                f"RandomSampler not replace, but got num_samples={sampler.get_num_samples()} and {drawn}."
            )
        if isinstance(sampler, DistributedSampler):
            # With an offset nothing is read twice to make the shares equal.
            sampler = DistributedSampler(
                sampler.num_shards, sampler.shard_id, shuffle=False, offset=max(sampler.offset, 0)
            )
        # Over the parents again: the sampler picks among the rows of all.
        self._node = Concat(self._node.parents, sampler)
