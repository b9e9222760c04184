"""`sporax checkpoint convert | inspect | diff`: the conversion functions on the command line, with progress."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from sporax.base.errors import For
from sporax.mindspore.train._stored import SUFFIXES, rank_files
from sporax.mindspore.train.checkpoint.assembly import ShardedCheckpoint, open_ranks
from sporax.mindspore.train.checkpoint.strategy import read_strategy
from sporax.mindspore.train.checkpoint.transform import OUTPUT_FORMATS, transform_checkpoints, unified_safetensors
from sporax.runtime.storage import Region, Shape, StoredTensor

DIFFERENT = 1
"""Exit code of `diff` where something differs."""

# 64 MiB: values are compared in blocks of rows of about this size.
_COMPARED_BYTES = 64 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The three words and their flags."""
    words = parser.add_subparsers(dest="word", required=True, metavar="convert|inspect|diff")
    convert = words.add_parser("convert", help="make the checkpoints of another job", allow_abbrev=False)
    convert.add_argument("source", help="directory with rank_0, rank_1, ...")
    convert.add_argument("target", help="directory to write rank_0, rank_1, ... to")
    convert.add_argument("--src_strategy", help="strategy file of the source (default: one rank has everything)")
    convert.add_argument("--dst_strategy", help="strategy file of the target (default: one rank has everything)")
    convert.add_argument("--prefix", help="file names begin so (default: ckpt_)")
    convert.add_argument("--format", choices=OUTPUT_FORMATS, help="of the target (default: ckpt)")
    convert.add_argument("--jobs", type=int, default=1, help="ranks made at a time (default: 1)")
    convert.add_argument("--unified", action="store_true", help="write whole parameters: unified safetensors")
    convert.add_argument("--quiet", action="store_true", help="no progress")
    inspect = words.add_parser("inspect", help="list the parameters of a file or job", allow_abbrev=False)
    inspect.add_argument("path", help="file, or directory with rank_0, rank_1, ...")
    inspect.add_argument("--strategy", help="strategy file: show whole parameters")
    inspect.add_argument("--verify", action="store_true", help="compare checksums, which reads everything")
    diff = words.add_parser("diff", help="compare two files or jobs; exit code 1 if they differ", allow_abbrev=False)
    diff.add_argument("left", help="file, or directory with rank_0, rank_1, ...")
    diff.add_argument("right", help="the other one")
    diff.add_argument("--left_strategy", help="strategy file of the first")
    diff.add_argument("--right_strategy", help="strategy file of the second")
    diff.add_argument(
        "--tolerance", type=float, default=0.0, help="largest difference that counts as equal (default: 0)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Do what the word says; returns the exit code."""
    words: dict[str, Callable[[argparse.Namespace], int]] = {"convert": _convert, "inspect": _inspect, "diff": _diff}
    return words[arguments.word](arguments)


def _convert(arguments: argparse.Namespace) -> int:
    if arguments.unified:
        # Unified files are whole Parameters, which have no strategy, and their names and format are fixed.
        for name in ("dst_strategy", "prefix", "format"):
            if getattr(arguments, name) is not None:
                raise For("sporax checkpoint convert").error(f"'--unified' takes no '--{name}'")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, disable=arguments.quiet) as bar:
        task = bar.add_task("reading", total=None)

        def advance(rank: int, name: str, num_bytes: int) -> None:
            bar.update(task, advance=num_bytes, description=f"{'part' if arguments.unified else 'rank'} {rank} {name}")

        if arguments.unified:
            unified_safetensors(
                arguments.source,
                arguments.src_strategy,
                arguments.target,
                max_process_num=arguments.jobs,
                progress=advance,
            )
        else:
            transform_checkpoints(
                arguments.source,
                arguments.target,
                "ckpt_" if arguments.prefix is None else arguments.prefix,
                arguments.src_strategy,
                arguments.dst_strategy,
                arguments.jobs,
                arguments.format or "ckpt",
                progress=advance,
            )
        bar.update(task, description="done")
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    source = _opened("inspect", arguments.path, arguments.strategy, arguments.verify)
    total = 0
    for rank, file in source.files.items():
        # With a strategy the wholes are listed below, and slices say nothing to the user.
        if arguments.strategy is not None:
            continue
        print(f"rank {rank}: {file.path}")
        total += sum(_print_spec(spec) for spec in file.specs.values())
    if arguments.strategy is not None:
        print(f"{len(source.files)} of {source.strategy.num_ranks} ranks, {source.strategy.num_stages} pipeline stages")
        total = sum(_print_spec(source.spec(name)) for name in source.names())
    print(f"{total:,} bytes of values")
    return 0


