"""Texts in published formats: reviews, news, questions, translations, tagged sentences.

One file format each; the parts of a data set are files. Arguments, shuffling and sharding are those of text files.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sporax.dataset import _checks
from sporax.dataset._rows import Array
from sporax.dataset._sources.columns import Files, Stored
from sporax.dataset._sources.folder import UsageDataset, checked_usage
from sporax.dataset._sources.reading import (
    files_in,
    lines,
    parse_csv,
    parse_lines,
    read_json,
    reading,
)
from sporax.dataset._sources.text import FileDataset, FileTable, LineTable, Shuffle
from sporax.dataset._tables import Table
from sporax.ir.errors import SporaxRuntimeError

Columns = Mapping[str, Sequence[Any]]


class PartsDataset(FileDataset, abc.ABC):
    """A folder with one text file for each part. Formats give `_parts`, `_fields` and `_load`.

    Args:
        dataset_dir: the folder.
        usage: the part to read; all of them by default.
        num_samples: at most this many rows.
        num_parallel_workers: threads that prepare rows.
        shuffle: True or Shuffle.GLOBAL (the default), Shuffle.FILES, or False.
        num_shards: number of ranks that share the rows; each reads neighbouring rows.
        shard_id: this rank.
        cache: must be None.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxRuntimeError: (when read) a file is missing or broken; the message names file and line.
    """

    _parts: ClassVar[Mapping[str, str]] = {"test": "test.csv", "train": "train.csv"}
    _fields: ClassVar[tuple[str, ...]] = ("text",)

    def __init__(
        self,
        dataset_dir: str,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | Shuffle = Shuffle.GLOBAL,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        arguments = (num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache)
        self._begin(dataset_dir, usage, arguments)

    def _begin(self, dataset_dir: object, usage: object, arguments: tuple[Any, ...]) -> None:
        where = type(self).__name__
        folder = _checks.check_directory(where, dataset_dir)
        part = checked_usage(where, usage, (*self._parts, "all"))
        names = list(self._parts.values()) if part == "all" else [self._parts[part]]
        load = self._load
        super().__init__(where, self._fields, lambda: load(where, _named(where, folder, names)), *arguments)

    @classmethod
    @abc.abstractmethod
    def _load(cls, where: str, paths: Sequence[Path]) -> Table:
        """The rows of the files."""


class LaterWorkersDataset(PartsDataset, abc.ABC):
    """`PartsDataset` with `num_parallel_workers` as the last argument. Arguments and errors: see there."""

    def __init__(
        self,
        dataset_dir: str,
        usage: str | None = None,
        num_samples: int | None = None,
        shuffle: bool | Shuffle = Shuffle.GLOBAL,
        num_shards: int | None = None,
        shard_id: int | None = None,
        num_parallel_workers: int | None = None,
        cache: None = None,
    ) -> None:
        arguments = (num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache)
        self._begin(dataset_dir, usage, arguments)


def _named(where: str, folder: Path, names: Sequence[str]) -> list[Path]:
    """The files of a folder that patterns name, each at least one."""
    found = [sorted(folder.glob(name)) for name in names]
    for name, paths in zip(names, found, strict=True):
        if not paths:
            raise SporaxRuntimeError(f"For '{where}', the folder {str(folder)!r} must hold {name!r}, but does not.")
    return [path for paths in found for path in paths]


class _CsvFiles:
    """Files of comma-separated strings."""

    _fields: ClassVar[tuple[str, ...]]

    @classmethod
    def _load(cls, where: str, paths: Sequence[Path]) -> Table:
        columns = cls._fields

        def parse(path: Path) -> Columns:
            records = parse_csv(where, path, len(columns))
            return {name: [record[i] for record in records] for i, name in enumerate(columns)}

        return FileTable(where, paths, parse)


class _Lines:
    """Files whose lines are the rows."""

    @classmethod
    def _load(cls, where: str, paths: Sequence[Path]) -> Table:
        return LineTable(where, paths)


class AGNewsDataset(_CsvFiles, PartsDataset):
    """AG News: train.csv and test.csv. Columns: `index`, `title`, `description` () str. Arguments: see PartsDataset."""

    _fields: ClassVar[tuple[str, ...]] = ("index", "title", "description")


class AmazonReviewDataset(_CsvFiles, PartsDataset):
    """Amazon reviews: train.csv and test.csv. Columns: `label`, `title`, `content` () str. Arguments: see PartsDataset."""

    _fields: ClassVar[tuple[str, ...]] = ("label", "title", "content")


class DBpediaDataset(_CsvFiles, PartsDataset):
    """DBpedia: train.csv and test.csv. Columns: `class`, `title`, `content` () str. Arguments: see PartsDataset."""

    _fields: ClassVar[tuple[str, ...]] = ("class", "title", "content")


class YahooAnswersDataset(_CsvFiles, PartsDataset):
    """Yahoo! Answers: train.csv, test.csv. Columns: `class`, `title`, `content`, `answer` () str. Arguments: see PartsDataset."""

    _fields: ClassVar[tuple[str, ...]] = ("class", "title", "content", "answer")


class SogouNewsDataset(_CsvFiles, LaterWorkersDataset):
    """Sogou News: train.csv and test.csv. Columns: `index`, `title`, `content` () str. Arguments: see LaterWorkersDataset."""

    _fields: ClassVar[tuple[str, ...]] = ("index", "title", "content")


class YelpReviewDataset(_CsvFiles, LaterWorkersDataset):
    """Yelp reviews: train.csv and test.csv. Columns: `label`, `text` () str. Arguments: see LaterWorkersDataset."""

    _fields: ClassVar[tuple[str, ...]] = ("label", "text")


class PennTreebankDataset(_Lines, PartsDataset):
    """Penn Treebank: the lines of ptb.{train, test, valid}.txt. Column: `text` () str. Arguments: see PartsDataset."""

    _parts: ClassVar[Mapping[str, str]] = {name: f"ptb.{name}.txt" for name in ("test", "train", "valid")}


class WikiTextDataset(_Lines, PartsDataset):
    """WikiText: the lines of wiki.{train, test, valid}.tokens. Column: `text` () str. Arguments: see PartsDataset."""

    _parts: ClassVar[Mapping[str, str]] = {name: f"wiki.{name}.tokens" for name in ("test", "train", "valid")}


class EnWik9Dataset(FileDataset):
    """The lines of enwik9, empty ones too. Column: `text` () str.

    Args:
        dataset_dir: folder that holds the file enwik9.
        num_samples: see PartsDataset, like all further arguments.
        num_parallel_workers: see PartsDataset.
        shuffle: see PartsDataset.
        num_shards: see PartsDataset.
        shard_id: see PartsDataset.
        cache: see PartsDataset.
    """

    def __init__(
        self,
        dataset_dir: str,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | Shuffle = True,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "EnWik9Dataset"
        folder = _checks.check_directory(where, dataset_dir)
        arguments = (num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache)
        load = lambda: LineTable(where, _named(where, folder, ["enwik9"]), keep_empty=True)  # noqa: E731
        super().__init__(where, ("text",), load, *arguments)


class SST2Dataset(FileDataset):
    """Stanford Sentiment Treebank: train.tsv, dev.tsv and test.tsv.

    Columns: `sentence` () str, and but for "test" `label` () str.

    Args:
        dataset_dir: folder that holds the files.
        usage: "train" (the default), "test" or "dev".
        num_samples: see PartsDataset, like all further arguments.
        num_parallel_workers: see PartsDataset.
        shuffle: see PartsDataset.
        num_shards: see PartsDataset.
        shard_id: see PartsDataset.
        cache: see PartsDataset.
    """

    def __init__(
        self,
        dataset_dir: str,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | Shuffle = Shuffle.GLOBAL,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "SST2Dataset"
        folder = _checks.check_directory(where, dataset_dir)
        part = checked_usage(where, usage, ("test", "dev", "train"))
        columns = ("sentence",) if part == "test" else ("sentence", "label")

        def parse(path: Path) -> Columns:
            rows = parse_lines(where, path, _two_fields, skip=1)
            if part == "test":
                return {"sentence": [text for _, text in rows]}
            return {"sentence": [text for text, _ in rows], "label": [label for _, label in rows]}

        arguments = (num_samples, num_parallel_workers, shuffle, num_shards, shard_id, cache)
        load = lambda: FileTable(where, _named(where, folder, [f"{part}.tsv"]), parse)  # noqa: E731
        super().__init__(where, columns, load, *arguments)


def _two_fields(line: str) -> tuple[str, str]:
    first, second = line.split("\t")
    return first, second


class SQuADDataset(PartsDataset):
    """SQuAD 1.1 and 2.0: train-v*.json and dev-v*.json.

    Columns, with n answers to a question: `context`, `question` () str; `text` (n,) str; `answer_start` (n,) uint32. A question
    without an answer has one that is empty, at 2**32 - 1. Arguments: see PartsDataset.
    """

    _parts: ClassVar[Mapping[str, str]] = {"dev": "dev-v*.json", "train": "train-v*.json"}
    _fields: ClassVar[tuple[str, ...]] = ("context", "question", "text", "answer_start")

    @classmethod
    def _load(cls, where: str, paths: Sequence[Path]) -> Table:
        return FileTable(where, paths, lambda path: _squad_columns(where, path))


def _squad_columns(where: str, path: Path) -> Columns:
    content = read_json(where, path)
    rows: list[tuple[Any, ...]] = []
    with reading(where, path, "'data'"):
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    with reading(where, path, f"question {len(rows)}"):
                        answers = asked["answers"] or [{"text": "", "answer_start": -1}]
                        texts = np.array([each["text"] for each in answers], np.str_)
                        starts = np.array([each["answer_start"] for each in answers], np.int64).astype(np.uint32)
                        rows.append((paragraph["context"], asked["question"], texts, starts))
    return {name: [row[i] for row in rows] for i, name in enumerate(SQuADDataset._fields)}


class CoNLL2000Dataset(LaterWorkersDataset):
    """CoNLL-2000: train.txt and test.txt with a word per line and an empty line behind each sentence.

    Columns, with n words in a sentence: `word`, `pos_tag`, `chunk_tag` (n,) str. Arguments: see LaterWorkersDataset.
    """

    _parts: ClassVar[Mapping[str, str]] = {"test": "test.txt", "train": "train.txt"}
    _fields: ClassVar[tuple[str, ...]] = ("word", "pos_tag", "chunk_tag")

    @classmethod
    def _load(cls, where: str, paths: Sequence[Path]) -> Table:
        columns = cls._fields
        return FileTable(where, paths, lambda path: _sentences(where, path, columns, " "))


class UDPOSDataset(LaterWorkersDataset):
    """Universal Dependencies: en-ud-tag.v2.{train, dev, test}.txt, as in CoNLL-2000 with tabs.

    Columns, with n words in a sentence: `word`, `universal`, `stanford` (n,) str. Arguments: see LaterWorkersDataset.
    """

    _parts: ClassVar[Mapping[str, str]] = {
        "valid": "en-ud-tag.v2.dev.txt",
        "test": "en-ud-tag.v2.test.txt",
        "train": "en-ud-tag.v2.train.txt",
    }
    _fields: ClassVar[tuple[str, ...]] = ("word", "universal", "stanford")

    @classmethod
    def _load(cls, where: str, paths: Sequence[Path]) -> Table:
        columns = cls._fields
        return FileTable(where, paths, lambda path: _sentences(where, path, columns, "\t"))


def _sentences(where: str, path: Path, columns: Sequence[str], separator: str) -> Columns:
    found: list[list[list[str]]] = [[]]
    for number, line in lines(where, path):
        fields = line.split(separator)
        if line and len(fields) != len(columns):
            raise SporaxRuntimeError(
                f"For '{where}', every word must have {len(columns)} fields, but line {number} of {str(path)!r} has "
                f"{len(fields)}."
            )
        if line:
            found[-1].append(fields)
        elif found[-1]:
            found.append([])
    sentences = [words for words in found if words]
    return {
        name: [np.array([word[i] for word in words], np.str_) for words in sentences] for i, name in enumerate(columns)
    }


class IMDBDataset(UsageDataset):
    """IMDb reviews: folders train and test with the text files of folders pos (1) and neg (0).

    Columns: `text` () str; `label` () int32. Arguments and errors: see MnistDataset.
    """

    _fields: ClassVar[tuple[str, ...]] = ("text", "label")

    @staticmethod
    def _load(where: str, folder: Path, part: str) -> Mapping[str, Stored]:
        pairs = [
            (path, label)
            for name in (("train", "test") if part == "all" else (part,))
            for kind, label in (("pos", 1), ("neg", 0))
            for path in files_in(where, folder / name / kind, ".txt")
        ]

        def text(content: bytes, path: Path) -> Array:
            with reading(where, path):
                return np.array(content.decode(), np.str_)

        paths, labels = [path for path, _ in pairs], [label for _, label in pairs]
        return {"text": Files(where, paths, text), "label": np.array(labels, np.int32)}
