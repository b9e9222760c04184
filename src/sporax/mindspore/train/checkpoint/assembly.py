"""A Parameter in any slices, put together from a checkpoint in any others.

A source is the files of some ranks with the strategy they were saved under. What a rank's file holds of a Parameter is a
block of the whole; a requested block is filled from those that overlap it, and only the bytes that are needed are read.
Blocks that several ranks hold are read from the first of them whose file is there. A process with several devices writes a
file for all of them: whole Parameters, which are known by their shapes, or slices, of which the file says where they belong.

`merge_sliced_parameter`: slices of one Parameter, in the order of the ranks, put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxKeyError, SporaxValueError
from sporax.mindspore.common import Parameter, Tensor
from sporax.mindspore.train._stored import LAYOUT, open_checkpoint, open_rank_files, sibling, stored_values, text_in
from sporax.mindspore.train.checkpoint.strategy import ParallelLayouts, SliceLayout, Strategy, layout_of
from sporax.runtime import storage

_ABSENT = "the checkpoint '{path}' of rank {rank} does not exist."


@dataclass(slots=True)
class ShardedCheckpoint:
    """Files of some ranks, and how the Parameters are sharded in them.

    Attributes:
        where: what errors name.
        strategy: under which they were saved.
        files: by rank.
        slices: the same, where the files themselves say what they hold.
    """

    where: str
    strategy: Strategy
    files: Mapping[int, storage.TensorFile]
    slices: storage.SliceSource | None = None
    _blocks: dict[str, tuple[storage.StoredTensor, list[storage.StoredSlice]]] = field(default_factory=dict, repr=False)

    def names(self) -> list[str]:
        """All Parameters, in the order of the files."""
        if self.slices is not None:
            return [*self.slices.names(), *(name for name, _ in self.slices.unplaced(min(self.files)))]
        return list(dict.fromkeys(name for file in self.files.values() for name in file.specs))

    @property
    def describes_itself(self) -> bool:
        """Whether the numbers of the ranks do not matter: files say what they hold, or hold all that the strategy names."""
        if self.slices is not None:
            return True
        pieces = [(name, rank) for rank, file in self.files.items() for name in file.specs]
        return {*self.strategy.layouts} <= {name for name, _ in pieces} and not any(
            self.source_layout(*piece) for piece in pieces
        )

    def spec(self, name: str) -> storage.StoredTensor:
        """Whole shape and dtype of a Parameter."""
        placed = self._placed(name)
        return self._described(name)[0] if placed is None else placed.spec(name)

    def read(self, name: str, region: storage.Region | None = None) -> np.ndarray[Any, Any] | str:
        """The values of one block of a Parameter; of all of it by default.

        Raises:
            SporaxValueError: files that hold a part of it are missing.
        """
        # By the files' own word, which has a checksum of each slice.
        if (placed := self._placed(name)) is not None:
            return placed.read(name, region)
        spec, blocks = self._described(name)
        # Strings are stored whole by each rank.
        if spec.dtype is None:
            return text_in(self.files[blocks[0].rank], name)
        region = storage.full_region(spec.shape) if region is None else region
        values = np.empty(storage.region_shape(region), spec.dtype)
        filled = 0
        for block in blocks:
            both = storage.overlap(block.region, region)
            if both is not None:
                values[storage.within(both, region)] = self.files[block.rank].read(
                    block.key, storage.within(both, block.region)
                )
                filled += storage.volume(both)
        # Blocks are distinct and do not overlap, so counting elements shows whether the block is complete.
        if filled != storage.volume(region):
            raise SporaxValueError(
                f"For '{self.where}', parameter '{name}' is not complete: {filled} of {storage.volume(region)} values are in the "
                f"files of ranks {sorted(self.files)}; {self._missing(name, region)}"
            )
        return values

    def check_files(self, needed: Iterable[str]) -> None:
        """Raise SporaxValueError where absent files may have Parameters that no other has: of a stage, or written by one rank.

        Args:
            needed: names in the strategy.
        """
        num_files = self.strategy.num_ranks if self.slices is None else self.slices.num_ranks
        if len(self.files) >= num_files:
            return
        groups = self._names_by_stages(num_files)
        # Ranks that write all they hold write the same names; one file alone does not show it.
        differ = any(names != group[0] for group in groups.values() for names in group)
        least = 1 if self.slices is None else 2
        there = frozenset[int]().union(*(stages for stages, group in groups.items() if len(group) >= least))
        lacking = sorted(name for name in {*needed} - {*self.names()} if not there & self.strategy.layouts[name].keys())
        if lacking or (differ and self.slices is not None):
            what = f"; none has {lacking[:10]}" if lacking else " and they do not have the same parameters"
            raise SporaxValueError(
                f"For '{self.where}', the files of all ranks must be there, but {len(self.files)} of {num_files} are, those of "
                f"{sorted(self.files)}{what}."
            )

    def _names_by_stages(self, num_files: int) -> dict[frozenset[int], list[set[str]]]:
        """The names in each file, by the pipeline stages whose devices its process has."""
        # A process has the devices of so many ranks of the strategy.
        each = max(self.strategy.num_ranks // num_files, 1)
        groups: dict[frozenset[int], list[set[str]]] = {}
        for number, file in self.files.items():
            stages = frozenset(self.strategy.place(rank)[0] for rank in range(number * each, (number + 1) * each))
            groups.setdefault(stages, []).append({key.partition("@")[0] for key in file.specs})
        return groups

    def release(self) -> None:
        """Forget the pages that were read."""
        for file in self.files.values():
            file.release()

    def source_layout(self, name: str, rank: int) -> SliceLayout | None:
        """How a rank's file holds a Parameter; None for whole."""
        layout, specs = self.strategy.layout(name, rank), self.files[rank].specs
        decided_by = specs.get(self.strategy.weight_name(name), specs[name])
        # The state of an optimizer is sharded as its weight where it has the same shape; a factored second moment has not.
        is_other = decided_by.shape != specs[name].shape
        return None if layout is None or is_other or layout.is_full(decided_by.shape) else layout

    def _described(self, name: str) -> tuple[storage.StoredTensor, list[storage.StoredSlice]]:
        # Described once per name: a checkpoint of many ranks is looked through for each.
        if name not in self._blocks:
            self._blocks[name] = self._describe(name)
        return self._blocks[name]

    def _placed(self, name: str) -> storage.SliceSource | None:
        """The files, where they say themselves what they hold of a Parameter."""
        return self.slices if self.slices is not None and self.slices.has(name) else None

    def _describe(self, name: str) -> tuple[storage.StoredTensor, list[storage.StoredSlice]]:
        full: storage.StoredTensor | None = None
        blocks: list[storage.StoredSlice] = []
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
                region = storage.full_region(shape) if layout is None else layout.region(device, shape)
                if storage.region_shape(region) != spec.shape:
                    raise SporaxValueError(
                        f"a slice must have shape {storage.region_shape(region)}, but has {spec.shape}"
                    )
            except SporaxValueError as error:
                raise SporaxValueError(
                    f"For '{self.where}', parameter '{name}' in the file '{file.path}' of rank {rank} does not fit the "
                    f"strategy: {error}."
                ) from None
            described = storage.StoredTensor(name, shape, spec.dtype)
            if full is not None and described != full:
                raise SporaxValueError(
                    f"For '{self.where}', parameter '{name}' of rank {rank} must be {full.shape} of {full.dtype} in all, but "
                    f"its file '{file.path}' makes it {shape} of {spec.dtype}."
                )
            # Ranks with equal regions hold copies, and the first of them is read.
            full = described
            if all(region != held.region for held in blocks):
                blocks.append(storage.StoredSlice(region, rank, name, None))
        if full is None:
            raise For(self.where).error(f"no file has parameter '{name}'")
        return full, blocks

    def _missing(self, name: str, region: storage.Region) -> str:
        spec, blocks = self._described(name)
        absent = []
        for rank in range(self.strategy.num_ranks):
            layout = self.strategy.layout(name, rank)
            # Only ranks whose files are absent can hold the rest.
            if rank not in self.files and layout is not None:
                held = layout.region(self.strategy.place(rank)[1], spec.shape)
                if storage.overlap(held, region) and all(held != block.region for block in blocks):
                    absent.append(rank)
        return f"the rest is in those of ranks {absent}."


