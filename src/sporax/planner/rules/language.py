"""The language of rules: what a primitive does to the dimensions of its operands, without JAX.

A *factor* is an index that runs through the primitive's computation: matrix multiplication has three,

    i k, k j -> i j        i and j are *mapped*, k is *reduced* by a sum

A rule lists the factors and says which of them index each dimension of each operand and result. Sharding a factor by mesh
axes shards every dimension it indexes, and from that everything else follows (`sporax.planner.rules.derive`).

Kinds of factors:

    map       every slice of the results needs only the same slice of the operands
    reduce    results do not have it: ranks compute parts of the results, to be combined by its reduction
    blocked   must stay whole
    halo      a window slides along it: neighbours exchange a border first
    permute   slices change places between ranks (reversal)
    partial   not an index: an axis "assigned" to it means that some operands arrive as parts and so do the results,
              which is what linear primitives allow

A dimension may be indexed by several factors, the major one first (a reshape splits and joins dimensions that way); the
slices must stay contiguous, so a minor factor can be sharded only after all factors before it are sharded completely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sporax.base.errors import For
from sporax.ir.operation import Operation, Shape
from sporax.ir.placement import Placement

DimFactors = tuple[tuple[int, ...], ...]
"""Per dimension of one tensor the numbers of the factors that index it, major first."""
MOVABLE = ("sum", "max", "min")
"""Reductions whose parts may be moved by primitives that only copy elements: collectives combine them natively."""
IDEMPOTENT = ("max", "min", "and", "or")
"""Reductions in which a value counts once, however many ranks have it."""


class FactorKind(Enum):
    """What sharding a factor means; the module's docstring explains each."""

    MAP = "map"
    REDUCE = "reduce"
    BLOCKED = "blocked"
    HALO = "halo"
    PERMUTE = "permute"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True)
