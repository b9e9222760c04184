"""Texts in published formats: reviews, news, questions, tagged sentences, lines of text and their translations.

One file format each; the parts of a data set are files. Arguments, shuffling and sharding are those of text files.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import For
from sporax.mindspore._declared import Argument
from sporax.mindspore.dataset import _checks
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset._sources import format as arg, reading as sources
from sporax.mindspore.dataset._sources.format import FileDataset, Format, FormatDataset, Rows
from sporax.mindspore.dataset._streams import Table
from sporax.mindspore.dataset.samplers import Shuffle


def _files_of(where: str, folder: Path, part: str, names: Mapping[str, str]) -> list[Path]:
    """The files of a part; `names` has the pattern of each part's name."""
    # "all" reads the files in the order of the table, as MindSpore orders them.
    return sources.files_named(where, folder, list(names.values()) if part == "all" else [names[part]])


_FOLDER = arg.folder("folder that holds the files.")
_CSV = {"test": "test.csv", "train": "train.csv"}


def _csv_format(
    *columns: str, sampling: tuple[Argument, ...] = arg.SAMPLED_FILES, files: Mapping[str, str] = _CSV
) -> Format:
    """The format of data sets in train.csv and test.csv, with fields that are strings."""

    def read(where: str, folder: Path, part: str) -> Table:
        def parse(path: Path) -> sources.Columns:
            records = sources.parse_csv(where, path, len(columns))
            return {name: [record[i] for record in records] for i, name in enumerate(columns)}

        return sources.FileTable(where, _files_of(where, folder, part, files), parse)

    return Format((_FOLDER, arg.usage("train", "test", "all"), *sampling), columns, read)


def _line_format(pattern: str) -> Format:
    """The format of data sets whose rows are the lines of one file per part; `pattern` has * for the part."""
    names = {part: pattern.replace("*", part) for part in ("test", "train", "valid")}

    def read(where: str, folder: Path, part: str) -> Table:
        return sources.LineTable(where, _files_of(where, folder, part, names))

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


class EnWik9Dataset(
    FileDataset,
    arguments=(
        arg.folder("folder that holds the file enwik9."),
        *arg.replaced(arg.SAMPLED_FILES, arg.text_shuffle(default=True)),
    ),
    columns=("text",),
):
    """The lines of enwik9, empty ones too. Column: `text` () str."""

    @staticmethod
    def _read(where: str, folder: Path) -> Table:
        return sources.LineTable(where, sources.files_named(where, folder, ["enwik9"]), keep_empty=True)


def _two_fields(line: str) -> tuple[str, str]:
    first, second = line.split("\t")
    return first, second


class SST2Dataset(
    FileDataset,
    arguments=(_FOLDER, arg.usage("train", "test", "dev"), *arg.SAMPLED_FILES),
    columns=lambda where, folder, part: ("sentence",) if part == "test" else ("sentence", "label"),
):
    """Stanford Sentiment Treebank: train.tsv, dev.tsv and test.tsv.

    Columns: `sentence` () str, and but for "test" `label` () str.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str) -> Table:
        def parse(path: Path) -> sources.Columns:
            rows = sources.parse_lines(where, path, _two_fields, skip=1)
            if part == "test":  # its lines are (number, sentence)
                return {"sentence": [text for _, text in rows]}
            return {"sentence": [text for text, _ in rows], "label": [label for _, label in rows]}

        return sources.FileTable(where, sources.files_named(where, folder, [f"{part}.tsv"]), parse)


def _squad_columns(where: str, path: Path) -> sources.Columns:
    content = sources.read_json(where, path)
    rows: list[tuple[Any, ...]] = []
    with sources.reading(where, path, "'data'"):
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    with sources.reading(where, path, f"question {len(rows)}"):
                        # SQuAD 2.0 has questions without answers; a row needs at least one.
                        answers = question["answers"] or [{"text": "", "answer_start": -1}]
                        texts = np.array([answer["text"] for answer in answers], np.str_)
                        # Through int64: -1 becomes 2**32 - 1, as in MindSpore.
                        starts = np.array([answer["answer_start"] for answer in answers], np.int64).astype(np.uint32)
                        rows.append((paragraph["context"], question["question"], texts, starts))
    return {name: [row[i] for row in rows] for i, name in enumerate(_SQUAD_COLUMNS)}


_SQUAD_PARTS = {"train": "train-v*.json", "dev": "dev-v*.json"}
_SQUAD_COLUMNS = ("context", "question", "text", "answer_start")


class SQuADDataset(
    FileDataset, arguments=(_FOLDER, arg.usage("train", "dev", "all"), *arg.SAMPLED_FILES), columns=_SQUAD_COLUMNS
):
    """SQuAD 1.1 and 2.0: train-v*.json and dev-v*.json.

    Columns, with n answers to a question: `context`, `question` () str; `text` (n,) str; `answer_start` (n,) uint32. A question
    without an answer has one that is empty, at 2**32 - 1.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str) -> Table:
        return sources.FileTable(
            where, _files_of(where, folder, part, _SQUAD_PARTS), functools.partial(_squad_columns, where)
        )


