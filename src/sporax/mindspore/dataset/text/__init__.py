"""Transforms for text: `mindspore.dataset.text`."""

from typing import TYPE_CHECKING, Any

from sporax.mindspore._names.missing import missing_name
from sporax.mindspore.dataset.text._bert import BasicTokenizer, BertTokenizer
from sporax.mindspore.dataset.text._tokenizers import (
    PythonTokenizer,
    RegexTokenizer,
    UnicodeCharTokenizer,
    UnicodeScriptTokenizer,
    WhitespaceTokenizer,
    WordpieceTokenizer,
)
from sporax.mindspore.dataset.text._vectors import CharNGram, FastText, GloVe, ToVectors, Vectors, to_bytes, to_str
from sporax.mindspore.dataset.text._vocab import Lookup, Vocab
from sporax.mindspore.dataset.text._words import (
    AddToken,
    CaseFold,
    FilterWikipediaXML,
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
    "BasicTokenizer",
    "BertTokenizer",
    "CaseFold",
    "CharNGram",
    "FastText",
    "FilterWikipediaXML",
    "GloVe",
    "Lookup",
    "Ngram",
    "NormalizeForm",
    "NormalizeUTF8",
    "PythonTokenizer",
    "RegexReplace",
    "RegexTokenizer",
    "SlidingWindow",
    "ToNumber",
    "ToVectors",
    "Truncate",
    "TruncateSequencePair",
    "UnicodeCharTokenizer",
    "UnicodeScriptTokenizer",
    "Vectors",
    "Vocab",
    "WhitespaceTokenizer",
    "WordpieceTokenizer",
    "to_bytes",
    "to_str",
]

_SENTENCEPIECE = {"SentencePieceTokenizer", "SentencePieceVocab", "SentencePieceModel"}
_NO_SENTENCEPIECE = (
    "SentencePiece is no dependency of Sporax. Use text.PythonTokenizer with a sentencepiece.SentencePieceProcessor's "
    "encode method instead."
)


if not TYPE_CHECKING:  # checkers should see a missing name themselves

    def __getattr__(name: str) -> Any:
        return missing_name(__name__, name, _NO_SENTENCEPIECE if name in _SENTENCEPIECE else None)
