"""What a strategy file says of the ranks of a job, and the functions of MindSpore that read or merge such files.

A file of a job without pipeline stages names its Parameters; one that `merge_pipeline_strategys` wrote puts the number of
the stage before, ``"1-fc.weight"``. The ranks of a stage are consecutive. A Parameter that no file names, such as a step
counter, is whole on every rank; the state of an optimizer, ``"moments.fc.weight"``, is sharded as its weight.

Which part of a Parameter a rank holds: a layout arranges the devices of one pipeline stage in a matrix (row-major ranks). The
entry of the tensor map for a dimension names the axes of the matrix, counted from the right, that shard it. A device's slice of
that dimension has the number of its coordinate. In optimizer parallelism the devices with equal coordinates on all those axes
share the slice: dimension 0 is divided again among groups of consecutive ones. A dimension with uneven slices has their sizes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sporax.base import MalformedError, atomic_write, convert
from sporax.base.errors import For, SporaxNotADirectoryError, SporaxValueError, named
from sporax.ir import ravel, unravel
from sporax.mindspore.context._strategy_files import protobuf as strategy_protobuf
from sporax.mindspore.context._strategy_files.documents import StrategyDocument
from sporax.mindspore.context._strategy_files.files import LAYOUTS, STRATEGIES, StrategyFile, read_strategy_file
from sporax.runtime.storage import Region, Shape

ALL = -1
"""As `SliceLayout.opt_shard_size`: all devices that hold the same slice share it."""


@dataclass(frozen=True, slots=True)
class SliceLayout:
    """How one Parameter is sharded over the devices of a stage.

    Attributes:
        device_matrix: how the devices are arranged.
        tensor_map: for each dimension the axes that shard it, the outermost first; ``()`` for none.
        opt_shard_size: how many devices share a slice in optimizer parallelism; 0 for none, `ALL` for all that hold it.
        opt_shard_step: how far apart their ranks are, as files say it; positions follow from the ranks themselves.
        split_rows: sizes of uneven slices of dimension 0; empty where slices are equal.
        shape: of the whole Parameter, where the file says so.
    """

    device_matrix: Shape
    tensor_map: tuple[tuple[int, ...], ...]
    opt_shard_size: int = 0
    opt_shard_step: int = 0
    split_rows: Shape = ()
    shape: Shape | None = None

    @property
    def num_devices(self) -> int:
        """Devices of the stage."""
        return math.prod(self.device_matrix)

    def full_shape(self, slice_shape: Sequence[int]) -> Shape:
        """Shape of the whole Parameter, from that of one slice."""
        counts = self.counts(len(slice_shape))
        full_shape = [size * count for size, count in zip(slice_shape, counts, strict=True)]
        if self.split_rows and full_shape:
            full_shape[0] = sum(self.split_rows)
        return tuple(full_shape)

    def counts(self, num_dims: int) -> Shape:
        """Number of slices of each dimension, those of optimizer parallelism included."""
        counts = [math.prod(self._size(axis) for axis in axes) for axes in self._axes(num_dims)]
        if counts:
            counts[0] *= self._group_size()
        return tuple(counts)

    def is_full(self, shape: Sequence[int]) -> bool:
        """Whether values of a shape are the whole of the Parameter, as far as the layout knows."""
        is_sharded = len(shape) != len(self.tensor_map) or max(self.counts(len(shape)), default=1) > 1
        return self.shape == tuple(shape) or not is_sharded

    def region(self, device: int, shape: Sequence[int]) -> Region:
        """The block that a device holds.

        Args:
            device: number within the stage.
            shape: of the whole Parameter.

        Raises:
            SporaxValueError: the shape does not fit the layout.
        """
        own = unravel(device, self.device_matrix)
        blocks: list[slice] = []
        for dim, (axes, size) in enumerate(zip(self._axes(len(shape)), shape, strict=True)):
            # Row-major over the axes: the outermost counts most.
            sizes = [self._size(axis) for axis in axes]
            index, count = ravel([own[self._position(axis)] for axis in axes], sizes), math.prod(sizes)
            # Uneven slices come from `manual_split`, which optimizer parallelism does not divide again.
            if dim == 0 and self.split_rows:
                blocks.append(self._uneven(index, count, size))
                continue
            # Optimizer parallelism divides dimension 0 only.
            if dim == 0:
                index, count = index * self._group_size() + self._group_position(device), count * self._group_size()
            if size % count:
                raise SporaxValueError(f"dimension {dim} of size {size} has {count} slices, which does not divide it")
            step = size // count
            blocks.append(slice(index * step, (index + 1) * step))
        return tuple(blocks)

    def _uneven(self, index: int, count: int, size: int) -> slice:
        if len(self.split_rows) != count or sum(self.split_rows) != size:
            raise SporaxValueError(
                f"the uneven slices {self.split_rows} must be {count} and add up to {size}, the size of dimension 0"
            )
        first = sum(self.split_rows[:index])
        return slice(first, first + self.split_rows[index])

    def _axes(self, num_dims: int) -> tuple[tuple[int, ...], ...]:
        if len(self.tensor_map) != num_dims:
            raise SporaxValueError(
                f"the tensor map {self.tensor_map} has {len(self.tensor_map)} dimensions, but the values have {num_dims}"
            )
        return self.tensor_map

    def _position(self, axis: int) -> int:
        # Axes are counted from the right, as in MindSpore's tensor maps.
        return len(self.device_matrix) - 1 - axis

    def _size(self, axis: int) -> int:
        return self.device_matrix[self._position(axis)]

    def _unused(self) -> list[int]:
        """Positions of the axes that shard nothing: devices with equal coordinates on all others hold the same slice."""
        used = {self._position(axis) for axes in self.tensor_map for axis in axes}
        return [position for position in range(len(self.device_matrix)) if position not in used]

    def _group_size(self) -> int:
        """How many devices share one slice."""
        holders = math.prod(self.device_matrix[position] for position in self._unused())
        # A single holder has no other device to share with.
        if self.opt_shard_size in (0, 1) or holders == 1:
            return 1
        size = holders if self.opt_shard_size == ALL else self.opt_shard_size
        if size < 1 or holders % size:
            raise SporaxValueError(
                f"{self.opt_shard_size} devices cannot share a slice that {holders} devices hold in optimizer parallelism"
            )
        return size

    def _group_position(self, device: int) -> int:
        """Number of the device among those that share its slice."""
        unused, own = self._unused(), unravel(device, self.device_matrix)
        index = ravel([own[position] for position in unused], [self.device_matrix[position] for position in unused])
        # Groups are of consecutive holders, so the remainder is the place in the group.
        return index % self._group_size()


def layout_of(entry: dict[str, Any]) -> SliceLayout:
    """The layout that an entry of a strategy file stores.

    Raises:
        SporaxValueError: it stores none.
    """
    try:
        dims = tuple(
            # MindSpore writes -1 for a dimension that is not sharded, and lists where several axes shard one.
            tuple(int(axis) for axis in (dim if isinstance(dim, list) else [dim]) if int(axis) >= 0)
            for dim in entry["tensor_map"]
        )
        shape = tuple(map(int, entry["tensor_shape"])) if "tensor_shape" in entry else None
        layout = SliceLayout(
            tuple(map(int, entry["dev_matrix"])),
            dims,
            int(entry["opt_weight_shard_size"]),
            int(entry["opt_weight_shard_step"]),
            tuple(map(int, entry.get("param_split_shape", ()))),
            shape,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SporaxValueError(f"a layout must have 'dev_matrix', 'tensor_map' and the like: {error!r}") from None
    # An axis that shards two dimensions would count its devices twice.
    axes = [axis for dim in dims for axis in dim]
    if min(layout.device_matrix, default=0) < 1 or len(set(axes)) != len(axes):
        raise SporaxValueError(f"a device matrix {layout.device_matrix} with the tensor map {dims} is no layout")
    if any(axis >= len(layout.device_matrix) for axis in axes):
        raise SporaxValueError(
            f"the tensor map {dims} names an axis that the device matrix {layout.device_matrix} has not"
        )
    return layout


_STAGED = re.compile(r"(\d+)-(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Strategy:
    """How the Parameters of a job are sharded over its ranks.

    Attributes:
        layouts: by name of the Parameter and number of the stage.
        num_stages: pipeline stages.
        stage_devices: ranks of each.
    """

    layouts: Mapping[str, Mapping[int, SliceLayout]] = field(default_factory=dict)
    num_stages: int = 1
    stage_devices: int = 1

    @property
    def num_ranks(self) -> int:
        """Ranks of the job."""
        return self.num_stages * self.stage_devices

    def place(self, rank: int) -> tuple[int, int]:
        """Stage of a rank, and its number there; ranks beyond the job begin again, as MindSpore tolerates them."""
        return divmod(rank % self.num_ranks, self.stage_devices)

    def weight_name(self, name: str) -> str:
        """The Parameter whose layout decides: `name` itself, or its weight for the state of an optimizer; "" for none."""
        # Prefixes are taken off one by one: "moments.fc.weight" belongs to "fc.weight".
        while name and name not in self.layouts:
            name = name.partition(".")[2]
        return name

    def layout(self, name: str, rank: int) -> SliceLayout | None:
        """How a rank holds a Parameter; None where it holds it whole, or not at all (`holds`)."""
        return self.layouts.get(self.weight_name(name), {}).get(self.place(rank)[0])

    def holds(self, name: str, rank: int) -> bool:
        """Whether the Parameter belongs to the rank's stage."""
        weight = self.weight_name(name)
        return not weight or self.place(rank)[0] in self.layouts[weight]


