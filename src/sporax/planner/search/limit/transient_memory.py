"""Memory of tensors for a solver, second model: tensors are resharded to their readers as soon as they are produced.

A tensor has the placement of its producer while that runs, then the placement of its bundle until its last reader
there, and from then on the placement that a relay or its only heavy reader needs. Arguments and results keep their
placement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sporax.ir.graph import LITERAL
from sporax.ir.placement import Placement
from sporax.planner.cost.model import local_bytes
from sporax.planner.memory.peak import live_ranges
from sporax.planner.search.space.problem import Problem

TickSpan = tuple[int, int]
"""First tick at which something exists, and the tick after its last; operator n runs in ticks 2n + 1 and 2n + 2."""


def transient_usage(problem: Problem) -> Sequence[Mapping[TickSpan, Sequence[int]]]:
    """For every decision, when its tensors are live and how many bytes they take, per candidate."""
    if "brought" not in problem.cache:
        problem.cache["brought"] = _TransientMemory(problem).run()
    cached: Sequence[Mapping[TickSpan, Sequence[int]]] = problem.cache["brought"]
    return cached


class _TransientMemory:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.graph, self.decisions = problem, problem.graph, problem.decisions
        self.pieces: tuple[dict[TickSpan, list[int]], ...] = tuple({} for _ in problem.choices)
        self.spans: dict[int, TickSpan] = {}
        """For every tensor that is written out, its first tick and its last."""
        for life in live_ranges(self.graph):
            tensor = self.decisions.origin[life.tensor]
            begin, end = self.spans.get(tensor, (life.begin + 1, life.end + 1))
            # Several tensors of a graph are one by origin: they live from the first begin to the last end.
            self.spans[tensor] = min(begin, life.begin + 1), max(end, life.end + 1)
        self.kept = {self.decisions.origin[output] for output in self.graph.outputs if output != LITERAL}
        self.kept |= {argument.tensor for argument in self.graph.inputs}
        self.times = self._times()

    def run(self) -> tuple[dict[TickSpan, list[int]], ...]:
        for tensor, (begin, end) in self.spans.items():
            decision = self.decisions.node_of[tensor]
            if self.decisions.nodes[decision].root == tensor:
                begin = self._while_produced(tensor, decision, begin)
            self._add_lifetime(tensor, decision, begin, end)
        return self.pieces

    def _times(self) -> list[int]:
        """For every operator the last tick at which it runs: what is not written out is computed in those who read it."""
        # Backwards, since a fused operator runs when its readers do.
        times = [0] * len(self.graph.operators)
        for number in reversed(range(len(times))):
            operator = self.graph.operators[number]
            readers = [reader for tensor in operator.results for reader in self.decisions.readers.get(tensor, ())]
            first_ticks = [self.spans[tensor][0] for tensor in operator.results if tensor in self.spans]
            times[number] = max(first_ticks or [times[reader] for reader in readers], default=0)
        return times

    def _while_produced(self, tensor: int, decision: int, begin: int) -> int:
        """What a heavy operator makes is there as it is made, and then where it should be: from when on."""
        producer = self.decisions.nodes[decision].producer
        maker = self.decisions.heavy.get(producer)
        if maker is None or tensor not in self.problem.choices[maker].tensor_placements:
            return begin
        places = self.problem.choices[maker].tensor_placements[tensor]
        # A tick at the producer's placement, before it is resharded to the bundle's.
        self._add(maker, tensor, places, (begin, begin + 1))
        return begin + 1

    def _add_lifetime(self, tensor: int, decision: int, begin: int, end: int) -> None:
        """A tensor is where its bundle has it until it is last read there, and then where it is resharded to until the end."""
        heavy = [reader for reader in self.decisions.readers.get(tensor, ()) if reader in self.decisions.heavy]
        direct = [
            self.times[reader]
            for reader in self.decisions.readers.get(tensor, ())
            if reader not in self.decisions.heavy
        ]
        places = self.problem.choices[decision].tensor_placements[tensor]
        # A relay's placement, or that of the only heavy reader; with several heavy readers and no relay, the bundle's
        # stays.
        reader = self.decisions.relays.get(tensor, self.decisions.heavy[heavy[0]] if len(heavy) == 1 else None)
        if reader is None:
            self._add(decision, tensor, places, (begin, end + 1))
            return
        # Arguments and results must be there to the end, however early they are read last.
        stays = end if tensor in self.kept else min(max(direct, default=begin), end)
        last = min(max(self.times[entry] for entry in heavy), end)
        required = self._required_placements(reader, tensor)
        self._add(decision, tensor, places, (begin, stays + 1))
        self._add(reader, tensor, required, (stays + 1, last + 1))

    def _required_placements(self, reader: int, tensor: int) -> Sequence[Placement]:
        """Where a relay or a heavy operator has a tensor, per candidate."""
        choices = self.problem.choices[reader]
        if self.decisions.nodes[reader].is_relay:
            return choices.tensor_placements[tensor]
        return next(places for read, places in choices.wants if read == tensor)

    def _add(self, node: int, tensor: int, places: Sequence[Placement], span: TickSpan) -> None:
        """A tensor is at one of these places."""
        # An empty span means that the next placement takes over at once.
        if span[1] > span[0]:
            spec = self.graph.tensors[tensor]
            sizes = [local_bytes(spec, where, self.problem.mesh) for where in places]
            before = self.pieces[node].get(span, [0] * len(sizes))
            self.pieces[node][span] = [a + b for a, b in zip(before, sizes, strict=True)]
