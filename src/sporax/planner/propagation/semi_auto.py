"""Policies of the parallel modes: the user's strategies with MindSpore's defaults (`SemiAuto`), and what is left after a search.

Problem: users of MindSpore expect its behaviour where they say nothing, operator by operator.

Method: one rule per question.

* An operator with a strategy gets its operands as the strategy says and returns complete results: partial sums over a
  sharded contraction are all-reduced at its exit, or reduce-scattered where `out_strategy` or
  ``forward_reduce_scatter`` requests it.
* An operator without a strategy is batch-parallel (`pins.strategies.batch_parallel`); operators that only reshape
  follow their operand.
* The gradient of a parameter is reduced once, when it is complete, over the ranks that hold the same slice.
* With optimizer parallelism the storage sharding of a parameter is finer, over those ranks: the parameter is gathered
  for use, its gradient reduce-scattered, and its optimizer state is as small as its slice.

`AutoPolicy`: in automatic parallelism a search has decided before propagation, and only strategies that it must keep count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.layout import Layout, check_slice_counts, strategy_text
from sporax.ir.marks import FIXED, LayoutMark, OperatorMark, Shardings, Side
from sporax.ir.operation import Shape, TensorSpec
from sporax.ir.placement import Axes, Placement, num_parts
from sporax.ir.plan import Resharding
from sporax.planner.communication.gradient_fusion import TERM, FusionIds
from sporax.planner.pins.manual_split import is_split
from sporax.planner.pins.strategies import batch_parallel, layout_placement, placements_for, result_placement
from sporax.planner.propagation.policy import MaybePlacements, Policy

KILOBYTE = 1024
"""Bytes: MindSpore's unit of `parallel_optimizer_threshold`."""


