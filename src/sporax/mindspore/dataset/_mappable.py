"""Sources with random access: datasets whose sampler can be changed after they are made."""

from __future__ import annotations

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset import _checks
from sporax.mindspore.dataset._dataset import Dataset
from sporax.mindspore.dataset._nodes import Source
from sporax.mindspore.dataset._random import first_pass
from sporax.mindspore.dataset.samplers import BuiltinSampler, FixedOrder, SequentialSampler


class MappableDataset(Dataset):
    """A source that rows can be picked from (a GeneratorDataset may turn out to be sequential instead)."""

    @property
    def sampler(self) -> BuiltinSampler:
        """The sampler in use."""
        return self._source("sampler").sampler

    def add_sampler(self, new_sampler: BuiltinSampler) -> None:
        """Sample with `new_sampler` from what the present sampler gives."""
        source = self._source("add_sampler")
        if not isinstance(new_sampler, BuiltinSampler):
            raise _checks.type_error("add_sampler", "new_sampler", "a sampler", new_sampler)
        # The present sampler becomes the child, which the new one picks from.
        new_sampler.add_child(source.sampler)
        self._node = source.with_sampler(new_sampler)

    def use_sampler(self, new_sampler: BuiltinSampler) -> None:
        """Sample with `new_sampler` instead of the sampler added last."""
        source = self._source("use_sampler")
        if not isinstance(new_sampler, BuiltinSampler):
            raise _checks.type_error("use_sampler", "new_sampler", "a sampler", new_sampler)
        # Only the last sampler is replaced; those below it stay.
        below = source.sampler.get_child()
        if below is not None:
            new_sampler.add_child(below)
        self._node = source.with_sampler(new_sampler)

    def _row_number(self, index: int) -> int:
        """The row of the source that stands at `index` in the first epoch."""
        source = self._source("[]")
        # Pass 0 without iterators, so that an index means the same row each time.
        order = source.order(first_pass(0))
        number = _checks.check_int("[]", "index", index)
        if not 0 <= number < len(order):
            raise SporaxRuntimeError(f"For '[]', the index must be in [0, {len(order)}), but got {number}.")
        return int(order[number])

    def _source(self, where: str) -> Source:
        if not isinstance(self._node, Source):
            raise SporaxRuntimeError(f"For '{where}', the source must have random access, but this one is sequential.")
        return self._node

    def _part(self, start: int, count: int, randomize: bool) -> Dataset:
        # Without random access the part is cut from the stream.
        if not isinstance(self._node, Source):
            return super()._part(start, count, randomize)
        part = SequentialSampler(start, count)
        # The parts of one split must come from one order, whatever the epoch.
        part.add_child(FixedOrder(self._node.sampler, randomize))
        # The sampler on top is the one that `use_sampler` replaces, e.g. to shuffle or shard the part.
        top = SequentialSampler()
        top.add_child(part)
        result = MappableDataset(self._node.with_sampler(top))
        result._children = (self,)
        return result
