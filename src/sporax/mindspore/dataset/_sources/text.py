"""Text files of the user: lines, in any order too, and tables of comma-separated values.

CLUE, the Chinese Language Understanding Evaluation: six tasks, each with its own columns.
"""

from __future__ import annotations

import csv
import functools
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore._declared import Argument
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._sources import format as arg
from sporax.mindspore.dataset._sources.format import FileDataset
from sporax.mindspore.dataset._sources.reading import Columns, FileTable, LineTable, parse_lines
from sporax.mindspore.dataset._streams import Table


def _parse_csv(path: Path, delimiter: str, names: Sequence[str], kinds: Sequence[Any], header: bool) -> Columns:
    rows = _records(path, delimiter, len(names), header)
    return {
        name: _typed(name, [(number, record[i]) for number, record in rows], kinds[i], path)
        for i, name in enumerate(names)
    }


def _records(path: Path, delimiter: str, width: int, header: bool) -> list[tuple[int, list[str]]]:
    """(line number, fields) of every row."""
    records: list[tuple[int, list[str]]] = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            # "strict": a broken quotation would otherwise swallow the rest of the file.
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for record in reader:
                # Of `line_num` and not of a counter: a record may cover several lines.
                if not record or (header and reader.line_num == 1):
                    continue
                if len(record) != width:
                    raise SporaxRuntimeError(
                        f"For 'CSVDataset', every line must have {width} fields, but line {reader.line_num} of "
                        f"{str(path)!r} has {len(record)}."
                    )
                records.append((reader.line_num, record))
    except (csv.Error, UnicodeDecodeError) as error:
        raise SporaxRuntimeError(
            f"For 'CSVDataset', failed to parse {str(path)!r} after row {len(records)}: {error}"
        ) from error
    return records


def _typed(name: str, column: Sequence[tuple[int, str]], kind: Any, path: Path) -> Sequence[Any] | NDArray[Any]:
    # Strings stay lists, each with its own length.
    if kind is str:
        return [field for _, field in column]
    # MindSpore's types of columns: int32 and float32.
    dtype, parse = (np.int32, int) if kind is int else (np.float32, float)
    values = np.empty(len(column), dtype)
    for i, (line, field) in enumerate(column):
        try:
            values[i] = parse(field)
        # int32 overflows raise in numpy.
        except (ValueError, OverflowError) as error:
            raise SporaxRuntimeError(
                f"For 'CSVDataset', {str(path)!r} parse failed at line {line}, type does not match: column {name!r} must hold "
                f"{np.dtype(dtype)}, but has {field!r}."
            ) from error
    return values


def _header(path: Path, delimiter: str) -> tuple[str, ...]:
    # Only the first file's header; others are assumed to be equal.
    with path.open(newline="", encoding="utf-8") as file:
        first = next(csv.reader(file, delimiter=delimiter), None)
    For("CSVDataset").refuse_state(not first, f"{path} must begin with a line of column names, but is empty")
    return check.names("CSVDataset", "column_names", first)


def _column_kinds(where: str, name: str, value: object) -> list[type]:
    if not isinstance(value, list):
        raise check.in_words(SporaxTypeError, where, f"{name} should be type of list.", value)
    for item in value:
        # `type` and not `isinstance`, as bool is an int.
        if type(item) not in (int, float, str):
            raise check.in_words(SporaxTypeError, where, f"column type in {name} is invalid.", item)
    return [type(item) for item in value]


class TextFileDataset(
    FileDataset, arguments=(arg.dataset_files("*.txt"), *arg.SAMPLED_FILES), columns=("text",), read=LineTable
):
    """The lines of text files (UTF-8), without empty ones.

    Column: `text` () str, without its newline.
    """


def _delimiter(where: str, name: str, value: object) -> str:
    delimiter = check.text(where, name, value)
    # csv treats these as quotation and line ends.
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise check.in_words(SporaxValueError, where, "field_delim is invalid.", delimiter)
    return delimiter


