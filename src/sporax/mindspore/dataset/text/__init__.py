"""Transforms for text: `mindspore.dataset.text`."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _tokenizers: PythonTokenizer RegexTokenizer UnicodeCharTokenizer UnicodeScriptTokenizer WhitespaceTokenizer
        WordpieceTokenizer BasicTokenizer BertTokenizer
    _vocab: Lookup Vocab CharNGram FastText GloVe ToVectors Vectors to_bytes to_str
    _words: AddToken CaseFold FilterWikipediaXML Ngram NormalizeForm NormalizeUTF8 RegexReplace SlidingWindow ToNumber
        Truncate TruncateSequencePair
    """,
)

_SENTENCEPIECE = ("SentencePieceTokenizer", "SentencePieceVocab", "SentencePieceModel")
_NO_SENTENCEPIECE = (
    "SentencePiece is no dependency of Sporax. Use text.PythonTokenizer with a sentencepiece.SentencePieceProcessor's "
    "encode method instead."
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES, reasons=dict.fromkeys(_SENTENCEPIECE, _NO_SENTENCEPIECE))
