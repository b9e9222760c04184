"""What tensors take under a memory limit, told so that the solver can price it: when they are there, and where.

A tensor lies where its bundle has it from when it is made to when it is last read there. Copies of it lie elsewhere: where a
relay brings it, where a heavy operator wants it, and where it is made if that is not where the bundle has it. A copy is there
only if its two places differ, so it depends on two decisions, and gets a node of its own that is tied to both.

All this is less than what a finished plan takes (`sporax.planner.memory`): room between arrays, arrays that are rearranged
within a kernel, reductions that wait for each other, and copies that are made long before they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sporax.ir.graph import LITERAL
from sporax.ir.placement import Placement
from sporax.planner.cost.model import local_bytes
from sporax.planner.memory import lives
from sporax.planner.search.moving import Floats
from sporax.planner.search.problem import Problem

Piece = tuple[int, int]
"""First tick at which something is there, and the one after the last; operator n runs in ticks 2n + 1 and 2n + 2."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A tensor that may be at two places at a time.

    Attributes:
        first, second: decisions on these places.
        span: when.
        sizes: [states] bytes of the copy: 0 where it is none.
        tables: [candidates, states] of each decision: 0 where they agree, else infinite.
    """

    first: int
    second: int
    span: Piece
    sizes: tuple[int, ...]
    tables: tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a problem's tensors take.

    Attributes:
        pieces: for every decision, when its tensors are there and how many bytes they take, per candidate.
        copies: what depends on two decisions.
    """

    pieces: tuple[dict[Piece, list[int]], ...]
    copies: tuple[Copy, ...]


def usage_of(problem: Problem) -> Usage:
    """What the tensors of a problem take."""
    if "told" not in problem.remembered:
        problem.remembered["told"] = _Teller(problem).run()
    known: Usage = problem.remembered["told"]
    return known


class _Teller:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.graph, self.bundles = problem, problem.graph, problem.bundles
        self.pieces: tuple[dict[Piece, list[int]], ...] = tuple({} for _ in problem.choices)
        self.copies: list[Copy] = []
        self.spans: dict[int, Piece] = {}
        """For every tensor that is written out, its first tick and its last."""
        for life in lives(self.graph):
            tensor = self.bundles.origin[life.tensor]
            begin, end = self.spans.get(tensor, (life.begin + 1, life.end + 1))
            self.spans[tensor] = min(begin, life.begin + 1), max(end, life.end + 1)
        self.kept = {self.bundles.origin[each] for each in self.graph.outputs if each != LITERAL}
        self.kept |= {each.tensor for each in self.graph.inputs}
        self.times = self._times()

    def run(self) -> Usage:
        for tensor, (begin, end) in self.spans.items():
            home = self.bundles.node_of[tensor]
            if self.problem.bundles.nodes[home].root == tensor:
                begin = self._made(tensor, home, begin)
            self._held(tensor, home, begin, end)
        return Usage(self.pieces, tuple(self.copies))

    def _times(self) -> list[int]:
        """For every operator the last tick at which it runs: what is not written out is computed in those who read it."""
        times = [0] * len(self.graph.operators)
        for number in reversed(range(len(times))):
            operator = self.graph.operators[number]
            readers = [each for tensor in operator.results for each in self.bundles.readers.get(tensor, ())]
            written = [self.spans[tensor][0] for tensor in operator.results if tensor in self.spans]
            times[number] = max(written or [times[each] for each in readers], default=0)
        return times

    def _made(self, tensor: int, home: int, begin: int) -> int:
        """What a heavy operator makes is there as it is made, and then where it shall lie: from when on."""
        producer = self.bundles.nodes[home].producer
        maker = self.bundles.heavy.get(producer)
        if maker is None or tensor not in self.problem.choices[maker].lies:
            return begin
        places = self.problem.choices[maker].lies[tensor]
        self._lies(maker, tensor, places, (begin, begin + 1))
        self._copy(home, maker, tensor, places, (begin + 1, begin + 2))
        return begin + 1

    def _held(self, tensor: int, home: int, begin: int, end: int) -> None:
        """A tensor is where its bundle has it until it is last read there, and where it is brought to until the end."""
        heavy = [each for each in self.bundles.readers.get(tensor, ()) if each in self.bundles.heavy]
        direct = [self.times[each] for each in self.bundles.readers.get(tensor, ()) if each not in self.bundles.heavy]
        places = self.problem.choices[home].lies[tensor]
        reader = self.bundles.relays.get(tensor, self.bundles.heavy[heavy[0]] if len(heavy) == 1 else None)
        if reader is None:
            self._lies(home, tensor, places, (begin, end + 1))
            return
        stays = end if tensor in self.kept else min(max(direct, default=begin), end)
        last = min(max(self.times[each] for each in heavy), end)
        wanted = self._wanted(reader, tensor)
        self._lies(home, tensor, places, (begin, stays + 1))
        self._lies(reader, tensor, wanted, (stays + 1, last + 1))
        self._copy(home, reader, tensor, wanted, (begin, min(stays, last) + 1))

    def _wanted(self, reader: int, tensor: int) -> Sequence[Placement]:
        """Where a relay or a heavy operator has a tensor, per candidate."""
        choices = self.problem.choices[reader]
        if self.bundles.nodes[reader].is_relay:
            return choices.lies[tensor]
        return next(wanted for each, wanted in choices.wants if each == tensor)

    def _lies(self, node: int, tensor: int, places: Sequence[Placement], span: Piece) -> None:
        """A tensor is at one of these places."""
        if span[1] > span[0]:
            spec = self.graph.tensors[tensor]
            sizes = [local_bytes(spec, where, self.problem.mesh) for where in places]
            before = self.pieces[node].get(span, [0] * len(sizes))
            self.pieces[node][span] = [a + b for a, b in zip(before, sizes, strict=True)]

    def _copy(self, first: int, second: int, tensor: int, wanted: Sequence[Placement], span: Piece) -> None:
        """A tensor that lies where `first` has it is also where `second` wants it."""
        lies = self.problem.choices[first].lies[tensor]
        spec, places = self.graph.tensors[tensor], [*dict.fromkeys(wanted)]
        states = [(where, True) for where in places] + [(where, False) for where in places if where in set(lies)]
        sizes = tuple(local_bytes(spec, where, self.problem.mesh) * moved for where, moved in states)
        if span[1] > span[0] and len(states) > 1:
            agree = [[(where != there) == moved for where, moved in states] for there in lies]
            wants = [[where == there for where, _ in states] for there in wanted]
            tables = np.where(agree, 0.0, np.inf), np.where(wants, 0.0, np.inf)
            self.copies.append(Copy(first, second, span, sizes, tables))
