"""Texts in published formats: reviews, news, questions, translations, tagged sentences.

One file format each; the parts of a data set are files. Arguments, shuffling and sharding are those of text files.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset._sources import arguments as arg
from sporax.mindspore.dataset._sources.columns import Columns, Files, FileTable, LineTable
from sporax.mindspore.dataset._sources.format import Argument, FileDataset, Format, FormatDataset, Rows
from sporax.mindspore.dataset._sources.reading import (
    files_in,
    files_named,
    lines,
    parse_csv,
    parse_lines,
    read_json,
    reading,
)
from sporax.mindspore.dataset._streams import Table


def _files_of(where: str, folder: Path, part: str, names: Mapping[str, str]) -> list[Path]:
    """The files of a part; `names` has the pattern of each part's name."""
    # "all" reads the files in the order of the table, as MindSpore orders them.
    return files_named(where, folder, list(names.values()) if part == "all" else [names[part]])


_FOLDER = arg.folder("folder that holds the files.")
_CSV = {"test": "test.csv", "train": "train.csv"}


def _csv_format(
    *columns: str, sampling: tuple[Argument, ...] = arg.SAMPLED_FILES, files: Mapping[str, str] = _CSV
) -> Format:
    """The format of data sets in train.csv and test.csv, with fields that are strings."""

    def read(where: str, folder: Path, part: str) -> Table:
        def parse(path: Path) -> Columns:
            records = parse_csv(where, path, len(columns))
            return {name: [record[i] for record in records] for i, name in enumerate(columns)}

        return FileTable(where, _files_of(where, folder, part, files), parse)

    return Format((_FOLDER, arg.usage("train", "test", "all"), *sampling), columns, read)


def _line_format(pattern: str) -> Format:
    """The format of data sets whose rows are the lines of one file per part; `pattern` has * for the part."""
    names = {part: pattern.replace("*", part) for part in ("test", "train", "valid")}

    def read(where: str, folder: Path, part: str) -> Table:
        return LineTable(where, _files_of(where, folder, part, names))

    return Format((_FOLDER, arg.usage(*names, "all"), *arg.SAMPLED_FILES), ("text",), read)


class AGNewsDataset(FileDataset, format=_csv_format("index", "title", "description")):
    """AG News: train.csv and test.csv. Columns: `index`, `title`, `description` () str."""


class AmazonReviewDataset(FileDataset, format=_csv_format("label", "title", "content", sampling=arg.SAMPLED_FILES)):
    """Amazon reviews: train.csv and test.csv. Columns: `label`, `title`, `content` () str."""


class DBpediaDataset(FileDataset, format=_csv_format("class", "title", "content")):
    """DBpedia: train.csv and test.csv. Columns: `class`, `title`, `content` () str."""


class YahooAnswersDataset(
    FileDataset, format=_csv_format("class", "title", "content", "answer", sampling=arg.SAMPLED_FILES)
):
    """Yahoo! Answers: train.csv, test.csv. Columns: `class`, `title`, `content`, `answer` () str."""


class SogouNewsDataset(
    FileDataset,
    format=_csv_format(
        "index", "title", "content", sampling=arg.SAMPLED_FILES_LATER, files=dict(reversed(_CSV.items()))
    ),
):
    """Sogou News: train.csv and test.csv. Columns: `index`, `title`, `content` () str."""


class YelpReviewDataset(FileDataset, format=_csv_format("label", "text", sampling=arg.SAMPLED_FILES_LATER)):
    """Yelp reviews: train.csv and test.csv. Columns: `label`, `text` () str."""


class PennTreebankDataset(FileDataset, format=_line_format("ptb.*.txt")):
    """Penn Treebank: the lines of ptb.{train, test, valid}.txt. Column: `text` () str."""


class WikiTextDataset(FileDataset, format=_line_format("wiki.*.tokens")):
    """WikiText: the lines of wiki.{train, test, valid}.tokens. Column: `text` () str."""


def _enwik9(where: str, folder: Path) -> Table:
    return LineTable(where, files_named(where, folder, ["enwik9"]), keep_empty=True)


class EnWik9Dataset(
    FileDataset,
    arguments=(
        arg.folder("folder that holds the file enwik9."),
        *arg.replaced(arg.SAMPLED_FILES, arg.text_shuffle(default=True)),
    ),
    columns=("text",),
    read=_enwik9,
):
    """The lines of enwik9, empty ones too. Column: `text` () str."""


def _two_fields(line: str) -> tuple[str, str]:
    first, second = line.split("\t")
    return first, second


def _sst2(where: str, folder: Path, part: str) -> Table:
    def parse(path: Path) -> Columns:
        rows = parse_lines(where, path, _two_fields, skip=1)
        if part == "test":  # its lines are (number, sentence)
            return {"sentence": [text for _, text in rows]}
        return {"sentence": [text for text, _ in rows], "label": [label for _, label in rows]}

    return FileTable(where, files_named(where, folder, [f"{part}.tsv"]), parse)