@dataclass(frozen=True, slots=True)
class SemiAuto(Policy):
    """Strategies of the user, and MindSpore's defaults.

    Attributes:
        mesh: the devices.
        config: the user's settings.
        unsharded_parameters: names of those that optimizer parallelism must not shard.
        buffers: with which others each parameter is sent.
        shapes: of the inputs of operators whose entrance has been passed, by number of the call.
    """

    mesh: DeviceMatrix
    config: ParallelConfig
    unsharded_parameters: frozenset[str] = frozenset()
    buffers: FusionIds = field(default_factory=FusionIds)
    shapes: dict[int, tuple[Shape, ...]] = field(default_factory=dict)

    @property
    def scatters_gradient_terms(self) -> bool:
        """As ``gradient_accumulation_shard`` says: sums over micro batches are kept in shards."""
        return self.config.gradient_accumulation_shard

    def at_operator(
        self, mark: OperatorMark, specs: Sequence[TensorSpec], current: MaybePlacements
    ) -> Sequence[Resharding | None]:
        """Inputs as the strategy says, results complete."""
        if mark.side is Side.OUT:
            return self._results(mark, specs, current)
        # Marks at the exit of an operator need the shapes of its inputs, which only the entrance sees.
        # By the number of the call: an operator that is called twice has different shapes.
        self.shapes[mark.number] = tuple(spec.shape for spec in specs)
        required = self._required(mark, specs, current)
        reason = f"input of {mark.operator}"
        return [None if placement is None else Resharding(placement, reason) for placement in required]

    def _required(self, mark: OperatorMark, specs: Sequence[TensorSpec], current: MaybePlacements) -> MaybePlacements:
        """Placements that an operator requires of its inputs: by its strategy, or by its kind where it has none."""
        if mark.in_strategy is not None:
            return self._inputs(mark, specs)
        if mark.dims.follows or mark.get("follow", False):
            return [
                # An operator that only reshapes could follow partial sums too, but MindSpore completes them at each operator.
                placement.complete() if placement is not None and placement.partial else None
                for placement in current
            ]
        if mark.dims.unsharded:
            return [Placement.replicated(spec.num_dims) for spec in specs]
        if not any(placement is not None and placement.dims for placement in current):
            return [None] * len(specs)  # weights and state only, which have no batch: their readers decide
        return batch_parallel(mark, specs, self.mesh)

    def at_layout(
        self, mark: LayoutMark, specs: Sequence[TensorSpec], current: MaybePlacements
    ) -> Sequence[Resharding | None]:
        """As the layouts say."""
        required = self._as_specified(mark.requester, mark.layouts, specs)
        return [
            None if there is None else Resharding(there.opened(mark.free, here), f"layout of {mark.requester}")
            for there, here in zip(required, current, strict=True)
        ]

    def gradient(self, name: str, spec: TensorSpec, storage: Placement, used: Placement) -> Resharding:
        """Combined over the ranks that repeat the parameter, as its storage sharding says."""
        # Every repetition adds the same gradient once more; the mean divides by their number.
        repeats = self.mesh.num_devices // num_parts(self.mesh, tuple(used.used))
        # Equal placements mean an all-reduce, a finer storage a reduce-scatter; each has its own fusion numbers.
        ids = self.buffers.reduced if storage == used else self.buffers.scattered
        return Resharding(
            storage,
            f"gradient of {name}",
            in_float32=self.config.gradient_fp32_sync,
            fusion=ids.get(name),
            scale=1.0 / repeats if self.config.gradients_mean else 1.0,
        )

    def gradient_term(self, name: str, storage: Placement) -> Resharding:
        """Combined by itself, and scattered as its parameter is kept; the gradient's own resharding decides about the sum."""
        return Resharding(storage, f"{TERM} {name}", in_float32=self.config.gradient_fp32_sync)

    def weight(self, name: str, used: Placement) -> Resharding:
        """Gathered as operators want it, with others in one buffer where `comm_fusion` says so."""
        return Resharding(used, "weight for use", fusion=self.buffers.gathered.get(name))

    def loss_scale(self, placement: Placement) -> float:
        """Once; with ``loss_repeated_mean=False`` once for every device that computes the same part of the loss."""
        if self.config.loss_repeated_mean:
            return 1.0
        # Each device that repeats a part of the loss contributes a cotangent of its own.
        return self.mesh.num_devices / num_parts(self.mesh, tuple(placement.used))

    def storage(self, spec: TensorSpec, used: Placement, parameter: str) -> Placement:
        """Where a parameter is kept: sharded further along dimension 0 with optimizer parallelism, where that is possible."""
        if not self.config.enable_parallel_optimizer or parameter in self.unsharded_parameters or not spec.shape:
            return used
        axes = self._optimizer_axes(used)
        local = used.local_shape(spec.shape, self.mesh)
        threshold = self.config.parallel_optimizer_threshold * KILOBYTE
        # Of the whole parameter, as in MindSpore, and not of a slice.
        too_small = math.prod(spec.shape) * spec.itemsize < threshold
        if not axes or local[0] % num_parts(self.mesh, axes) or too_small:
            return used
        # The storage sharding comes on top of the sharding for use, so the weight's own axes stay in front.
        return Placement(((*used.dims[0], *axes), *used.dims[1:]))

    def _optimizer_axes(self, used: Placement) -> Axes:
        """The axes along which a parameter is repeated, or the innermost of them that make the group size requested."""
        # Outer axes first in the order of the mesh, so the innermost ones are the tail.
        repeated = tuple(axis for axis in range(self.mesh.num_axes) if axis not in used.used)
        size = self.config.optimizer_weight_shard_size
        if size <= 1:
            return repeated
        for start in range(len(repeated)):
            if num_parts(self.mesh, repeated[start:]) == size:
                return repeated[start:]
        # No tail of the axes has that size: then the parameter is not sharded further.
        return ()

    def _inputs(self, mark: OperatorMark, specs: Sequence[TensorSpec]) -> Sequence[Placement | None]:
        strategy = mark.in_strategy or ()
        if mark.get("enable_nd_tp", False) and any(isinstance(entry, Layout) for entry in strategy):
            # The strategy names where the activation arrives; what the product reads is gathered from it.
            return _gathered_for_nd(mark, self._as_specified(mark.where, strategy, specs))
        if mark.get("self_define_shard", False):
            return self._as_specified(mark.where, strategy, specs)
        return placements_for(mark, specs, self.mesh)

    def _as_specified(self, where: str, shardings: Shardings, specs: Sequence[TensorSpec]) -> list[Placement | None]:
        """One placement per tensor, from Layouts or from numbers of slices."""
        if len(shardings) != len(specs):
            raise SporaxRuntimeError(
                f"For '{where}', there must be one layout for each of the {len(specs)} tensors, but got {len(shardings)}."
            )
        placements: list[Placement | None] = []
        for number, (sharding, spec) in enumerate(zip(shardings, specs, strict=True)):
            if isinstance(sharding, tuple):
                # Numbers of slices are checked like a strategy; Layouts check themselves.
                check_slice_counts(where, number, sharding, spec.shape, self.mesh.num_devices)
                sharding = Layout.from_split(sharding, self.mesh.num_devices, ranks=self.mesh.ranks)
            placements.append(
                None if sharding is None else layout_placement(where, number, sharding, spec.shape, self.mesh)
            )
        return placements

    def _results(
        self, mark: OperatorMark, specs: Sequence[TensorSpec], current: MaybePlacements
    ) -> list[Resharding | None]:
        reshardings: list[Resharding | None] = []
        for number, (spec, placement) in enumerate(zip(specs, current, strict=True)):
            if placement is None:
                reshardings.append(None)
                continue
            target = self._result(mark, number, spec, placement)
            plain = Resharding(target, f"result of {mark.operator}")
            sums = bool(placement.partial) and self.config.force_fp32_communication
            reshardings.append(replace(plain, in_float32=True) if sums else plain)
        return reshardings

    def _result(self, mark: OperatorMark, number: int, spec: TensorSpec, placement: Placement) -> Placement:
        strategy = mark.out_strategy
        if mark.get("self_define_shard", False):
            return self._self_defined(mark, number, spec, placement)
        if mark.in_strategy is not None and number == 0:
            # The first result only: strategies speak of an operator's main result.
            placement = result_placement(mark, self.shapes.get(mark.number, ()), spec, self.mesh) or placement
        if strategy is not None and number < len(strategy):
            return self._requested_result(mark, strategy, number, spec, placement)
        if mark.get("enable_nd_tp", False) and placement.partial and spec.shape:
            # The axes of the partial sum are free in the result, so it can be scattered along them: where the activation came.
            dims, at = list(placement.dims), -2 if _rows_arrive_sharded(mark) else -1
            dims[at] = (*dims[at], *placement.partial)
            scattered = Placement(tuple(dims))
            if scattered.fits(spec.shape, self.mesh):
                return scattered
        # The first dimension, as MindSpore's reduce-scatter does.
        if self._scatters(mark, placement) and spec.shape:
            scattered = Placement(((*placement.dims[0], *placement.partial), *placement.dims[1:]))
            if scattered.fits(spec.shape, self.mesh):
                return scattered
        return placement.complete()

    def _self_defined(self, mark: OperatorMark, number: int, spec: TensorSpec, placement: Placement) -> Placement:
        """A result of an operator whose Layouts no rule checks (``self_define_shard``)."""
        sharding = mark.out_strategy[number] if mark.out_strategy and number < len(mark.out_strategy) else None
        specified = None if sharding is None else self._as_specified(mark.where, (sharding,), [spec])[0]
        # Without a layout for it, the result is completed like that of any other operator.
        return specified or placement.complete()

    @staticmethod
    def _scatters(mark: OperatorMark, placement: Placement) -> bool:
        """Whether parts are reduce-scattered: where the user says so, and for lookups in a sharded table with whole indices."""
        lookup = mark.dims.table is not None and mark.in_strategy is not None and bool(placement.dims)
        requested = mark.get("forward_reduce_scatter", False) or (lookup and not placement.dims[0])
        return bool(requested and placement.partial)

    def _requested_result(
        self, mark: OperatorMark, strategy: Shardings, number: int, spec: TensorSpec, placement: Placement
    ) -> Placement:
        where = mark.where
        sharding = strategy[number]
        if mark.operator == "Transpose" and isinstance(sharding, Layout):
            # As in MindSpore, the layout of a transposed tensor may be said, with as many slices of each dimension.
            requested = layout_placement(where, number, sharding, spec.shape, self.mesh)
            if requested.parts(self.mesh) == placement.complete().parts(self.mesh):
                return requested
            raise SporaxRuntimeError(
                f"For '{where}', 'out_strategy' must be the input's in the new order, {placement.complete().on(self.mesh)}, "
                f"but got {strategy_text(strategy)}."
            )
        if not mark.dims.takes_out_strategy:
            raise SporaxRuntimeError(
                f"For '{where}', 'out_strategy' must be left out for this operator, but got {strategy_text(strategy)}."
            )
        if isinstance(sharding, Layout):
            return layout_placement(where, number, sharding, spec.shape, self.mesh)
        # Numbers of slices name one of the results that the operator can have; anything else is an error.
        choices = self._possible_results(placement, -2 if mark.operator == "BatchMatMul" else 0)
        for possible in choices:
            if possible.parts(self.mesh) == tuple(sharding or ()):
                return possible
        legal = [possible.parts(self.mesh) for possible in choices]
        raise SporaxRuntimeError(f"For '{where}', 'out_strategy' must be one of {legal}, but got {sharding}.")

    @staticmethod
    def _possible_results(placement: Placement, dim: int) -> list[Placement]:
        """All-reduced, or reduce-scattered along a dimension: the first one, of batched products that of the rows."""
        complete_one = placement.complete()
        if not placement.partial or not placement.dims:
            return [complete_one]
        dims = list(placement.dims)
        dims[dim] = (*dims[dim], *placement.partial)
        return [complete_one, Placement(tuple(dims))]


