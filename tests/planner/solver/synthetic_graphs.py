"""Made-up cost graphs that look like real ones: a deep network's training step on a mesh of any number of axes.

Real auto-sharding graphs repeat a block per layer, forward and then backward; weights and their optimizer states live
throughout, an activation lives until its gradient has been computed, and the limit is 1.1 times the least peak. The
graphs made here share that, so that tests and benchmarks can be run on sizes and meshes for which no file is at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import numpy as np

from sporax.planner.solver.graph.cost_graph import CostGraph, Floats

_REPLICATED = -1
"""In place of a dim: the mesh axis shards none, every device along it holds a copy."""
_FORBIDDEN = 1e18
"""What contest files write for a forbidden pair."""


@dataclass(frozen=True, slots=True)
class _Layouts:
    """All ways to lay a tensor of `rank` dims on the mesh: per mesh axis the dim it shards, or -1."""

    mesh: tuple[int, ...]
    rank: int
    ways: tuple[tuple[int, ...], ...]

    def parts(self) -> Floats:
        """[ways] into how many slices each way divides the tensor."""
        counts = [[size if dim >= 0 else 1 for size, dim in zip(self.mesh, way, strict=True)] for way in self.ways]
        parts: Floats = np.prod(np.array(counts, dtype=np.float64), axis=1)
        return parts


@dataclass(slots=True)
class _Step:
    """A training step under construction."""

    mesh: tuple[int, ...]
    choices: int
    generator: np.random.Generator
    costs: list[list[float]] = field(default_factory=list)
    usages: list[list[int]] = field(default_factory=list)
    intervals: list[tuple[int, int]] = field(default_factory=list)
    edges: list[tuple[int, int, Floats]] = field(default_factory=list)
    layouts: list[_Layouts] = field(default_factory=list)
    volumes: list[float] = field(default_factory=list)
    _ways: dict[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    _roles: dict[tuple[int, int], Floats] = field(default_factory=dict)
    _tables: dict[tuple[int, int, float, bool], Floats] = field(default_factory=dict)

    def add(self, rank: int, volume: float, until: int | None, sources: list[int], *, role: int = 0) -> int:
        """Adds an operator whose result has `volume` elements and is live from now until `until` (None: one step).

        Operators of one `role` (0: none) have equal factors: each way of sharding them costs a multiple of the volume.
        """
        number = len(self.costs)
        layouts = _Layouts(self.mesh, rank, self._ways_of(rank))
        parts = layouts.parts()
        # Two ticks per operator: an operand may end in between, after its reader and before the next operator begins.
        begin = 2 * number
        self.costs.append(np.round(volume * self._communication(role, rank, len(parts))).tolist())
        self.usages.append(np.ceil(4 * volume / parts).astype(int).tolist())
        # Live beyond the next operator, its first reader, as results of real steps are.
        self.intervals.append((begin, begin + 3 if until is None else max(until, begin + 3)))
        self.layouts.append(layouts)
        self.volumes.append(volume)
        for source in sources:
            self.edges.append((source, number, self._resharding(source, number)))
        return number

    def _communication(self, role: int, rank: int, count: int) -> Floats:
        """[ways] elements moved per element of the result; the replicated way moves most."""
        if role == 0:
            return np.zeros(count)
        if (role, rank) not in self._roles:
            # Zero twice: many ways of sharding real operators communicate nothing.
            factors = self.generator.choice([0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0], count)
            factors[0] = 4.0
            self._roles[role, rank] = factors
        return self._roles[role, rank]

    def _ways_of(self, rank: int) -> tuple[tuple[int, ...], ...]:
        """The ways that operators of a rank offer: always the replicated one, at most `choices`."""
        if rank not in self._ways:
            # Without the first way, which is the replicated one and is offered in any case.
            ways = list(product(range(_REPLICATED, rank), repeat=len(self.mesh)))[1:]
            count = min(len(ways), self.choices - 1)
            picked = sorted(self.generator.choice(len(ways), count, replace=False).tolist())
            self._ways[rank] = ((_REPLICATED,) * len(self.mesh), *(ways[i] for i in picked))
        return self._ways[rank]

    def _resharding(self, source: int, target: int) -> Floats:
        """Cost of changing the layout: gathers and all-to-alls of the moved axes; two axes at once are forbidden."""
        first, second = self.layouts[source], self.layouts[target]
        volume, same = self.volumes[source], first.rank == second.rank
        key = (first.rank, second.rank, volume, same)
        if key not in self._tables:
            table = np.zeros((len(first.ways), len(second.ways)))
            for i, before in enumerate(first.ways):
                for j, after in enumerate(second.ways):
                    table[i, j] = self._moves(before, after, volume)
            self._tables[key] = table
        return self._tables[key]

    def _moves(self, before: tuple[int, ...], after: tuple[int, ...], volume: float) -> float:
        moved = [axis for axis, (b, a) in enumerate(zip(before, after, strict=True)) if b != a and b != _REPLICATED]
        # A move of one axis between dims is one all-to-all; several at once are no single collective.
        if len(moved) > 1 and any(after[axis] != _REPLICATED for axis in moved):
            return _FORBIDDEN
        total = 0.0
        for axis in moved:
            size = self.mesh[axis]
            share = 1.0 if after[axis] == _REPLICATED else 1.0 / size
            # Ring algorithms send (size - 1) / size of the bytes; inner axes (later ones) have faster links.
            total += 4 * volume * share * (size - 1) / size / (1 + axis)
        return float(round(total))


def training_step(
    *, layers: int = 8, mesh: tuple[int, ...] = (2, 4, 4), choices: int = 29, width: int = 64, seed: int = 0
) -> CostGraph:
    """A made-up training step of `layers` blocks with attention-like and feed-forward parts.

    Args:
        layers: number of repeated blocks; a block makes about 30 nodes.
        mesh: sizes of the mesh axes.
        choices: most strategies that a node offers.
        width: scale of the tensors.
        seed: seed of the search space of layouts.
    """
    step = _Step(mesh, choices, np.random.default_rng(seed))
    # Later than any operator: two ticks per node, about 30 nodes per layer, and room for the ends.
    end = 2 * layers * 30 + 200
    hidden, square = float(64 * width), float(width * width)
    weights = [[step.add(2, square * (4 if part > 1 else 1), end, []) for part in range(4)] for _ in range(layers)]
    states = [[step.add(2, step.volumes[w], end, [w]) for w in row] for row in weights]
    flow, stored = step.add(3, hidden, None, []), []
    for layer in range(layers):
        saved = [flow]
        for part in range(4):
            inner = hidden * (4 if part == 2 else 1)
            # Activations are live until the backward pass comes by: early layers longest.
            flow = step.add(3, inner, end - 30 * layer, [flow, weights[layer][part]], role=1 + part)
            flow = step.add(3, inner, None, [flow])
            saved.append(flow)
        flow = step.add(3, hidden, None, [flow, saved[0]])
        stored.append(saved)
    for layer in reversed(range(layers)):
        for part in reversed(range(4)):
            source = stored[layer][part]
            gradient = step.add(2, step.volumes[weights[layer][part]], None, [flow, source], role=5 + part)
            step.add(2, step.volumes[weights[layer][part]], None, [gradient, states[layer][part]])
            flow = step.add(3, hidden, None, [flow, weights[layer][part]], role=9 + part)
            flow = step.add(3, hidden, None, [flow, source])
    graph = CostGraph.build(step.costs, step.usages, step.intervals, step.edges, None, f"step{mesh}x{layers}")
    return _with_limit(graph, 1.1)


def _with_limit(graph: CostGraph, factor: float) -> CostGraph:
    """The same graph, with `factor` times the peak of least usages as its limit."""
    least = np.minimum.reduceat(graph.usages, graph.offsets[:-1])
    change = np.zeros(graph.intervals.max() + 1, np.int64)
    np.add.at(change, graph.intervals[:, 0], least)
    np.subtract.at(change, graph.intervals[:, 1], least)
    limit = int(factor * np.cumsum(change).max())
    return CostGraph(
        graph.offsets,
        graph.costs,
        graph.usages,
        graph.intervals,
        graph.edges,
        graph.edge_tables,
        graph.tables,
        limit,
        graph.name,
    )
