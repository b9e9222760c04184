"""The moves that redistribute a tensor from one placement to another, and their cost.

A move changes the dimension of one axis, or of several axes together:

    slice           a repeated axis starts to shard a dimension: every rank keeps its slice. No communication.
    all-gather      an axis stops sharding a dimension
    all-to-all      an axis shards another dimension instead
    reduce-scatter  partial sums are reduced, and the axis then shards a dimension; where devices have no such
                    collective that can be trusted, an all-to-all trades the parts and each device adds its own
    all-reduce      partial sums are reduced on every rank
    permute         ranks exchange whole slices: axes change positions, the shape of slices stays
    mask            the reverse of all-reduce: all ranks but one replace their copy by the neutral element

`sporax.planner.communication.resharding` finds the sequence of moves of least cost. The cost of a move is the alpha-beta
model of ring collectives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from sporax.ir.placement import Axes, Placement

Shape = tuple[int, ...]

NATIVE_REDUCTIONS = ("sum", "max", "min")
"""Reductions that collectives perform themselves; for all others slices are gathered and combined on every rank."""


class MoveKind(Enum):
    """What a move does; the module's docstring explains each."""

    SLICE = "slice"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    PERMUTE = "permute"
    MASK = "mask"


def _reductions(kind: str) -> dict[str, tuple[MoveKind, str]]:
    return dict.fromkeys((f"p{kind}", f"unreduced_p{kind}"), (MoveKind.ALL_REDUCE, kind))


COLLECTIVES: Mapping[str, tuple[MoveKind, str]] = {
    **_reductions("sum"),
    **_reductions("max"),
    **_reductions("min"),
    # A broadcast is the sum of one device's array and the zeros of the others.
    **dict.fromkeys(("psum_invariant", "pbroadcast", "pbroadcast_dynamic"), (MoveKind.ALL_REDUCE, "sum")),
    **dict.fromkeys(("all_gather", "all_gather_invariant", "all_gather_reduced"), (MoveKind.ALL_GATHER, "sum")),
    **dict.fromkeys(("reduce_scatter", "unreduced_reduce_scatter"), (MoveKind.REDUCE_SCATTER, "sum")),
    **dict.fromkeys(("all_to_all", "ragged_all_to_all"), (MoveKind.ALL_TO_ALL, "sum")),
    "ppermute": (MoveKind.PERMUTE, "sum"),
}
"""Collectives of JAX, and the moves that cost as much, with how they reduce."""


