"""The tokenizers of BERT: words, punctuation and single Chinese characters, then pieces of a vocabulary.

A vocabulary of whole words would be too large and miss most of a new text, so words are split into the longest pieces
that the vocabulary has (WordPiece; Devlin et al. 2018).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from sporax.mindspore.dataset._checks import check_bool, check_instance
from sporax.mindspore.dataset._operations import Values
from sporax.mindspore.dataset.text._tokenizers import Span, Tokenizer, WordpieceTokenizer, check_string
from sporax.mindspore.dataset.text._vocab import Vocab
from sporax.mindspore.dataset.text._words import NormalizeForm

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
        self,
        lower_case: bool = False,
        keep_whitespace: bool = False,
        normalization_form: NormalizeForm = NormalizeForm.NONE,
        preserve_unused_token: bool = True,
        with_offsets: bool = False,
    ) -> None:
        super().__init__(with_offsets)
        self._lower = check_bool(self.name, "lower_case", lower_case)
        self._keep_whitespace = check_bool(self.name, "keep_whitespace", keep_whitespace)
        check_instance(self.name, "normalization_form", normalization_form, NormalizeForm)
        self._form = normalization_form
        self._preserve = check_bool(self.name, "preserve_unused_token", preserve_unused_token)

    def on_row(self, values: Values, rng: np.random.Generator) -> Values:
        return self._tokenized(self._prepared(check_string(self.name, self.only(values))))

    def _tokenized(self, text: str) -> Values:
        return super().on_row((np.array(text),), np.random.default_rng(0))

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
        self._suffix = suffix_indicator

    def _tokenized(self, text: str) -> Values:
        # At least one piece: rows must not be empty.
        located = [piece for span in self._spans(text) for piece in self._pieces(text, span)] or [("", (0, 0))]
        pieces = np.array([piece for piece, _ in located], np.str_)
        if not self._with_offsets:
            return (pieces,)
        # Offsets count bytes of UTF-8, as in MindSpore.
        byte = np.cumsum([0] + [len(character.encode()) for character in text])
        starts, stops = (byte[[span[end] for _, span in located]].astype(np.uint32) for end in (0, 1))
        return pieces, starts, stops

    def _pieces(self, text: str, span: Span) -> list[tuple[str, Span]]:
        """Pieces of one word with their places; a word that is unknown keeps its own."""
        start, stop = span
        pieces = self._wordpieces.pieces_of(text[start:stop])
        # The mark of a suffix is not in the text.
        lengths = [len(piece) - (len(self._suffix) if i else 0) for i, piece in enumerate(pieces)]
        # A word that stays whole, or is unknown, has the place of the whole word.
        if len(pieces) == 1:
            return [(pieces[0], span)]
        ends = start + np.cumsum(lengths)
        return [(piece, (int(end) - n, int(end))) for piece, n, end in zip(pieces, lengths, ends, strict=True)]
