"""Gradients that are the same on all ranks: `DistributedGradReducer`, and weights that are: `broadcast_parameters`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.ir.config import (
    BYTES_PER_MEGABYTE,
    ParallelConfig,
    ParallelMode,
    ids_by_position,
    ids_by_size,
    ids_by_sizes,
)
from sporax.mindspore import context
from sporax.mindspore.common import Parameter, RowTensor, Tensor, wrap
from sporax.mindspore.nn.cell import Cell
from sporax.runtime import world
from sporax.runtime.ranks import flat_buffers, groups, initial_broadcast
from sporax.runtime.state import frames

REDUCING_MODES = (ParallelMode.DATA_PARALLEL, ParallelMode.HYBRID_PARALLEL)
"""Parallel modes in which training Cells combine gradients by themselves."""

Gradient = Tensor | RowTensor


class DistributedGradReducer(Cell):
    """Sums (or averages) gradients over the ranks of a group.

    Each gradient is summed in float32 (float64 stays as it is) and comes back in its own dtype; gradients of Parameters
    with ``layerwise_parallel`` come back untouched. Gradients with one fusion id are sent in one buffer; ids are, in this
    order of precedence: the Parameters' own, if they differ; the positions in ``all_reduce_fusion_config``; the sizes in
    ``comm_fusion``; else `fusion_type` for all. With ``comm_fusion={"openstate": False}`` every gradient is sent alone.

    Args:
        parameters: Parameters whose gradients it is given, usually ``optimizer.parameters``.
        mean: divide the sums by `degree`; None takes ``gradients_mean`` from the parallel context.
        degree: what to divide by; None is the number of ranks.
        fusion_type: fusion id of all gradients; 0 fuses nothing.
        group: name of the group.

    Raises:
        SporaxTypeError: `parameters` or `fusion_type` of a wrong type.
        SporaxValueError: `degree` is not a positive int.
        SporaxRuntimeError: semi-automatic or automatic parallelism in GRAPH_MODE, in which the plan reduces gradients.

    Example:
        >>> reducer = DistributedGradReducer(optimizer.parameters, mean=True)
        >>> loss, grads = grad_fn(images, labels)
        >>> optimizer(reducer(grads))
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        mean: bool | None = None,
        degree: int | None = None,
        fusion_type: int = 1,
        group: str = groups.WORLD_GROUPS[0],
    ) -> None:
        super().__init__(auto_prefix=False)
        name = "DistributedGradReducer"
        if not isinstance(parameters, list | tuple) or not all(
            isinstance(parameter, Parameter) for parameter in parameters
        ):
            raise SporaxTypeError(f"For '{name}', 'parameters' must be a list or tuple of Parameters.")
        if degree is not None and (isinstance(degree, bool) or not isinstance(degree, int) or degree <= 0):
            raise SporaxValueError(f"For '{name}', 'degree' must be a positive int, but got {degree!r}.")
        For(name).typed("fusion_type", fusion_type, "an int", int, takes_bool=False)
        self._own_mean = None if mean is None else bool(mean)
        self._own_degree = degree
        self.fusion_type = fusion_type
        self.group = group
        self.num_gradients = len(parameters)
        self._parameters = tuple(parameters)
        self._decided: tuple[Any, flat_buffers.Reduction] | None = None
        self._check_now()

    def _check_now(self) -> None:
        """Let the present settings say here, and not at the first step, what they have to say."""
        self._check_mode()
        _ = self.reduction

    @property
    def mean(self) -> bool:
        """Whether sums are divided by `degree`: what was given, else ``gradients_mean`` of the present settings."""
        return context.snapshot().gradients_mean if self._own_mean is None else self._own_mean

    @property
    def degree(self) -> int:
        """What sums are divided by: what was given, else the present number of ranks."""
        return self._own_degree or groups.find(None).size

    @property
    def reduction(self) -> flat_buffers.Reduction:
        """What is combined with what by the present settings, ranks and marks of the Parameters."""
        config, members = context.snapshot(), groups.find_counted(self.group, "DistributedGradReducer")
        # The version moves with every setting and every mark, except inside of `AutoParallel`, which brings a config.
        key = (frames.version(), config, members, self.degree)
        if self._decided is None or self._decided[0] != key:
            # Past `__setattr__`: a compiled step depends on the settings themselves.
            object.__setattr__(self, "_decided", (key, self._decide(config, members)))
        return self._decided[1]  # type: ignore[index]  # set above

    def _decide(self, config: ParallelConfig, members: groups.Group) -> flat_buffers.Reduction:
        positions = [
            index
            for index, parameter in enumerate(self._parameters)
            # Servers add up the gradients of Parameters that they keep.
            if not parameter.layerwise_parallel and not parameter.is_param_ps
        ]
        reduced = [self._parameters[index] for index in positions]
        ids = dict(zip(positions, fusion_ids(reduced, positions, self.fusion_type, config), strict=True))
        # In float32 at least: a sum of many float16 numbers loses too much.
        dtypes = [flat_buffers.travelling_dtype(parameter.dtype.np_dtype) for parameter in self._parameters]
        own = flat_buffers.buckets([ids.get(index, 0) for index in range(self.num_gradients)], dtypes)
        buckets = tuple(bucket for bucket in own if bucket[0] in ids)
        return flat_buffers.Reduction(members, buckets, 1.0 / self.degree if self.mean else None)

    def _check_mode(self) -> None:
        """Refuse modes in which a plan reduces gradients, as MindSpore does: they would be reduced twice.

        Raises:
            SporaxRuntimeError: semi-automatic or automatic parallelism in a compiled step.
        """
        config = context.snapshot()
        if config.in_global_view and (context.graph_mode() or frames.compiling()):
            raise SporaxRuntimeError(
                f"For 'DistributedGradReducer', the parallel mode must not be '{config.parallel_mode}', in which the plan "
                "of the step reduces gradients. Leave the reducer out, or use 'data_parallel'."
            )

    def __call__(self, grads: Sequence[Gradient]) -> tuple[Gradient, ...]:
        """The combined gradients.

        Args:
            grads: one Tensor for each Parameter, in their order. Of a `RowTensor` the rows of all ranks are put together,
                so each rank must give the same number of rows.

        Raises:
            SporaxTypeError: something else than Tensors.
            SporaxValueError: another number of gradients.
        """
        return self.construct(grads)

    def construct(self, grads: Sequence[Gradient]) -> tuple[Gradient, ...]:
        """See `__call__`."""
        if not isinstance(grads, list | tuple) or not all(isinstance(grad, Tensor | RowTensor) for grad in grads):
            raise SporaxTypeError("For 'DistributedGradReducer', the gradients must be a tuple of Tensors.")
        if len(grads) != self.num_gradients:
            raise For("DistributedGradReducer").error(
                f"there must be one gradient for each of the {self.num_gradients} parameters, but got {len(grads)}"
            )
        self._check_mode()
        # Sparse gradients are gathered, not added.
        rows = {position: grad for position, grad in enumerate(grads) if isinstance(grad, RowTensor)}
        reduction = flat_buffers.without(self.reduction, rows) if rows else self.reduction
        arrays = [grad.values.array if isinstance(grad, RowTensor) else grad.array for grad in grads]
        results: list[Gradient] = list(map(wrap, flat_buffers.reduce_buckets(reduction, arrays)))
        sent = {position for bucket in self.reduction.buckets for position in bucket}
        for position, grad in rows.items():
            results[position] = self._gathered(grad) if position in sent else grad
        return tuple(results)

    def _gathered(self, grad: RowTensor) -> RowTensor:
        """The rows of all ranks, one rank's after another's."""
        indices, values = flat_buffers.gather_rows(self.reduction, grad.indices.array, grad.values.array)
        return RowTensor(wrap(indices), wrap(values), grad.dense_shape)


