"""Explanations of shardings: values, and their text with one table per operator and reasons in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sporax.base.text_tables import Section, cost_text, page_width, size_text, table_lines
from sporax.ir.placement import Placement
from sporax.planner.rules import Assignment, FactorKind, Rule
from sporax.report.view.axis_names import AxisNames, letter

_MOST_TRANSFERS = 2
"""Transfers that a reason names, the most expensive first; a sentence with more cannot be read."""
_TOO_LITTLE = 1e-12
"""Seconds; smaller differences are rounding of sums and are not shown."""
_KINDS = {
    FactorKind.REDUCE: "reduced",
    FactorKind.BLOCKED: "never sharded",
    FactorKind.HALO: "a window",
    FactorKind.PERMUTE: "reversed",
}


@dataclass(frozen=True, slots=True)
class OperandTransfer:
    """A tensor that is resharded to an operator, or from it to a reader.

    Attributes:
        what: the variable that it is, or who made it, or, of a result, who reads it; for people.
        moves: the collectives, as pairs of a kind and the bytes that a rank brings in.
        seconds: what they take in a step.
    """

    what: str
    moves: tuple[tuple[str, int], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to shard an operator, everything else staying as it is.

    Attributes:
        assignment: the sharding.
        operands, results: where they are then.
        parts: among how many devices the work is shared out.
        operator_seconds: the operator's own time.
        fetches: to bring its operands there from where they are.
        deliveries: to bring its results to where their readers want them.
        chosen: whether it is the plan's.
        lacking_bytes: of memory, where it does not fit while the operator runs; 0 where it does, or where nothing limits it.
    """

    assignment: Assignment
    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    parts: int
    operator_seconds: float
    fetches: tuple[OperandTransfer, ...]
    deliveries: tuple[OperandTransfer, ...]
    chosen: bool = False
    lacking_bytes: int = 0

    @property
    def fetch_seconds(self) -> float:
        """To bring the operands."""
        return sum(fetch.seconds for fetch in self.fetches)

    @property
    def deliver_seconds(self) -> float:
        """To bring the results."""
        return sum(delivery.seconds for delivery in self.deliveries)

    @property
    def seconds(self) -> float:
        """All three together."""
        return self.operator_seconds + self.fetch_seconds + self.deliver_seconds

    def why_not(self, chosen: Alternative, unit: str = "s") -> str:
        """Where its cost differs from the chosen one, with its communication; for the chosen one that alone."""
        if self.chosen:
            sent = ", ".join(filter(None, (_sent(self.fetches, "of"), _sent(self.deliveries, "for"))))
            return f"chosen{': ' if sent else ''}{sent}"
        pairs = {
            "computing": (self.operator_seconds - chosen.operator_seconds, _shared(self, chosen)),
            "operands": (self.fetch_seconds - chosen.fetch_seconds, _transfers(self.fetches, chosen.fetches, "of")),
            "results": (
                self.deliver_seconds - chosen.deliver_seconds,
                _transfers(self.deliveries, chosen.deliveries, "for"),
            ),
        }
        explanation = [
            f"{name} {_change(change, unit)}{why[change < 0]}"
            for name, (change, why) in pairs.items()
            if abs(change) > _TOO_LITTLE
        ]
        if self.lacking_bytes:
            explanation.insert(0, f"does not fit: {size_text(self.lacking_bytes)} of memory are missing")
        return "; ".join(explanation) or "equal cost"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The alternatives of one operator, those of least cost first.

    Attributes:
        operator: its position.
        title: what it is.
        rule: its dimensions, as text.
        alternatives: the plan's own is among them.
        axes: how the mesh's axes are called.
        unit: of their costs.
        notes: what else there is to know: shardings that are not possible, alternatives that are not shown.
    """

    operator: int
    title: str
    rule: str
    alternatives: tuple[Alternative, ...]
    axes: AxisNames
    unit: str = "s"
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> Alternative:
        """The plan's way."""
        return next(alternative for alternative in self.alternatives if alternative.chosen)

    def __str__(self) -> str:
        return alternatives_text([self])


class Explanations(tuple[Explanation, ...]):
    """Several explanations; ``print`` shows them one below the other, those of layers that are sharded equally once."""

    __slots__ = ()

    def __str__(self) -> str:
        return alternatives_text(self)


def alternatives_text(explanations: Sequence[Explanation]) -> str:
    """All of them, one below the other; layers that are sharded equally are shown once, with the paths of all."""
    if not explanations:
        return ""
    legend = f"axes {explanations[0].axes.legend()}; * marks the plan's choice"
    return f"{legend}\n" + "\n\n".join(_table(entry) for entry in _equal(explanations))


