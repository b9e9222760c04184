"""Tokenizers: a string to an array of strings, on request with the bytes (UTF-8) where each begins and ends.

Those of BERT give words, punctuation and single Chinese characters, then pieces of a vocabulary: one of whole words would be too
large and miss most of a new text, so words are split into the longest pieces that it has (WordPiece; Devlin et al. 2018).
"""

from __future__ import annotations

import abc
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from sporax.base.errors import SporaxError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import UINT32_MAX, in_user_code, in_words
from sporax.mindspore.dataset._operations import OneToOne, Transform, Values
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset.text._vocab import Vocab
from sporax.mindspore.dataset.text._words import NormalizeForm, check_input, compiled

Span = tuple[int, int]


def check_string(where: str, value: Array) -> str:
    """The string of a scalar string array.

    Raises:
        SporaxRuntimeError: another shape or dtype.
    """
    if value.ndim or value.dtype.kind != "U":
        raise SporaxRuntimeError(
            f"For '{where}', {where}: the input shape should be scalar and the input datatype should be string. It is "
            f"{value.dtype} {value.shape}."
        )
    return str(value)


def _provided(where: str, name: str, value: Any, kind: type) -> Any:
    """An argument of a kind that MindSpore misses in words of their own."""
    if value is None:
        raise in_words(SporaxValueError, where, f"{name} is not provided.")
    return check_input(where, name, value, kind)


def _bytes_at(text: str, spans: Sequence[Span]) -> tuple[Array, Array]:
    """Where pieces begin and end, in bytes of UTF-8 as in MindSpore: two uint32 arrays."""
    byte = np.cumsum([0] + [len(character.encode()) for character in text]).astype(np.uint32)
    return byte[[start for start, _ in spans]], byte[[stop for _, stop in spans]]


class Tokenizer(Transform):
    """Base of tokenizers that extract pieces of a string.

    Args:
        with_offsets: also return the first byte of each piece and the byte after its last, as uint32 arrays.
    """

    def __init__(self, with_offsets: bool = False) -> None:
        self._with_offsets = check_input(self.name, "with_offsets", with_offsets, bool)

    def on_row(self, values: Values, rng: Draws) -> Values:
        text = check_string(self.name, self.only(values))
        # An empty text gives one empty piece, as in MindSpore.
        spans = list(self._spans(text)) or [(0, 0)]
        pieces = np.array([text[start:stop] for start, stop in spans])
        if not self._with_offsets:
            return (pieces,)
        return pieces, *_bytes_at(text, spans)

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
        self._keep_whitespace = check_input(self.name, "keep_whitespace", keep_whitespace, bool)

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
        self._delimiter = compiled(
            self.name, "delim_pattern", _provided(self.name, "delim_pattern", delim_pattern, str)
        )
        keep = check_input(self.name, "keep_delim_pattern", keep_delim_pattern, str)
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


