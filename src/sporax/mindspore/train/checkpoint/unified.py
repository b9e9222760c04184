"""`unified_safetensors`: the slices of all ranks in whole Parameters, in few files that any job can read parts of.

The files are ``part0.safetensors``, ``part1.safetensors``, ..., with ``param_name_map.json`` saying which Parameter is
where. What no strategy knows, such as step counters, goes to ``hyper_param.safetensors``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sporax.base.atomic_file import atomic_write
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore.train._checks import check_bool, check_count
from sporax.mindspore.train._stored import rank_files, write_stream
from sporax.mindspore.train.checkpoint.assembly import ShardedCheckpoint, open_ranks
from sporax.mindspore.train.checkpoint.strategy import read_strategy
from sporax.mindspore.train.checkpoint.transform import Progress
from sporax.runtime.storage.tensor_files import StoredTensor

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
    check_bool(_WHERE, "merge_with_redundancy", merge_with_redundancy)
    check_count(_WHERE, "max_process_num", max_process_num, minimum=1)
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
    if not paths:
        raise SporaxValueError(
            f"For '{_WHERE}', 'src_dir' must hold rank_0, rank_1, ... with '*{ending}', but '{src_dir}' does not."
        )
    return paths


def _check_complete(num_ranks: int, paths: dict[int, Path]) -> None:
    absent = sorted(set(range(num_ranks)) - set(paths))
    if absent:
        raise SporaxValueError(
            f"For '{_WHERE}', files without redundancy must be there for all ranks, but those of ranks {absent} are not."
        )


def _check_split(split: object) -> tuple[int | None, int | None]:
    if not isinstance(split, tuple | list) or len(split) not in (0, 2):
        raise SporaxValueError(f"For '{_WHERE}', 'split_dst_file' must be () or (n, m), but got {split!r}.")
    if not split:
        return None, None
    number, parts = (check_count(_WHERE, "split_dst_file", value, minimum=1) for value in split)
    SporaxValueError.raise_if(number > parts, _WHERE, "split_dst_file", "be (n, m) with n <= m", split, show=repr)
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
    if len(set(chosen.values())) != len(chosen):
        raise SporaxValueError(f"For '{_WHERE}', 'choice_func' gives one name to several parameters.")
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
