r"""Transforms of strings and of arrays of words.

Unicode properties in regular expressions, ``\p{Han}``, ``\P{L}``, which Python's `re` does not have. Problem: MindSpore's
tokenizers take the expressions of ICU, and published tokenizers split Chinese text with ``\p{Han}``. Method: each property is
written out as the ranges of its characters, once, when an expression first needs it. General categories come from
`unicodedata`. That has no scripts; the ranges of Han are those of Unicode's Scripts.txt, and of other scripts the letters
whose names begin with the script's.
"""

from __future__ import annotations

import abc
import enum
import re
import string
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._arguments import argument, of
from sporax.mindspore.dataset._checks import in_words, numpy_dtype, refuse
from sporax.mindspore.dataset._operations import OneToOne, Transform, Values
from sporax.mindspore.dataset._random import Draws
from sporax.mindspore.dataset._rows import Array


class NormalizeForm(enum.IntEnum):
    """Unicode normal forms."""

    NONE, NFC, NFKC, NFD, NFKD = range(5)


_CALLED = {bool: "boolean", str: "string", int: "int", NormalizeForm: "enum of 'NormalizeForm'"}


def check_input(where: str, name: str, value: Any, kind: type) -> Any:
    """An argument of a tokenizer, about which MindSpore has words of its own."""
    if not isinstance(value, kind):
        words = f"Wrong input type for {name}, should be {_CALLED.get(kind, 'text.Vocab object')}."
        raise in_words(SporaxTypeError, where, words, value)
    return value


class StringTransform(OneToOne):
    """Base of transforms that change every string of an array."""

    def _one(self, value: Array) -> Array:
        if value.dtype.kind != "U":
            raise self.fault(f"{self.name}: input is not string datatype. It is {value.dtype}.")
        changed = [self._change(text) for text in value.reshape(-1).tolist()]
        # Built from a list: numpy finds the longest string.
        return np.array(changed, np.str_).reshape(value.shape)

    @abc.abstractmethod
    def _change(self, text: str) -> str:
        """The new string."""


class CaseFold(StringTransform):
    """Lower case, in the sense that makes words comparable."""

    def _change(self, text: str) -> str:
        # Folding may leave forms that differ in composition only.
        return unicodedata.normalize("NFKC", text.casefold())


_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# Letters and digits beyond ASCII fall out, as in Mahoney's script for enwik9.
_PLAIN = {ord(letter): letter.lower() for letter in string.ascii_uppercase}
_PLAIN |= {ord(str(digit)): f" {word} " for digit, word in enumerate(_DIGITS)}


class FilterWikipediaXML(StringTransform):
    """Lines of a Wikipedia dump as plain words: lower-case letters a to z, digits spelled out, single spaces.

    Redirections become empty; what is between the first ``<`` and the last ``>`` of a line, and entities such as ``&amp;``,
    are left out. See `EnWik9Dataset`.
    """

    def _change(self, text: str) -> str:
        if "#redirect" in text.lower():
            return ""
        # Greedy: from the first < to the last > of the line.
        visible = re.sub(r"&[^;]*;", " ", re.sub(r"<.*>", "", text))
        return " ".join(re.findall(r"[a-z]+", visible.translate(_PLAIN)))


class NormalizeUTF8(StringTransform):
    """A Unicode normal form."""

    normalize_form: NormalizeForm = argument(of(NormalizeForm), "a NormalizeForm.", default=NormalizeForm.NFKC)

    def _change(self, text: str) -> str:
        return (
            text
            if self.normalize_form is NormalizeForm.NONE
            else unicodedata.normalize(cast(Any, self.normalize_form.name), text)
        )


def compiled(where: str, name: str, pattern: object) -> re.Pattern[str]:
    """A regular expression.

    Raises:
        SporaxValueError: not a valid one, or with a property that is not known.
    """
    try:
        return re.compile(without_properties(where, name, check.text(where, name, pattern)))
    except re.error as error:
        raise SporaxValueError(
            f"For '{where}', '{name}' must be a regular expression, but {pattern!r} is not: {error}"
        ) from error


