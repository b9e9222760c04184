"""Vocabularies: words and their numbers."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset._checks import (
    INT32_MAX,
    check_bool,
    check_instance,
    check_int,
    check_names,
    check_str,
    numpy_dtype,
    type_error,
)
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
        if not isinstance(word_dict, Mapping):
            raise type_error("Vocab.from_dict", "word_dict", "a dict of str -> int", word_dict)
        vocab = cls()
        for word, number in word_dict.items():
            # MindSpore's numbers are int32.
            number = check_int("Vocab.from_dict", "word_id", number, 0, INT32_MAX)
            vocab._ids[check_str("Vocab.from_dict", "word", word)] = number
            # The first word of a number; a second one shows in the comparison below.
            vocab._words.setdefault(number, word)
        if len(vocab._words) != len(vocab._ids):
            raise SporaxValueError("For 'Vocab.from_dict', every word must have a number of its own.")
        return vocab

    @classmethod
    def from_list(
        cls, word_list: Iterable[str], special_tokens: Iterable[str] | None = None, special_first: bool = True
    ) -> Vocab:
        """A vocabulary of words in order, numbered from 0.

        Args:
            word_list: the words.
            special_tokens: further words, such as "<pad>".
            special_first: whether those come before or after the others.

        Raises:
            SporaxValueError: a word occurs twice.
        """
        words, special = list(word_list), list(special_tokens or [])
        first = check_bool("Vocab.from_list", "special_first", special_first)
        ordered = special + words if first else words + special
        # `Counter` keeps the order, so the first repeated word is named.
        double = next((word for word, count in collections.Counter(ordered).items() if count > 1), None)
        if double is not None:
            raise SporaxValueError(
                f"For 'Vocab.from_list', special_tokens contains duplicate or word_list does: every word must occur once, but "
                f"{double!r} occurs again."
            )
        return cls.from_dict({word: number for number, word in enumerate(ordered)})

    @classmethod
    def from_file(
        cls,
        file_path: str,
        delimiter: str = "",
        vocab_size: int | None = None,
        special_tokens: Iterable[str] | None = None,
        special_first: bool = True,
    ) -> Vocab:
        """A vocabulary of the words in a file, one per line; with `delimiter`, each line up to it.

        Raises:
            SporaxValueError: the file does not exist, or a word occurs twice.
        """
        path = Path(check_str("Vocab.from_file", "file_path", file_path))
        if not path.is_file():
            raise SporaxValueError(f"For 'Vocab.from_file', the file {str(path)!r} does not exist.")
        words = path.read_text(encoding="utf-8").splitlines()
        if delimiter:
            words = [line.split(delimiter)[0] for line in words]
        limit = None if vocab_size is None else check_int("Vocab.from_file", "vocab_size", vocab_size)
        if limit is not None and limit <= 0:
            raise SporaxValueError(f"For 'Vocab.from_file', Input vocab_size must be greater than 0. Got {limit}.")
        # Empty lines are no words; the limit counts words of the file only.
        return cls.from_list([word for word in words if word][:limit], special_tokens, special_first)

    @classmethod
    def from_dataset(
        cls,
        dataset: Dataset,
        columns: str | list[str] | None = None,
        freq_range: tuple[int | None, int | None] | None = None,
        top_k: int | None = None,
        special_tokens: Iterable[str] | None = None,
        special_first: bool = True,
    ) -> Vocab:
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
        names = list(dataset.column_names if columns is None else check_names("Vocab.from_dataset", "columns", columns))
        counts: collections.Counter[str] = collections.Counter()
        # `output_numpy`: Tensors cannot hold strings.
        for row in dataset.create_tuple_iterator(columns=names, num_epochs=1, output_numpy=True):
            for name, value in zip(names, row, strict=True):
                if value.dtype.kind != "U":
                    raise SporaxRuntimeError(
                        f"For 'Vocab.from_dataset', column {name!r} must be str, but is {value.dtype}."
                    )
                counts.update(value.reshape(-1).tolist())
        if freq_range is not None and (not isinstance(freq_range, tuple) or len(freq_range) != 2):
            raise SporaxValueError(
                f"For 'Vocab.from_dataset', freq_range needs to be a tuple of 2 element. Got {freq_range!r}."
            )
        low, high = (None, None) if freq_range is None else freq_range
        selected = [word for word, n in counts.items() if (low is None or n >= low) and (high is None or n <= high)]
        # The alphabet decides among equals, so that the result does not depend on the order of rows.
        selected.sort(key=lambda word: (-counts[word], word))
        limit = None if top_k is None else check_int("Vocab.from_dataset", "top_k", top_k, 1)
        return cls.from_list(selected[:limit], special_tokens, special_first)

    def _check_filled(self, where: str) -> None:
        if not self._ids:
            raise SporaxRuntimeError(
                f"For '{where}', Vocab hasn't been initialized yet: use one of its 'from_' methods."
            )

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
            raise type_error("tokens_to_ids", "tokens", "a str, or a list or array of them", tokens)
        return [self._ids.get(check_str("tokens_to_ids", "tokens", token), -1) for token in items]

    def ids_to_tokens(self, ids: int | list[int]) -> str | list[str]:
        """The word of a number, or of several; "" for a number that is not there."""
        self._check_filled("ids_to_tokens")
        items = ids.tolist() if isinstance(ids, np.ndarray) else ids
        if isinstance(items, (int, np.integer)):
            return self._words.get(check_int("ids_to_tokens", "ids", items, 0, INT32_MAX), "")
        if not isinstance(items, list):
            raise type_error("ids_to_tokens", "ids", "an int, or a list or array of them", ids)
        return [self._words.get(check_int("ids_to_tokens", "ids", number, 0, INT32_MAX), "") for number in items]


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
        check_instance("Lookup", "vocab", vocab, Vocab)
        self._ids = vocab.vocab()
        self._dtype = numpy_dtype("Lookup", "data_type", data_type)
        self._unknown: int | None = None
        # Looked up once, so that a wrong token is an error at the user's line.
        if unknown_token is not None:
            if check_str("Lookup", "unknown_token", unknown_token) not in self._ids:
                raise SporaxValueError(f"For 'Lookup', unknown_token: [{unknown_token}], doesn't exist in vocab.")
            self._unknown = self._ids[unknown_token]

    def _one(self, value: Array) -> Array:
        if value.dtype.kind != "U":
            raise SporaxRuntimeError(f"For 'Lookup', the input must be str, but got {value.dtype}.")
        # None marks an unknown word; 0 is a number like others.
        ids = [self._ids.get(word, self._unknown) for word in value.reshape(-1).tolist()]
        if None in ids:
            word = value.reshape(-1)[ids.index(None)]
            raise SporaxRuntimeError(
                f"For 'Lookup', token: \"{word}\" doesn't exist in vocab and no unknown token is specified. Add it, or pass "
                "'unknown_token'."
            )
        return np.array(ids, self._dtype).reshape(value.shape)
