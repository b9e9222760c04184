"""Word vectors: tables read from files, and the transform that looks words up in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset._checks import check_bool, check_instance, check_int, check_number, check_str, type_error
from sporax.mindspore.dataset._operations import OneToOne
from sporax.mindspore.dataset._rows import Array


class Vectors:
    """Vectors of words, read by `from_file`: one line for each word, its numbers behind it, separated by spaces."""

    # Pattern of the file's name, which MindSpore checks.
    _file_name = "*"

    def __init__(self, table: dict[str, Array], dim: int) -> None:
        self._table = table
        self.dim = dim

    @classmethod
    def from_file(cls, file_path: str, max_vectors: int | None = None) -> Self:
        """Read a file.

        Args:
            file_path: the file; a first line of two numbers (how many, how long) is passed over.
            max_vectors: read no more than so many; None or 0 for all.

        Raises:
            SporaxRuntimeError: the file cannot be read or has another name than such files have, or a line is not a word
                with as many numbers as the one before; the message says which.
        """
        path = Path(check_str(cls.__name__, "file_path", file_path))
        limit = 0 if max_vectors is None else check_int(cls.__name__, "max_vectors", max_vectors, 0)
        if not path.is_file() or not path.match(cls._file_name):
            raise SporaxRuntimeError(
                f"For '{cls.__name__}', 'file_path' must be an existing file '{cls._file_name}', but got '{path}'."
            )
        table: dict[str, Array] = {}
        dim = 0
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                # Only single spaces separate: some words are other white space.
                word, *texts = line.rstrip().split(" ")
                # fastText's header: how many vectors, and their length.
                if number == 1 and len(texts) == 1:
                    continue
                dim = dim or len(texts)
                # The first of several vectors of a word counts, as in MindSpore.
                table.setdefault(word, cls._numbers(texts, dim, f"{path}, line {number}"))
                if len(table) == limit:
                    break
        if not table:
            raise SporaxRuntimeError(f"For '{cls.__name__}', invalid file, file is empty. It is '{path}'.")
        return cls(table, dim)

    @classmethod
    def _numbers(cls, texts: list[str], dim: int, where: str) -> Array:
        try:
            vector = np.array(texts, np.float32)
        except ValueError as error:
            raise SporaxRuntimeError(f"For '{cls.__name__}', numbers must follow words in {where}: {error}.") from error
        if len(vector) != dim or not dim:
            raise SporaxRuntimeError(
                f"For '{cls.__name__}', all vectors must have the same number of dimensions, but got dim {len(vector)} while "
                f"expecting {dim}: {where}."
            )
        return vector

    def find(self, word: str) -> Array | None:
        """The vector of a word, or None."""
        return self._table.get(word)


class GloVe(Vectors):
    """Vectors from a file of GloVe's, ``glove.*.txt``."""

    _file_name = "glove.*.txt"


class FastText(Vectors):
    """Vectors from a file of fastText's, ``*.vec``."""

    _file_name = "*.vec"


class CharNGram(Vectors):
    """Vectors of runs of 2 to 4 characters; that of a word is the mean over its runs."""

    def find(self, word: str) -> Array | None:
        """The vector of a word, or None where none of its runs is known."""
        marks = ["#BEGIN#", *word, "#END#"]
        names = [
            f"{n}gram-{''.join(marks[start : start + n])}" for n in (2, 3, 4) for start in range(len(marks) - n + 1)
        ]
        vectors = [self._table[name] for name in names if name in self._table]
        # Runs without a vector do not count in the mean.
        return np.asarray(np.mean(vectors, 0, dtype=np.float32)) if vectors else None


class ToVectors(OneToOne):
    """A word, or words (n,), to vectors (dim,) or (n, dim) of float32.

    Args:
        vectors: the table.
        unk_init: the vector of a word that is not in it; zeros by default.
        lower_case_backup: look for the word in lower case if it is not there as it is.
    """

    def __init__(
        self, vectors: Vectors, unk_init: Sequence[float] | None = None, lower_case_backup: bool = False
    ) -> None:
        check_instance("ToVectors", "vectors", vectors, Vectors)
        if unk_init is not None and not isinstance(unk_init, (list, tuple)):
            raise type_error("ToVectors", "unk_init", "a list of numbers", unk_init)
        numbers = [check_number("ToVectors", "unk_init", number) for number in unk_init or [0.0] * vectors.dim]
        if len(numbers) != vectors.dim:
            raise SporaxValueError(
                f"For 'ToVectors', 'unk_init' must have {vectors.dim} numbers like the vectors, but got {len(numbers)}."
            )
        self._vectors, self._unknown = vectors, np.array(numbers, np.float32)
        self._lower = check_bool("ToVectors", "lower_case_backup", lower_case_backup)

    def _one(self, value: Array) -> Array:
        if value.ndim > 1 or value.dtype.kind != "U":
            raise SporaxRuntimeError(
                f"For 'ToVectors', the input must be a str or (n,) of them, but got {value.dtype} of shape {value.shape}."
            )
        vectors = [self._of(word) for word in value.reshape(-1).tolist()]
        return np.array(vectors, np.float32).reshape(*value.shape, self._vectors.dim)

    def _of(self, word: str) -> Array:
        vector = self._vectors.find(word)
        # The word as it is comes first: case may matter.
        if vector is None and self._lower:
            vector = self._vectors.find(word.lower())
        return self._unknown if vector is None else vector


def to_bytes(array: Any, encoding: str = "utf8") -> Array:
    """An array of str as one of bytes."""
    return _converted("to_bytes", "U", array, encoding, np.char.encode)


def to_str(array: Any, encoding: str = "utf8") -> Array:
    """An array of bytes as one of str."""
    return _converted("to_str", "S", array, encoding, np.char.decode)


def _converted(where: str, kind: str, array: Any, encoding: str, convert: Any) -> Array:
    if not isinstance(array, np.ndarray) or array.dtype.kind != kind:
        raise type_error(where, "array", f"a numpy array of {'str' if kind == 'U' else 'bytes'}", array)
    return np.asarray(convert(array, check_str(where, "encoding", encoding)))
