"""`sporax profile DIR`: where the time of the steps went that `sporax run --profile DIR` has recorded, per rank and Cell path."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from sporax.base.documents import MalformedError, decode
from sporax.base.errors import For, SporaxValueError
from sporax.base.text_tables import page_width
from sporax.report.render.step_times import headline, svg, text
from sporax.report.view.step_times import StepTimes

_FILE = "step_times.json"
_SUFFIXES = (".svg", ".json", ".txt")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("directory", metavar="DIR", help="the folder of the recording")
    parser.add_argument(
        "--rank", type=int, default=0, help="whose table is shown; of all ranks there is one line (default: 0)"
    )
    parser.add_argument("--top", type=int, default=20, help="rows of the table, the longest first (default: 20)")
    parser.add_argument("--depth", type=int, default=0, help="parts of a path that are shown, 0 for all (default: 0)")
    parser.add_argument("--out", metavar="FILE", default="", help="write it to a file: a picture (.svg), .json or .txt")


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or write it; returns the exit code."""
    for name, value, least in (("rank", arguments.rank, 0), ("top", arguments.top, 1), ("depth", arguments.depth, 0)):
        For("sporax profile").refuse(value < least, f"{name} must be {least} or more", value)
    out = Path(arguments.out) if arguments.out else None
    if out is not None and (out.suffix not in _SUFFIXES or not out.absolute().parent.is_dir()):
        raise SporaxValueError(
            f"For 'sporax profile', out must be a file {', '.join(_SUFFIXES)} in a folder that exists, but got '{out}'."
        )
    ranks = _recorded(Path(arguments.directory))
    For("sporax profile").refuse(
        arguments.rank not in ranks, f"rank must be one of {sorted(ranks)}, which were recorded", arguments.rank
    )
    times = ranks[arguments.rank]
    table = text(times, arguments.top, arguments.depth, page_width())
    others = "\n".join(headline(ranks[rank]) for rank in sorted(ranks) if rank != arguments.rank)
    if out is None:
        print(f"{table}\n\n{others}" if others else table)
    elif out.suffix == ".json":
        out.write_bytes(msgspec.json.encode(times))
    else:
        out.write_text(
            svg(times, arguments.top, arguments.depth) if out.suffix == ".svg" else f"{table}\n", encoding="utf-8"
        )
    return 0


def _recorded(directory: Path) -> dict[int, StepTimes]:
    """What each rank has recorded.

    Raises:
        SporaxValueError: nothing, or a file is not as it was written.
    """
    ranks: dict[int, StepTimes] = {}
    # `Profiler` writes it into the folder itself.
    for file in (*directory.glob(_FILE), *sorted(directory.glob(f"rank_*/{_FILE}"))):
        try:
            times = decode(file.read_bytes(), StepTimes)
        except MalformedError as error:
            raise SporaxValueError(f"For 'sporax profile', '{file}' must be as it was written, but {error}.") from None
        ranks[times.rank] = times
    if not ranks:
        raise SporaxValueError(
            f"For 'sporax profile', DIR must be a folder that `sporax run --profile DIR` has written, but '{directory}' has no "
            f"{_FILE} and no rank_*/{_FILE}."
        )
    return ranks