def _csv_values(
    where: str, paths: Sequence[Path], delimiter: str, kinds: list[type] | None, names: tuple[str, ...] | None
) -> tuple[Any, ...]:
    """(files, delimiter, names, dtypes, whether the first line is a header); the header is read where names are not given."""
    columns = names or _header(paths[0], delimiter)
    if kinds is not None and len(kinds) != len(columns):
        raise SporaxValueError(
            f"For '{where}', 'column_defaults' must have one value per column, but got {len(kinds)} for {len(columns)}."
        )
    # A header is skipped only where it was read for the names.
    return paths, delimiter, columns, kinds or [str] * len(columns), names is None


class CSVDataset(
    FileDataset,
    arguments=(
        arg.dataset_files("*.csv"),
        Argument("field_delim", str, "the character between fields.", ",", _delimiter),
        arg.optional(
            "column_defaults",
            list[Any],
            "one value per column, of which the type counts: int (int32), float (float32) or str; all columns are str "
            "by default.",
            _column_kinds,
        ),
        arg.optional(
            "column_names",
            list[str],
            "names; by default the first line of every file is a header that names them.",
            check.names,
        ),
        *arg.SAMPLED_FILES,
    ),
    columns=lambda where, paths, delimiter, names, *options: names,
    prepare=_csv_values,
):
    """Tables of comma-separated values (UTF-8). A message about a broken line names file and line."""

    @staticmethod
    def _read(
        where: str, paths: Sequence[Path], delimiter: str, names: tuple[str, ...], kinds: Sequence[type], header: bool
    ) -> Table:
        parse = functools.partial(_parse_csv, delimiter=delimiter, names=names, kinds=kinds, header=header)
        return FileTable(where, paths, parse)


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


class CLUEDataset(
    FileDataset,
    arguments=(
        arg.dataset_files("*.json"),
        arg.choice(
            "task",
            *_CLUE,
            default="AFQMC",
            words="task should be 'AFQMC', 'TNEWS', 'IFLYTEK', 'CMNLI', 'WSC' or 'CSL'.",
        ),
        arg.choice(
            *("usage", "train", "test", "eval"), default="train", words="usage should be 'train', 'test' or 'eval'."
        ),
        *arg.SAMPLED_FILES,
    ),
    columns=_columns,
):
    """CLUE: files with one JSON object per line.

    Columns, in alphabetical order, depend on the task: strings () str, numbers () uint32, lists of strings (n,) str.
    """

    @staticmethod
    def _read(where: str, paths: Sequence[Path], task: str, usage: str) -> Table:
        paths_of_columns = _paths_of_columns(task, usage)

        def parse(path: Path) -> Columns:
            rows = parse_lines(
                where, path, lambda line: [_at(json.loads(line), place) for place in paths_of_columns.values()]
            )
            # The line is parsed once per column; a row has at most eight.
            return {name: [row[i] for row in rows] for i, name in enumerate(paths_of_columns)}

        return FileTable(where, paths, parse)


class LineReader:
    """Lines of a file (UTF-8) by number; memory holds only where they begin.

    Args:
        filename: the file.

    Raises:
        SporaxTypeError: `filename` is no string.
        SporaxRuntimeError: there is no such file.
    """

    def __init__(self, filename: str) -> None:
        self._file: BinaryIO | None = None
        For("LineReader").refuse_type(not isinstance(filename, str), f"path: {filename} is not string")
        if not os.path.isfile(filename):
            fault = "is not a regular file" if os.path.exists(filename) else "does not exist"
            raise SporaxRuntimeError(f"For 'LineReader', The input file [{filename}] {fault}.")
        self.filename = os.path.realpath(filename)
        with open(self.filename, "rb") as file:
            self.offsets = [0, *itertools.accumulate(map(len, file))][:-1]

    def readline(self, line: int) -> str:
        """A line without its end; the first is number 1."""
        number = check.integer("LineReader", "line", line, 1, len(self.offsets))
        self._file = self._file or open(self.filename, "rb")  # noqa: SIM115 (`close` closes it)
        self._file.seek(self.offsets[number - 1])
        return self._file.readline().decode().rstrip("\r\n")

    def len(self) -> int:
        """The number of lines."""
        return len(self.offsets)

    def close(self) -> None:
        """Close the file; the next `readline` opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __getitem__(self, line: int) -> str:
        return self.readline(line)

    def __len__(self) -> int:
        return len(self.offsets)

    def __del__(self) -> None:
        self.close()