class SST2Dataset(
    FileDataset,
    arguments=(_FOLDER, arg.usage("train", "test", "dev"), *arg.SAMPLED_FILES),
    columns=lambda where, folder, part: ("sentence",) if part == "test" else ("sentence", "label"),
    read=_sst2,
):
    """Stanford Sentiment Treebank: train.tsv, dev.tsv and test.tsv.

    Columns: `sentence` () str, and but for "test" `label` () str.
    """


def _squad_columns(where: str, path: Path) -> Columns:
    content = read_json(where, path)
    rows: list[tuple[Any, ...]] = []
    with reading(where, path, "'data'"):
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    with reading(where, path, f"question {len(rows)}"):
                        # SQuAD 2.0 has questions without answers; a row needs at least one.
                        answers = asked["answers"] or [{"text": "", "answer_start": -1}]
                        texts = np.array([answer["text"] for answer in answers], np.str_)
                        # Through int64: -1 becomes 2**32 - 1, as in MindSpore.
                        starts = np.array([answer["answer_start"] for answer in answers], np.int64).astype(np.uint32)
                        rows.append((paragraph["context"], asked["question"], texts, starts))
    return {name: [row[i] for row in rows] for i, name in enumerate(_SQUAD_COLUMNS)}


_SQUAD_PARTS = {"train": "train-v*.json", "dev": "dev-v*.json"}
_SQUAD_COLUMNS = ("context", "question", "text", "answer_start")


def _squad(where: str, folder: Path, part: str) -> Table:
    return FileTable(where, _files_of(where, folder, part, _SQUAD_PARTS), functools.partial(_squad_columns, where))


class SQuADDataset(
    FileDataset,
    arguments=(_FOLDER, arg.usage("train", "dev", "all"), *arg.SAMPLED_FILES),
    columns=_SQUAD_COLUMNS,
    read=_squad,
):
    """SQuAD 1.1 and 2.0: train-v*.json and dev-v*.json.

    Columns, with n answers to a question: `context`, `question` () str; `text` (n,) str; `answer_start` (n,) uint32. A question
    without an answer has one that is empty, at 2**32 - 1.
    """


def _sentences(where: str, path: Path, columns: Sequence[str], separator: str) -> Columns:
    sentences: list[list[list[str]]] = [[]]
    for number, line in lines(where, path):
        # Spaces that align columns count as one.
        fields = line.split(None if separator == " " else separator)
        if line and len(fields) != len(columns):
            # Empty lines end a sentence.
            raise SporaxRuntimeError(
                f"For '{where}', every word must have {len(columns)} fields, but line {number} of {str(path)!r} has "
                f"{len(fields)}."
            )
        if line:
            sentences[-1].append(fields)
        # Several empty lines are one end.
        elif sentences[-1]:
            sentences.append([])
    return {
        name: [np.array([word[i] for word in words], np.str_) for words in sentences if words]
        for i, name in enumerate(columns)
    }


def _tagged_format(names: Mapping[str, str], columns: tuple[str, ...], separator: str) -> Format:
    """The format of tagged sentences: a word per line and an empty line behind each sentence."""

    def read(where: str, folder: Path, part: str) -> Table:
        paths = _files_of(where, folder, part, names)
        return FileTable(where, paths, lambda path: _sentences(where, path, columns, separator))

    return Format((_FOLDER, arg.usage(*names, "all"), *arg.SAMPLED_FILES_LATER), columns, read)


_UDPOS = {"valid": "en-ud-tag.v2.dev.txt", "test": "en-ud-tag.v2.test.txt", "train": "en-ud-tag.v2.train.txt"}


class CoNLL2000Dataset(
    FileDataset,
    format=_tagged_format({"test": "test.txt", "train": "train.txt"}, ("word", "pos_tag", "chunk_tag"), " "),
):
    """CoNLL-2000: train.txt and test.txt with a word per line and an empty line behind each sentence.

    Columns, with n words in a sentence: `word`, `pos_tag`, `chunk_tag` (n,) str.
    """


class UDPOSDataset(FileDataset, format=_tagged_format(_UDPOS, ("word", "universal", "stanford"), "\t")):
    """Universal Dependencies: en-ud-tag.v2.{train, dev, test}.txt, as in CoNLL-2000 with tabs.

    Columns, with n words in a sentence: `word`, `universal`, `stanford` (n,) str.
    """


def _imdb(where: str, folder: Path, part: str) -> Rows:
    pairs = [
        (path, label)
        for name in (("train", "test") if part == "all" else (part,))
        # Positive reviews first, as MindSpore orders them.
        for kind, label in (("pos", 1), ("neg", 0))
        for path in files_in(where, folder / name / kind, ".txt")
    ]

    def text(content: bytes, path: Path) -> Array:
        with reading(where, path):
            return np.array(content.decode(), np.str_)

    paths, labels = [path for path, _ in pairs], [label for _, label in pairs]
    return {"text": Files(where, paths, text), "label": np.array(labels, np.int32)}


class IMDBDataset(
    FormatDataset,
    arguments=arg.in_folder("folder that holds both folders.", arg.usage("train", "test", "all")),
    columns=("text", "label"),
    read=_imdb,
):
    """IMDb reviews: folders train and test with the text files of folders pos (1) and neg (0).

    Columns: `text` () str; `label` () int32.
    """
