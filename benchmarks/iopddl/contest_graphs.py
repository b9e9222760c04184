"""Files of cost graphs and of choices: the IOPDDL format in.

The format (google/iopddl) is one JSON object, usually gzipped: ``problem`` with ``name``, ``nodes`` (``intervals``,
``costs``, ``usages``), ``edges`` (``nodes``, ``costs``) and ``usage_limit``. A file is data from outside: every error
says which file, which entry and what was wrong with it.
"""

from __future__ import annotations

import gzip
import json
import reprlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sporax.base.errors import SporaxNotImplementedError, SporaxValueError
from sporax.planner.solver.graph.cost_graph import CostGraph

MAX_BYTES = 2 << 30
"""Bytes of a file, decompressed: a small file may claim to hold any amount. The largest graph of the IOPDDL contest has 1 GB."""


def read_graph(path: str | Path, max_bytes: int = MAX_BYTES) -> CostGraph:
    """Reads a cost graph from a JSON file, gzipped or not.

    Raises:
        SporaxValueError: the file cannot be read or decoded, or is not a cost graph; the message says where.
        SporaxNotImplementedError: an edge joins three or more nodes.
    """
    return parse_graph(load_json(path, max_bytes), str(path))


def read_choices(path: str | Path, max_bytes: int = MAX_BYTES) -> list[int]:
    """Reads what ``--solution`` wrote: a JSON list with one strategy number per node.

    Raises:
        SporaxValueError: the file cannot be read or decoded, or holds something else.
    """
    return _integers(load_json(path, max_bytes), str(path))


def load_json(path: str | Path, max_bytes: int = MAX_BYTES) -> Any:
    """Decodes a JSON file, gzipped or not (recognized by its first bytes), of at most `max_bytes`.

    Raises:
        SporaxValueError: the file cannot be read or decoded, or is larger.
    """
    try:
        return json.loads(_text(Path(path), max_bytes))
    except OSError as error:
        raise SporaxValueError(f"For '{path}', the file must be readable, but got: {error}.") from error
    except (EOFError, zlib.error) as error:
        raise SporaxValueError(f"For '{path}', the file must be complete gzip data, but got: {error}.") from error
    except (ValueError, RecursionError) as error:  # of text, of JSON, and of whole numbers with too many digits
        if isinstance(error, SporaxValueError):
            raise
        raise SporaxValueError(f"For '{path}', the file must be JSON, but got: {error}.") from error


def _text(path: Path, max_bytes: int) -> bytes:
    with open(path, "rb") as file:
        # By the first bytes and not by the name: contest files come with and without the ending.
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        with gzip.GzipFile(fileobj=file) if zipped else file as content:
            # One byte more than allowed shows that there is more, without reading it.
            text: bytes = content.read(max_bytes + 1)
    if len(text) > max_bytes:
        raise SporaxValueError(
            f"For '{path}', the decompressed file must have at most {max_bytes} bytes, but has more; --max-size allows more."
        )
    return text


def parse_graph(document: Any, source: str) -> CostGraph:
    """Makes a `CostGraph` of a decoded document; `source` names it in errors."""
    problem = _field(document, "problem", dict, source)
    nodes = _field(problem, "nodes", dict, f"{source}: problem")
    edges = _field(problem, "edges", dict, f"{source}: problem")
    intervals = [
        _interval(pair, f"{source}: nodes.intervals[{i}]") for i, pair in enumerate(_list(nodes, "intervals", source))
    ]
    costs = [
        _numbers(row, f"{source}: nodes.costs[{i}]", integral=False)
        for i, row in enumerate(_list(nodes, "costs", source))
    ]
    usages = [
        _numbers(row, f"{source}: nodes.usages[{i}]", integral=True)
        for i, row in enumerate(_list(nodes, "usages", source))
    ]
    limit = problem.get("usage_limit")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise SporaxValueError(f"For '{source}', usage_limit must be a non-negative integer, but got {_brief(limit)}.")
    # Loads are sums in int64; a limit and one usage below 2**62 cannot overflow together.
    if limit is not None and limit >= 2**62:
        raise SporaxValueError(f"For '{source}', usage_limit must be below 2**62, but got {_brief(limit)}.")
    try:
        return CostGraph.build(costs, usages, intervals, _edges(edges, costs, source), limit, source)
    except OverflowError as error:
        raise SporaxValueError(
            f"For '{source}', every cost must fit a floating-point number, but got: {error}."
        ) from None


