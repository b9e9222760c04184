"""CLUE, the Chinese Language Understanding Evaluation: six tasks, each with its own columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from sporax.dataset import _checks
from sporax.dataset._sources.reading import parse_lines
from sporax.dataset._sources.text import FileDataset, FileTable, Shuffle, find_files
from sporax.dataset._sources.texts import Columns

_PAIR = {"sentence1": "sentence1", "sentence2": "sentence2"}
_SPANS = {f"span{i}_{what}": f"target/span{i}_{what}" for i in (1, 2) for what in ("index", "text")}
#: Task -> columns and where they lie in an object, of "train" and "eval"; of "test".
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
    "WSC": (
        {**_SPANS, "idx": "idx", "label": "label", "text": "text"},
        {**_SPANS, "idx": "idx", "text": "text"},
    ),
    "CSL": (
        {"id": "id", "abst": "abst", "keyword": "keyword", "label": "label"},
        {"id": "id", "abst": "abst", "keyword": "keyword"},
    ),
}


class CLUEDataset(FileDataset):
    """CLUE: files with one JSON object per line.

    Columns, in alphabetical order, depend on the task: strings () str, numbers () uint32, lists of strings (n,) str.

    Args:
        dataset_files: a file, a pattern such as "*.json", or a list of them.
        task: "AFQMC", "TNEWS", "IFLYTEK", "CMNLI", "WSC" or "CSL".
        usage: "train", "test" or "eval".
        num_samples: see PartsDataset, like all further arguments.
        num_parallel_workers: see PartsDataset.
        shuffle: see PartsDataset.
        num_shards: see PartsDataset.
        shard_id: see PartsDataset.
        cache: see PartsDataset.
    """

    def __init__(
        self,
        dataset_files: str | list[str],
        task: str = "AFQMC",
        usage: str = "train",
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | Shuffle = Shuffle.GLOBAL,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "CLUEDataset"
        paths = find_files(where, dataset_files)
        labelled, unlabelled = _CLUE[_checks.check_choice(where, "task", task, tuple(_CLUE))]
        test = _checks.check_choice(where, "usage", usage, ("train", "test", "eval")) == "test"
        places = dict(sorted((unlabelled if test else labelled).items()))

        def parse(path: Path) -> Columns:
            rows = parse_lines(where, path, lambda line: [_at(json.loads(line), place) for place in places.values()])
            return {name: [row[i] for row in rows] for i, name in enumerate(places)}

        arguments = (num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache)
        super().__init__(where, tuple(places), lambda: FileTable(where, paths, parse), *arguments)


def _at(content: Any, place: str) -> Any:
    for key in place.split("/"):
        content = content[key]
    if isinstance(content, str):
        return content
    return np.array(content, np.str_) if isinstance(content, list) else np.array(content, np.uint32)