class Border:
    """What a rank needs of its neighbours for one window dimension sharded into equal slices, and the padding that is left.

    Attributes:
        left, right: elements to fetch from the neighbour before and the one behind.
        pad_low, pad_high: padding of the slice with its borders, in dilated elements; negative crops.
    """

    left: int
    right: int
    pad_low: int
    pad_high: int


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides along a dimension of `size` elements and makes `num_outputs` results.

    Attributes:
        extent: window size, in elements of the window.
        stride, base_dilation, window_dilation, pad_low: as in XLA.
        exchanges: whether borders can be fetched; otherwise only shardings that need none are allowed.
    """

    size: int
    num_outputs: int
    extent: int
    stride: int = 1
    base_dilation: int = 1
    window_dilation: int = 1
    pad_low: int = 0
    exchanges: bool = True

    def border(self, parts: int) -> Border | None:
        """What a rank needs when the dimension is sharded into `parts` slices; None when that is not possible.

        All ranks run the same program, so slices must start at the same place relative to their windows: inputs and
        outputs advance in step, and a border reaches no farther than the next neighbour.
        """
        if self.size % parts or self.num_outputs % parts:
            return None
        # Slices would begin at different places relative to their windows.
        if self.size * self.base_dilation != self.num_outputs * self.stride:
            return None
        size, outputs = self.size // parts, self.num_outputs // parts
        dilation = self.base_dilation
        # Padding becomes elements of the neighbour, and the outermost ranks fill in zeros.
        left = max(0, math.ceil(self.pad_low / dilation))
        reach = (outputs - 1) * self.stride + (self.extent - 1) * self.window_dilation + 1 - self.pad_low
        # What the last window reads past the slice, in dilated elements.
        beyond = reach - ((size - 1) * dilation + 1)
        right = max(0, math.ceil(beyond / dilation))
        if left > size or right > size or ((left or right) and not self.exchanges):
            return None
        return Border(left, right, self.pad_low - left * dilation, beyond - right * dilation)


@dataclass(frozen=True, slots=True)
class Factor:
    """One index of a computation.

    Attributes:
        kind: what sharding it means.
        size: how many values it takes; the number of slices divides it. 0 for `FactorKind.PARTIAL`, which has no extent.
        reduction: how parts combine, for reduce and partial.
        operands, results: which tensors are parts, for partial.
        window: geometry, for halo.
        name: what messages call it.
    """

    kind: FactorKind
    size: int
    reduction: str = ""
    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    window: Window | None = None
    name: str = ""

    def allows(self, parts: int) -> bool:
        """Whether it can be sharded into `parts` slices."""
        if self.kind is FactorKind.PARTIAL:
            return True
        if self.kind is FactorKind.BLOCKED:
            return parts == 1
        if self.window is not None:
            return self.window.border(parts) is not None
        return self.size % parts == 0


Adapt = Callable[[Operation, tuple[Shape, ...], tuple[Shape, ...]], Mapping[str, Any]]
"""From the operation and the local shapes of operands and results: the parameters that differ in local execution."""


_DERIVED = ("parts_of_operands", "parts_of_results", "joined", "mixable")
"""Fields that `__post_init__` computes: computing them again for each assignment would dominate a search."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a primitive does to dimensions, for given shapes and parameters.

    Attributes:
        factors: all indices.
        operands, results: per tensor, per dimension, the factors that index it.
        recipe: how slices are computed; ``"plain"`` binds the primitive itself (`sporax.lowering.execute.local_equations` has
        the others). adapt: parameters that depend on shapes, for the slices; None when there are none.
        flops_per_point: work at each point of the index space spanned by `points`.
        points: the factors that span the index space; all factors when None.
        opaque: why nothing may be sharded; "" for a rule that says something.
        parts_of_operands, parts_of_results: per tensor the factors whose axes leave parts in it: partial ones, and for results
            reduced ones that do not index it. They follow from the others, as do the next two.
        joined: dimensions that several factors index.
        mixable: those of the lists of parts that could mix several reductions.
        placed: what was worked out of the rule so far: per assignment where operands and results are.
    """

    factors: tuple[Factor, ...]
    operands: tuple[DimFactors, ...]
    results: tuple[DimFactors, ...]
    recipe: str = "plain"
    adapt: Adapt | None = None
    flops_per_point: float = 1.0
    points: tuple[int, ...] | None = None
    opaque: str = ""
    parts_of_operands: DimFactors = field(init=False, repr=False, compare=False)
    parts_of_results: DimFactors = field(init=False, repr=False, compare=False)
    joined: DimFactors = field(init=False, repr=False, compare=False)
    mixable: DimFactors = field(init=False, repr=False, compare=False)
    placed: dict[DimFactors, tuple[tuple[Placement, ...], tuple[Placement, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        of_operands = tuple(map(self._parts_of_operand, range(len(self.operands))))
        of_results = tuple(map(self._parts_of_result, range(len(self.results))))
        joined = tuple(indices for dims in (*self.operands, *self.results) for indices in dims if len(indices) > 1)
        mixable = tuple(
            numbers
            for numbers in (*of_operands, *of_results)
            if len({self.factors[number].reduction for number in numbers}) > 1
        )
        # Frozen: the class itself must go around its own guard.
        for name, value in zip(_DERIVED, (of_operands, of_results, joined, mixable), strict=True):
            object.__setattr__(self, name, value)

    def _parts_of_operand(self, operand: int) -> tuple[int, ...]:
        """Factors along which an operand may be partial."""
        partial = ((number, factor) for number, factor in enumerate(self.factors) if factor.kind is FactorKind.PARTIAL)
        return tuple(number for number, factor in partial if operand in factor.operands)

    def _parts_of_result(self, result: int) -> tuple[int, ...]:
        """Factors along which a result may be partial: those that it loses, and those that operands pass on to it."""
        present = {number for indices in self.results[result] for number in indices}
        return tuple(
            number
            for number, factor in enumerate(self.factors)
            if (factor.kind is FactorKind.REDUCE and number not in present)
            or (factor.kind is FactorKind.PARTIAL and result in factor.results)
        )

    def __str__(self) -> str:
        def tensor(dims: DimFactors) -> str:
            return " ".join(_dim_text(dim) for dim in dims)

        def factor(number: int, entry: Factor) -> str:
            where = f" {entry.operands}" if entry.kind is FactorKind.PARTIAL else f" {_letter(number)}={entry.size}"
            return f"{entry.kind.value}{where}{' ' + entry.reduction if entry.reduction else ''}"

        statement = f"{', '.join(map(tensor, self.operands))} -> {', '.join(map(tensor, self.results))}"
        return f"{statement} ({', '.join(factor(n, entry) for n, entry in enumerate(self.factors))})"


class Draft:
    """Collects factors while a rule function walks over an operation.

    The methods that make a factor return it as a one-tuple, so that a dimension is written as a sum: ``rows + columns``.
    """

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._factors: list[Factor] = []

    def _add(self, factor: Factor) -> tuple[int, ...]:
        self._factors.append(factor)
        return (len(self._factors) - 1,)

    def map(self, size: int) -> tuple[int, ...]:
        """An index that results and operands share, or that only results have."""
        return self._add(Factor(FactorKind.MAP, size))

    def reduce(self, size: int, reduction: str = "sum") -> tuple[int, ...]:
        """An index that results lose."""
        return self._add(Factor(FactorKind.REDUCE, size, reduction))

    def blocked(self, size: int) -> tuple[int, ...]:
        """An index that must stay whole."""
        return self._add(Factor(FactorKind.BLOCKED, size))

    def permute(self, size: int) -> tuple[int, ...]:
        """An index along which slices change ranks."""
        return self._add(Factor(FactorKind.PERMUTE, size))

    def halo(self, window: Window) -> tuple[int, ...]:
        """An index along which a window slides. Operand and result have it with different sizes."""
        # Operand and result have different sizes; the number of slices must divide both.
        return self._add(Factor(FactorKind.HALO, math.gcd(window.size, window.num_outputs), window=window))

    def maps(self, sizes: Sequence[int]) -> DimFactors:
        """One mapped index per dimension."""
        return tuple(self.map(size) for size in sizes)

    def blocks(self, sizes: Sequence[int]) -> DimFactors:
        """Dimensions that must stay whole."""
        return tuple(self.blocked(size) for size in sizes)

    def passes(self, operands: Sequence[int], *reductions: str, results: Sequence[int] | None = None) -> None:
        """Say that the primitive is linear in `operands` together: parts of them make parts of the results.

        A literal is complete on every rank. So it would count once per rank, unless counting it again changes nothing.
        """
        specs = self.operation.operands
        constants = [specs[number].constant for number in operands if specs[number].constant is not None]
        # Literals alone that change nothing may be parts: a sum over the rounds of a loop begins with zero.
        partial = tuple(number for number in operands if specs[number].constant is None) or tuple(operands)
        all_results = range(len(self.operation.results))
        for reduction in reductions:
            if reduction in IDEMPOTENT or all(constant == 0 for constant in constants):
                # One factor per reduction: an axis belongs to one kind of partial result.
                targets = tuple(all_results if results is None else results)
                self._factors.append(Factor(FactorKind.PARTIAL, 0, reduction, partial, targets))

    def finish(
        self,
        operands: Sequence[DimFactors],
        results: Sequence[DimFactors],
        *,
        recipe: str = "plain",
        adapt: Adapt | None = None,
        flops_per_point: float = 1.0,
        points: tuple[int, ...] | None = None,
    ) -> Rule:
        """The rule; checks that every tensor is indexed as its shape says."""
        rule = Rule(tuple(self._factors), tuple(operands), tuple(results), recipe, adapt, flops_per_point, points)
        _check(self.operation, rule)
        return rule


def replicate(operation: Operation, reason: str, flops_per_point: float = 0.0) -> Rule:
    """The rule that shards nothing, for a `reason` that plans report."""
    return Rule(
        (),
        tuple(((),) * operand.num_dims for operand in operation.operands),
        tuple(((),) * result.num_dims for result in operation.results),
        flops_per_point=flops_per_point,
        opaque=reason,
    )


def _check(operation: Operation, rule: Rule) -> None:
    """Every dimension has factors that multiply to its size, unless its length is its own affair (halo)."""
    tensors = [*zip(operation.operands, rule.operands, strict=True), *zip(operation.results, rule.results, strict=True)]
    for spec, dims in tensors:
        if len(dims) != spec.num_dims:
            raise For(operation.name).error(
                f"the rule must index all dimensions of a tensor of shape {spec.shape}, but has {len(dims)} of them: {rule}"
            )
        for dim, (size, indices) in enumerate(zip(spec.shape, dims, strict=True)):
            # The length of a windowed dimension depends on stride and padding, not on factors.
            factors = [rule.factors[index] for index in indices]
            sliding = any(factor.kind is FactorKind.HALO for factor in factors)
            if indices and not sliding and math.prod(factor.size for factor in factors) != size:
                raise For(operation.name).error(
                    f"the factors of dimension {dim} of a tensor of shape {spec.shape} must multiply to {size}, but "
                    f"got {[factor.size for factor in factors]} in {rule}"
                )


def _dim_text(indices: tuple[int, ...]) -> str:
    letters = "".join(_letter(index) for index in indices)
    return f"({letters})" if len(indices) > 1 else letters or "1"


def _letter(index: int) -> str:
    return chr(ord("a") + index) if index < 26 else f"f{index}"
