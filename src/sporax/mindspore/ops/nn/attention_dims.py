"""Dimensions of attention: batch, heads and the query's length are sharded; keys are whole along theirs.

A strategy may leave heads of keys and values whole where it shards those of queries (grouped and multi-query attention). Masks
that stand for a form (`sparse_mode` 2 to 4) are whole.
"""

from __future__ import annotations

from sporax.base.made_later import dataclass
from sporax.ir.operator_dims import Call, Dims, Names, Shapes, StrategyEntry, numbered

_LAYOUTS = {
    "BSH": ("b", "s", "n"),
    "SBH": ("s", "b", "n"),
    "BNSD": ("b", "n", "s", "d!"),
    "BSND": ("b", "s", "n", "d!"),
    "TH": ("s", "n"),
    "TND": ("s", "n", "d!"),
}

_SHAPED_AS_SCORES = ("real_shift", "drop_mask", "attn_mask", "pse_shift")
"""Inputs that are masks or shifts of the scores; all others are whole on every device."""

_LENGTHS = ("query_lengths", "key_lengths")

_SCORES = ("b", "n", "s", "k!")
_COMPRESSED = (2, 3, 4)
"""Modes in which the values of a mask are not read."""


@dataclass(frozen=True, slots=True)
class AttentionDims:
    """Query, key and value, then masks and shifts.

    A hidden size is sharded as its heads are. The random key has no entry.

    Attributes:
        scores: dimensions of a mask or shift that has as many.
    """

    scores: Names = _SCORES

    def __call__(self, call: Call, shapes: Shapes) -> Dims | None:
        """The names of this call."""
        query = _LAYOUTS.get(str(call.get("input_layout", "BSH")))
        further = call.get("present", ())
        if query is None or not isinstance(further, tuple) or len(further) + 3 != len(shapes):
            return None
        key = self._of_keys(call, query)
        of_scores = _SHAPED_AS_SCORES[:2] if call.get("sparse_mode") in _COMPRESSED else _SHAPED_AS_SCORES
        numbers = dict(zip(further, (call.in_strategy or ())[3:], strict=False))
        named = [
            self._of_scores(len(shape))
            if name in of_scores
            # Lengths may be sharded as their sequences are, or whole.
            else ("b",)
            if name in _LENGTHS and isinstance(numbers.get(name), tuple) and max(numbers[name], default=1) > 1
            else numbered(len(shape), range(len(shape)), name)
            for name, shape in zip(further, shapes[3:], strict=True)
        ]
        inputs = (query, key, key, *named)
        entries = [StrategyEntry(names, shape) for names, shape in zip(inputs, shapes, strict=True)]
        # Everything from the random key on has no entry.
        drawn = len(further) - further.index("random_key") if "random_key" in further else 0
        batch = "" if query[0] == "b" else query[1]
        return Dims(inputs, tuple(entries[: len(entries) - drawn]), leader=0, batch=batch)

    def _of_keys(self, call: Call, query: Names) -> Names:
        """Keys and values are whole along their length: each query needs all of them. So may their heads be."""
        numbers = [entry for entry in (call.in_strategy or ())[:3] if isinstance(entry, tuple)]
        heads = [entry[query.index("n")] for entry in numbers if len(entry) == len(query)]
        undivided = {"s": "k!", "n": "m!"} if heads[1:] == [1, 1] else {"s": "k!"}
        return tuple(undivided.get(name, name) for name in query)

    def _of_scores(self, rank: int) -> Names:
        """Batch, heads, queries, keys; the last ones; or three, which mean different things."""
        return self.scores if rank == len(self.scores) else _SCORES[-rank:]