def fusion_ids(
    parameters: Sequence[Parameter], positions: Sequence[int], fusion_type: int, config: ParallelConfig
) -> list[int]:
    """The fusion id of each Parameter's gradient.

    Args:
        parameters: those whose gradients are reduced.
        positions: their places among all, by which ``all_reduce_fusion_config`` counts.
        fusion_type: the id of all where nothing else is said.
        config: the parallel settings.
    """
    own = [parameter.comm_fusion for parameter in parameters]
    # Fusion is switched off: every gradient is sent alone.
    if not config.comm_fusion.openstate:
        return [0] * len(own)
    split_after = config.all_reduce_fusion_config
    # Ids that users have set win, unless the optimizer's own positions are in force.
    if len(set(own)) > 1 and not (config.enable_parallel_optimizer and split_after):
        return own
    if split_after and fusion_type == 1:
        return _ids_by_position(positions, split_after)
    rule = config.comm_fusion.fusion_rule_for("allreduce")
    sizes = [
        parameter.size * flat_buffers.travelling_dtype(parameter.dtype.np_dtype).itemsize for parameter in parameters
    ]
    if rule is None and config.all_reduce_fusion_sizes and fusion_type == 1:
        # From the last gradient on: the backward pass finishes that one first.
        return ids_by_sizes(sizes[::-1], config.all_reduce_fusion_sizes)[::-1]
    if rule is None or rule.threshold_megabytes is None:
        return [fusion_type] * len(own)
    backwards = ids_by_size(sizes[::-1], rule.threshold_megabytes * BYTES_PER_MEGABYTE)
    return backwards[::-1]


