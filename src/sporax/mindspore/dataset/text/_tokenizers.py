"""Tokenizers: a string to an array of strings, on request with the bytes (UTF-8) where each begins and ends."""

from __future__ import annotations

import abc
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from sporax.base.errors import SporaxError, SporaxRuntimeError
from sporax.mindspore.dataset._checks import check_bool, check_instance, check_int, check_str, type_error
from sporax.mindspore.dataset._operations import OneToOne, Transform, Values
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.text._properties import compiled
from sporax.mindspore.dataset.text._vocab import Vocab

Span = tuple[int, int]


def check_string(where: str, value: Array) -> str:
    """The string of a scalar string array.

    Raises:
        SporaxRuntimeError: another shape or dtype.
    """
    if value.ndim or value.dtype.kind != "U":
        raise SporaxRuntimeError(
            f"For '{where}', the input shape should be scalar and its data type string, but got {value.dtype} {value.shape}."
        )
    return str(value)


class Tokenizer(Transform):
    """Base of tokenizers that extract pieces of a string.

    Args:
        with_offsets: also return the first byte of each piece and the byte after its last, as uint32 arrays.
    """

    def __init__(self, with_offsets: bool = False) -> None:
        self._with_offsets = check_bool(self.name, "with_offsets", with_offsets)

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        text = check_string(self.name, self.only(values))
        # An empty text gives one empty piece, as in MindSpore.
        spans = list(self._spans(text)) or [(0, 0)]
        pieces = np.array([text[start:stop] for start, stop in spans])
        if not self._with_offsets:
            return (pieces,)
        byte = np.cumsum([0] + [len(character.encode()) for character in text])
        starts, stops = (byte[list(ends)].astype(np.uint32) for ends in zip(*spans, strict=True))
        return pieces, starts, stops

    @abc.abstractmethod
    def _spans(self, text: str) -> Iterator[Span]:
        """First character of each piece and the one after its last."""


class WhitespaceTokenizer(Tokenizer):
    """Pieces between white space."""

    # `\S+` of Unicode, as ICU's white space.
    def _spans(self, text: str) -> Iterator[Span]:
        return (match.span() for match in re.finditer(r"\S+", text))


class UnicodeCharTokenizer(Tokenizer):
    """Single characters."""

    def _spans(self, text: str) -> Iterator[Span]:
        return ((i, i + 1) for i in range(len(text)))


class UnicodeScriptTokenizer(Tokenizer):
    """Pieces of one script, split where the script changes (Latin, Han, …) and around punctuation.

    The script of a letter is taken from its Unicode name; digits, punctuation and symbols form pieces of their own kind.

    Args:
        keep_whitespace: whether white space makes pieces too, or is dropped.
        with_offsets: see Tokenizer.
    """

    def __init__(self, keep_whitespace: bool = False, with_offsets: bool = False) -> None:
        super().__init__(with_offsets)
        self._keep_whitespace = check_bool(self.name, "keep_whitespace", keep_whitespace)

    def _spans(self, text: str) -> Iterator[Span]:
        start = 0
        kinds = [_script(character) for character in text]
        # One step past the end closes the last piece.
        for i in range(1, len(text) + 1):
            if i == len(text) or kinds[i] != kinds[start]:
                if self._keep_whitespace or kinds[start] != "space":
                    yield start, i
                start = i


def _script(character: str) -> str:
    if character.isspace():
        return "space"
    # Digits, punctuation and symbols: Unicode's "Common".
    if not character.isalpha():
        return "common"
    return unicodedata.name(character, "UNKNOWN").split(" ")[0].removesuffix("-")


class RegexTokenizer(Tokenizer):
    """Pieces between delimiters.

    Args:
        delim_pattern: regular expression of a delimiter.
        keep_delim_pattern: delimiters that match this whole expression are pieces too.
        with_offsets: see Tokenizer.
    """

    def __init__(self, delim_pattern: str, keep_delim_pattern: str = "", with_offsets: bool = False) -> None:
        super().__init__(with_offsets)
        self._delimiter = compiled(self.name, "delim_pattern", delim_pattern)
        keep = check_str(self.name, "keep_delim_pattern", keep_delim_pattern)
        self._keep = compiled(self.name, "keep_delim_pattern", keep) if keep else None

    def _spans(self, text: str) -> Iterator[Span]:
        start = 0
        for match in self._delimiter.finditer(text):
            # A delimiter of length 0 would split between all characters.
            if match.end() == match.start():
                continue
            if match.start() > start:
                yield start, match.start()
            # The whole expression: a part of a delimiter is no piece.
            if self._keep is not None and self._keep.fullmatch(match.group()):
                yield match.span()
            start = match.end()
        if start < len(text):
            yield start, len(text)


class WordpieceTokenizer(OneToOne):
    """Words (n,) to the longest pieces of a vocabulary, from left to right.

    Args:
        vocab: the pieces.
        suffix_indicator: what pieces begin with that do not begin a word.
        max_bytes_per_token: longer words are unknown.
        unknown_token: stands for words that cannot be split into pieces; "" keeps them.
    """

    def __init__(
        self, vocab: Vocab, suffix_indicator: str = "##", max_bytes_per_token: int = 100, unknown_token: str = "[UNK]"
    ) -> None:
        check_instance("WordpieceTokenizer", "vocab", vocab, Vocab)
        self._pieces = vocab.vocab()
        self._suffix = check_str("WordpieceTokenizer", "suffix_indicator", suffix_indicator)
        self._limit = check_int("WordpieceTokenizer", "max_bytes_per_token", max_bytes_per_token, 0)
        self._unknown = check_str("WordpieceTokenizer", "unknown_token", unknown_token)

    def _one(self, value: Array) -> Array:
        if value.ndim > 1 or value.dtype.kind != "U":
            raise SporaxRuntimeError(
                f"For 'WordpieceTokenizer', the input must be words (n,), but got {value.dtype} of shape {value.shape}."
            )
        return np.array([piece for word in value.reshape(-1).tolist() for piece in self.pieces_of(word)], np.str_)

    def pieces_of(self, word: str) -> list[str]:
        """The pieces of one word."""
        unknown = [self._unknown or word]
        # The limit counts bytes, as its name says.
        if len(word.encode()) > self._limit:
            return unknown
        pieces, start = [], 0
        while start < len(word):
            marks = self._suffix if start else ""
            # Longest first, as in BERT.
            stop = next((k for k in range(len(word), start, -1) if marks + word[start:k] in self._pieces), None)
            if stop is None:
                # One missing piece makes the whole word unknown.
                return unknown
            pieces.append(marks + word[start:stop])
            start = stop
        return pieces or unknown


class PythonTokenizer(OneToOne):
    """A user's function str -> list of str."""

    def __init__(self, tokenizer: Callable[[str], Iterable[str]]) -> None:
        if not callable(tokenizer):
            raise type_error("PythonTokenizer", "tokenizer", "callable", tokenizer)
        self._tokenizer = tokenizer

    def _one(self, value: Array) -> Array:
        text = check_string("PythonTokenizer", np.char.decode(value) if value.dtype.kind == "S" else value)
        try:
            return np.array(list(self._tokenizer(text)), np.str_)
        except SporaxError:
            raise
        # User code in worker threads: its traceback alone does not name the API.
        except Exception as error:
            raise SporaxRuntimeError(f"For 'PythonTokenizer', the tokenizer failed with {error!r}") from error