def open_ranks(
    where: str, strategy: Strategy, paths: Mapping[int, str | Path], *, verify: bool = False, absent: str = _ABSENT
) -> ShardedCheckpoint:
    """The files of some ranks as one checkpoint.

    Args:
        where: what errors name.
        strategy: under which they were saved; not needed by files that say where their slices belong.
        paths: by rank. Ranks whose devices belong to one process have one file, that of the process, and miss their own.
        verify: compare checksums first, which reads everything.
        absent: what an error says of a `path` of a `rank` that is missed.

    Raises:
        SporaxValueError: a file is missing or broken, or belongs to another save.
    """
    found = {rank: Path(path) for rank, path in paths.items() if Path(path).is_file()}
    missing = [(rank, str(path)) for rank, path in paths.items() if rank not in found]
    first = sibling(Path(missing[0][1]), missing[0][0], 0) if missing else None
    if first is not None and first.is_file():
        found.setdefault(0, first)
    checkpoint = _opened(where, strategy, found, verify) if found else None
    if checkpoint is None or (missing and not checkpoint.describes_itself):
        rank, path = missing[0]
        raise SporaxValueError(f"For '{where}', {absent.format(rank=rank, path=path)}")
    return checkpoint


def _opened(where: str, strategy: Strategy, paths: Mapping[int, Path], verify: bool) -> ShardedCheckpoint:
    """The files that are there, which all say where their slices belong, or none."""
    slices = open_rank_files(where, paths[min(paths)], paths.values(), verify=verify)
    files = slices.files if slices else {rank: open_checkpoint(where, p, verify=verify) for rank, p in paths.items()}
    if slices is None and (placing := [str(file.path) for file in files.values() if LAYOUT in file.metadata]):
        raise For(where).error(
            f"all files must say what they hold or none, but '{paths[min(paths)]}' does not, and {placing[:3]} do"
        )
    return ShardedCheckpoint(where, strategy, files, slices)