def _ids_by_position(positions: Sequence[int], split_after: Sequence[int]) -> list[int]:
    count = max(positions, default=-1) + 1
    if max(split_after) >= count:
        warnings.warn(
            f"For 'DistributedGradReducer', 'all_reduce_fusion_config' is {list(split_after)}, but there are only "
            f"{count} gradients.",
            stacklevel=4,
        )
    ids = ids_by_position(count, split_after)
    return [ids[position] for position in positions]


def reduces() -> bool:
    """Whether training Cells combine the gradients of all ranks by themselves, by the present settings.

    In the global view the plan puts the collectives where they are needed, and a single rank has all there is.
    """
    return context.parallel_mode() in REDUCING_MODES and world.has_peers()


class ReducerOfMode(DistributedGradReducer):
    """The reducer of a training Cell: combines gradients in parallel modes in which ranks do so, and is nothing in others.

    The mode is the one in which a step is compiled, so it may be set, and ranks may join, after the Cell was made.

    Args:
        parameters: those that are trained.
        fusion_type: as there.
    """

    def __init__(self, parameters: Sequence[Parameter], fusion_type: int = 1) -> None:
        super().__init__(parameters, fusion_type=fusion_type)

    def _check_now(self) -> None:
        if reduces():
            super()._check_now()

    def construct(self, grads: Sequence[Gradient]) -> tuple[Gradient, ...]:
        """The combined gradients, or `grads`."""
        # Any structure passes where nothing is combined.
        return super().construct(grads) if reduces() else grads  # type: ignore[return-value]


def broadcasts_first() -> bool:
    """Whether training is to start from rank 0's weights, by the present settings."""
    return context.starts_from_first_rank()


def broadcast_parameters(parameters: Sequence[Parameter], root: int = 0) -> None:
    """Give all ranks the values of rank `root`, except for Parameters with ``layerwise_parallel``. All ranks must call it."""
    # Servers give all workers the same values.
    shared = [parameter for parameter in parameters if not parameter.layerwise_parallel and not parameter.is_param_ps]
    if not shared:
        return
    arrays = flat_buffers.broadcast_buckets(groups.find(None), root, [parameter.array for parameter in shared])
    for parameter, array in zip(shared, arrays, strict=True):
        frames.write(parameter, array)
    initial_broadcast.note_agreed(shared)
