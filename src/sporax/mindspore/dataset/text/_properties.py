r"""Unicode properties in regular expressions: ``\p{Han}``, ``\P{L}``, which Python's `re` does not have.

Problem: MindSpore's tokenizers take the expressions of ICU, and published tokenizers split Chinese text with ``\p{Han}``. Method:
each property is written out as the ranges of its characters, once, when an expression first needs it. General categories
come from `unicodedata`. That has no scripts; the ranges of Han are those of Unicode's Scripts.txt, and of other scripts the
letters whose names begin with the name of the script.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache

from sporax.base.errors import SporaxValueError
from sporax.mindspore.dataset._checks import check_str

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


def compiled(where: str, name: str, pattern: object) -> re.Pattern[str]:
    """A regular expression.

    Raises:
        SporaxValueError: not a valid one, or with a property that is not known.
    """
    try:
        return re.compile(without_properties(where, name, check_str(where, name, pattern)))
    except re.error as error:
        raise SporaxValueError(f"For '{where}', '{name}' is no regular expression: {pattern!r} ({error})") from error