class RegexReplace(StringTransform):
    """What matches a regular expression is replaced."""

    pattern: str = argument(check.text, "the expression.")
    replace: str = argument(check.text, "what takes its place.")
    replace_all: bool = argument(check.boolean, "every match, or the first only.", default=True)

    def _prepare(self) -> None:
        self._pattern = compiled(self.name, "pattern", self.pattern)

    def _change(self, text: str) -> str:
        # `re.sub` takes 0 for all matches.
        return self._pattern.sub(self.replace, text, 0 if self.replace_all else 1)


def _numeric(where: str, name: str, value: Any) -> np.dtype[Any]:
    dtype = numpy_dtype(where, name, value)
    # bool and strings have no parse of numbers.
    For(where).refuse_type(dtype.kind not in "iuf", f"data_type: {value} is not numeric data type")
    return dtype


class ToNumber(OneToOne):
    """Strings to numbers.

    Raises:
        SporaxRuntimeError: (when applied) a string is no number, or one outside the dtype's range.
    """

    data_type: Any = argument(_numeric, "dtype of the result.")

    def _one(self, value: Array) -> Array:
        if value.dtype.kind != "U":
            raise self.fault(f"ToNumber: input should be string datatype. Got {value.dtype}.")
        numbers = [self._number(text) for text in value.reshape(-1).tolist()]
        return np.array(numbers, self.data_type).reshape(value.shape)

    def _number(self, text: str) -> Array:
        try:
            # `int` refuses "1.5", which must not be rounded silently.
            with np.errstate(over="ignore"):
                number = np.array((float if self.data_type.kind == "f" else int)(text), self.data_type)
        except (ValueError, OverflowError) as error:
            fault = f'it is invalid to convert "{text}" to a number. Got {self.data_type}: {error}'
            if isinstance(error, OverflowError):
                fault = self._out_of_bounds(text)
            raise self.fault(f"ToNumber: {fault}.") from error
        if np.isinf(number):
            self.refuse(self.data_type == np.float16, f"ToFloat16: {text} is outside of valid float16 range.")
            raise self.fault(f"ToNumber: {self._out_of_bounds(text)}.")
        return number

    def _out_of_bounds(self, text: str) -> str:
        limits = np.iinfo(self.data_type) if self.data_type.kind in "iu" else np.finfo(self.data_type)
        bounds = f"out of bounds if cast to {self.data_type}. The valid range is: [{limits.min}, {limits.max}]"
        return f"string input {text} will be {bounds}"


class Truncate(OneToOne):
    """At most the first `max_seq_len` elements of an array (n,), or of each line of (k, n)."""

    max_seq_len: int = argument(check.integer, low=1)

    def _one(self, value: Array) -> Array:
        self.refuse(value.ndim not in (1, 2), f"the input must have the shape (n,) or (k, n), but got {value.shape}.")
        return value[..., : self.max_seq_len]


class TruncateSequencePair(Transform):
    """Two arrays (n,), (m,) truncated at their ends, the longer one first, until they have `max_length` elements together."""

    max_length: int = argument(check.integer, low=1)

    def on_row(self, values: Values, rng: Draws) -> Values:
        if len(values) != 2 or any(value.ndim != 1 for value in values):
            raise self.fault(f"the input must be two columns (n,), but got {[v.shape for v in values]}.")
        first, second = (len(value) for value in values)
        # One by one, as lengths meet: the longer one first, the second one where they are equal.
        while first + second > self.max_length:
            if first > second:
                first -= 1
            else:
                second -= 1
        return values[0][:first], values[1][:second]


