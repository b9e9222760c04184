"""Explanations as text: one table per operator, with the reasons in words."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sporax.planner.report.summary_text import Section, cost_text, page_width, size_text, table_lines
from sporax.planner.rules import Kind, Rule

if TYPE_CHECKING:
    from sporax.planner.report.explain import Alternative, Explanation, Trip

_TRIPS = 2
"""Of which a reason tells, the dearest first."""
_TOO_LITTLE = 1e-12
"""Seconds of which nobody needs to know."""
_KINDS = {Kind.REDUCE: "reduced", Kind.BLOCKED: "never cut", Kind.HALO: "a window", Kind.PERMUTE: "reversed"}


def alternatives_text(explanations: Sequence[Explanation]) -> str:
    """All of them, one below the other; layers that are cut alike are shown once, with the paths of all."""
    if not explanations:
        return ""
    legend = f"axes {explanations[0].axes.legend()}; * is the plan's way"
    return f"{legend}\n" + "\n\n".join(_one(each) for each in _alike(explanations))


def _alike(explanations: Sequence[Explanation]) -> Iterator[Sequence[Explanation]]:
    """Explanations that say the same of different layers, together."""
    groups: dict[object, list[Explanation]] = {}
    for each in explanations:
        ways = tuple((way.operands, way.results, f"{way.seconds:.6g}", way.chosen) for way in each.alternatives)
        what = re.sub(r"^#\d+ ", "", each.title)
        key: tuple[object, ...] = (re.sub(r"\.\d+\b", ".#", what), each.rule, ways)
        if any(re.sub(r"^#\d+ ", "", other.title) == what for other in groups.get(key, ())):
            key = (*key, each.operator)  # twice at one place: these are two
        groups.setdefault(key, []).append(each)
    yield from groups.values()


def _one(alike: Sequence[Explanation]) -> str:
    told = alike[0]
    rows = tuple(
        (
            "*" if each.chosen else "",
            cost_text(each.seconds, told.unit),
            told.axes.layouts(each.operands),
            told.axes.layouts(each.results),
            each.why_not(told.chosen, told.unit),
        )
        for each in told.alternatives
    )
    columns = ("", "in all", "operands", "results", "beside the chosen one")
    lines = [told.title, f"  {told.rule}"]
    if len(alike) > 1:
        others = ", ".join(f"#{each.operator}" for each in alike[1:])
        lines.insert(1, f"  and {len(alike) - 1} like it: {others}")
    table = table_lines(Section("", columns, rows, right=(1,)), page_width())
    return "\n".join([*lines, *table, *(f"  {note}" for note in told.notes)])


def difference_text(way: Alternative, chosen: Alternative, unit: str) -> str:
    """In which terms a way is dearer or cheaper than the chosen one, with what it sends; of the chosen one, what it sends."""
    if way.chosen:
        sent = ", ".join(filter(None, (_sent(way.fetches, "of"), _sent(way.deliveries, "for"))))
        return f"chosen{': ' if sent else ''}{sent}"
    pairs = {
        "computing": (way.operator_seconds - chosen.operator_seconds, _shared(way, chosen)),
        "operands": (way.fetch_seconds - chosen.fetch_seconds, _trips(way.fetches, chosen.fetches, "of")),
        "results": (way.deliver_seconds - chosen.deliver_seconds, _trips(way.deliveries, chosen.deliveries, "for")),
    }
    told = [
        f"{name} {_change(change, unit)}{why[change < 0]}"
        for name, (change, why) in pairs.items()
        if abs(change) > _TOO_LITTLE
    ]
    if way.lacking_bytes:
        told.insert(0, f"does not fit: {size_text(way.lacking_bytes)} of memory are lacking")
    return "; ".join(told) or "as good"


def _change(cost: float, unit: str) -> str:
    return f"{'+' if cost > 0 else '-'}{cost_text(abs(cost), unit)}"


def _shared(way: Alternative, chosen: Alternative) -> tuple[str, str]:
    """Why computing takes longer, or less."""
    told = f" (cut {way.parts} ways, not {chosen.parts})" if way.parts != chosen.parts else ""
    return told, told


def _trips(trips: Sequence[Trip], chosen: Sequence[Trip], word: str) -> tuple[str, str]:
    """Why tensors take longer to be brought, or less: what is sent besides, what is not."""
    more = _sent([each for each in trips if each not in chosen], word)
    less = _sent([each for each in chosen if each not in trips], word)
    return f" ({more or 'slices are copied'})", f" (saves {less})" if less else ""


def _sent(trips: Sequence[Trip], word: str) -> str:
    """``"all_gather 65.5 kB of layers.2"``, the dearest first."""
    sending = sorted((each for each in trips if each.moves), key=lambda each: -each.seconds)
    told = [f"{_moves(each.moves)} {word} {each.what}" for each in sending[:_TRIPS]]
    more = [f"{len(sending) - _TRIPS} more"] if len(sending) > _TRIPS else []
    return ", ".join((*told, *more))


def _moves(moves: Sequence[tuple[str, int]]) -> str:
    counts = Counter(moves)
    return " and ".join(
        f"{f'{count} × ' if count > 1 else ''}{kind} {size_text(size)}" for (kind, size), count in counts.items()
    )


def rule_text(rule: Rule) -> str:
    """What an operator does to dimensions: ``"A B, B C → A C; A = 32, B = 64 (reduced), C = 64"``."""
    if rule.opaque:
        return f"cannot be cut: {rule.opaque}"
    numbers = [number for number, factor in enumerate(rule.factors) if factor.kind is not Kind.PARTIAL]
    names = {number: _upper(place) for place, number in enumerate(numbers)}

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


def _upper(number: int) -> str:
    """A, B, …, Z, A1, …: capital, where axes of the mesh are small."""
    return string.ascii_uppercase[number % 26] + (str(number // 26) if number >= 26 else "")