def _print_spec(spec: StoredTensor) -> int:
    print(f"  {spec.name}  {spec.shape if spec.dtype else 'text'}  {spec.dtype or ''}  {spec.num_bytes:,}")
    return spec.num_bytes


def _diff(arguments: argparse.Namespace) -> int:
    For("sporax checkpoint diff").refuse(
        not 0 <= arguments.tolerance < math.inf, "'--tolerance' must be a number of at least 0", arguments.tolerance
    )
    left = _opened("diff", arguments.left, arguments.left_strategy, False)
    right = _opened("diff", arguments.right, arguments.right_strategy, False)
    names, others = set(left.names()), set(right.names())
    lines = [f"only in {arguments.left}: {name}" for name in sorted(names - others)]
    lines += [f"only in {arguments.right}: {name}" for name in sorted(others - names)]
    for name in sorted(names & others):
        difference = _difference(left, right, name, arguments.tolerance)
        if difference:
            lines.append(f"{name}: {difference}")
    print("\n".join(lines) if lines else f"{len(names)} parameters, all equal")
    return DIFFERENT if lines else 0


def _difference(left: ShardedCheckpoint, right: ShardedCheckpoint, name: str, tolerance: float) -> str:
    one, other = left.spec(name), right.spec(name)
    # Values of different shapes or dtypes cannot be compared one by one.
    if one != other:
        return f"{one.shape} of {one.dtype}, {other.shape} of {other.dtype}"
    if one.dtype is None:
        same = left.read(name) == right.read(name)
        return "" if same else f"{left.read(name)!r}, {right.read(name)!r}"
    num_different, largest = 0, 0.0
    for region in _row_blocks(one.shape, one.num_bytes):
        values, theirs = np.asarray(left.read(name, region)), np.asarray(right.read(name, region))
        # numpy has no arithmetic between them and float64 that keeps their kind.
        if values.dtype.kind not in "biufc":  # dtypes of ml_dtypes
            values, theirs = values.astype(np.float32), theirs.astype(np.float32)
        # In float64, so that the difference of two integers or float16 numbers cannot overflow.
        apart = np.abs(values.astype(np.result_type(values, np.float64)) - theirs)
        # NaN equals NaN here, and equal infinities differ by nothing.
        apart = np.where((values == theirs) | (np.isnan(values) & np.isnan(theirs)), 0, apart)
        num_different += int(np.sum(~(apart <= tolerance)))
        largest = max(largest, float(np.max(apart, initial=0)))
        # The pages that were read would look like used memory.
        left.release()
        right.release()
    return f"{num_different:,} values differ, by at most {largest:.3g}" if num_different else ""


def _row_blocks(shape: Shape, size: int) -> list[Region]:
    """A tensor in blocks of rows, so that comparing needs little memory."""
    rest = tuple(slice(0, length) for length in shape[1:])
    if not shape or not size:
        return [tuple(slice(0, length) for length in shape)]
    # At least one row, however long it is.
    rows = max(1, shape[0] * _COMPARED_BYTES // size)
    return [(slice(start, min(start + rows, shape[0])), *rest) for start in range(0, shape[0], rows)]


def _opened(word: str, path: str, strategy_file: str | None, verify: bool) -> ShardedCheckpoint:
    where = f"sporax checkpoint {word}"
    target = Path(path)
    files: dict[int, Any] = dict(rank_files(target)) if target.is_dir() else {0: target}
    For(where).refuse(
        not files, f"'{path}' must be a file or hold rank_0, rank_1, ... with {' or '.join(SUFFIXES)} files"
    )
    # Such files may be slices as well, but nothing says how they fit together.
    if len(files) > 1 and strategy_file is None and word == "diff":
        print(f"{path}: files of {len(files)} ranks without a strategy are taken as copies", file=sys.stderr)
    strategy = read_strategy(where, "strategy", strategy_file)
    return open_ranks(where, strategy, files, verify=verify)
