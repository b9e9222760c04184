"""CLUE, the Chinese Language Understanding Evaluation: six tasks, each with its own columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sporax.mindspore.dataset._sources import arguments
from sporax.mindspore.dataset._sources.format import Format
from sporax.mindspore.dataset._sources.reading import parse_lines
from sporax.mindspore.dataset._sources.specified import FileDataset
from sporax.mindspore.dataset._sources.text_files import Columns, FileTable
from sporax.mindspore.dataset._streams import Table

_PAIR = {"sentence1": "sentence1", "sentence2": "sentence2"}
_SPANS = {f"span{i}_{what}": f"target/span{i}_{what}" for i in (1, 2) for what in ("index", "text")}
#: Task -> columns and where they are in an object, of "train" and "eval"; of "test".
_CLUE: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "AFQMC": ({**_PAIR, "label": "label"}, {**_PAIR, "id": "id"}),
    "TNEWS": (
        {"label": "label", "label_desc": "label_desc", "sentence": "sentence", "keywords": "keywords"},
        {"id": "id", "sentence": "sentence", "keywords": "keywords"},
    ),
    "IFLYTEK": (
        {"label": "label", "label_des": "label_des", "sentence": "sentence"},
        {"id": "id", "sentence": "sentence"},
    ),
    "CMNLI": ({**_PAIR, "label": "label"}, {**_PAIR, "id": "id"}),
    "WSC": ({**_SPANS, "idx": "idx", "label": "label", "text": "text"}, {**_SPANS, "idx": "idx", "text": "text"}),
    "CSL": (
        {"id": "id", "abst": "abst", "keyword": "keyword", "label": "label"},
        {"id": "id", "abst": "abst", "keyword": "keyword"},
    ),
}


def _at(content: Any, place: str) -> Any:
    for key in place.split("/"):
        content = content[key]
    if isinstance(content, str):
        return content
    # Numbers are uint32 in MindSpore; lists occur with strings only.
    return np.array(content, np.str_) if isinstance(content, list) else np.array(content, np.uint32)


def _paths_of_columns(task: str, usage: str) -> dict[str, str]:
    """Column -> where it is in an object, in alphabetical order."""
    labelled, unlabelled = _CLUE[task]
    # MindSpore gives columns in the order of a map, which is alphabetical.
    return dict(sorted((unlabelled if usage == "test" else labelled).items()))


def _columns(where: str, paths: Sequence[Path], task: str, usage: str) -> tuple[str, ...]:
    return tuple(_paths_of_columns(task, usage))


def _clue(where: str, paths: Sequence[Path], task: str, usage: str) -> Table:
    paths_of_columns = _paths_of_columns(task, usage)

    def parse(path: Path) -> Columns:
        rows = parse_lines(
            where, path, lambda line: [_at(json.loads(line), place) for place in paths_of_columns.values()]
        )
        # The line is parsed once per column; a row has at most eight.
        return {name: [row[i] for row in rows] for i, name in enumerate(paths_of_columns)}

    return FileTable(where, paths, parse)


class CLUEDataset(
    FileDataset,
    format=Format(
        (
            arguments.dataset_files("*.json"),
            arguments.choice("task", *_CLUE, default="AFQMC"),
            arguments.choice("usage", "train", "test", "eval", default="train"),
            *arguments.SAMPLED_FILES,
        ),
        columns=_columns,
        read=_clue,
    ),
):
    """CLUE: files with one JSON object per line.

    Columns, in alphabetical order, depend on the task: strings () str, numbers () uint32, lists of strings (n,) str.
    """