def requests_results(mark: OperatorMark) -> bool:
    """Whether the user says where an operator's results are, or that they are scattered."""
    flags = ("forward_reduce_scatter", "enable_nd_tp", "self_define_shard")
    return mark.out_strategy is not None or any(mark.get(flag, False) for flag in flags)


def _gathered_for_nd(mark: OperatorMark, required: list[Placement | None]) -> list[Placement | None]:
    """High-dimension tensor parallelism: the activation is gathered along the axes that shard the weight's other dimension.

    In two dimensions these shard the activation's last dimension, in three its rows; then the weight is gathered along the axes
    that are left of the rows. The rest is a plain product, whose partial sums are scattered again at the exit.
    """
    left, right = required[:2]
    if left is None or right is None:
        return required
    own, other = (-1, -2) if mark.get("transpose_b", False) else (-2, -1)
    rows = [_without(axes, right.dims[other]) for axes in left.dims[:-1]]
    # The weight is stored as it is specified; the product gathers it.
    return [Placement((*rows, _without(right.dims[own], sum(rows, ())))), *required[1:]]


def _rows_arrive_sharded(mark: OperatorMark) -> bool:
    """Whether axes of the weight's other dimension shard the activation's rows: three dimensions of parallelism."""
    left, right, *_ = mark.in_strategy or (None, None)
    if not isinstance(left, Layout) or not isinstance(right, Layout):
        return False
    other = right.shardings[-2 if mark.get("transpose_b", False) else -1]
    return any(axis in other for axes in left.shardings[:-1] for axis in axes)