def _equal(explanations: Sequence[Explanation]) -> Iterator[Sequence[Explanation]]:
    """Explanations that say the same of different layers, together."""
    groups: dict[object, list[Explanation]] = {}
    for explanation in explanations:
        contents = tuple(
            (alternative.operands, alternative.results, f"{alternative.seconds:.6g}", alternative.chosen)
            for alternative in explanation.alternatives
        )
        what = re.sub(r"^#\d+ ", "", explanation.title)
        key: tuple[object, ...] = (re.sub(r"\.\d+\b", ".#", what), explanation.rule, contents)
        if any(re.sub(r"^#\d+ ", "", other.title) == what for other in groups.get(key, ())):
            key = (*key, explanation.operator)  # twice at one place: these are two
        groups.setdefault(key, []).append(explanation)
    yield from groups.values()


def _table(equal: Sequence[Explanation]) -> str:
    explanation = equal[0]
    rows = tuple(
        (
            "*" if alternative.chosen else "",
            cost_text(alternative.seconds, explanation.unit),
            explanation.axes.layouts(alternative.operands),
            explanation.axes.layouts(alternative.results),
            alternative.why_not(explanation.chosen, explanation.unit),
        )
        for alternative in explanation.alternatives
    )
    columns = ("", "total", "operands", "results", "compared with the chosen one")
    lines = [explanation.title, f"  {explanation.rule}"]
    if len(equal) > 1:
        others = ", ".join(f"#{entry.operator}" for entry in equal[1:])
        lines.insert(1, f"  and {len(equal) - 1} like it: {others}")
    table = table_lines(Section("", columns, rows, right=(1,)), page_width())
    return "\n".join([*lines, *table, *(f"  {note}" for note in explanation.notes)])


def _change(cost: float, unit: str) -> str:
    return f"{'+' if cost > 0 else '-'}{cost_text(abs(cost), unit)}"


def _shared(alternative: Alternative, chosen: Alternative) -> tuple[str, str]:
    """Why computing takes longer, or less."""
    explanation = (
        f" (over {alternative.parts} devices, not {chosen.parts})" if alternative.parts != chosen.parts else ""
    )
    return explanation, explanation


def _transfers(transfers: Sequence[OperandTransfer], chosen: Sequence[OperandTransfer], word: str) -> tuple[str, str]:
    """Why transfers take longer, or less long: what is sent in addition, and what is no longer sent."""
    more = _sent([transfer for transfer in transfers if transfer not in chosen], word)
    less = _sent([entry for entry in chosen if entry not in transfers], word)
    return f" ({more or 'slices are copied'})", f" (saves {less})" if less else ""


def _sent(transfers: Sequence[OperandTransfer], word: str) -> str:
    """``"all_gather 65.5 kB of layers.2"``, the most expensive first."""
    sending = sorted((transfer for transfer in transfers if transfer.moves), key=lambda entry: -entry.seconds)
    explanation = [f"{_moves(entry.moves)} {word} {entry.what}" for entry in sending[:_MOST_TRANSFERS]]
    more = [f"{len(sending) - _MOST_TRANSFERS} more"] if len(sending) > _MOST_TRANSFERS else []
    return ", ".join((*explanation, *more))


def _moves(moves: Sequence[tuple[str, int]]) -> str:
    counts = Counter(moves)
    return " and ".join(
        f"{f'{count} × ' if count > 1 else ''}{kind} {size_text(size)}" for (kind, size), count in counts.items()
    )


def rule_text(rule: Rule) -> str:
    """What an operator does to dimensions: ``"A B, B C → A C; A = 32, B = 64 (reduced), C = 64"``."""
    if rule.opaque:
        return f"cannot be sharded: {rule.opaque}"
    numbers = [number for number, factor in enumerate(rule.factors) if factor.kind is not FactorKind.PARTIAL]
    names = {number: letter(place).upper() for place, number in enumerate(numbers)}

    def tensor(dims: Sequence[Sequence[int]]) -> str:
        words = (" ".join(names[number] for number in dim) for dim in dims)
        return " ".join(f"({word})" if " " in word else word or "1" for word in words) or "scalar"

    sides = (", ".join(map(tensor, side)) for side in (rule.operands, rule.results))
    sizes = (
        f"{names[number]} = {rule.factors[number].size}"
        + (f" ({_KINDS[kind]})" if (kind := rule.factors[number].kind) in _KINDS else "")
        for number in numbers
    )
    return f"{' → '.join(sides)}; {', '.join(sizes)}".rstrip("; ")
