"""What a strategy file says of the ranks of a job, and the functions of MindSpore that read or merge such files.

A file of a job without pipeline stages names its Parameters; one that `merge_pipeline_strategys` wrote puts the number of
the stage before, ``"1-fc.weight"``. The ranks of a stage are consecutive. A Parameter that no file names, such as a step
counter, is whole on every rank; the state of an optimizer, ``"moments.fc.weight"``, is sharded as its weight.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sporax.base.atomic_file import atomic_write
from sporax.base.documents import MalformedError, convert
from sporax.base.errors import SporaxNotADirectoryError, SporaxValueError, check_type
from sporax.mindspore.context._strategy_files import protobuf as strategy_protobuf
from sporax.mindspore.context._strategy_files.documents import StrategyDocument
from sporax.mindspore.context._strategy_files.files import LAYOUTS, STRATEGIES, StrategyFile, read_strategy_file
from sporax.mindspore.train.checkpoint.slice_layout import SliceLayout, layout_of

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
    if len(sizes) != 1:
        raise SporaxValueError(
            f"For '{where}', all layouts of '{path}' must have the same number of devices, but got {sorted(sizes)}."
        )
    num_stages = 1 + max(stage for stages in layouts.values() for stage in stages)
    return Strategy(layouts, num_stages, sizes.pop())


def _check_file(where: str, what: str, path: Any) -> None:
    check_type(where, what, path, "a string", str)
    if not Path(path).is_file():
        raise SporaxValueError(f"For '{where}', the file '{path}' of '{what}' does not exist.")


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
        raise SporaxNotADirectoryError.must(where, "src_strategy_dirs", "be a directory", f"'{src_strategy_dirs}'")
    paths = sorted(path for path in source.iterdir() if path.is_file() and not path.name.startswith("."))
    if not paths or len({path.suffix == ".json" for path in paths}) != 1:
        raise SporaxValueError.must(
            where, str(source), "hold strategy files that are all JSON or all not", [path.name for path in paths]
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
    if len(stages) != 1:
        raise SporaxValueError(f"For '{where}', '{path}' must be of one stage, but has operators of {sorted(stages)}.")
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
    if not ranks:
        raise SporaxValueError(f"For '{where}', '{group_info_file_name}' names no ranks.")
    return ranks
