"""What tensors take under a memory limit when they are brought to their readers as soon as they are made.

A tensor lies where it is made while that runs, then where its bundle has it as long as somebody reads it there, and from then on
where a relay, or the only heavy operator that reads it, wants it. Arguments and results stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sporax.ir.graph import LITERAL
from sporax.ir.placement import Placement
from sporax.planner.cost.model import local_bytes
from sporax.planner.memory.peak import lives
from sporax.planner.search.problem import Problem

Piece = tuple[int, int]
"""First tick at which something is there, and the one after the last; operator n runs in ticks 2n + 1 and 2n + 2."""


def brought(problem: Problem) -> Sequence[Mapping[Piece, Sequence[int]]]:
    """For every decision, when its tensors are there and how many bytes they take, per candidate."""
    if "brought" not in problem.remembered:
        problem.remembered["brought"] = _Teller(problem).run()
    known: Sequence[Mapping[Piece, Sequence[int]]] = problem.remembered["brought"]
    return known


class _Teller:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.graph, self.bundles = problem, problem.graph, problem.bundles
        self.pieces: tuple[dict[Piece, list[int]], ...] = tuple({} for _ in problem.choices)
        self.spans: dict[int, Piece] = {}
        """For every tensor that is written out, its first tick and its last."""
        for life in lives(self.graph):
            tensor = self.bundles.origin[life.tensor]
            begin, end = self.spans.get(tensor, (life.begin + 1, life.end + 1))
            self.spans[tensor] = min(begin, life.begin + 1), max(end, life.end + 1)
        self.kept = {self.bundles.origin[each] for each in self.graph.outputs if each != LITERAL}
        self.kept |= {each.tensor for each in self.graph.inputs}
        self.times = self._times()

    def run(self) -> tuple[dict[Piece, list[int]], ...]:
        for tensor, (begin, end) in self.spans.items():
            home = self.bundles.node_of[tensor]
            if self.bundles.nodes[home].root == tensor:
                begin = self._made(tensor, home, begin)
            self._held(tensor, home, begin, end)
        return self.pieces

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