def target_region(
    strategy: Strategy, spec: storage.StoredTensor, rank: int, weight_shape: tuple[int, ...] | None
) -> storage.Region:
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
        return storage.full_region(spec.shape)
    return layout.region(strategy.place(rank)[1], spec.shape)


_WHERE = "merge_sliced_parameter"


def merge_sliced_parameter(sliced_parameters: list[Parameter], strategy: dict[str, Any] | None = None) -> Parameter:
    """Put the slices of a Parameter together.

    Args:
        sliced_parameters: those of rank 0, 1, ..., of one name.
        strategy: layouts by name, from `build_searched_strategy`; None concatenates on dimension 0.

    Raises:
        SporaxTypeError: no list of Parameters, or the strategy is no dict.
        SporaxValueError: the list is empty, names, dtypes or shapes differ, or the layout does not fit.
        SporaxKeyError: the strategy lacks the Parameter.

    Example:
        >>> slices = [Parameter(Tensor([0.0, 1.0]), "w"), Parameter(Tensor([2.0, 3.0]), "w")]
        >>> merge_sliced_parameter(slices).shape
        (4,)
    """
    first = _check_slices(sliced_parameters)
    For(_WHERE).typed("strategy", strategy, "a dict", dict | None)
    slices = [parameter.asnumpy() for parameter in sliced_parameters]
    sources = [stored_values(parameter) for parameter in sliced_parameters]
    # Files of processes with several devices give the whole.
    if all(source is not None and source.shape == source.full_shape for source in sources):
        merged = slices[0]
    elif strategy is None:
        # Scalars cannot be concatenated; every rank has the same one.
        merged = np.concatenate(slices) if first.shape else slices[0]
    elif first.name not in strategy:
        raise SporaxKeyError(f"For '{_WHERE}', 'strategy' must have '{first.name}', but has {sorted(strategy)[:10]}.")
    else:
        merged = _assembled(first.name, slices, layout_from_entry(first.name, strategy[first.name]))
    return Parameter(Tensor(merged), first.name, first.requires_grad, first.layerwise_parallel)


