"""`mindspore.boost`: of that library, the cell that accumulates gradients over several steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sporax import ops
from sporax.common import dtype as mstype
from sporax.common.parameter import Parameter
from sporax.common.tensor import Tensor
from sporax.ir.missing import missing_name
from sporax.nn.cell import Cell

__path__: list[str] = []  # a package in MindSpore, see `sporax._module_paths`

_NOT_OFFERED = frozenset(
    "AutoBoost AdaSum OptimizerProcess ParameterProcess BoostTrainOneStepCell GradientFreeze".split()
)

__all__ = ["GradientAccumulation", "gradient_accumulation_op", "gradient_clear_op"]

if not TYPE_CHECKING:  # checkers should see a missing name themselves

    def __getattr__(name: str) -> Any:
        reason = (
            "the other parts of this library change what a network learns (fewer batch norms, frozen gradients, adaptive "
            "sums). Train with Model(…, boost_level='O0')"
        )
        return missing_name(__name__, name, reason if name in _NOT_OFFERED else None)


gradient_accumulation_op = ops.MultitypeFuncGraph("gradient_accumulation_op")
gradient_clear_op = ops.MultitypeFuncGraph("gradient_clear_op")


@gradient_accumulation_op.register("Int64", "Tensor", "Tensor")
def _accumulate(accumulation_step: int, sums: Any, grad: Any) -> Any:
    return ops.assign_add(sums, grad / accumulation_step)


@gradient_clear_op.register("Tensor")
def _clear(sums: Any) -> Any:
    return ops.assign(sums, ops.zeros_like(sums))


class GradientAccumulation(Cell):
    """Adds gradients up and lets the optimizer use their mean at every `max_accumulation_step`-th call.

    Args:
        max_accumulation_step: number of calls for one update.
        optimizer: gets the mean of the gradients.

    Example:
        >>> accumulate = GradientAccumulation(4, optimizer)
        >>> loss = accumulate(loss, grads)
    """

    def __init__(self, max_accumulation_step: int, optimizer: Any) -> None:
        super().__init__()
        self._max_accumulation_step = max_accumulation_step
        self.optimizer = optimizer
        self.weights = optimizer.parameters
        self.hyper_map = ops.HyperMap()
        self._grad_accumulation = self.weights.clone(prefix="grad_accumulation", init="zeros")
        self._accumulation_step = Parameter(Tensor(0, mstype.int32), name="accumulation_step")

    def construct(self, loss: Any, grads: Any) -> Any:
        """`loss`, after its gradients were added and perhaps used."""
        add = ops.partial(gradient_accumulation_op, self._max_accumulation_step)
        self.hyper_map(add, self._grad_accumulation, grads)
        ops.assign_add(self._accumulation_step, Tensor(1, mstype.int32))
        is_full = self._accumulation_step >= self._max_accumulation_step
        ops.cond(is_full, self._update, lambda: Tensor(False))
        return loss

    def _update(self) -> Tensor:
        """Let the optimizer use the sums, and begin again."""
        self.optimizer(self._grad_accumulation)
        ops.assign(self._accumulation_step, Tensor(0, mstype.int32))
        self.hyper_map(ops.partial(gradient_clear_op), self._grad_accumulation)
        return Tensor(True)