def read_strategy(where: str, what: str, path: str | None) -> Strategy:
    """The strategy in a file; one rank that holds everything for None.

    Raises:
        SporaxTypeError: `path` is no string.
        SporaxValueError: there is no such file, or it is none.
    """
    if path is None:
        return Strategy()
    _check_file(where, what, path)
    layouts: dict[str, dict[int, SliceLayout]] = {}
    items = _content(where, path).parallel_layout_item or {}
    # A plain name may look like a staged one, so all of them must.
    staged = bool(items) and all(_STAGED.fullmatch(name) for name in items)
    for name, entry in items.items():
        match = _STAGED.fullmatch(name) if staged else None
        stage, plain = (int(match[1]), match[2]) if match else (0, name)
        try:
            layouts.setdefault(plain, {})[stage] = layout_of(entry)
        except SporaxValueError as error:
            raise SporaxValueError(f"For '{where}', parameter '{name}' in '{path}' is broken: {error}.") from None
    # Ranks are counted with one size of stages.
    sizes = {layout.num_devices for stages in layouts.values() for layout in stages.values()}
    For(where).refuse(len(sizes) != 1, f"all layouts of '{path}' must have the same number of devices", sorted(sizes))
    num_stages = 1 + max(stage for stages in layouts.values() for stage in stages)
    return Strategy(layouts, num_stages, sizes.pop())


