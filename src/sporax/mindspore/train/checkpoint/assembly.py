"""A Parameter in any slices, put together from a checkpoint in any others.

A source is the files of some ranks with the strategy they were saved under. What a rank's file holds of a Parameter is a
block of the whole; a requested block is filled from those that overlap it, and only the bytes that are needed are read.
Blocks that several ranks hold are read from the first of them whose file is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sporax.base.errors import SporaxValueError
from sporax.mindspore.train._stored.files import text_in
from sporax.mindspore.train.checkpoint.slice_layout import SliceLayout
from sporax.mindspore.train.checkpoint.strategy import Strategy
from sporax.runtime.storage.regions import Region, full_region, overlap, region_shape, volume, within
from sporax.runtime.storage.tensor_files import StoredTensor, TensorFile


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a Parameter that a rank's file holds."""

    rank: int
    region: Region


@dataclass(slots=True)
class ShardedCheckpoint:
    """Files of some ranks, and how the Parameters are sharded in them.

    Attributes:
        where: what errors name.
        strategy: under which they were saved.
        files: by rank.
    """

    where: str
    strategy: Strategy
    files: Mapping[int, TensorFile]
    _blocks: dict[str, tuple[StoredTensor, list[Block]]] = field(default_factory=dict, repr=False)

    def names(self) -> list[str]:
        """All Parameters, in the order of the files."""
        return list(dict.fromkeys(name for file in self.files.values() for name in file.specs))

    def spec(self, name: str) -> StoredTensor:
        """Whole shape and dtype of a Parameter."""
        return self._described(name)[0]

    def read(self, name: str, region: Region | None = None) -> np.ndarray[Any, Any] | str:
        """The values of one block of a Parameter; of all of it by default.

        Raises:
            SporaxValueError: files that hold a part of it are missing.
        """
        spec, blocks = self._described(name)
        # Strings are stored whole by each rank.
        if spec.dtype is None:
            return text_in(self.files[blocks[0].rank], name)
        region = full_region(spec.shape) if region is None else region
        values = np.empty(region_shape(region), spec.dtype)
        filled = 0
        for block in blocks:
            both = overlap(block.region, region)
            if both is not None:
                values[within(both, region)] = self.files[block.rank].read(name, within(both, block.region))
                filled += volume(both)
        # Blocks are distinct and do not overlap, so counting elements tells whether the block is complete.
        if filled != volume(region):
            raise SporaxValueError(
                f"For '{self.where}', parameter '{name}' is not complete: {filled} of {volume(region)} values are in the "
                f"files of ranks {sorted(self.files)}; {self._missing(name, region)}"
            )
        return values

    def release(self) -> None:
        """Forget the pages that were read."""
        for file in self.files.values():
            file.release()

    @property
    def bytes_read(self) -> int:
        """Of values, so far."""
        return sum(file.bytes_read for file in self.files.values())

    def source_layout(self, name: str, rank: int) -> SliceLayout | None:
        """How a rank's file holds a Parameter; None for whole."""
        layout = self.strategy.layout(name, rank)
        weight = self.strategy.weight_name(name)
        if layout is None or weight == name:
            return layout
        # The state of an optimizer is sharded as its weight where it has the same shape; a factored second moment has not.
        file = self.files[rank]
        return layout if weight not in file.specs or file.specs[weight].shape == file.specs[name].shape else None

    def _described(self, name: str) -> tuple[StoredTensor, list[Block]]:
        # Described once per name: a checkpoint of many ranks is looked through for each.
        if name not in self._blocks:
            self._blocks[name] = self._describe(name)
        return self._blocks[name]

    def _describe(self, name: str) -> tuple[StoredTensor, list[Block]]:
        full: StoredTensor | None = None
        blocks: list[Block] = []
        taken: list[Region] = []
        for rank, file in sorted(self.files.items()):
            if name not in file.specs:
                continue
            spec = file.specs[name]
            layout = self.source_layout(name, rank)
            try:
                shape = spec.shape if layout is None else layout.full_shape(spec.shape)
                # The state of an optimizer may have another shape than its weight, which the layout speaks of.
                if layout is not None and layout.shape not in (None, shape) and self.strategy.weight_name(name) == name:
                    raise SporaxValueError(
                        f"slices of shape {spec.shape} make {shape}, but the strategy has {layout.shape}"
                    )
                device = self.strategy.place(rank)[1]
                region = full_region(shape) if layout is None else layout.region(device, shape)
                if region_shape(region) != spec.shape:
                    raise SporaxValueError(f"a slice must have shape {region_shape(region)}, but has {spec.shape}")
            except SporaxValueError as error:
                raise SporaxValueError(
                    f"For '{self.where}', parameter '{name}' in the file '{file.path}' of rank {rank} does not fit the "
                    f"strategy: {error}."
                ) from None
            described = StoredTensor(name, shape, spec.dtype)
            if full is not None and described != full:
                raise SporaxValueError(
                    f"For '{self.where}', parameter '{name}' of rank {rank} must be {full.shape} of {full.dtype} in all, but "
                    f"its file '{file.path}' makes it {shape} of {spec.dtype}."
                )
            # Ranks with equal regions hold copies, and the first of them is read.
            full = described
            if region not in taken:
                taken.append(region)
                blocks.append(Block(rank, region))
        if full is None:
            raise SporaxValueError(f"For '{self.where}', no file has parameter '{name}'.")
        return full, blocks

    def _missing(self, name: str, region: Region) -> str:
        spec, blocks = self._described(name)
        absent = []
        for rank in range(self.strategy.num_ranks):
            layout = self.strategy.layout(name, rank)
            # Only ranks whose files are absent can hold the rest.
            if rank not in self.files and layout is not None:
                held = layout.region(self.strategy.place(rank)[1], spec.shape)
                if overlap(held, region) and all(held != block.region for block in blocks):
                    absent.append(rank)
        return f"the rest is in those of ranks {absent}."


def target_region(strategy: Strategy, spec: StoredTensor, rank: int, weight_shape: tuple[int, ...] | None) -> Region:
    """The block of a Parameter that a rank of another job needs.

    Args:
        strategy: of that job.
        spec: whole shape and dtype.
        rank: of that job.
        weight_shape: whole shape of the weight that decides the layout, where it is known.

    Raises:
        SporaxValueError: the layout does not fit the shape.
    """
    layout = strategy.layout(spec.name, rank)
    decided_by = strategy.weight_name(spec.name)
    # A state whose shape is not its weight's is whole on every rank.
    if layout is None or (decided_by != spec.name and weight_shape not in (None, spec.shape)):
        return full_region(spec.shape)
    return layout.region(strategy.place(rank)[1], spec.shape)
