"""Transforms for text: `mindspore.dataset.text`."""

from typing import Any

from sporax.dataset.text._tokenizers import (
    PythonTokenizer,
    RegexTokenizer,
    UnicodeCharTokenizer,
    UnicodeScriptTokenizer,
    WhitespaceTokenizer,
    WordpieceTokenizer,
    refuse_sentencepiece,
)
from sporax.dataset.text._vocab import Lookup, Vocab
from sporax.dataset.text._words import (
    AddToken,
    CaseFold,
    Ngram,
    NormalizeForm,
    NormalizeUTF8,
    RegexReplace,
    SlidingWindow,
    ToNumber,
    Truncate,
    TruncateSequencePair,
)

__all__ = [
    "AddToken",
    "CaseFold",
    "Lookup",
    "Ngram",
    "NormalizeForm",
    "NormalizeUTF8",
    "PythonTokenizer",
    "RegexReplace",
    "RegexTokenizer",
    "SlidingWindow",
    "ToNumber",
    "Truncate",
    "TruncateSequencePair",
    "UnicodeCharTokenizer",
    "UnicodeScriptTokenizer",
    "Vocab",
    "WhitespaceTokenizer",
    "WordpieceTokenizer",
]

_SENTENCEPIECE = {"SentencePieceTokenizer", "SentencePieceVocab", "SentencePieceModel"}


def __getattr__(name: str) -> Any:
    if name in _SENTENCEPIECE:
        return refuse_sentencepiece(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
