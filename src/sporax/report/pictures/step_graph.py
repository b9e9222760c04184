"""The data of the operator picture: boxes for operators, arrows for tensors, and the bytes that are communicated along them.

A step of the facade has one box per operator that the user wrote, in each phase. In plain JAX, where no operators are
marked, every heavy operator is a box, and the light operators that follow it belong to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sporax.base.text_tables import cost_text, size_text
from sporax.ir.graph import OperatorGraph
from sporax.ir.plan import Plan
from sporax.planner.communication.transfers import Transfer, TransferGroup, schedule
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.cost.model import CostModel
from sporax.planner.cost.symbolic import unit_of
from sporax.planner.search.space.operator_rules import is_identity
from sporax.report.view.folding import alike
from sporax.report.view.operator_groups import OperatorGroup, operator_groups
from sporax.report.view.summarize import Summarizer
from sporax.report.view.summary import OperatorRow, collective_texts


@dataclass(frozen=True, slots=True)
class Box:
    """One operator of the picture.

    Attributes:
        row: what is known of it.
        seconds: predicted time, transfers that it asks for included.
        moved_bytes: what a rank brings into collectives on tensors without an arrow: those inside of it, and the step's
            inputs and results.
        unit: of the predicted time, where another model than one in seconds priced it.
        times: how many like it there are, in layers that are sharded equally; the figures are those of one.
        paths: of all of them; "" for one alone.
    """

    row: OperatorRow
    seconds: float
    moved_bytes: int
    unit: str = "s"
    times: int = 1
    paths: str = ""


@dataclass(slots=True)
class Arrow:
    """Tensors that go from one box to another.

    Attributes:
        num_tensors: how many.
        moved: bytes that a rank brings into collectives on them, by kind.
        times: how many like it there are, in layers that are sharded equally.
    """

    num_tensors: int = 0
    moved: dict[str, int] = field(default_factory=dict)
    times: int = 1

    @property
    def moved_bytes(self) -> int:
        """Of all kinds."""
        return sum(self.moved.values())


def boxes_of(
    graph: OperatorGraph, plan: Plan, model: CostModel
) -> tuple[tuple[Box, ...], Mapping[tuple[int, int], Arrow]]:
    """The boxes of a plan, in the order in which they run, and the arrows between them by their positions.

    What is moved inside of loops and branches is reported in the rows of their boxes and is on no arrow.
    """
    groups = operator_groups(graph, plan)
    cost = cost_of(graph, plan, model)
    arrows, loose = _arrows(graph, plan, groups)
    rows = Summarizer(graph, plan).rows(groups)
    boxes = [
        Box(
            row,
            sum(cost.operator_seconds[n] + cost.transfer_seconds[n] for n in group.operators),
            moved,
            unit_of(model),
        )
        for row, group, moved in zip(rows, groups, loose, strict=True)
    ]
    return tuple(boxes), arrows


def folded_boxes(
    boxes: Sequence[Box], arrows: Mapping[tuple[int, int], Arrow]
) -> tuple[tuple[Box, ...], dict[tuple[int, int], Arrow]]:
    """Boxes and arrows with those of layers that are sharded equally as one, with the figures of one.

    A box is where the first of its kind runs, at the path of the one with the least number. An arrow to the next layer comes
    back to the box that stands for it.
    """
    groups = alike([_shown_cells(box) for box in boxes])
    place = {member: number for number, (members, _) in enumerate(groups) for member in members}
    shown = []
    for members, name in groups:
        # The members differ in their layer alone, so the figures of the first stand for all.
        first = boxes[min(members, key=lambda member: [int(n) for n in re.findall(r"\d+", boxes[member].row.path)])]
        paths = re.sub(r"\s*\(\d+\s×\)$", "", name) if len(members) > 1 else ""
        shown.append(replace(first, times=len(members), paths=paths))
    folded_arrows: dict[tuple[int, int], Arrow] = {}
    for (source, target), arrow in arrows.items():
        pair = place[source], place[target]
        if pair in folded_arrows:
            folded_arrows[pair].times += 1
            folded_arrows[pair].moved = max(
                folded_arrows[pair].moved, arrow.moved, key=lambda moved: sum(moved.values())
            )
        elif pair[0] != pair[1]:
            folded_arrows[pair] = replace(arrow)
    return tuple(shown), folded_arrows


def _shown_cells(box: Box) -> tuple[str, ...]:
    """What is reported of a box; its path comes first."""
    row = box.row
    layouts = " ".join((*row.inputs, "→", *row.results))
    return (
        row.path,
        row.name,
        row.phase,
        layouts,
        "; ".join(collective_texts(row)),
        cost_text(box.seconds, box.unit),
        size_text(box.moved_bytes),
    )


def _arrows(
    graph: OperatorGraph, plan: Plan, groups: Sequence[OperatorGroup]
) -> tuple[dict[tuple[int, int], Arrow], list[int]]:
    """The arrows, and per box the bytes that travel on no arrow."""
    lines = _Lines(graph, groups)
    loose = [0] * len(groups)
    for number, transfer in _transfers(graph, plan):
        ends = lines.ends(transfer.tensor, number if transfer.resharding is None else -1)
        arrow = lines.arrows.get(ends)
        box = next((end for end in reversed(ends) if end >= 0), -1)
        for move in transfer.redistribution.moves:
            if move.collective and arrow is not None:
                arrow.moved[move.collective] = arrow.moved.get(move.collective, 0) + move.local_bytes
            elif move.collective and box >= 0:
                loose[box] += move.local_bytes
    return lines.arrows, loose


class _Lines:
    """Which boxes a tensor joins. A tensor that passes a mark has another number behind it."""

    def __init__(self, graph: OperatorGraph, groups: Sequence[OperatorGroup]) -> None:
        self.graph = graph
        self.box = {number: box for box, group in enumerate(groups) for number in group.operators}
        self.maker = {tensor: number for number, operator in enumerate(graph.operators) for tensor in operator.results}
        self.readers = graph.consumers()
        self.arrows: dict[tuple[int, int], Arrow] = {}
        for tensor, numbers in self.readers.items():
            # -1 for an input of the step and for an operator in no box: no arrow starts there.
            source = self.box.get(self.maker.get(tensor, -1), -1)
            targets = {self.box[number] for number in numbers if number in self.box} - {source}
            for target in sorted(targets) if source >= 0 else ():
                self.arrows.setdefault((source, target), Arrow()).num_tensors += 1

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
    places: list[tuple[int, Sequence[TransferGroup]]] = [(-1, moved.at_start), (-1, moved.at_end)]
    places += [(n, (*moved.before[n], *moved.after[n])) for n in range(len(graph.operators))]
    for number, transfer_groups in places:
        for transfer_group in transfer_groups:
            for transfer in transfer_group:
                yield number, transfer