class AddToken(OneToOne):
    """One more word before (or after) an array (n,) of words, or each line of (k, n)."""

    token: str = argument(check.text, "the word.")
    begin: bool = argument(check.boolean, "at the beginning or at the end.", default=True)

    def _one(self, value: Array) -> Array:
        if value.ndim not in (1, 2) or value.dtype.kind != "U":
            fault = "rank should be 1 or 2" if value.dtype.kind == "U" else "type should be string"
            raise self.fault(f"AddToken: input tensor {fault}. It is {value.dtype} {value.shape}.")
        # One for each line of several.
        token = np.full((*value.shape[:-1], 1), self.token)
        return np.concatenate([token, value] if self.begin else [value, token], -1)


def _lengths(where: str, name: str, value: Any) -> list[int]:
    lengths = [value] if isinstance(value, int) else value
    if not isinstance(lengths, list) or not lengths:
        raise in_words(SporaxValueError, where, "n needs to be a non-empty list of positive integers.", value)
    for i, length in enumerate(lengths):
        check.instance(where, f"gram[{i}]", length, int)
        check.positive(where, f"gram_{i}", length)
    return lengths


def _pad(where: str, name: str, pad: object) -> tuple[str, int]:
    fits = isinstance(pad, tuple) and len(pad) == 2 and isinstance(pad[0], str) and isinstance(pad[1], int)
    if not isinstance(pad, tuple) or not fits:
        words = f"{name} needs to be a tuple of (str, int) str is pad token and int is pad_width."
        raise in_words(SporaxValueError, where, words, pad)
    refuse(pad[1] < 0, SporaxValueError, where, "padding width need to be positive numbers.", pad)
    return pad


class Ngram(OneToOne):
    """Runs of n neighbouring words, joined."""

    n: int | list[int] = argument(_lengths, "the length of a run, or a list of lengths.")
    left_pad: tuple[str, int] = argument(
        _pad, "(word, count) put before the words; at most n - 1 of them take part.", default=("", 0)
    )
    right_pad: tuple[str, int] = argument(_pad, "likewise after the words.", default=("", 0))
    separator: str = argument(check.text, "between the words of a run.", default=" ")

    def _one(self, value: Array) -> Array:
        if value.ndim != 1 or value.dtype.kind != "U":
            raise self.fault(f"Ngram: input is not a 1D data with string datatype. Got {value.dtype} {value.shape}.")
        runs: list[str] = []
        for n in cast(list[int], self.n):
            # More padding than n - 1 would make runs of padding alone.
            left, right = ([word] * min(count, n - 1) for word, count in (self.left_pad, self.right_pad))
            words = [*left, *value.tolist(), *right]
            # Fewer words than n: one empty run, so that the row is not empty.
            runs += [self.separator.join(words[i : i + n]) for i in range(len(words) - n + 1)] or [""]
        return np.array(runs, np.str_)


class SlidingWindow(OneToOne):
    """All runs of `width` neighbouring elements: (n,) to (n - width + 1, width), or to (0,) where n is less than `width`."""

    width: int = argument(check.integer, low=1)
    axis: int = argument(check.integer, default=0)

    def _one(self, value: Array) -> Array:
        if self.axis not in (0, -1):
            raise self.fault(f"SlidingWindow: The parameter axis supports 0 or -1 only for now, but got {self.axis}.")
        if value.ndim != 1:
            raise self.fault(f"SlidingWindow: SlidingWindow supports 1D input only for now, but got {value.ndim}D.")
        if len(value) < self.width:
            return np.zeros(0, value.dtype)
        # A copy: the view overlaps with itself and must not be written to.
        return np.lib.stride_tricks.sliding_window_view(value, self.width).copy()