def _edges(edges: dict[str, Any], costs: list[list[float]], source: str) -> Iterator[tuple[int, int, list[float]]]:
    """Yields (first, second, table); an edge on one node becomes a diagonal table on that node."""
    ends, tables = _list(edges, "nodes", source), _list(edges, "costs", source)
    if len(ends) != len(tables):
        raise SporaxValueError(
            f"For '{source}', edges.nodes and edges.costs must have the same length, but got {len(ends)} and {len(tables)}."
        )
    for i, (pair, table) in enumerate(zip(ends, tables, strict=True)):
        where = f"{source}: edges.nodes[{i}]"
        if not isinstance(pair, list) or not pair or any(not _is_int(node) for node in pair):
            raise SporaxValueError(f"For '{where}', an edge must be a list of node numbers, but got {_brief(pair)}.")
        if len(pair) > 2:
            raise SporaxNotImplementedError(
                f"For '{where}', an edge must join one or two nodes, but got {len(pair)}: {_brief(pair)}."
            )
        values = _numbers(table, f"{source}: edges.costs[{i}]", integral=False)
        if not all(0 <= node < len(costs) for node in pair):
            raise SporaxValueError(
                f"For '{source}', edge {i} must join nodes below {len(costs)}, but got nodes {_brief(pair)}."
            )
        if len(pair) == 2:
            yield pair[0], pair[1], values
        else:
            yield pair[0], pair[0], _diagonal(values)


def _diagonal(values: list[float]) -> list[float]:
    size = len(values)
    return [values[row] if row == column else 0.0 for row in range(size) for column in range(size)]


def _field(parent: Any, name: str, kind: type, where: str) -> Any:
    if not isinstance(parent, dict) or name not in parent:
        raise SporaxValueError(
            f"For '{where}', there must be an object with the field '{name}', but got {_brief(parent)}."
        )
    value = parent[name]
    if not isinstance(value, kind):
        raise SporaxValueError(f"For '{where}', the field '{name}' must be a {kind.__name__}, but got {_brief(value)}.")
    return value


def _list(parent: dict[str, Any], name: str, where: str) -> list[Any]:
    value: list[Any] = _field(parent, name, list, where)
    return value


def _is_int(value: Any) -> bool:
    # Not `isinstance`: bool is a subclass of int, and JSON's true is no number.
    return type(value) is int


def _interval(pair: Any, where: str) -> tuple[int, int]:
    # Whole numbers above 2**53 may have been rounded by whoever wrote the JSON.
    if not isinstance(pair, list) or len(pair) != 2 or not all(_is_int(end) and 0 <= end < 2**53 for end in pair):
        raise SporaxValueError(
            f"For '{where}', a live interval must be two non-negative integers [begin, end], but got {_brief(pair)}."
        )
    if pair[0] > pair[1]:
        raise SporaxValueError(f"For '{where}', a live interval must not end before it begins, but got {_brief(pair)}.")
    return pair[0], pair[1]


def _numbers(row: Any, where: str, *, integral: bool) -> list[float]:
    """Checks a list of numbers; `integral` requires non-negative integers."""
    if not isinstance(row, list):
        raise SporaxValueError(f"For '{where}', there must be a list of numbers, but got {_brief(row)}.")
    # Types as a set: one pass in C instead of a check per entry, for files of a gigabyte.
    kinds = set(map(type, row))
    if not kinds <= ({int} if integral else {int, float}):
        i, bad = next((i, x) for i, x in enumerate(row) if type(x) not in ((int,) if integral else (int, float)))
        raise SporaxValueError(
            f"For '{where}', entry {i} must be {'an integer' if integral else 'a number'}, but got {_brief(bad)}."
        )
    if integral and row and (min(row) < 0 or max(row) >= 2**62):
        raise SporaxValueError(f"For '{where}', entries must be from 0 to 2**62 - 1, but got {min(row)} to {max(row)}.")
    return row


def _integers(value: Any, where: str) -> list[int]:
    """Checks a list of whole numbers."""
    if not isinstance(value, list):
        raise SporaxValueError(f"For '{where}', there must be a list of whole numbers, but got {_brief(value)}.")
    for i, entry in enumerate(value):
        if not _is_int(entry):
            raise SporaxValueError(f"For '{where}', entry {i} must be a whole number, but got {_brief(entry)}.")
    return value


def _brief(value: Any) -> str:
    text = reprlib.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
