"""Checkpoints of one distributed strategy made into those of another: MindSpore's `transform_checkpoints` and its parts.

Every rank of the new job needs a block of each Parameter of its stage. `assembly` reads it from the old files, and
`files.write_stream` writes one Parameter after the other, so the memory of the largest slice is enough.

`unified_safetensors`: the slices of all ranks in whole Parameters, in few files that any job can read parts of:
``part0.safetensors``, ``part1.safetensors``, ..., with ``param_name_map.json`` saying which Parameter is where. What no strategy
knows, such as step counters, goes to ``hyper_param.safetensors``.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base import atomic_write
from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore.communication import get_rank
from sporax.mindspore.train._stored import layout_writer, rank_files, write_stream
from sporax.mindspore.train.checkpoint.assembly import ShardedCheckpoint, open_ranks, target_region
from sporax.mindspore.train.checkpoint.strategy import SliceLayout, Strategy, read_strategy
from sporax.runtime.storage import Region, Slice, StoredTensor, overlap, region_shape

OUTPUT_FORMATS = ("ckpt", "safetensors")
Progress = Callable[[int, str, int], None]
"""Called with rank, Parameter and bytes after each that was written."""


def rank_list_for_transform(
    rank_id: int, src_strategy_file: str | None = None, dst_strategy_file: str | None = None
) -> list[int]:
    """The ranks whose checkpoints are needed to make that of one rank of another job.

    Args:
        rank_id: rank of the new job.
        src_strategy_file: strategy of the checkpoints; None where one file holds everything.
        dst_strategy_file: strategy of the new job; None for one rank that holds everything.

    Returns:
        In order, the first of those that hold the same. (MindSpore may list more.)

    Raises:
        SporaxTypeError: `rank_id` is no whole number, or a file name no string.
        SporaxValueError: a file does not exist or is no strategy file.
    """
    where = "rank_list_for_transform"
    For(where).integer("rank_id", rank_id)
    source, target = _strategies(where, src_strategy_file, dst_strategy_file)
    needed: set[int] = set()
    for name in source.layouts:
        if target.holds(name, rank_id):
            needed |= _holders(where, source, target, name, rank_id)
    # Without layouts every rank has everything, so rank 0 is enough.
    return sorted(needed) or [0]


def _holders(where: str, source: Strategy, target: Strategy, name: str, rank: int) -> set[int]:
    """Ranks that hold what `rank` needs of one Parameter, one for each block."""
    layouts = source.layouts[name]
    described = target.layout(name, rank)
    examples = [*layouts.values(), *([described] if described else [])]
    # JSON files say the real shape.
    shape = next((layout.shape for layout in examples if layout.shape), None) or _virtual_shape(examples)
    try:
        region = (
            tuple(slice(0, size) for size in shape)
            if described is None
            else described.region(target.place(rank)[1], shape)
        )
        return _first_holders(source, layouts, region, shape)
    except SporaxValueError as error:
        raise SporaxValueError(
            f"For '{where}', parameter '{name}' does not fit the strategies of rank {rank}: {error}."
        ) from None


def _first_holders(
    source: Strategy, layouts: Mapping[int, SliceLayout], region: Region, shape: tuple[int, ...]
) -> set[int]:
    stage = min(layouts)  # a Parameter that stages share is the same in all
    holders: dict[tuple[tuple[int, int], ...], int] = {}
    for device in range(source.stage_devices):
        held = layouts[stage].region(device, shape)
        if overlap(held, region):
            # `setdefault`: the first rank that holds a block is the one to read.
            holders.setdefault(tuple((part.start, part.stop) for part in held), stage * source.stage_devices + device)
    return set(holders.values())


def _virtual_shape(layouts: Sequence[SliceLayout]) -> tuple[int, ...]:
    """A shape that all layouts divide: protobuf files do not say the real one."""
    shape = []
    # Only the proportions of blocks matter for finding those that overlap.
    for dim in range(len(layouts[0].tensor_map)):
        size = Fraction(1)
        for layout in layouts:
            rows = sum(layout.split_rows) if dim == 0 and layout.split_rows else 0
            # Uneven slices fix the size; equal ones only need a multiple.
            size = Fraction(rows) if rows else size * layout.counts(len(layout.tensor_map))[dim]
            if rows:
                break
        shape.append(int(size))
    return tuple(shape)


def get_ckpt_path_with_strategy(cur_ckpt_path: str, cur_strategy_path: str) -> str | None:
    """The file of this rank, or where it is not there that of another rank which holds the same slices.

    Args:
        cur_ckpt_path: the file; ``rank_0`` in it stands for the number of a rank.
        cur_strategy_path: strategy of the checkpoints.

    Returns:
        Path of the file; None where no such rank has one.

    Raises:
        SporaxTypeError: a file name is no string.
        SporaxValueError: the strategy file does not exist or is none.
    """
    where, rank = "get_ckpt_path_with_strategy", get_rank()
    For(where).typed("cur_ckpt_path", cur_ckpt_path, "a string", str)
    if f"rank_{rank}" in cur_ckpt_path and Path(cur_ckpt_path).is_file():
        return cur_ckpt_path
    strategy = read_strategy(where, "cur_strategy_path", cur_strategy_path)

    def held(rank: int) -> dict[str, Region]:
        stage, device = strategy.place(rank)
        layouts = {name: stages[stage] for name, stages in strategy.layouts.items() if stage in stages}
        return {name: each.region(device, each.shape or _virtual_shape([each])) for name, each in layouts.items()}

    equal = (other for other in range(strategy.num_ranks) if held(other) == held(rank))
    paths = (re.sub(r"rank_\d+", f"rank_{other}", cur_ckpt_path) for other in equal)
    return next((path for path in paths if Path(path).is_file()), None)


def transform_checkpoint_by_rank(
    rank_id: int,
    checkpoint_files_map: dict[int, str],
    save_checkpoint_file_name: str,
    src_strategy_file: str | None = None,
    dst_strategy_file: str | None = None,
) -> None:
    """Make the checkpoint of one rank of another job.

    Args:
        rank_id: rank of the new job.
        checkpoint_files_map: the files by rank of the old one; at least those that `rank_list_for_transform` lists.
        save_checkpoint_file_name: file to write, which ends in ``.ckpt``. Its directory is made.
        src_strategy_file, dst_strategy_file: as for `rank_list_for_transform`.

    Raises:
        SporaxTypeError: an argument is of the wrong type.
        SporaxValueError: a file is missing, broken, or does not fit the strategy; the text names file, Parameter and rank.
    """
    where = "transform_checkpoint_by_rank"
    For(where).typed("checkpoint_files_map", checkpoint_files_map, "a dict", dict)
    For(where).integer("rank_id", rank_id)
    For(where).typed("save_checkpoint_file_name", save_checkpoint_file_name, "a string", str)
    if not save_checkpoint_file_name.endswith(".ckpt"):
        raise SporaxValueError(
            f"For '{where}', 'save_checkpoint_file_name' must end in '.ckpt', but got '{save_checkpoint_file_name}'."
        )
    for rank, path in checkpoint_files_map.items():
        For(where).integer("rank in checkpoint_files_map", rank)
        For(where).refuse(not isinstance(path, str), f"the path of rank {rank} must be a string", path)
    source, target = _strategies(where, src_strategy_file, dst_strategy_file)
    # The checksums are compared once, since every rank's conversion reads from the same files.
    checkpoint = open_ranks(where, source, checkpoint_files_map, verify=True)
    result = Path(save_checkpoint_file_name)
    result.parent.mkdir(parents=True, exist_ok=True)
    write_rank(checkpoint, target, rank_id, result)


def transform_checkpoints(
    src_checkpoints_dir: str,
    dst_checkpoints_dir: str,
    ckpt_prefix: str,
    src_strategy_file: str | None = None,
    dst_strategy_file: str | None = None,
    process_num: int = 1,
    output_format: str = "ckpt",
    *,
    progress: Progress | None = None,
) -> None:
    """Make the checkpoints of all ranks of another job.

    Args:
        src_checkpoints_dir: directory with ``rank_0``, ``rank_1``, ...; of each the last file by name is taken.
        dst_checkpoints_dir: ``rank_N/<ckpt_prefix>N.<output_format>`` are written here.
        ckpt_prefix: what their names begin with.
        src_strategy_file, dst_strategy_file: as for `rank_list_for_transform`.
        process_num: how many ranks are made at a time (by threads).
        output_format: ``"ckpt"`` or ``"safetensors"``.
        progress: called for each Parameter that was written.

    Raises:
        SporaxTypeError: an argument is of the wrong type.
        SporaxValueError: a directory or file is missing, broken, or does not fit, or the number of ranks of one job is no
            multiple of the other's.
    """
    where = "transform_checkpoints"
    source_dir = Path(src_checkpoints_dir)
    paths = dict(rank_files(source_dir)) if source_dir.is_dir() else {}
    if not paths:
        raise SporaxValueError(
            f"For '{where}', 'src_checkpoints_dir' must hold rank_0, rank_1, ... with checkpoints, but '{source_dir}' "
            f"{'holds none' if source_dir.is_dir() else 'does not exist'}."
        )
    For(where).typed("ckpt_prefix", ckpt_prefix, "a string", str)
    For(where).integer("process_num", process_num, 1)
    For(where).one_of("output_format", output_format, OUTPUT_FORMATS)
    source, target = _strategies(where, src_strategy_file, dst_strategy_file)
    many, few = max(source.num_ranks, target.num_ranks), min(source.num_ranks, target.num_ranks)
    if many % few:
        raise SporaxValueError(
            f"For '{where}', the number of ranks of one job must be a multiple of the other's, but they are "
            f"{source.num_ranks} and {target.num_ranks}."
        )
    opened = open_ranks(where, source, paths, verify=True)

    def convert(rank: int) -> None:
        folder = Path(dst_checkpoints_dir) / f"rank_{rank}"
        folder.mkdir(parents=True, exist_ok=True)
        # One for each rank: it counts and caches on its own.
        sharded = ShardedCheckpoint(where, source, opened.files, opened.slices)
        write_rank(sharded, target, rank, folder / f"{ckpt_prefix}{rank}.{output_format}", progress)

    with ThreadPoolExecutor(process_num) as executor:
        for future in [executor.submit(convert, rank) for rank in range(target.num_ranks)]:
            # Raises what the thread raised.
            future.result()


def write_rank(
    source: ShardedCheckpoint, target: Strategy, rank: int, path: Path, progress: Progress | None = None
) -> int:
    """Write the checkpoint of one rank of the job `target`, its places in it: a process with several devices reads what it needs.

    Returns:
        Bytes of the file.
    """
    source.check_files(name for name in source.strategy.layouts if target.holds(name, rank))
    regions: dict[str, Region] = {}
    specs: list[StoredTensor] = []
    for name in source.names():
        # Parameters of other pipeline stages are no part of this rank's file.
        if not target.holds(name, rank):
            continue
        spec = source.spec(name)
        if spec.dtype is not None:
            regions[name] = _region(source, target, spec, rank)
            spec = StoredTensor(name, region_shape(regions[name]), spec.dtype)
        specs.append(spec)

    def values(spec: StoredTensor) -> Any:
        value = source.read(spec.name, regions.get(spec.name))
        # Otherwise the whole source would seem to be in memory.
        source.release()
        if progress is not None:
            progress(rank, spec.name, len(value) if isinstance(value, str) else value.nbytes)
        return value

    # Conversions to two strategies, or of two saves, in one folder do not mix.
    mark = f"{zlib.crc32(repr((target, source.slices and source.slices.mark)).encode()):08x}"
    slices = {
        name: Slice(name, source.spec(name).shape, tuple(part.start for part in region), np.empty(0))
        for name, region in regions.items()
    }
    return write_stream(path, specs, values, layout_writer(rank, target.num_ranks, mark, slices, target.num_stages))


def _region(source: ShardedCheckpoint, target: Strategy, spec: StoredTensor, rank: int) -> Region:
    weight = target.weight_name(spec.name)
    # A state is sharded as its weight only where both have the same shape.
    has_weight = weight and weight != spec.name and weight in source.names()
    try:
        return target_region(target, spec, rank, source.spec(weight).shape if has_weight else None)
    except SporaxValueError as error:
        raise SporaxValueError(
            f"For '{source.where}', parameter '{spec.name}' of shape {spec.shape} does not fit the new strategy of rank "
            f"{rank}: {error}."
        ) from None


def _strategies(where: str, source: str | None, target: str | None) -> tuple[Strategy, Strategy]:
    return (read_strategy(where, "src_strategy_file", source), read_strategy(where, "dst_strategy_file", target))


NAME_MAP, COUNTERS = "param_name_map.json", "hyper_param.safetensors"
# 3 GiB.
PART_BYTES = 3 << 30
"""Parts are begun again beyond this size, so that a few of them can be copied or fetched at a time."""

_WHERE = "unified_safetensors"
Rename = Callable[[str], bool | str]


def unified_safetensors(
    src_dir: str,
    src_strategy_file: str | None,
    dst_dir: str,
    merge_with_redundancy: bool = True,
    file_suffix: str | None = None,
    max_process_num: int = 64,
    choice_func: Rename | None = None,
    split_dst_file: Sequence[int] = (),
    *,
    progress: Progress | None = None,
) -> None:
    """Merge the safetensors files of all ranks.

    Args:
        src_dir: directory with ``rank_0``, ``rank_1``, ...; of each the last file by name is taken.
        src_strategy_file: under which they were saved.
        dst_dir: where the merged files go; it is made.
        merge_with_redundancy: every rank wrote all it holds. False: slices that several ranks hold were written once.
        file_suffix: take files whose names end so, before ``.safetensors``.
        max_process_num: how many files are written at a time (by threads).
        choice_func: by name: whether to take a Parameter, or its new name.
        split_dst_file: ``(n, m)``: make m parts, and write only the n-th of them (from 1), so that m machines share the work.
        progress: called for each Parameter that was written (with the number of the part as its rank).

    Raises:
        SporaxTypeError: an argument is of the wrong type.
        SporaxValueError: a directory or file is missing, broken, incomplete or does not fit.
    """
    For(_WHERE).boolean("merge_with_redundancy", merge_with_redundancy)
    For(_WHERE).integer("max_process_num", max_process_num, 1)
    if choice_func is not None and not callable(choice_func):
        raise SporaxTypeError(f"For '{_WHERE}', 'choice_func' must be callable, but got {type(choice_func).__name__}.")
    number, num_parts = _check_split(split_dst_file)
    paths = _paths(src_dir, file_suffix)
    # Without a strategy every file is whole.
    strategy = read_strategy(_WHERE, "src_strategy_file", src_strategy_file)
    source = open_ranks(_WHERE, strategy, paths, verify=True)
    # A slice that only an absent rank wrote cannot be read anywhere else.
    if not merge_with_redundancy and not source.describes_itself:
        _check_complete(strategy.num_ranks, paths)
    source.check_files(strategy.layouts)
    chosen = _chosen(source.names(), choice_func)
    # What no layout names is a counter or the like.
    weights = [name for name in chosen if strategy.weight_name(name) or src_strategy_file is None]
    parts = _parts(source, weights, num_parts)
    target = Path(dst_dir)
    target.mkdir(parents=True, exist_ok=True)

    def write(part: int) -> None:
        _write(source, parts[part], chosen, target / f"part{part}.safetensors", part, progress)

    with ThreadPoolExecutor(max_process_num) as executor:
        numbers = range(len(parts)) if number is None else [number - 1]
        for future in [executor.submit(write, part) for part in numbers]:
            future.result()
    # One machine writes the map and the counters, for all.
    if number in (None, 1):
        counters = [name for name in chosen if name not in set(weights)]
        if counters:
            _write(source, counters, chosen, target / COUNTERS, 0, progress)
        _write_map(source, parts, chosen, target)


def _paths(src_dir: str, suffix: str | None) -> dict[int, Path]:
    ending = f"{suffix or ''}.safetensors"
    paths = dict(rank_files(Path(src_dir), (ending,))) if Path(src_dir).is_dir() else {}
    For(_WHERE).refuse(not paths, f"'src_dir' must hold rank_0, rank_1, ... with '*{ending}', but '{src_dir}' does not")
    return paths


def _check_complete(num_ranks: int, paths: dict[int, Path]) -> None:
    absent = sorted(set(range(num_ranks)) - set(paths))
    For(_WHERE).refuse(
        absent, f"files without redundancy must be there for all ranks, but those of ranks {absent} are not"
    )


def _check_split(split: object) -> tuple[int | None, int | None]:
    if not isinstance(split, tuple | list) or len(split) not in (0, 2):
        raise SporaxValueError(f"For '{_WHERE}', 'split_dst_file' must be () or (n, m), but got {split!r}.")
    if not split:
        return None, None
    number, parts = (For(_WHERE).integer("split_dst_file", value, 1) for value in split)
    For(_WHERE).refuse(number > parts, "'split_dst_file' must be (n, m) with n <= m", split, show=repr)
    return number, parts


def _chosen(names: Sequence[str], choice: Rename | None) -> dict[str, str]:
    """New names by old ones."""
    chosen: dict[str, str] = {}
    for name in names:
        answer = True if choice is None else choice(name)
        if not isinstance(answer, bool | str):
            raise SporaxTypeError(
                f"For '{_WHERE}', 'choice_func' must return a bool or a string, but returned {answer!r} for '{name}'."
            )
        if answer:
            # True keeps the name; a string is the new one.
            chosen[name] = name if answer is True else str(answer)
    # Two tensors cannot have one name in a file.
    For(_WHERE).refuse(len(set(chosen.values())) != len(chosen), "'choice_func' gives one name to several parameters")
    return chosen


def _parts(source: ShardedCheckpoint, names: Sequence[str], num_parts: int | None) -> list[list[str]]:
    """Names by part: as many parts as requested, else as few as `PART_BYTES` allows."""
    # Sorted, so that all machines divide the work in the same way.
    sizes = {name: source.spec(name).num_bytes for name in sorted(names)}
    # Rounded up, so that no more than the requested number of parts is begun.
    limit = PART_BYTES if num_parts is None else -(-sum(sizes.values()) // num_parts)
    parts: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        # A Parameter that is larger than the limit gets a part of its own.
        if parts[-1] and filled + size > limit and (num_parts is None or len(parts) < num_parts):
            parts.append([])
            filled = 0
        parts[-1].append(name)
        filled += size
    # Empty parts: as many files as were requested.
    return parts + [[] for _ in range((num_parts or 0) - len(parts))]


def _write(
    source: ShardedCheckpoint,
    names: Sequence[str],
    renamed: dict[str, str],
    path: Path,
    part: int,
    progress: Progress | None,
) -> None:
    old = {renamed[name]: name for name in names}
    specs = [StoredTensor(renamed[name], (spec := source.spec(name)).shape, spec.dtype) for name in names]

    def values(spec: StoredTensor) -> Any:
        value = source.read(old[spec.name])
        source.release()
        if progress is not None:
            progress(part, spec.name, spec.num_bytes)
        return value

    write_stream(path, specs, values)


def _write_map(source: ShardedCheckpoint, parts: list[list[str]], renamed: dict[str, str], target: Path) -> None:
    files = {renamed[name]: f"part{part}.safetensors" for part, names in enumerate(parts) for name in names}
    total = sum(source.spec(name).num_bytes for names in parts for name in names)
    content = {"metadata": {"total_size": total}, "weight_map": dict(sorted(files.items()))}
    with atomic_write(target / NAME_MAP) as file:
        file.write(json.dumps(content, indent=4).encode())