def _check_file(where: str, what: str, path: Any) -> None:
    For(where).typed(what, path, "a string", str)
    For(where).refuse(not Path(path).is_file(), f"the file '{path}' of '{what}' does not exist")


def _content(where: str, path: str) -> StrategyFile:
    """A strategy file, checked.

    Raises:
        SporaxValueError: it is none.
    """
    try:
        return read_strategy_file(path)
    except (MalformedError, ValueError) as error:
        raise SporaxValueError(f"For '{where}', '{path}' must be a strategy file, but got: {error}.") from None


@dataclass(frozen=True, slots=True)
class Dims:
    """A list of numbers in MindSpore's message, called ``dim`` there."""

    dim: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ParallelLayouts:
    """A layout with the fields of MindSpore's message, which scripts read: ``strategy["w"].dev_matrix[0].dim``."""

    dev_matrix: tuple[Dims, ...]
    tensor_map: tuple[Dims, ...]
    param_split_shape: tuple[Dims, ...]
    indices_offset: tuple[Dims, ...]
    field: int
    opt_weight_shard_step: int
    opt_weight_shard_size: int
    tensor_shape: tuple[int, ...] | None = None
    """Of the whole, where the file says so; not MindSpore's."""


def build_searched_strategy(strategy_filename: str) -> dict[str, ParallelLayouts]:
    """The layouts of a strategy file by Parameter, as `merge_sliced_parameter` takes them.

    Args:
        strategy_filename: protobuf, or JSON where it ends in ``.json``.

    Raises:
        SporaxTypeError: the name is no string.
        SporaxValueError: there is no such file, or it is no strategy file.
    """
    where = "build_searched_strategy"
    _check_file(where, "strategy_filename", strategy_filename)
    layouts = _content(where, strategy_filename).parallel_layout_item or {}
    return {name: _message(where, name, entry) for name, entry in layouts.items()}