class WordpieceTokenizer(Transform):
    """Words (n,) to the longest pieces of a vocabulary, from left to right.

    Args:
        vocab: the pieces.
        suffix_indicator: what pieces begin with that do not begin a word.
        max_bytes_per_token: longer words are unknown.
        unknown_token: stands for words that cannot be split into pieces; "" keeps them.
        with_offsets: see Tokenizer; bytes count from the beginning of each word, or from where two more columns say it is.
    """

    def __init__(
        self, vocab: Vocab, suffix_indicator: str = "##", max_bytes_per_token: int = 100, unknown_token: str = "[UNK]",
        with_offsets: bool = False,
    ) -> None:  # fmt: skip
        self._pieces = _provided("WordpieceTokenizer", "vocab", vocab, Vocab).vocab()
        self._suffix = check_input("WordpieceTokenizer", "suffix_indicator", suffix_indicator, str)
        check_input("WordpieceTokenizer", "max_bytes_per_token", max_bytes_per_token, int)
        self._limit = check.integer("WordpieceTokenizer", "", max_bytes_per_token, 0, UINT32_MAX)
        self._unknown = check_input("WordpieceTokenizer", "unknown_token", unknown_token, str)
        self._with_offsets = check_input("WordpieceTokenizer", "with_offsets", with_offsets, bool)

    def on_row(self, values: Values, rng: Draws) -> Values:
        value = values[0] if self._with_offsets and len(values) == 3 else self.only(values)
        if value.ndim > 1 or value.dtype.kind != "U":
            raise self.fault(f"the input must be words (n,), but got {value.dtype} of shape {value.shape}.")
        words = value.reshape(-1).tolist()
        located = [self.located(word) for word in words]
        pieces = np.array([piece for parts in located for piece, _ in parts], np.str_)
        if not self._with_offsets:
            return (pieces,)
        begins = values[1] if len(values) == 3 else np.zeros(len(words), np.uint32)
        ends = [
            np.stack(_bytes_at(word, [span for _, span in parts])) + begin
            for word, parts, begin in zip(words, located, begins.reshape(-1), strict=True)
        ]
        starts, stops = np.concatenate([np.zeros((2, 0), np.uint32), *ends], 1, dtype=np.uint32)
        return pieces, starts, stops

    def located(self, word: str) -> list[tuple[str, Span]]:
        """The pieces of one word with their places in it."""
        pieces = self.pieces_of(word)
        # MindSpore gives the size of the token that stands for it.
        if len(word.encode()) > self._limit:
            return [(pieces[0], (0, len(pieces[0])))]
        # A word that stays as it is, or is unknown, has the place of all of it.
        if len(pieces) == 1:
            return [(pieces[0], (0, len(word)))]
        # The mark of a suffix is not in the text.
        lengths = [len(piece) - (len(self._suffix) if i else 0) for i, piece in enumerate(pieces)]
        stops = np.cumsum(lengths).tolist()
        return [(piece, (stop - n, stop)) for piece, n, stop in zip(pieces, lengths, stops, strict=True)]

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
            raise in_words(
                SporaxTypeError, "PythonTokenizer", "tokenizer is not a callable Python function.", tokenizer
            )
        self._tokenizer = tokenizer

    def _one(self, value: Array) -> Array:
        text = check_string("PythonTokenizer", np.char.decode(value) if value.dtype.kind == "S" else value)
        try:
            return np.array(list(self._tokenizer(text)), np.str_)
        except SporaxError:
            raise
        # User code in worker threads: its traceback alone does not name the API.
        except Exception as error:
            raise in_user_code("PythonTokenizer", error, "the tokenizer") from error


_RESERVED = re.compile(r"\[(?:CLS|SEP|UNK|PAD|MASK|unused\d+)\]")
# Code points of Chinese characters, which are pieces by themselves: the CJK blocks of BERT's own tokenizer.
_CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


def _stands_alone(character: str) -> bool:
    """Whether a character is punctuation (all of ASCII's symbols are) or Chinese."""
    # BERT counts all ASCII symbols as punctuation, Unicode's categories do not (such as ``$``).
    if character.isascii():
        return character.isprintable() and not character.isalnum() and not character.isspace()
    return unicodedata.category(character).startswith("P") or any(a <= ord(character) <= b for a, b in _CHINESE)


