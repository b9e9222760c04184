"""Pieces of training steps that users import to build steps of their own.

`nn.wrap.cell_wrapper` and `nn.wrap.loss_scale` are this module; their other names are the ones of `sporax.mindspore.nn`.
"""

from __future__ import annotations

from typing import Any

from sporax.base.errors import For
from sporax.mindspore import context, nn, ops
from sporax.mindspore._names.missing import missing_name
from sporax.mindspore.common import Parameter, Tensor
from sporax.mindspore.context import ParallelMode
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.loss_scale import TrainOneStepWithLossScaleCell
from sporax.mindspore.nn.wrap import TrainOneStepCell


def __getattr__(name: str) -> Any:
    return getattr(nn, name) if hasattr(nn, name) else missing_name(__name__, name)


_grad_scale = ops.MultitypeFuncGraph("grad_scale")
"""``_grad_scale(scale, gradient)``: the gradient divided by the scale."""


@_grad_scale.register("Tensor", "Tensor")
def tensor_grad_scale(scale: Tensor, grad: Tensor) -> Tensor:
    """`grad` / `scale` in the dtype of `grad`."""
    return grad * ops.cast(ops.reciprocal(scale), grad.dtype)


_grad_overflow = ops.MultitypeFuncGraph("_grad_overflow")
"""``_grad_overflow(gradient)``: 1.0 in shape (1,) where an element is not finite, else 0.0."""


@_grad_overflow.register("Tensor")
def _tensor_grad_overflow(grad: Tensor) -> Tensor:
    return ops.FloatStatus()(grad)


grad_scale = ops.MultitypeFuncGraph("grad_scale")
"""``grad_scale(scale, gradient, sum)``: the accumulated sum divided by the scale; the sum starts again at zero."""


@grad_scale.register("Tensor", "Tensor", "Tensor")
def tensor_grad_scale_pipeline(scale: Tensor, grad: Tensor, accu_grad: Parameter) -> Tensor:
    """`accu_grad` / `scale`; `accu_grad` becomes zero."""
    scaled = accu_grad * ops.reciprocal(scale)
    # `assign` after the read, so the sum is not lost.
    ops.assign(accu_grad, ops.zeros_like(accu_grad))
    return scaled


shard_grad_scale = ops.MultitypeFuncGraph("shard_grad_scale")
"""``shard_grad_scale(scale, gradient, sum)``: the gradient divided by the scale; the sum starts again at zero."""


@shard_grad_scale.register("Tensor", "Tensor", "Tensor")
def tensor_shard_grad_scale_pipeline(scale: Tensor, grad: Tensor, accu_grad: Parameter) -> Tensor:
    """`grad` / `scale`; `accu_grad` becomes zero."""
    ops.assign(accu_grad, ops.zeros_like(accu_grad))
    return grad * ops.reciprocal(scale)


def _pipeline_clear_grad(accu_grad: Parameter, grad: Tensor) -> Tensor:
    """Zeros, which `accu_grad` becomes."""
    return ops.assign(accu_grad, ops.zeros_like(accu_grad))


class _VirtualDatasetCell(Cell):
    """A network whose inputs come from the data pipeline. Steps are sharded from their inputs on, so nothing is added."""

    def __init__(self, backbone: Cell) -> None:
        super().__init__(auto_prefix=False)
        self._backbone = backbone
        self._virtual_dataset = ops.Identity()  # for its marks

    def construct(self, *inputs: Any) -> Any:
        """The network's outputs."""
        return self._backbone(*inputs)


VirtualDatasetCellTriple = _VirtualDatasetCell


class _MicroBatch(Cell):
    """Micro batch number `i` of each input.

    Args:
        micro_size: number of micro batches.
    """

    def __init__(self, micro_size: int) -> None:
        super().__init__()
        self.micro_size = micro_size
        self.shape, self.strided_slice = ops.Shape(), ops.StridedSlice()

    def construct(self, i: int, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Rows ``i * n`` to ``(i + 1) * n`` of every input.

        Raises:
            SporaxValueError: dimension 0 of an input cannot be divided evenly.
        """
        for value in inputs:
            if value.shape[0] % self.micro_size:
                raise For("_MicroBatch").error(
                    f"dimension 0 of an input must be divisible by micro size {self.micro_size}, but got {value.shape[0]}"
                )
        sizes = [value.shape[0] // self.micro_size for value in inputs]
        return tuple(value[i * size : (i + 1) * size] for value, size in zip(inputs, sizes, strict=True))


class _TrainGradAccuStepCell(TrainOneStepCell):
    """One training step of a network that adds up micro batches: their gradients are averaged, or scaled by `sens`.

    Args:
        network: gives the loss; a Cell inside has the number of micro batches (`PipelineCell`, `GradAccumulationCell`).
        optimizer: updates its Parameters.
        sens: factor of the gradients; None for one over the number of micro batches.
    """

    def __init__(self, network: Cell, optimizer: Cell, sens: float | None = None) -> None:
        # The first Cell that has micro batches decides.
        sizes = (cell.micro_size for _, cell in network.cells_and_names() if hasattr(cell, "micro_size"))
        super().__init__(network, optimizer, 1 / next(sizes, 1) if sens is None else sens)


class _TrainGradAccuWithLossScaleCell(TrainOneStepWithLossScaleCell):
    """`TrainOneStepWithLossScaleCell` for networks that add up micro batches; in semi-auto and auto parallel mode only.

    Raises:
        SporaxValueError: another parallel mode.
    """

    def __init__(self, network: Cell, optimizer: Cell, scale_sense: Any) -> None:
        super().__init__(network, optimizer, scale_sense)
        allowed = (ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL)
        if context.snapshot().parallel_mode not in allowed:
            raise For("_TrainGradAccuWithLossScaleCell").error(
                f"the parallel mode must be one of {allowed}, but got {context.snapshot().parallel_mode}"
            )