def _check_slices(slices: Any) -> Parameter:
    For(_WHERE).typed("sliced_parameters", slices, "a list", list)
    For(_WHERE).refuse(not slices, "'sliced_parameters' must not be empty")
    for parameter in slices:
        if not isinstance(parameter, Parameter):
            raise For(_WHERE).type_error("'sliced_parameters' must hold Parameters", type(parameter).__name__)
    first: Parameter = slices[0]
    for number, parameter in enumerate(slices):
        for what, value, expected in (
            ("name", parameter.name, first.name),
            ("number of dimensions", len(parameter.shape), len(first.shape)),
            ("shape behind dimension 0", parameter.shape[1:], first.shape[1:]),
            ("dtype", parameter.dtype, first.dtype),
        ):
            if value != expected:
                raise For(_WHERE).error(
                    f"all slices must have the same {what}, but slice {number} has {value} and slice 0 {expected}"
                )
    return first


def layout_from_entry(name: str, entry: Any) -> SliceLayout:
    """The layout in what `build_searched_strategy` or `Model.infer_predict_layout` says of a Parameter."""
    try:
        # `hasattr`: also the message of MindSpore's own protobuf module.
        if isinstance(entry, ParallelLayouts) or hasattr(entry, "dev_matrix"):
            fields: dict[str, Any] = {
                # Each field is a list of messages with one list of numbers, as protobuf stores them.
                "dev_matrix": list(entry.dev_matrix[0].dim),
                "tensor_map": list(entry.tensor_map[0].dim),
                "param_split_shape": [row for part in entry.param_split_shape for row in part.dim],
                "opt_weight_shard_step": entry.opt_weight_shard_step,
                "opt_weight_shard_size": entry.opt_weight_shard_size,
            }
            if shape := getattr(entry, "tensor_shape", None):
                fields["tensor_shape"] = shape
        elif isinstance(entry, Mapping):
            fields = dict(entry)
        else:
            # A tuple of `Model.infer_predict_layout`: device matrix, tensor map, and at place 5 the optimizer's group.
            tensor_map = [list(dim) if isinstance(dim, tuple) else dim for dim in entry[1]]
            group = str(entry[5]) if len(entry) > 5 else ""
            fields = {
                "dev_matrix": list(entry[0]),
                "tensor_map": tensor_map,
                "opt_weight_shard_step": 0,
                # A group is named "N-<rank>-<rank>-...": one part more than it has ranks.
                "opt_weight_shard_size": len(group.split("-")) - 1 if group else 0,
            }
        return layout_of(fields)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise SporaxValueError(f"For '{_WHERE}', the layout of '{name}' in 'strategy' is broken: {error}.") from None


def _assembled(name: str, slices: Sequence[np.ndarray[Any, Any]], layout: SliceLayout) -> np.ndarray[Any, Any]:
    if layout.is_full(slices[0].shape):
        return slices[0]
    # A slice that is missing would leave memory that was never written.
    if len(slices) != layout.num_devices:
        raise For(_WHERE).error(
            f"'sliced_parameters' must have one slice of '{name}' for each of {layout.num_devices} ranks", len(slices)
        )
    try:
        shape = layout.full_shape(slices[0].shape)
        merged = np.empty(shape, slices[0].dtype)
        for rank, values in enumerate(slices):
            region = layout.region(rank, shape)
            if storage.region_shape(region) != values.shape:
                raise SporaxValueError(
                    f"the slice of rank {rank} must be {storage.region_shape(region)}, but is {values.shape}"
                )
            merged[region] = values
    except SporaxValueError as error:
        raise SporaxValueError(f"For '{_WHERE}', slices of '{name}' do not fit the layout: {error}.") from None
    return merged