class BasicTokenizer(Tokenizer):
    """Words, and each punctuation mark and Chinese character by itself.

    Offsets count in the text as it is after folding and normalising.

    Args:
        lower_case: fold case and remove accents; `normalization_form` is not used then.
        keep_whitespace: whether white space makes pieces too, or is dropped.
        normalization_form: a NormalizeForm.
        preserve_unused_token: keep ``[CLS]``, ``[SEP]``, ``[UNK]``, ``[PAD]``, ``[MASK]`` and ``[unused3]`` and the like whole.
        with_offsets: see Tokenizer.
    """

    def __init__(
        self, lower_case: bool = False, keep_whitespace: bool = False,
        normalization_form: NormalizeForm = NormalizeForm.NONE, preserve_unused_token: bool = True,
        with_offsets: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(with_offsets)
        self._lower = check_input(self.name, "lower_case", lower_case, bool)
        self._keep_whitespace = check_input(self.name, "keep_whitespace", keep_whitespace, bool)
        self._form = check_input(self.name, "normalization_form", normalization_form, NormalizeForm)
        self._preserve = check_input(self.name, "preserve_unused_token", preserve_unused_token, bool)

    def on_row(self, values: Values, rng: Draws) -> Values:
        return self._tokenized(self._prepared(check_string(self.name, self.only(values))), rng)

    def _tokenized(self, text: str, rng: Draws) -> Values:
        return super().on_row((np.array(text),), rng)

    def _prepared(self, text: str) -> str:
        """Folded or normalised, and without control characters."""
        if self._lower:
            # Split at reserved tokens, whose capital letters must stay.
            parts = re.split(f"({_RESERVED.pattern})", text) if self._preserve else [text]
            folded = "".join(
                part if self._preserve and _RESERVED.fullmatch(part) else part.casefold() for part in parts
            )
            # NFD takes accents apart; marks (Mn) are then dropped.
            text = "".join(char for char in unicodedata.normalize("NFD", folded) if unicodedata.category(char) != "Mn")
        elif self._form is not NormalizeForm.NONE:
            text = unicodedata.normalize(cast(Any, self._form.name), text)
        # MindSpore removes control characters after folding, and replaces them by spaces otherwise.
        instead = "" if self._lower else " "
        return "".join(instead if _is_control(character) else character for character in text)

    def _spans(self, text: str) -> Iterator[Span]:
        start = 0
        while start < len(text):
            stop = self._end_of_piece(text, start)
            if self._keep_whitespace or not text[start].isspace():
                # White space is split off as a piece in any case, so that offsets stay right.
                yield start, stop
            start = stop

    def _end_of_piece(self, text: str, start: int) -> int:
        reserved = self._reserved_at(text, start)
        if reserved or _stands_alone(text[start]):
            return reserved or start + 1
        space, stop = text[start].isspace(), start + 1
        # A run of one kind: white space or not.
        while stop < len(text) and text[stop].isspace() == space and not _stands_alone(text[stop]):
            stop += 1  # a reserved token begins with a bracket, which is alone
        return stop

    def _reserved_at(self, text: str, start: int) -> int:
        match = _RESERVED.match(text, start) if self._preserve else None
        return match.end() if match else 0


def _is_control(character: str) -> bool:
    # Tabs and newlines are control characters by category, but count as space.
    return not character.isspace() and unicodedata.category(character) in ("Cc", "Cf")


class BertTokenizer(BasicTokenizer):
    """`BasicTokenizer`, and then `WordpieceTokenizer` on its pieces.

    Args:
        vocab, suffix_indicator, max_bytes_per_token, unknown_token: see `WordpieceTokenizer`.
        lower_case, keep_whitespace, normalization_form, preserve_unused_token: see `BasicTokenizer`.
        with_offsets: see Tokenizer.
    """

    def __init__(
        self,
        vocab: Vocab,
        suffix_indicator: str = "##",
        max_bytes_per_token: int = 100,
        unknown_token: str = "[UNK]",
        lower_case: bool = False,
        keep_whitespace: bool = False,
        normalization_form: NormalizeForm = NormalizeForm.NONE,
        preserve_unused_token: bool = True,
        with_offsets: bool = False,
    ) -> None:
        super().__init__(lower_case, keep_whitespace, normalization_form, preserve_unused_token, with_offsets)
        self._wordpieces = WordpieceTokenizer(vocab, suffix_indicator, max_bytes_per_token, unknown_token)

    def _tokenized(self, text: str, rng: Draws) -> Values:
        # At least one piece: rows must not be empty.
        located = [
            (piece, (start + first, start + last))
            for start, stop in self._spans(text)
            for piece, (first, last) in self._wordpieces.located(text[start:stop])
        ] or [("", (0, 0))]
        pieces = np.array([piece for piece, _ in located], np.str_)
        return (pieces, *_bytes_at(text, [span for _, span in located])) if self._with_offsets else (pieces,)
