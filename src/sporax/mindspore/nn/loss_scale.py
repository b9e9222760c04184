"""Training steps whose loss is scaled, so that small gradients survive half precision, and whose overflows are skipped."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore.common import Parameter, Tensor, dtypes
from sporax.mindspore.common.tensor import is_tensor
from sporax.mindspore.common.transforms import value_and_grad
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn._deferred_settings import late_setting
from sporax.mindspore.nn.cell import Cell, Layer
from sporax.mindspore.nn.grad_reducer import reduces
from sporax.mindspore.nn.wrap import TrainOneStepCell
from sporax.mindspore.ops._core.operator import Array, operator


@operator(function="")
def every_finite(inputs: Array) -> Array:
    """Whether no element of any of the tensors (a tuple) is infinite or not a number. Bool scalar."""
    # Integers are always finite.
    floating = [array for array in inputs if jnp.issubdtype(array.dtype, jnp.inexact)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(array)) for array in floating] or [jnp.asarray(True)]))


class FixedLossScaleUpdateCell(Layer):
    """A loss scale that stays."""

    loss_scale_value: float = setting(None, "the scale, a positive number.", attribute=False)

    def _prepare(self, loss_scale_value: float) -> None:
        self.loss_scale_value = _scale("FixedLossScaleUpdateCell", loss_scale_value)

    def get_loss_scale(self) -> float:
        """The scale."""
        return self.loss_scale_value

    def construct(self, _: Any, overflow: Tensor) -> Tensor:
        """`overflow`, unchanged."""
        return overflow


class DynamicLossScaleUpdateCell(Layer):
    """A loss scale that is divided by a factor after an overflow, and multiplied by it after `scale_window` good steps."""

    loss_scale_value: float = setting(None, "first scale, a positive number.", attribute=False)
    scale_factor: int = setting(argument.number, "the factor.")
    scale_window: int = setting(argument.positive_int, "how many steps in a row must be good.")

    def _prepare(self, loss_scale_value: float) -> None:
        name = "DynamicLossScaleUpdateCell"
        self.loss_scale_value = _scale(name, loss_scale_value)
        # 1, so that the first window has as many steps as the others.
        self.cur_iter = Parameter(Tensor(1, dtypes.int32), name="current_iterator_step")
        self.last_overflow_iter = Parameter(Tensor(0, dtypes.int32), name="last_overflow_iterator_step")

    def get_loss_scale(self) -> float:
        """The first scale."""
        return self.loss_scale_value

    def construct(self, loss_scale: Parameter, overflow: Tensor) -> Tensor:
        """Set `loss_scale` for the next step; gives `overflow`."""
        good_enough = self.cur_iter - self.last_overflow_iter >= self.scale_window
        # Not below 1: then the scale is not the reason for overflows.
        lowered = ops.maximum(loss_scale / self.scale_factor, 1.0)
        raised = ops.where(good_enough, loss_scale * self.scale_factor, loss_scale)
        ops.assign(loss_scale, ops.where(overflow, lowered, raised))
        # A window begins again after an overflow, and after each rise.
        restart = ops.logical_or(overflow, good_enough)
        ops.assign(self.last_overflow_iter, ops.where(restart, self.cur_iter, self.last_overflow_iter))
        ops.assign_add(self.cur_iter, 1)
        return overflow


class TrainOneStepWithLossScaleCell(TrainOneStepCell):
    """One training step with a scaled loss; a step whose gradients overflow changes no Parameter.

    Args:
        network: gives the loss.
        optimizer: updates its Parameters.
        scale_sense: a Cell that keeps the scale (`DynamicLossScaleUpdateCell`, `FixedLossScaleUpdateCell`), or a Tensor with
            one element, which `set_sense_scale` may change.

    Raises:
        SporaxTypeError: `scale_sense` is neither.
        SporaxValueError: the Tensor has more elements.

    Example:
        >>> step = TrainOneStepWithLossScaleCell(with_loss, optimizer, DynamicLossScaleUpdateCell(2**12, 2, 1000))
        >>> loss, overflow, scale = step(images, labels)
    """

    def __init__(self, network: Cell, optimizer: Cell, scale_sense: Any) -> None:
        super().__init__(network, optimizer, sens=None)
        # As attributes, which derived steps of MindSpore's users read.
        self.loss_scaling_manager = None
        if isinstance(scale_sense, Cell):
            self.loss_scaling_manager = scale_sense
            scale_sense = Tensor(scale_sense.get_loss_scale(), dtypes.float32)
        For("TrainOneStepWithLossScaleCell").typed("scale_sense", scale_sense, "a Cell or a Tensor", Tensor)
        For("TrainOneStepWithLossScaleCell").refuse(
            scale_sense.shape not in ((), (1,)), "'scale_sense' must have one element", scale_sense.shape
        )
        self.scale_sense = Parameter(scale_sense, name="scale_sense")
        self.gpu_target = False
        self.base = Tensor(1, dtypes.float32)
        self.base0 = Tensor(0, dtypes.int32)
        self.allreduce = ops.AllReduce()
        self.cast = ops.Cast()
        self.reduce_sum = ops.ReduceSum(keep_dims=False)
        self.reduce_all = ops.ReduceAll(keep_dims=False)
        self.less_equal = ops.LessEqual()
        self.equal = ops.Equal()
        self.logic_not = ops.LogicalNot()

    is_distributed = late_setting("is_distributed", reduces, "As `reducer_flag`.")

    def construct(self, *inputs: Any) -> tuple[Any, Tensor, Tensor]:
        """The loss, whether the step overflowed, and the scale of the next step."""
        # A copy: the update changes the Parameter in the same step.
        scale = self.scale_sense.value()

        def scaled(*args: Any) -> tuple[Any, Any]:
            loss = self.network(*args)
            first = loss[0] if isinstance(loss, tuple) else loss
            factor = scale if self._factor == 1.0 else scale * self._factor
            # In the loss's dtype, or a float16 loss would become float32.
            return first * factor.astype(first.dtype), loss

        (_, loss), grads = value_and_grad(scaled, None, self.weights, has_aux=True)(*inputs)
        # Divided before they are combined, as in MindSpore.
        grads = tuple(grad * (1.0 / scale).astype(grad.dtype) for grad in grads)
        grads = self.grad_reducer(grads)
        status, grads = self.start_overflow_check(loss, grads)
        overflow = self.process_loss_scale(self.get_overflow_status(status, grads))
        self._update(overflow, grads)
        return loss, overflow, self.scale_sense.value()

    def start_overflow_check(self, pre_cond: Any, compute_input: Any) -> tuple[Tensor, Any]:
        """Begin to watch for overflows. XLA has no register to clear, so nothing happens.

        Args:
            pre_cond: what must have been computed before.
            compute_input: what is computed of after.

        Returns:
            A status for `get_overflow_status`, and `compute_input`.
        """
        return Tensor([0] * 8, dtypes.int32), compute_input

    def get_overflow_status(self, status: Any, compute_output: Any) -> Tensor:
        """Whether a tensor among `compute_output` is not finite, on any rank.

        Args:
            status: what `start_overflow_check` gave; not needed here.
            compute_output: Tensors and containers of them, the gradients as a rule.
        """
        overflow = ops.logical_not(every_finite(tuple(jax.tree.leaves(compute_output, is_leaf=is_tensor))))
        if self.reducer_flag:
            # One rank that overflows makes all of them skip.
            overflow = ops.AllReduce()(overflow.astype(dtypes.float32)) > 0
        return overflow

    def process_loss_scale(self, overflow: Tensor) -> Tensor:
        """Let the Cell that keeps the scale adjust it; gives `overflow`."""
        if self.loss_scaling_manager is None:
            return overflow
        return self.loss_scaling_manager(self.scale_sense, overflow)

    def set_sense_scale(self, sens: Tensor) -> None:
        """Set the scale.

        Raises:
            SporaxTypeError: `sens` is not a Tensor.
        """
        For("TrainOneStepWithLossScaleCell").typed("sens", sens, "a Tensor", Tensor)
        self.scale_sense.set_data(sens)

    def _update(self, overflow: Tensor, grads: tuple[Tensor, ...]) -> None:
        def skip() -> Tensor:
            return Tensor(0, dtypes.int32)

        def update() -> Tensor:
            self.optimizer(grads)
            return skip()

        # The optimizer runs on one way only, so a skipped step changes nothing.
        ops.cond(overflow, skip, update)


def _scale(name: str, value: Any) -> Any:
    if argument.number(name, "loss_scale_value", value) <= 0:
        raise SporaxValueError(f"For '{name}', 'loss_scale_value' must be positive, but got {value}.")
    return value
