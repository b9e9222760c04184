"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.dataset.text._bert import BasicTokenizer as BasicTokenizer
from sporax.mindspore.dataset.text._bert import BertTokenizer as BertTokenizer
from sporax.mindspore.dataset.text._tokenizers import PythonTokenizer as PythonTokenizer
from sporax.mindspore.dataset.text._tokenizers import RegexTokenizer as RegexTokenizer
from sporax.mindspore.dataset.text._tokenizers import UnicodeCharTokenizer as UnicodeCharTokenizer
from sporax.mindspore.dataset.text._tokenizers import UnicodeScriptTokenizer as UnicodeScriptTokenizer
from sporax.mindspore.dataset.text._tokenizers import WhitespaceTokenizer as WhitespaceTokenizer
from sporax.mindspore.dataset.text._tokenizers import WordpieceTokenizer as WordpieceTokenizer
from sporax.mindspore.dataset.text._vectors import CharNGram as CharNGram
from sporax.mindspore.dataset.text._vectors import FastText as FastText
from sporax.mindspore.dataset.text._vectors import GloVe as GloVe
from sporax.mindspore.dataset.text._vectors import ToVectors as ToVectors
from sporax.mindspore.dataset.text._vectors import Vectors as Vectors
from sporax.mindspore.dataset.text._vectors import to_bytes as to_bytes
from sporax.mindspore.dataset.text._vectors import to_str as to_str
from sporax.mindspore.dataset.text._vocab import Lookup as Lookup
from sporax.mindspore.dataset.text._vocab import Vocab as Vocab
from sporax.mindspore.dataset.text._words import AddToken as AddToken
from sporax.mindspore.dataset.text._words import CaseFold as CaseFold
from sporax.mindspore.dataset.text._words import FilterWikipediaXML as FilterWikipediaXML
from sporax.mindspore.dataset.text._words import Ngram as Ngram
from sporax.mindspore.dataset.text._words import NormalizeForm as NormalizeForm
from sporax.mindspore.dataset.text._words import NormalizeUTF8 as NormalizeUTF8
from sporax.mindspore.dataset.text._words import RegexReplace as RegexReplace
from sporax.mindspore.dataset.text._words import SlidingWindow as SlidingWindow
from sporax.mindspore.dataset.text._words import ToNumber as ToNumber
from sporax.mindspore.dataset.text._words import Truncate as Truncate
from sporax.mindspore.dataset.text._words import TruncateSequencePair as TruncateSequencePair