def _sentences(where: str, path: Path, columns: Sequence[str], separator: str) -> sources.Columns:
    sentences: list[list[list[str]]] = [[]]
    for number, line in sources.lines(where, path):
        # Spaces that align columns count as one.
        fields = line.split(None if separator == " " else separator)
        if line and len(fields) != len(columns):
            # Empty lines end a sentence.
            raise For(where).state_error(
                f"every word must have {len(columns)} fields, but line {number} of {str(path)!r} has {len(fields)}"
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
        return sources.FileTable(where, paths, lambda path: _sentences(where, path, columns, separator))

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


class IMDBDataset(
    FormatDataset,
    arguments=arg.in_folder("folder that holds both folders.", arg.usage("train", "test", "all")),
    columns=("text", "label"),
):
    """IMDb reviews: folders train and test with the text files of folders pos (1) and neg (0).

    Columns: `text` () str; `label` () int32.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str) -> Rows:
        pairs = [
            (path, label)
            for name in (("train", "test") if part == "all" else (part,))
            # Positive reviews first, as MindSpore orders them.
            for kind, label in (("pos", 1), ("neg", 0))
            for path in sources.files_in(where, folder / name / kind, ".txt")
        ]

        def text(content: bytes, path: Path) -> Array:
            with sources.reading(where, path):
                return np.array(content.decode(), np.str_)

        paths, labels = [path for path, _ in pairs], [label for _, label in pairs]
        return {"text": sources.Files(where, paths, text), "label": np.array(labels, np.int32)}


def _language_pair(doc: str, allowed: Sequence[tuple[str, str]], default: tuple[str, str]) -> Argument:
    """`language_pair`, one of those that are `allowed`."""

    def check(where: str, name: str, pair: object) -> tuple[str, str]:
        if pair is None:
            return default
        if not isinstance(pair, (list, tuple)):
            raise _checks.type_error(where, name, "a list or tuple of two languages", pair)
        For(where).refuse(tuple(pair) not in allowed, f"'{name}' must be one of {list(allowed)}, but got {pair!r}")
        return str(pair[0]), str(pair[1])

    return Argument("language_pair", Sequence[str] | None, doc, None, check)


def _translations(
    where: str, pairs: Sequence[tuple[Path, Path]], read: Callable[[str, Path], list[str]] | None = None
) -> Table:
    """The lines of files and of their translations."""
    # The table knows one path per part; the other is found by it.
    others = dict(pairs)
    # Empty lines count on neither side.
    read = read or (lambda where, path: [line for _, line in sources.lines(where, path) if line])

    def parse(path: Path) -> sources.Columns:
        texts, translations = (
            read(where, sources.existing(where, path)),
            read(where, sources.existing(where, others[path])),
        )
        if len(texts) != len(translations):
            raise For(where).state_error(
                f"{str(path)!r} and {str(others[path])!r} must have equally many lines, but have {len(texts)} and "
                f"{len(translations)}"
            )
        return {"text": texts, "translation": translations}

    return sources.FileTable(where, [path for path, _ in pairs], parse)


# In MindSpore's order, that of the paths.
_MULTI30K = {"test": "mmt16_task1_test/test", "train": "training/train", "valid": "validation/val"}


class Multi30kDataset(
    FileDataset,
    arguments=(
        arg.folder("folder that holds training, validation and mmt16_task1_test."),
        arg.usage("train", "test", "valid", "all"),
        _language_pair('["en", "de"] (the default) or ["de", "en"].', (("en", "de"), ("de", "en")), ("en", "de")),
        *arg.replaced(arg.SAMPLED_FILES, arg.text_shuffle(bool | Shuffle | None, None)),
    ),
    columns=("text", "translation"),
):
    """Multi30k: lines in English and German.

    Columns: `text`, `translation` () str.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str, languages: tuple[str, str]) -> Table:
        stems = _MULTI30K.values() if part == "all" else (_MULTI30K[part],)
        source, target = languages
        return _translations(where, [(folder / f"{stem}.{source}", folder / f"{stem}.{target}") for stem in stems])


_SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.DOTALL)
_SETS = ("dev2010", "tst2010", "tst2011", "tst2012", "tst2013", "tst2014")


def _talks(where: str, path: Path) -> list[str]:
    """The sentences of talks: plain lines between marked ones, or the segments of an XML file."""
    # Test sets are XML, training sets text with a few marked lines.
    if path.suffix == ".xml":
        segments = [text.strip() for text in _SEGMENT.findall(sources.read_text(where, path))]
        For(where).refuse_state(not segments, f"{str(path)!r} must hold <seg> elements, but there are none")
        return segments
    return [line for _, line in sources.lines(where, path) if line and not line.startswith("<")]


def _talk_files(place: Path, prefix: str, pair: tuple[str, str], sets: Sequence[str]) -> list[tuple[Path, Path]]:
    """Files of both languages; the set "train" has a name of its own."""
    joined = "-".join(pair)

    def path(name: str, language: str) -> Path:
        # Only training files have the languages at the end without a suffix.
        file = f"train.tags.{joined}.{language}" if name == "train" else f"{prefix}.{name}.{joined}.{language}.xml"
        return place / file

    return [(path(name, pair[0]), path(name, pair[1])) for name in sets]


_PAIRS_2016 = (
    *(("en", other) for other in ("ar", "cs", "de", "fr")),
    *((other, "en") for other in ("ar", "cs", "de", "fr")),
)


def _talk_set(name: str, doc: str) -> Argument:
    return arg.optional(name, str, doc, functools.partial(_checks.choice, choices=_SETS))


class IWSLT2016Dataset(
    FileDataset,
    arguments=(
        arg.folder("folder that holds texts/{source}/{target}/{source}-{target}."),
        arg.usage("train", "test", "valid", "all"),
        _language_pair(
            'English with Arabic, Czech, German or French, either way; ("de", "en") by default.',
            _PAIRS_2016,
            ("de", "en"),
        ),
        _talk_set("valid_set", 'what is read for "valid", as "tst2013" (the default).'),
        _talk_set("test_set", 'what is read for "test", as "tst2014" (the default).'),
        *arg.SAMPLED_FILES_LATER,
    ),
    columns=("text", "translation"),
):
    """IWSLT 2016: talks and their translations.

    Columns: `text`, `translation` () str.
    """

    @staticmethod
    def _read(
        where: str, folder: Path, part: str, languages: tuple[str, str], valid_set: str | None, test_set: str | None
    ) -> Table:
        sets = {"train": "train", "valid": valid_set or "tst2013", "test": test_set or "tst2014"}
        place = folder / "texts" / languages[0] / languages[1] / "-".join(languages)
        chosen = list(sets.values()) if part == "all" else [sets[part]]
        return _translations(where, _talk_files(place, "IWSLT16.TED", languages, chosen), _talks)


_LANGUAGES_2017 = ("en", "nl", "de", "it", "ro")
_PAIRS_2017 = tuple((first, second) for first in _LANGUAGES_2017 for second in _LANGUAGES_2017 if first != second)


class IWSLT2017Dataset(
    FileDataset,
    arguments=(
        arg.folder("folder that holds texts/DeEnItNlRo/DeEnItNlRo/DeEnItNlRo-DeEnItNlRo."),
        arg.usage("train", "test", "valid", "all"),
        _language_pair('two of "en", "nl", "de", "it" and "ro"; ("de", "en") by default.', _PAIRS_2017, ("de", "en")),
        *arg.SAMPLED_FILES_LATER,
    ),
    columns=("text", "translation"),
):
    """IWSLT 2017: talks and their translations.

    Columns: `text`, `translation` () str.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str, languages: tuple[str, str]) -> Table:
        sets = {"train": "train", "valid": "dev2010", "test": "tst2010"}
        place = folder / "texts" / "DeEnItNlRo" / "DeEnItNlRo" / "DeEnItNlRo-DeEnItNlRo"
        chosen = list(sets.values()) if part == "all" else [sets[part]]
        return _translations(where, _talk_files(place, "IWSLT17.TED", languages, chosen), _talks)