def _without(axes: Axes, others: Axes) -> Axes:
    return tuple(axis for axis in axes if axis not in others)


@dataclass(frozen=True, slots=True)
class AutoPolicy(SemiAuto):
    """Marks of operators have no meaning, but for strategies that the search must keep.

    Attributes:
        always: recursive programming keeps the user's strategies, too.
    """

    always: bool = False

    @property
    def returns_cotangents(self) -> bool:
        """The search has decided where they are."""
        return False

    def at_operator(
        self, mark: OperatorMark, specs: Sequence[TensorSpec], current: MaybePlacements
    ) -> Sequence[Resharding | None]:
        """As the user's strategy says, or as it comes; results as they come, unless the user gave a strategy for them."""
        if self.keeps(mark) and (mark.side is Side.IN or requests_results(mark)):
            return super(AutoPolicy, self).at_operator(mark, specs, current)
        return [None] * len(specs)

    def keeps(self, mark: OperatorMark) -> bool:
        """Whether the operator has a strategy that counts: recursive programming decides for itself by default, as in MindSpore.

        Tables in uneven parts have one way to be sharded; `set_data_parallel`, strategy files, and strategies inside of Cells
        with a `bprop` hold in every search.
        """
        if mark.get("strategy_gen_mode") == "data_parallel":
            return True
        free = self.config.search_mode == "recursive_programming" and not (self.always or mark.get(FIXED))
        counts = not free or is_split(mark)
        return mark.in_strategy is not None and counts

    def fixes_any(self, graph: OperatorGraph) -> bool:
        """Whether a mark of the graph decides something that a search must keep."""
        marks = (operator.mark for operator in graph.operators)
        return any(
            isinstance(mark, LayoutMark) or (isinstance(mark, OperatorMark) and self.keeps(mark)) for mark in marks
        )

    def overwritten(self, graph: OperatorGraph) -> tuple[int, ...]:
        """Numbers of the operators whose strategies the search replaces by its own."""
        marks = (operator.mark for operator in graph.walk())
        marked = [mark for mark in marks if isinstance(mark, OperatorMark) and mark.in_strategy is not None]
        return tuple(sorted({mark.number for mark in marked if not self.keeps(mark)}))
