"""Cells that divide a batch into micro batches, run the network on each, and add up what comes out.

The result is the *sum* over the micro batches, also when the network gives a mean: `micro_size` times the mean over the whole
batch, where all micro batches count equally many elements; a mean by a mask divides by that of its micro batch. Gradients
follow. Who trains divides (``sens`` of the train Cell, ``scale_sense`` of `PipelineGradReducer`).

Gradients of a network in micro batches, on their way to the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NoReturn, cast

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxKeyError, SporaxValueError
from sporax.ir import MICRO_LOOP
from sporax.mindspore import context
from sporax.mindspore.common import Parameter, ParameterTuple, Tensor, wrap
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.container import CellList
from sporax.mindspore.nn.step_parts import _MicroBatch
from sporax.mindspore.ops.control.flow import scan
from sporax.runtime.state import frames


class MicroBatched(Cell):
    """A network that runs on `num_parts` equal parts of its inputs, sharded along dimension 0, and adds up the outputs.

    Inputs:
        Tensors, each of shape (num_parts * n, …).

    Outputs:
        One Tensor, of the network's output shape for n rows.
    """

    def __init__(self, network: Any, num_parts: int) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self._num_parts = num_parts

    def construct(self, *inputs: Any) -> Tensor:
        """Sum of the network's outputs over the parts.

        Raises:
            SporaxTypeError: an input or an output is not a Tensor.
            SporaxValueError: dimension 0 of an input cannot be sharded evenly.
        """
        parts = [self._parts(index, value) for index, value in enumerate(inputs)]
        # Unrolled: XLA may then overlap one part's communication with another part's work.
        total: Any = self._one_tensor(self.network(*(part[0] for part in parts)))
        for number in range(1, self._num_parts):
            total = total + self._one_tensor(self.network(*(part[number] for part in parts)))
        return total

    def _parts(self, index: int, value: Any) -> list[Tensor]:
        name = type(self).__name__
        if not isinstance(value, Tensor) or value.ndim == 0:
            kind = "a scalar" if isinstance(value, Tensor) else type(value).__name__
            raise For(name).type_error(f"input {index} must be a Tensor with a batch dimension", kind)
        rows, remainder = divmod(value.shape[0], self._num_parts)
        if remainder:
            raise SporaxValueError(
                f"For '{name}', dimension 0 of input {index} must be divisible by the {self._num_parts} micro batches, but "
                f"got shape {value.shape}."
            )
        # With zero rows a step of 0 would be an error of `range`.
        return [value[start : start + rows] for start in range(0, value.shape[0], rows or 1)]

    def _one_tensor(self, output: Any) -> Tensor:
        For(type(self).__name__).refuse_type(
            not isinstance(output, Tensor), "the output of the network must be one Tensor", type(output).__name__
        )
        return output


class PipelineCell(MicroBatched):
    """Runs a network on micro batches, which a pipeline works on side by side. Same as MindSpore.

    With one pipeline stage it accumulates gradients.

    Args:
        network: the network, with its loss when it is trained.
        micro_size: number of micro batches.
        stage_config: pipeline stage of Cells by their names in `cells_and_names`; ``str(network)`` names the whole.
        segment_config: likewise for the segments of interleaved schedules.

    Raises:
        SporaxTypeError: `network` is not a Cell, `micro_size` not an int, or a table not a dict.
        SporaxValueError: `micro_size` is less than 1.
        SporaxKeyError: a name in a table that no Cell has.

    Example:
        >>> net = PipelineCell(WithLossCell(net, loss_fn), 4)
        >>> net(images, labels)  # the sum of 4 losses
    """

    def __init__(
        self,
        network: Cell,
        micro_size: int,
        stage_config: Mapping[str, int] | None = None,
        segment_config: Mapping[str, int] | None = None,
    ) -> None:
        _check_network("PipelineCell", network)
        super().__init__(network, _count("PipelineCell", "micro_size", micro_size))
        self.micro_size = micro_size
        _place(network, "pipeline_stage", "stage_config", stage_config)
        _place(network, "pipeline_segment", "segment_config", segment_config)

    @cached_property
    def micro_inputs(self) -> CellList:
        """MindSpore's Cells that take one micro batch each; here the planner divides batches, so their marks change nothing."""
        return CellList([_MicroBatch(self.micro_size) for _ in range(self.micro_size)])

    def shard(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: shard the network that is wrapped.

        Raises:
            SporaxValueError: always.
        """
        raise SporaxValueError("For 'PipelineCell', 'shard' must be called on the network it wraps, not on itself.")

    def construct(self, *inputs: Any) -> Tensor:
        """As `MicroBatched`; with several pipeline stages as one loop, which is divided into stages."""
        # The planner divides one loop into stages; unrolled copies would each be placed for themselves.
        if context.snapshot().pipeline_stages == 1 or not frames.compiling():
            return super().construct(*inputs)
        parts = [self._parts(index, value) for index, value in enumerate(inputs)]
        firsts = [part[0] for part in parts]
        # Only the output's shape is needed; `isolate` drops what this trace writes.
        start = jax.eval_shape(lambda: frames.isolate(lambda: self._one_tensor(self.network(*firsts)).array)[0])
        rows = tuple(
            wrap(jnp.reshape(value.array, (self._num_parts, *first.shape)))
            for value, first in zip(inputs, firsts, strict=True)
        )

        def add(total: Tensor, row: tuple[Tensor, ...]) -> tuple[Tensor, None]:
            return wrap(total.array + self._one_tensor(self.network(*row)).array), None

        # The planner finds the loop by this name.
        with jax.named_scope(MICRO_LOOP):
            total: Tensor = scan(add, wrap(jnp.zeros(start.shape, start.dtype)), rows)[0]
        return total


class Pipeline(PipelineCell):
    """Another name of `PipelineCell`. Same as MindSpore."""


class GradAccumulation(MicroBatched):
    """Runs a network on micro batches and adds up the gradients before they are reduced. Same as MindSpore.

    Args:
        network: the network with its loss.
        micro_size: number of micro batches.

    Raises:
        SporaxTypeError: `network` is not a Cell, or `micro_size` not an int.
        SporaxValueError: `micro_size` is less than 1.
    """

    divides_gradients = True
    """`Model` divides the summed gradients by `micro_size`, whatever the number of pipeline stages."""

    def __init__(self, network: Cell, micro_size: int) -> None:
        _check_network("GradAccumulation", network)
        super().__init__(network, _count("GradAccumulation", "micro_size", micro_size))
        self.micro_size = micro_size


class MicroBatchInterleaved(MicroBatched):
    """Runs a network on parts of the batch, so that one part communicates while another computes. Same as MindSpore.

    Args:
        network: the network.
        interleave_num: number of parts.

    Raises:
        SporaxTypeError: `interleave_num` is not an int, or `network` cannot be called.
        SporaxValueError: `interleave_num` is less than 1.
    """

    def __init__(self, network: Any, interleave_num: int = 2) -> None:
        if not callable(network):
            raise For("MicroBatchInterleaved").type_error("'network' must be callable", type(network).__name__)
        super().__init__(network, _count("MicroBatchInterleaved", "interleave_num", interleave_num))
        self.interleave_num = interleave_num


def _check_network(name: str, network: object) -> None:
    For(name).typed("network", network, "a Cell", Cell)


def _count(name: str, what: str, value: Any) -> int:
    For(name).typed(what, value, "an int", int, takes_bool=False)
    For(name).refuse(value < 1, f"'{what}' must be > 0", value)
    return value


def _place(network: Cell, mark: str, what: str, table: Mapping[str, int] | None) -> None:
    """Set the mark of every Cell that `table` names; check all names before any mark is set."""
    if table is None:
        return
    For("PipelineCell").typed(what, table, "a dict", Mapping)
    # MindSpore lets `str(network)` name the whole network.
    cells = {name: cell for name, cell in network.cells_and_names() if name} | {str(network): network}
    if unknown := [name for name in table if name not in cells]:
        raise SporaxKeyError(
            f"For 'PipelineCell', the names in '{what}' must be among {[name for name in cells if name != str(network)]}, "
            f"but got {unknown}."
        )
    for name, value in table.items():
        setattr(cells[name], mark, value)


class PipelineGradReducer(Cell):
    """Divides the gradients that were summed over micro batches. Same as MindSpore, which sums them in Parameters
    ``accu_grads.…`` on the way; here the gradient of a `PipelineCell` is that sum already, so this needs none.

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
        For("PipelineGradReducer").typed("parameters", parameters, "a tuple or list of Parameters", tuple | list)
        if isinstance(scale_sense, bool) or not isinstance(scale_sense, int | float | Tensor):
            raise For("PipelineGradReducer").type_error("'scale_sense' must be a number", type(scale_sense).__name__)
        For("PipelineGradReducer").typed("opt_shard", opt_shard, "a bool or None", bool | None)
        For("PipelineGradReducer").refuse(float(scale_sense) == 0, "'scale_sense' must not be 0")
        self._num_gradients = len(ParameterTuple(parameters))
        # A Parameter, as in MindSpore, so that it can be changed without compiling again.
        self.scale_sense = Parameter(float(scale_sense), name="scale_sense", requires_grad=False)

    def construct(self, grads: Any) -> tuple[Tensor, ...]:
        """The gradients, divided by `scale_sense`."""
        if len(grads) != self._num_gradients:
            raise For("PipelineGradReducer").error(
                f"there must be one gradient for each of the {self._num_gradients} Parameters, but got {len(grads)}"
            )
        # Multiplied in each gradient's own dtype, which must not change.
        factor: Any = 1.0 / cast("Any", self.scale_sense)
        return tuple(grad * factor.astype(grad.dtype) for grad in grads)


def sync_pipeline_shared_parameters(net: Cell) -> None:
    """Give all stages the same values of Parameters that they share.

    Differs from MindSpore: nothing has to be done. A Parameter has one value, in the first stage that uses it, and every
    step brings it to the other stages by itself.

    Raises:
        SporaxTypeError: `net` is not a Cell.
    """
    # Nothing else is done: the runtime stores such a Parameter once.
    For("sync_pipeline_shared_parameters").typed("net", net, "a Cell", Cell)
