"""Transforms for text: `mindspore.dataset.text`."""

from typing import TYPE_CHECKING, Any

from sporax.dataset.text._bert import BasicTokenizer, BertTokenizer
from sporax.dataset.text._tokenizers import (
    PythonTokenizer,
    RegexTokenizer,
    UnicodeCharTokenizer,
    UnicodeScriptTokenizer,
    WhitespaceTokenizer,
    WordpieceTokenizer,
    refuse_sentencepiece,
)
from sporax.dataset.text._vectors import CharNGram, FastText, GloVe, ToVectors, Vectors, to_bytes, to_str
from sporax.dataset.text._vocab import Lookup, Vocab
from sporax.dataset.text._words import (
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
from sporax.ir.missing import missing_name

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


if not TYPE_CHECKING:  # checkers shall see a missing name themselves

    def __getattr__(name: str) -> Any:
        if name in _SENTENCEPIECE:
            return refuse_sentencepiece(name)
        raise missing_name(__name__, name)
