"""The tensors between operators, the bytes that are communicated along them, and equal layers as one.

A step of the facade has one box per operator that the user wrote, in each phase. In plain JAX, where no operators are
marked, every heavy operator is a box, and the light operators that follow it belong to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sporax.base.text_tables import cost_text, size_text
from sporax.ir.graph import OperatorGraph
from sporax.ir.plan import Plan
from sporax.planner.communication.transfers import Transfer, TransferGroup, schedule
from sporax.planner.search.space.operator_rules import is_identity
from sporax.report.view.folding import equal_rows
from sporax.report.view.operator_groups import OperatorGroup
from sporax.report.view.plan_view import Arrow, OperatorRow
from sporax.report.view.tables import collective_texts


def arrows_of(graph: OperatorGraph, plan: Plan, groups: Sequence[OperatorGroup]) -> tuple[tuple[Arrow, ...], list[int]]:
    """The tensors between groups, and for each group the bytes that are sent on no arrow.

    What is moved inside of loops and branches is reported in the rows of their groups and is on no arrow.
    """
    lines = _Lines(graph, groups)
    loose = [0] * len(groups)
    moved: dict[tuple[int, int], dict[str, int]] = {}
    for number, transfer in _transfers(graph, plan):
        ends = lines.ends(transfer.tensor, number if transfer.resharding is None else -1)
        box = next((end for end in reversed(ends) if end >= 0), -1)
        for move in transfer.redistribution.moves:
            if move.collective and ends in lines.num_tensors:
                sent = moved.setdefault(ends, {})
                sent[move.collective] = sent.get(move.collective, 0) + move.local_bytes
            elif move.collective and box >= 0:
                loose[box] += move.local_bytes
    return tuple(Arrow(*ends, count, moved.get(ends, {})) for ends, count in lines.num_tensors.items()), loose


def folded_graph(
    rows: Sequence[OperatorRow], arrows: Sequence[Arrow], unit: str
) -> tuple[tuple[OperatorRow, ...], tuple[Arrow, ...]]:
    """Operators and arrows with those of layers that are sharded equally as one, with the figures of one.

    An operator is where the first of its kind runs, at the path of the one with the least number. An arrow to the next layer
    comes back to the operator that stands for it.
    """
    groups = equal_rows([_printed_cells(row, unit) for row in rows])
    place = {member: number for number, (members, _) in enumerate(groups) for member in members}
    remaining = []
    for members, name in groups:
        # The members differ in their layer alone, so the figures of the first stand for all.
        first = rows[min(members, key=lambda member: [int(n) for n in re.findall(r"\d+", rows[member].path)])]
        paths = re.sub(r"\s*\(\d+\s×\)$", "", name) if len(members) > 1 else ""
        remaining.append(replace(first, times=len(members), paths=paths))
    folded: dict[tuple[int, int], Arrow] = {}
    for arrow in arrows:
        source, target = place[arrow.source], place[arrow.target]
        before = folded.get((source, target))
        if before is not None:
            most = max(before, arrow, key=lambda entry: entry.moved_bytes)
            folded[source, target] = replace(before, moved=most.moved, times=before.times + 1)
        elif source != target:
            folded[source, target] = replace(arrow, source=source, target=target)
    return tuple(remaining), tuple(folded.values())


def _printed_cells(row: OperatorRow, unit: str) -> tuple[str, ...]:
    """What is reported of an operator; its path comes first."""
    return (
        row.path,
        row.name,
        row.phase,
        " ".join((*row.inputs, "→", *row.results)),
        "; ".join(collective_texts(row)),
        cost_text(row.seconds, unit),
        size_text(row.moved_bytes),
    )


class _Lines:
    """Which boxes a tensor joins. A tensor that passes a mark has another number behind it."""

    def __init__(self, graph: OperatorGraph, groups: Sequence[OperatorGroup]) -> None:
        self.graph = graph
        self.box = {number: box for box, group in enumerate(groups) for number in group.operators}
        self.maker = {tensor: number for number, operator in enumerate(graph.operators) for tensor in operator.results}
        self.readers = graph.consumers()
        self.num_tensors: Counter[tuple[int, int]] = Counter()
        for tensor, numbers in self.readers.items():
            # -1 for an input of the step and for an operator in no box: no arrow starts there.
            source = self.box.get(self.maker.get(tensor, -1), -1)
            targets = {self.box[number] for number in numbers if number in self.box} - {source}
            for target in sorted(targets) if source >= 0 else ():
                self.num_tensors[source, target] += 1

    def ends(self, tensor: int, reader: int) -> tuple[int, int]:
        """The boxes between which a tensor is moved, for one reader or, with -1, for all; -1 stands for no box.

        What is moved inside of a box comes to it from outside, or is what the box hands on.
        """
        source = self.box.get(self.maker.get(tensor, -1), -1)
        target = self.box.get(reader, -1)
        if source >= 0 and target in (source, -1):
            before = self._before(tensor, source)
            if self.box.get(self.maker.get(before, -1), -1) != source:
                return self.box.get(self.maker.get(before, -1), -1), source
        if target in (source, -1):
            target = self._after(tensor, source)
        return source, target

    def _before(self, tensor: int, box: int) -> int:
        """What a tensor was called before it passed marks at the entrance of a box."""
        while True:
            number = self.maker.get(tensor, -1)
            if self.box.get(number) != box or not is_identity(self.graph.operators[number]):
                return tensor
            operator = self.graph.operators[number]
            tensor = operator.operands[operator.results.index(tensor)]

    def _after(self, tensor: int, box: int) -> int:
        """The first box to which a tensor goes from this one, through marks at its exit; -1 for none."""
        waiting = [tensor]
        for other_tensor in waiting:
            for number in self.readers.get(other_tensor, ()):
                if self.box.get(number, box) != box:
                    return self.box[number]
                operator = self.graph.operators[number]
                if is_identity(operator):
                    waiting.append(operator.results[operator.operands.index(other_tensor)])
        return -1


def _transfers(graph: OperatorGraph, plan: Plan) -> Iterable[tuple[int, Transfer]]:
    """Every transfer with the operator at which it happens; -1 at the start and at the end."""
    moved = schedule(graph, plan)
    positions: list[tuple[int, Sequence[TransferGroup]]] = [(-1, moved.at_start), (-1, moved.at_end)]
    positions += [(n, (*moved.before[n], *moved.after[n])) for n in range(len(graph.operators))]
    for number, transfer_groups in positions:
        for transfer_group in transfer_groups:
            for transfer in transfer_group:
                yield number, transfer
