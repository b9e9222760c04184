"""Vocabularies, words and their numbers; word vectors, tables read from files, and the transforms that look words up in both."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import INT32_MAX, ConflictingArgumentsError, in_words, numpy_dtype, type_error
from sporax.mindspore.dataset._operations import OneToOne
from sporax.mindspore.dataset._rows import Array

if TYPE_CHECKING:
    from sporax.mindspore.dataset._dataset import Dataset


class Vocab:
    """Words and their numbers; made by `from_list`, `from_dict`, `from_file` or `from_dataset`."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._words: dict[int, str] = {}

    @classmethod
    def from_dict(cls, word_dict: Mapping[str, int]) -> Vocab:
        """A vocabulary of word -> number.

        Raises:
            SporaxTypeError, SporaxValueError: not a dict of str -> int >= 0, or a number occurs twice.
        """
        check.instance("Vocab.from_dict", "word_dict", word_dict, dict)
        vocab = cls()
        for word, number in word_dict.items():
            # MindSpore's numbers are int32.
            number = check.integer("Vocab.from_dict", "word_id", number, 0, INT32_MAX)
            vocab._ids[check.text("Vocab.from_dict", "word", word)] = number
            # The first word of a number; a second one shows in the comparison below.
            vocab._words.setdefault(number, word)
        For("Vocab.from_dict").refuse(len(vocab._words) != len(vocab._ids), "every word must have a number of its own")
        return vocab

    @classmethod
    def from_list(
        cls, word_list: list[str], special_tokens: list[str] | None = None, special_first: bool = True
    ) -> Vocab:
        """A vocabulary of words in order, numbered from 0.

        Args:
            word_list: the words.
            special_tokens: further words, such as "<pad>".
            special_first: whether those come before or after the others.

        Raises:
            SporaxValueError: a word occurs twice.
        """
        where = "Vocab.from_list"
        special = [] if special_tokens is None else special_tokens
        for name, words in (("word_list", word_list), ("special_tokens", special)):
            check.instance(where, name, words, list)
            for word in words:
                check.text(where, name, word)
            # `Counter` keeps the order, so the first repeated word is named.
            double = next((word for word, count in collections.Counter(words).items() if count > 1), None)
            check.refuse(double is not None, SporaxValueError, where, f"{name} contains duplicate word: {double}.")
        if both := {word for word in word_list if word in special}:
            raise in_words(SporaxValueError, where, f"special_tokens and word_list contain duplicate word :{both}.")
        first = check.boolean(where, "special_first", special_first)
        ordered = special + word_list if first else word_list + special
        return cls.from_dict({word: number for number, word in enumerate(ordered)})

    @classmethod
    def from_file(
        cls, file_path: str, delimiter: str = "", vocab_size: int | None = None,
        special_tokens: list[str] | None = None, special_first: bool = True,
    ) -> Vocab:  # fmt: skip
        """A vocabulary of the words in a file, one per line; with `delimiter`, each line up to it.

        Raises:
            SporaxValueError: the file does not exist, or a word occurs twice.
        """
        path = Path(check.text("Vocab.from_file", "file_path", file_path))
        For("Vocab.from_file").refuse(not path.is_file(), f"the file {str(path)!r} does not exist")
        words = path.read_text(encoding="utf-8").splitlines()
        if delimiter:
            words = [line.split(delimiter)[0] for line in words]
        limit = None if vocab_size is None else check.integer("Vocab.from_file", "vocab_size", vocab_size)
        if limit is not None:
            check.positive("Vocab.from_file", "vocab_size", limit)
        # Empty lines are no words; the limit counts words of the file only.
        return cls.from_list([word for word in words if word][:limit], special_tokens, special_first)

    @classmethod
    def from_dataset(
        cls, dataset: Dataset, columns: str | list[str] | None = None,
        freq_range: tuple[int | None, int | None] | None = None, top_k: int | None = None,
        special_tokens: list[str] | None = None, special_first: bool = True,
    ) -> Vocab:  # fmt: skip
        """A vocabulary of the words in a dataset, the most frequent first (equally frequent ones by the alphabet).

        Args:
            dataset: read once.
            columns: string columns; all by default.
            freq_range: (fewest, most) occurrences; None for no limit.
            top_k: at most this many words.
            special_tokens: further words.
            special_first: whether those come before or after the others.

        Raises:
            SporaxRuntimeError: a column does not hold strings.
        """
        where = "Vocab.from_dataset"
        if columns is not None and not isinstance(columns, list):
            check.instance(where, "col[0]", columns, str)
        low, high = _checked_range(where, (None, None) if freq_range is None else freq_range)
        if top_k is not None:
            check.instance(where, "top_k", top_k, int, type(None))
            check.positive(where, "top_k", top_k)
        names = list(dataset.column_names if columns is None else check.names(where, "columns", columns))
        counts: collections.Counter[str] = collections.Counter()
        # `output_numpy`: Tensors cannot hold strings.
        for row in dataset.create_tuple_iterator(columns=names, num_epochs=1, output_numpy=True):
            for name, value in zip(names, row, strict=True):
                if value.dtype.kind != "U":
                    raise For("Vocab.from_dataset").state_error(f"column {name!r} must be str, but is {value.dtype}")
                counts.update(value.reshape(-1).tolist())
        selected = [word for word, n in counts.items() if (low is None or n >= low) and (high is None or n <= high)]
        # The alphabet decides among equals, so that the result does not depend on the order of rows.
        selected.sort(key=lambda word: (-counts[word], word))
        return cls.from_list(selected[:top_k], special_tokens, special_first)

    def _check_filled(self, where: str) -> None:
        For(where).refuse_state(not self._ids, "Vocab hasn't been initialized yet: use one of its 'from_' methods")

    def vocab(self) -> dict[str, int]:
        """Word -> number."""
        return dict(self._ids)

    def tokens_to_ids(self, tokens: str | list[str]) -> int | list[int]:
        """The number of a word, or of several; -1 for a word that is not there."""
        self._check_filled("tokens_to_ids")
        # Arrays of numpy strings become Python's, which the dictionary holds.
        items = tokens.tolist() if isinstance(tokens, np.ndarray) else tokens
        if isinstance(items, str):
            return self._ids.get(items, -1)
        if not isinstance(items, list):
            raise type_error("tokens_to_ids", "tokens", (str, list, np.ndarray), tokens)
        for i, token in enumerate(items):
            check.instance("tokens_to_ids", f"tokens[{i}]", token, str, np.str_)
        return [self._ids.get(token, -1) for token in items]

    def ids_to_tokens(self, ids: int | list[int]) -> str | list[str]:
        """The word of a number, or of several; "" for a number that is not there."""
        self._check_filled("ids_to_tokens")
        items = ids.tolist() if isinstance(ids, np.ndarray) else ids
        if isinstance(items, (int, np.integer)):
            return self._words.get(check.integer("ids_to_tokens", "ids", items, 0, INT32_MAX), "")
        if not isinstance(items, list):
            raise type_error("ids_to_tokens", "ids", (int, list, np.ndarray), ids)
        for i, number in enumerate(items):
            check.instance("ids_to_tokens", f"ids[{i}]", number, int, np.int64)
        return [self._words.get(check.integer("ids_to_tokens", f"ids[{i}]", n, 0), "") for i, n in enumerate(items)]


