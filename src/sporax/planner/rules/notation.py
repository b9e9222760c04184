"""Rules written as text.

    "b i k, b k j -> b i j"      k is in no result, so it is reduced (by a sum, unless `reduce` says otherwise)
    "... n, n -> ... n"          any leading dimensions, mapped
    "(g c) x -> g x"             a dimension made of two factors, the major one first
    "b 1 -> b"                   1: a dimension that is never sharded
    "b i, -> b i"                the second operand is a scalar

Names are single letters; spaces are free. A reduced index must be one over which the primitive really combines parts:
``"i j, i -> i"`` for sum_j x_ij + b_i would add b once per rank. Such an index belongs in `blocked`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sporax.base.errors import For, SporaxValueError
from sporax.ir.operation import Operation
from sporax.ir.placement import REDUCTIONS
from sporax.planner.rules.language import Adapt, DimFactors, Draft, Rule

Term = tuple[tuple[str, ...], ...]
"""One tensor of a statement: per dimension its names; ("...",) for the leading dimensions, () for one never sharded."""

_TOKEN = re.compile(r"\s*(\.\.\.|\([a-zA-Z\s]+\)|[a-zA-Z]|1)")
"""One dimension of a statement: leading dimensions, several names in parentheses, one name, or 1."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed rule text. `Statement.parse` reads it, `rule` applies it to an operation."""

    text: str
    operands: tuple[Term, ...]
    results: tuple[Term, ...]

    @classmethod
    def parse(cls, text: str) -> Statement:
        """Read a rule.

        Raises:
            SporaxValueError: not of the form ``"operands -> results"``, or with characters that mean nothing.
        """
        sides = text.split("->")
        For("rule").refuse(len(sides) != 2, f"the text must have the form 'a b, b c -> a c', but got '{text}'")
        operands, results = (tuple(_term(term, text) for term in side.split(",")) for side in sides)
        return cls(text, operands if sides[0].strip() else (), results)

    def rule(
        self,
        operation: Operation,
        *,
        reduce: Mapping[str, str] | None = None,
        blocked: str = "",
        linear: Iterable[Sequence[int]] = (),
        adapt: Adapt | None = None,
        flops_per_point: float = 1.0,
    ) -> Rule:
        """The rule for one operation; arguments as in `sporax.planner.rules.register`.

        Raises:
            SporaxValueError: the operation has other numbers of tensors or dimensions, sizes contradict each other, or a
                name in `reduce` or `blocked` is not an index of the right sort.
        """
        operands = _expand(self, self.operands, [operand.shape for operand in operation.operands])
        results = _expand(self, self.results, [result.shape for result in operation.results])
        shapes = [result.shape for result in (*operation.operands, *operation.results)]
        sizes = _sizes(self, (*operands, *results), shapes)
        shared = {name for term in results for dim in term for name in dim}
        _check_names(self, sizes, shared, reduce or {}, blocked)
        draft = Draft(operation)
        index: dict[str, tuple[int, ...]] = {}
        # In the order of their first appearance, so that a rule reads like its statement.
        for name, size in sizes.items():
            if name in blocked:
                index[name] = draft.blocked(size)
            elif name in shared:
                index[name] = draft.map(size)
            else:
                index[name] = draft.reduce(size, (reduce or {}).get(name, "sum"))
        for group in linear:
            draft.passes(tuple(group), "sum")

        def dims(term: Term) -> DimFactors:
            return tuple(tuple(number for name in dim for number in index[name]) for dim in term)

        return draft.finish([*map(dims, operands)], [*map(dims, results)], adapt=adapt, flops_per_point=flops_per_point)


def _term(text: str, full_text: str) -> Term:
    dims: list[tuple[str, ...]] = []
    position, text = 0, text.rstrip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise SporaxValueError(
                f"For 'rule', a tensor must be written with single letters, '1', '...' and '(…)', but got '{text.strip()}' "
                f"in '{full_text}'."
            )
        word = token.group(1)
        dims.append(() if word == "1" else ("...",) if word == "..." else tuple(word.strip("()").replace(" ", "")))
        position = token.end()
    return tuple(dims)


def _expand(statement: Statement, terms: tuple[Term, ...], shapes: Sequence[tuple[int, ...]]) -> tuple[Term, ...]:
    """The terms with '...' written out, counted from the right so that operands of different rank line up."""
    if len(terms) != len(shapes):
        raise SporaxValueError(
            f"For 'rule', '{statement.text}' must name every tensor, but it has {len(terms)} of them where the operation has "
            f"{len(shapes)}, of shapes {list(shapes)}."
        )
    expanded = []
    for term, shape in zip(terms, shapes, strict=True):
        # '...' stands for what the names leave over, which may be nothing.
        num_leading = len(shape) - len(term) + 1
        # Numbered from the right, so that operands of different rank share the last ones.
        leading = tuple((f"...{number}",) for number in reversed(range(num_leading)))
        written = tuple(new for dim in term for new in (leading if dim == ("...",) else (dim,)))
        if len(written) != len(shape):
            raise For("rule").error(
                f"'{statement.text}' must name every dimension, but a tensor of shape {shape} has {len(shape)} of them"
            )
        expanded.append(written)
    return tuple(expanded)


def _sizes(statement: Statement, terms: Sequence[Term], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Size of every index; an unknown one inside parentheses follows from the others."""
    pending = [
        (dim, size) for term, shape in zip(terms, shapes, strict=True) for dim, size in zip(term, shape, strict=True)
    ]
    sizes: dict[str, int] = {}
    while pending:
        # Dimensions with one unknown size each are solved first; they make further ones solvable.
        solvable = (entry for entry in pending if sum(name not in sizes for name in entry[0]) <= 1)
        entry = next(solvable, None)
        if entry is None:
            raise SporaxValueError(f"For 'rule', the sizes of all indices must follow from '{statement.text}'.")
        pending.remove(entry)
        if entry[0]:
            sizes.update(_solved(statement, *entry, sizes))
    return sizes


def _solved(statement: Statement, dim: tuple[str, ...], size: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """The size of the one index of a dimension that is not in `sizes`; nothing if all are."""
    product = math.prod(sizes[name] for name in dim if name in sizes)
    unknown = [name for name in dim if name not in sizes]
    if size % product or (not unknown and size != product):
        raise SporaxValueError(
            f"For 'rule', the index {''.join(dim)} of '{statement.text}' must have one size, but got {product} and {size}."
        )
    return dict.fromkeys(unknown, size // product)


def _check_names(
    statement: Statement, sizes: Mapping[str, int], shared: set[str], reduce: Mapping[str, str], blocked: str
) -> None:
    unknown = sorted({*reduce, *blocked} - set(sizes))
    For("rule").refuse(unknown, f"'reduce' and 'blocked' must name indices of '{statement.text}'", unknown)
    for name, reduction in reduce.items():
        if name in shared or reduction not in REDUCTIONS:
            raise SporaxValueError(
                f"For 'rule', 'reduce' must give one of {REDUCTIONS} for indices that no result of '{statement.text}' has, but "
                f"got '{name}': '{reduction}'."
            )
