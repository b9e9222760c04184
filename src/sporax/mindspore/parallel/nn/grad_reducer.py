"""Gradients of a network in micro batches, on their way to the optimizer."""

from __future__ import annotations

from typing import Any, cast

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common.parameter import Parameter, ParameterTuple
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.cell import Cell


class PipelineGradReducer(Cell):
    """Divides the gradients that were summed over micro batches. Same as MindSpore, which sums them in Parameters
    ``accu_grads.…`` on the way; here the gradient of a `PipelineCell` is that sum already, so there are none.

    Args:
        parameters: the Parameters that are trained, in the order of the gradients.
        scale_sense: what gradients are divided by.
        opt_shard: whether gradients arrive sharded by optimizer parallel; None for the setting of the context. The result
            is the same either way.

    Inputs:
        Tuple of Tensors, one gradient per Parameter.

    Outputs:
        Tuple of Tensors of the same shapes and dtypes.

    Raises:
        SporaxTypeError: `parameters` are not Parameters, `scale_sense` is no number, or `opt_shard` no bool.
        SporaxValueError: `scale_sense` is 0, or there are more or fewer gradients than Parameters.

    Example:
        >>> loss, grads = value_and_grad(PipelineCell(net, 4), None, optimizer.parameters)(images, labels)
        >>> optimizer(PipelineGradReducer(optimizer.parameters, scale_sense=4)(grads))
    """

    def __init__(self, parameters: Any, scale_sense: float | Tensor = 1.0, opt_shard: bool | None = None) -> None:
        super().__init__(auto_prefix=False)
        check_type("PipelineGradReducer", "parameters", parameters, "a tuple or list of Parameters", tuple | list)
        if isinstance(scale_sense, bool) or not isinstance(scale_sense, int | float | Tensor):
            raise SporaxTypeError.must("PipelineGradReducer", "scale_sense", "be a number", type(scale_sense).__name__)
        if opt_shard is not None and not isinstance(opt_shard, bool):
            raise SporaxTypeError(
                f"For 'PipelineGradReducer', 'opt_shard' must be a bool or None, but got {type(opt_shard).__name__}."
            )
        if float(scale_sense) == 0:
            raise SporaxValueError("For 'PipelineGradReducer', 'scale_sense' must not be 0.")
        self._num_gradients = len(ParameterTuple(parameters))
        # A Parameter, as in MindSpore, so that it can be changed without compiling again.
        self.scale_sense = Parameter(float(scale_sense), name="scale_sense", requires_grad=False)

    def construct(self, grads: Any) -> tuple[Tensor, ...]:
        """The gradients, divided by `scale_sense`."""
        if len(grads) != self._num_gradients:
            raise SporaxValueError(
                f"For 'PipelineGradReducer', there must be one gradient for each of the {self._num_gradients} Parameters, "
                f"but got {len(grads)}."
            )
        # Multiplied in each gradient's own dtype, which must not change.
        factor: Any = 1.0 / cast("Any", self.scale_sense)
        return tuple(grad * factor.astype(grad.dtype) for grad in grads)