def named_axes(params: Mapping[str, object]) -> tuple[str, ...]:
    """The axes that a collective names."""
    names = params.get("axes", params.get("axis_name", ()))
    return tuple(name for name in (names if isinstance(names, tuple | list) else (names,)) if isinstance(name, str))


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a redistribution. Dimensions are those of the factored shape.

    Attributes:
        kind: what is done.
        axes: the mesh axes that take part, the first one counting the largest steps.
        source: the dimension that `axes` stop sharding; -1 when they did not shard any.
        target: the dimension that `axes` start to shard; -1 when they do not shard any then.
        reduction: how partial values combine.
        pairs: for permute, (sender, receiver) places along `axes`.
        native: whether a reduce-scatter of sums is one collective on these devices (`LinkCosts.has_reduce_scatter`).
        local_bytes: bytes of one rank's slice before the move.
        seconds: predicted time.
    """

    kind: MoveKind
    axes: Axes
    source: int = -1
    target: int = -1
    reduction: str = ""
    pairs: tuple[tuple[int, int], ...] = ()
    local_bytes: int = 0
    seconds: float = 0.0
    native: bool = True

    def __str__(self) -> str:
        axes = "·".join(map(str, self.axes))
        arrow = f", {self.source}→{self.target}" if self.source >= 0 and self.target >= 0 else ""
        dim = f", dim {max(self.source, self.target)}" if not arrow and max(self.source, self.target) >= 0 else ""
        by = "" if self.native else f" by {self.collective}"
        return f"{self.kind.value}({axes}{arrow}{dim}{', ' + self.reduction if self.reduction else ''}{by})"

    @property
    def trades_parts(self) -> bool:
        """Whether it is a reduce-scatter made of an all-to-all of the parts and a local combination."""
        # Only sums can be scattered by one collective.
        return self.kind is MoveKind.REDUCE_SCATTER and not (self.native and self.reduction == "sum")

    @property
    def collective(self) -> str:
        """The collective that a compiled program has for it; "" when ranks do not communicate."""
        if self.kind in (MoveKind.SLICE, MoveKind.MASK):
            return ""
        # The collective that a program really has: reductions without a native collective are made of gathers.
        if self.kind is MoveKind.ALL_REDUCE and self.reduction not in NATIVE_REDUCTIONS:
            return "all_gather"
        return "all_to_all" if self.trades_parts else str(self.kind.value)

    def sent_bytes(self, members: int) -> int:
        """Bytes that one of `members` ranks sends, in rings, as in `LinkCosts`: each member sends what it passes on."""
        if self.kind is MoveKind.PERMUTE:
            return self.local_bytes
        if self.collective == "all_gather":
            return self.local_bytes * (members - 1)
        share = self.local_bytes * (members - 1) // members
        if self.collective == "all_reduce":
            return 2 * share
        return share if self.collective else 0


@dataclass(frozen=True, slots=True)
class LinkCosts:
    """What communication costs along the axes of a mesh.

    Attributes:
        alpha_seconds: latency of one step to a neighbour.
        beta_seconds_per_byte: time per byte, the inverse of the bandwidth of a rank.
        launch_seconds: fixed time of every collective, whatever its size.
        copy_seconds_per_byte: time per byte of a local copy.
        axis_alpha, axis_beta: the first two per mesh axis, where axes differ; () where they do not.
        axis_rings: per mesh axis over how many rings of a torus its link can send at the same time; () for one.
        merged: collectives of which the compiler makes one out of several that do not need each other, and the bytes of its
            result at most.
        sharing: how many tensors share what starts take, where they are merged.
        has_reduce_scatter: whether sums are reduced and scattered by one collective; without it an all-to-all trades the parts.
    """

    alpha_seconds: float = 1e-6
    beta_seconds_per_byte: float = 2e-11
    launch_seconds: float = 5e-6
    copy_seconds_per_byte: float = 1e-13
    axis_alpha: tuple[float, ...] = ()
    axis_beta: tuple[float, ...] = ()
    axis_rings: tuple[int, ...] = ()
    merged: tuple[tuple[str, float], ...] = ()
    sharing: int = 1
    has_reduce_scatter: bool = True

    def shared_by(self, count: int) -> LinkCosts:
        """What one of `count` tensors pays whose collectives are merged: all its bytes, and of every start a share."""
        return replace(self, sharing=count) if self.merged and count != self.sharing else self

    def seconds(self, kind: MoveKind, reduction: str, axes: Axes, sizes: Sequence[int], local_bytes: float) -> float:
        """Seconds of a move of slices of `local_bytes` along axes of these sizes; `reduction` of what is combined."""
        if kind is MoveKind.ALL_GATHER:
            return self.gather(axes, sizes, local_bytes)
        if kind is MoveKind.ALL_TO_ALL or (kind is MoveKind.REDUCE_SCATTER and reduction != "sum"):
            return self.all_to_all(axes, sizes, local_bytes)
        if kind is MoveKind.REDUCE_SCATTER:
            return self.reduce_scatter(axes, sizes, local_bytes)
        if kind is MoveKind.ALL_REDUCE and reduction in NATIVE_REDUCTIONS:
            return self.all_reduce(axes, sizes, local_bytes)
        if kind is MoveKind.ALL_REDUCE:
            return self.gather(axes, sizes, local_bytes)
        if kind is MoveKind.PERMUTE:
            return self.permute(axes, sizes, local_bytes)
        return self.slice(sizes, local_bytes) if kind is MoveKind.SLICE else self.copy(local_bytes)

    def gather(self, axes: Axes, sizes: Sequence[int], local_bytes: float) -> float:
        """Seconds to gather slices of `local_bytes` over axes."""
        return self._ring(axes, sizes, local_bytes, self._share("all_gather", local_bytes * math.prod(sizes)))

    def reduce_scatter(self, axes: Axes, sizes: Sequence[int], local_bytes: float) -> float:
        """Seconds to combine tensors of `local_bytes` and leave every rank its part: a gather run backwards."""
        # Along equal links an all-to-all of the parts takes as long. One formula for both, since two would round in two ways,
        # and tensors that share a buffer must all prefer the same of two equal ways.
        if not self.has_reduce_scatter and len({(self._alpha(axis), self._beta(axis)) for axis in axes}) > 1:
            return self.all_to_all(axes, sizes, local_bytes)
        # A ring's time depends on the slice that goes round, which is a part of the whole for a reduce-scatter.
        part = local_bytes / math.prod(sizes)
        share = self._share("reduce_scatter", part) if self.has_reduce_scatter else 1.0
        return self._ring(axes, sizes, part, share)

    def all_reduce(self, axes: Axes, sizes: Sequence[int], local_bytes: float) -> float:
        """Seconds to combine tensors of `local_bytes`: a reduce-scatter and an all-gather in one launch."""
        # The start is counted once: both halves are one launch.
        share = self._share("all_reduce", local_bytes)
        return 2 * self._ring(axes, sizes, local_bytes / math.prod(sizes), share) - share * self.launch_seconds

    def all_to_all(self, axes: Axes, sizes: Sequence[int], local_bytes: float) -> float:
        """Seconds to trade all parts but one's own of slices of `local_bytes`."""
        members, inside, seconds = math.prod(sizes), 1, 0.0
        steps = sum((size - 1) * self._alpha(axis) for axis, size in zip(axes, sizes, strict=True))
        # What leaves a group of near devices crosses the next link; all links work at the same time.
        for beta, size, rings in self._levels(axes, sizes):
            seconds = max(seconds, beta / rings * local_bytes * (members - inside) / members)
            inside *= size
        return self.launch_seconds + steps + seconds

    def permute(self, axes: Axes, sizes: Sequence[int], local_bytes: float) -> float:
        """Seconds to send a whole slice to another rank."""
        # The partner is one step away along any of the axes, so the worst of them counts.
        alpha, beta = max(map(self._alpha, axes)), max(map(self._beta, axes))
        return self.launch_seconds + alpha + beta * local_bytes

    def slice(self, sizes: Sequence[int], local_bytes: float) -> float:
        """Seconds to copy one part out of a slice of `local_bytes`."""
        return self.copy(local_bytes / math.prod(sizes))

    def copy(self, local_bytes: float) -> float:
        """Seconds to copy a slice; never nothing, so that of equal paths the shorter one wins."""
        return 1e-9 + self.copy_seconds_per_byte * local_bytes

    def _ring(self, axes: Axes, sizes: Sequence[int], local_bytes: float, share: float) -> float:
        """Seconds of a gather of which a share of the start is paid: rings that pass all links at the same time.

        A group with several members behind one slow link has the rate of all their network cards together: each byte crosses that
        link once, through any of them.
        """
        seconds = share * self.launch_seconds
        seconds += share * sum((size - 1) * self._alpha(axis) for axis, size in zip(axes, sizes, strict=True))
        inside, slowest = 1, 0.0
        for beta, size, rings in self._levels(axes, sizes):
            slowest = max(slowest, beta / (inside * rings))
            inside *= size
        return seconds + slowest * local_bytes * (inside - 1)

    def _levels(self, axes: Axes, sizes: Sequence[int]) -> list[tuple[float, int, int]]:
        """Links of a group, the fastest first: time per byte, members that it joins, and rings that it has for them."""
        levels: dict[float, tuple[int, int, int]] = {}
        for axis, size in zip(axes, sizes, strict=True):
            members, count, _ = levels.get(self._beta(axis), (1, 0, 1))
            levels[self._beta(axis)] = members * size, count + 1, self.axis_rings[axis] if self.axis_rings else 1
        return [(beta, members, min(count, rings)) for beta, (members, count, rings) in sorted(levels.items())]

    def _share(self, collective: str, result_bytes: float) -> float:
        """What share of its start a collective pays; what fills a merged one pays all of it."""
        if self.sharing > 1:
            for name, most in self.merged:
                if name == collective:
                    # The bytes that fill a merged collective pay its start alone; smaller ones share it.
                    return min(1.0, max(1.0 / self.sharing, result_bytes / most))
        return 1.0

    def _alpha(self, axis: int) -> float:
        return self.axis_alpha[axis] if self.axis_alpha else self.alpha_seconds

    def _beta(self, axis: int) -> float:
        return self.axis_beta[axis] if self.axis_beta else self.beta_seconds_per_byte


DEFAULT_COSTS = LinkCosts()
"""What decides between ways where a plan is carried out, whatever its search knows of the hardware."""
_DEFAULT_COSTS_WITHOUT = replace(DEFAULT_COSTS, has_reduce_scatter=False)


def default_costs(has_reduce_scatter: bool) -> LinkCosts:
    """`DEFAULT_COSTS` of devices with or without a reduce-scatter."""
    return DEFAULT_COSTS if has_reduce_scatter else _DEFAULT_COSTS_WITHOUT


@dataclass(frozen=True, slots=True)
class Redistribution:
    """A planned way from one placement to another.

    Attributes:
        source, target: the placements.
        local_target: shape of one rank's slice afterwards.
        factored: the local shape that the moves start from, with dimensions split.
        moves: what to do, in order.
        seconds: predicted time of all moves.
    """

    source: Placement
    target: Placement
    local_target: Shape
    factored: Shape
    moves: tuple[Move, ...]
    seconds: float

    def __str__(self) -> str:
        return f"{self.source} → {self.target}: {'; '.join(map(str, self.moves)) or 'nothing to do'}"