# From Unicode's Scripts.txt, version 15, "Han".
_HAN = (
    *((0x2E80, 0x2E99), (0x2E9B, 0x2EF3), (0x2F00, 0x2FD5), (0x3005, 0x3005), (0x3007, 0x3007), (0x3021, 0x3029)),
    *((0x3038, 0x303B), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFA6D), (0xFA70, 0xFAD9), (0x16FE2, 0x16FE3)),
    *((0x16FF0, 0x16FF1), (0x20000, 0x2A6DF), (0x2A700, 0x2B739), (0x2B740, 0x2B81D), (0x2B820, 0x2CEA1)),
    *((0x2CEB0, 0x2EBE0), (0x2F800, 0x2FA1D), (0x30000, 0x3134A), (0x31350, 0x323AF)),
)
_SCRIPTS = (
    *("arabic", "armenian", "bengali", "cyrillic", "devanagari", "ethiopic", "georgian", "greek", "gujarati", "hangul"),
    *("hebrew", "hiragana", "katakana", "khmer", "latin", "mongolian", "myanmar", "tamil", "telugu", "thai", "tibetan"),
)
_CATEGORIES = frozenset(
    ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe")
    + ("Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "C", "Cc", "Cf", "Cs", "Co", "Cn")
)
# A property, an escape, or the begin or end of a set: escapes are matched so that ``\[`` opens nothing.
_PROPERTY = re.compile(r"\\([pP])\{\^?([^}]*)\}|\\.|\[\^?\]?|\]", re.DOTALL)
Ranges = tuple[tuple[int, int], ...]


def without_properties(where: str, name: str, pattern: str) -> str:
    """`pattern` with its properties written out as sets of characters.

    Args:
        where: name of the API, for messages.
        name: name of the argument, for messages.
        pattern: a regular expression of ICU.

    Raises:
        SporaxValueError: a property that is not known.
    """
    is_in_set = False

    def written_out(match: re.Match[str]) -> str:
        nonlocal is_in_set
        text, letter = match.group(), match.group(1)
        if letter is None:
            if text[0] in "[]":
                # Only the outermost set matters; `re` has no nested sets.
                is_in_set = text[0] == "["
            return text
        ranges = _ranges(match.group(2).strip())
        if ranges is None:
            scripts = ", ".join(["Han", *(script.title() for script in _SCRIPTS)])
            raise SporaxValueError(
                f"For '{where}', '{name}' must have Unicode properties that are general categories such as L or Lu, or "
                f"one of the scripts {scripts}, but got {text}."
            )
        # ``\P{…}`` and ``\p{^…}`` both negate, and together they cancel.
        if (letter == "P") != text.startswith("^", 3):
            ranges = _others(ranges)
        characters = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
        # Inside of a set the ranges join it; outside they need one of their own.
        return characters if is_in_set else f"[{characters}]"

    return _PROPERTY.sub(written_out, pattern)


@cache
def _ranges(name: str) -> Ranges | None:
    """The characters that have a property; None if it is not known."""
    # ICU's spellings: ``\p{Script=Han}``, ``\p{IsHan}``, ``\p{gc=Lu}``.
    plain = re.sub(r"^(?:script|sc|general_?category|gc)\s*=\s*|^is(?=.)", "", name, flags=re.IGNORECASE).strip()
    if plain.lower() in ("han", "hani"):
        return _HAN
    if plain.lower() in _SCRIPTS:
        # Names begin with the script, for forms of other widths after a word for that.
        beginning = re.compile(rf"(?:HALFWIDTH |FULLWIDTH )?{plain.upper()}[ -]")
        return _runs(lambda c: unicodedata.category(c)[0] in "LM" and bool(beginning.match(unicodedata.name(c, ""))))
    if plain in _CATEGORIES:
        return _runs(lambda c: unicodedata.category(c).startswith(plain))
    return None


def _runs(has: Callable[[str], bool]) -> Ranges:
    def runs() -> Iterator[tuple[int, int]]:
        start = None
        # One code beyond the last, so that a run up to the end is closed.
        for code in range(sys.maxunicode + 2):
            is_one = code <= sys.maxunicode and has(chr(code))
            if is_one and start is None:
                start = code
            elif not is_one and start is not None:
                yield start, code - 1
                start = None

    return tuple(runs())


def _others(ranges: Ranges) -> Ranges:
    # The complement of sorted ranges: each gap between an end and the next begin.
    edges = [0, *(edge for first, last in ranges for edge in (first, last + 1)), sys.maxunicode + 1]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return tuple((start, stop - 1) for start, stop in gaps if start < stop)