def _checked_range(where: str, freq_range: Any) -> tuple[int | None, int | None]:
    check.instance(where, "freq_range", freq_range, tuple)
    words = ""
    if len(freq_range) != 2:
        words = "freq_range needs to be a tuple of 2 element."
    elif not all(number is None or isinstance(number, int) for number in freq_range):
        words = "freq_range needs to be either None or a tuple of 2 integers or an int and a None."
    elif None not in freq_range and not 0 <= freq_range[0] <= freq_range[1]:
        words = "frequency range [a,b] should be 0 <= a <= b (a,b are inclusive)."
    check.refuse(words, SporaxValueError, where, words, freq_range)
    return freq_range[0], freq_range[1]


class Lookup(OneToOne):
    """Words to their numbers.

    Args:
        vocab: the vocabulary.
        unknown_token: the word that stands for words that are not in it.
        data_type: dtype of the result.

    Raises:
        SporaxValueError: `unknown_token` is not in the vocabulary.
        SporaxRuntimeError: (when applied) a word is not in it, and there is no `unknown_token`.
    """

    def __init__(self, vocab: Vocab, unknown_token: str | None = None, data_type: Any = np.int32) -> None:
        check.instance("Lookup", "vocab is not an instance of text.Vocab.", vocab, Vocab)
        self._ids = vocab.vocab()
        self._dtype = numpy_dtype("Lookup", "data_type", data_type)
        self._unknown: int | None = None
        # Looked up once, so that a wrong token is an error at the user's line.
        if unknown_token is not None:
            if check.text("Lookup", "unknown_token", unknown_token) not in self._ids:
                raise SporaxValueError(f"For 'Lookup', unknown_token: [{unknown_token}], doesn't exist in vocab.")
            self._unknown = self._ids[unknown_token]

    def _one(self, value: Array) -> Array:
        if value.dtype.kind != "U":
            raise self.fault(f"Lookup: input is not string datatype. It is {value.dtype}.")
        # None marks an unknown word; 0 is a number like others.
        ids = [self._ids.get(word, self._unknown) for word in value.reshape(-1).tolist()]
        if None in ids:
            word = value.reshape(-1)[ids.index(None)]
            raise self.fault(
                f'token: "{word}" doesn\'t exist in vocab and no unknown token is specified. Add it, or pass '
                "'unknown_token'."
            )
        return np.array(ids, self._dtype).reshape(value.shape)


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
        path = Path(check.text(cls.__name__, "file_path", file_path))
        limit = 0 if max_vectors is None else check.integer(cls.__name__, "max_vectors", max_vectors, 0)
        if not path.is_file() or not path.match(cls._file_name):
            raise For(cls.__name__).state_error(
                f"get real path failed: {cls.__name__}: invalid file, can not find file '{cls._file_name}': '{path}'"
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
        For(cls.__name__).refuse_state(not table, f"invalid file, file is empty. It is '{path}'")
        return cls(table, dim)

    @classmethod
    def _numbers(cls, texts: list[str], dim: int, where: str) -> Array:
        try:
            vector = np.array(texts, np.float32)
        except ValueError as error:
            raise SporaxRuntimeError(f"For '{cls.__name__}', numbers must follow words in {where}: {error}.") from error
        if len(vector) == 1:
            raise For(cls.__name__).state_error(f"token with 1-dimensional vector. It is in {where}")
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

    _file_name = "glove.6B.*.txt"


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
        check.instance("ToVectors", "vectors", vectors, Vectors)
        if unk_init is not None and not isinstance(unk_init, (list, tuple)):
            raise type_error("ToVectors", "unk_init", "a list of numbers", unk_init)
        numbers = [check.number("ToVectors", "unk_init", number) for number in unk_init or [0.0] * vectors.dim]
        if len(numbers) != vectors.dim:
            raise ConflictingArgumentsError(
                f"For 'ToVectors', ToVectors: unk_init must be the same length as vectors, but got unk_init: {len(numbers)} and "
                f"vectors: {vectors.dim}."
            )
        self._vectors, self._unknown = vectors, np.array(numbers, np.float32)
        self._lower = check.boolean("ToVectors", "lower_case_backup", lower_case_backup)

    def _one(self, value: Array) -> Array:
        if value.ndim > 1 or value.dtype.kind != "U":
            raise self.fault(
                f"input tensor type should be string. It must be a str or (n,) of them, but got {value.dtype} of shape "
                f"{value.shape}."
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
    return np.asarray(convert(array, check.text(where, "encoding", encoding)))