def _message(where: str, name: str, entry: dict[str, Any]) -> ParallelLayouts:
    try:
        axes = [axis for dim in entry["tensor_map"] for axis in (dim if isinstance(dim, list) else (dim,))]
        parts = (entry["dev_matrix"], axes, entry.get("param_split_shape", ()), entry.get("indices_offset", ()))
        field, step, size = (int(entry[key]) for key in ("field", "opt_weight_shard_step", "opt_weight_shard_size"))
        matrix, tensor_map, rows, offsets = ((Dims(tuple(map(int, part))),) for part in parts)
        shape = tuple(entry["tensor_shape"]) if "tensor_shape" in entry else None
        return ParallelLayouts(matrix, tensor_map, rows, offsets, field, step, size, shape)
    except (KeyError, TypeError, ValueError) as error:
        raise SporaxValueError(f"For '{where}', the layout of '{name}' is broken: {error!r}.") from None


def merge_pipeline_strategys(src_strategy_dirs: str, dst_strategy_file: str) -> None:
    """Merge the strategy files of all pipeline stages into one, whose Parameters are called ``"<stage>-<name>"``.

    The stage of a file is that of its operators; where it has none, what the file says of itself.

    Args:
        src_strategy_dirs: directory with one file per stage, all protobuf or all JSON.
        dst_strategy_file: file to write; JSON where it ends in ``.json``. Its directory is made.

    Raises:
        SporaxNotADirectoryError: the source is no directory.
        SporaxValueError: a file is no strategy file, none is there, or two of one stage disagree on a Parameter.
    """
    where = "merge_pipeline_strategys"
    source = Path(src_strategy_dirs)
    if not source.is_dir():
        raise For(where).fault(
            SporaxNotADirectoryError, "'src_strategy_dirs' must be a directory", f"'{src_strategy_dirs}'"
        )
    paths = sorted(path for path in source.iterdir() if path.is_file() and not path.name.startswith("."))
    if not paths or len({path.suffix == ".json" for path in paths}) != 1:
        raise For(where).error(
            f"{named(str(source))} must hold strategy files that are all JSON or all not", [path.name for path in paths]
        )
    merged: dict[str, Any] = {"current_stage": 0, STRATEGIES: {}, LAYOUTS: {}}
    for path in paths:
        for kind, name, entry in _staged_items(where, path):
            # Equal entries occur twice where stages share a Parameter.
            if merged[kind].setdefault(name, entry) != entry:
                raise SporaxValueError(f"For '{where}', '{path}' and another file disagree on '{name}'.")
    # The last stage, as the number of stages follows from it.
    merged["current_stage"] = max((int(name.partition("-")[0]) for name in merged[LAYOUTS]), default=0)
    target = Path(dst_strategy_file)
    target.parent.mkdir(parents=True, exist_ok=True)
    as_json = target.suffix == ".json"
    with atomic_write(target) as file:
        file.write(json.dumps(merged, indent=1).encode() if as_json else strategy_protobuf.encode(merged))


def _staged_items(where: str, path: Path) -> Iterator[tuple[str, str, Any]]:
    content = _content(where, str(path))
    strategies, layouts = content.parallel_strategy_item or {}, content.parallel_layout_item or {}
    # A file without operators says its stage itself.
    stages = {_stage(where, path, name, entry) for name, entry in strategies.items()} or {content.current_stage}
    For(where).refuse(len(stages) != 1, f"'{path}' must be of one stage, but has operators of {sorted(stages)}")
    stage = stages.pop()
    for name, entry in strategies.items():
        yield STRATEGIES, name, entry
    for name, entry in layouts.items():
        # A file that was merged before has staged names already.
        yield LAYOUTS, name if _STAGED.fullmatch(name) else f"{stage}-{name}", entry


def _stage(where: str, path: Path, name: str, entry: Any) -> int:
    try:
        return convert(entry, StrategyDocument).stage
    except MalformedError as error:
        raise SporaxValueError(f"For '{where}', the strategy of '{name}' in '{path}' is broken: {error}.") from None


def restore_group_info_list(group_info_file_name: str) -> list[int]:
    """The ranks that hold the same weights as the rank that wrote the file: any of their checkpoints can replace its own.

    Args:
        group_info_file_name: what ``group_ckpt_save_file`` or the environment's ``GROUP_INFO_FILE`` named.

    Raises:
        SporaxTypeError: the name is no string.
        SporaxValueError: there is no such file, or it is no group file.
    """
    where = "restore_group_info_list"
    _check_file(where, "group_info_file_name", group_info_file_name)
    try:
        _, ranks = strategy_protobuf.decode_groups(Path(group_info_file_name).read_bytes())
    except SporaxValueError as error:
        raise SporaxValueError(f"For '{where}', '{group_info_file_name}' must be a group file, but {error}.") from None
    For(where).refuse(not ranks, f"'{group_info_file_name}' names no ranks")
    return ranks
