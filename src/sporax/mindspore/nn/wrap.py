"""Cells that wrap a network into a training or evaluation step.

Derivatives of networks as Cells: `Jvp` and `Vjp` of older programs.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore import context, ops
from sporax.mindspore._declared import setting
from sporax.mindspore._names.missing import missing_name
from sporax.mindspore.common import Parameter, ParameterTuple, Tensor
from sporax.mindspore.common.transforms import GradOperation, value_and_grad
from sporax.mindspore.nn._deferred_settings import late_setting
from sporax.mindspore.nn.cell import Cell, Layer
from sporax.mindspore.nn.grad_reducer import ReducerOfMode, broadcast_parameters, broadcasts_first, reduces
from sporax.runtime.state import frames

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`


class WithLossCell(Cell):
    """Network and loss as one Cell: ``loss_fn(backbone(data), label)``.

    Raises:
        SporaxTypeError: one of both is not a Cell (or the loss no function).
    """

    def __init__(self, backbone: Cell, loss_fn: Any) -> None:
        # The Cells inside keep the names of their Parameters.
        super().__init__(auto_prefix=False)
        For("WithLossCell").typed("backbone", backbone, "a Cell", Cell)
        For("WithLossCell").refuse_type(not callable(loss_fn), "'loss_fn' must be callable", type(loss_fn).__name__)
        self._backbone = backbone
        self._loss_fn = loss_fn

    def construct(self, data: Any, label: Any) -> Tensor:
        """Loss of one batch."""
        return self._loss_fn(self._backbone(data), label)

    @property
    def backbone_network(self) -> Cell:
        """The network."""
        return self._backbone


class WithEvalCell(Cell):
    """Network and loss for evaluation: gives loss, outputs and labels.

    Args:
        network: the network.
        loss_fn: the loss.
        add_cast_fp32: compute the loss in float32.
    """

    def __init__(self, network: Cell, loss_fn: Any, add_cast_fp32: bool = False) -> None:
        super().__init__(auto_prefix=False)
        self._network = network
        self._loss_fn = loss_fn
        self.add_cast_fp32 = For("WithEvalCell").typed("add_cast_fp32", add_cast_fp32, "a bool", bool)

    def construct(self, data: Any, label: Any) -> tuple[Any, Any, Any]:
        """Loss, outputs and labels of one batch."""
        outputs = self._network(data)
        if self.add_cast_fp32:
            # The network may compute in half precision.
            outputs = outputs.float()
        return self._loss_fn(outputs, label), outputs, label


class ForwardValueAndGrad(Cell):
    """Value and gradients of a network as a Cell.

    Args:
        network: gives the loss.
        weights: Parameters to differentiate.
        get_all: gradients of all inputs.
        get_by_list: gradients of `weights`.
        sens_param: the last input scales the gradients.
    """

    def __init__(
        self,
        network: Any,
        weights: Any = None,
        get_all: bool = False,
        get_by_list: bool = False,
        sens_param: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)
        if not callable(network):
            raise For("ForwardValueAndGrad").type_error("'network' must be callable", type(network).__name__)
        self.network = network
        self.weights = weights
        self.get_all = get_all
        self.get_by_list = get_by_list
        self.sens_param = sens_param
        self.grad = GradOperation(get_all=bool(get_all), get_by_list=bool(get_by_list), sens_param=bool(sens_param))

    def construct(self, *inputs: Any) -> tuple[Any, Any]:
        """The value and the gradients."""
        # The last input is the factor.
        *values, scale = (*inputs, None) if not self.sens_param else inputs
        positions = tuple(range(len(values))) if self.get_all else (None if self.get_by_list else 0)
        weights = self.weights if self.get_by_list else None

        def scaled(*args: Any) -> tuple[Any, Any]:
            value = self.network(*args)
            # The value comes back without the factor.
            return (value if scale is None else value * scale), value

        (_, value), grads = value_and_grad(scaled, positions, weights, has_aux=True)(*values)
        return value, self._nested(grads)

    def _nested(self, grads: Any) -> Any:
        """Gradients of all inputs as a tuple, also where there is one input."""
        if not self.get_all:
            return grads
        by_input, *by_weight = grads if self.get_by_list else (grads,)
        by_input = by_input if isinstance(by_input, tuple) else (by_input,)
        return (by_input, *by_weight) if self.get_by_list else by_input


class WithGradCell(Cell):
    """Gradients of the Parameters of a network, or of network and loss.

    Args:
        network: gives the loss, or the outputs the loss is computed of.
        loss_fn: the loss; None when the network gives it.
        sens: scales the gradients: a Tensor like the loss, or None for ones.
    """

    def __init__(self, network: Cell, loss_fn: Any = None, sens: Any = None) -> None:
        super().__init__(auto_prefix=False)
        For("WithGradCell").typed("network", network, "a Cell", Cell)
        self.network, self.loss_fn = network, loss_fn
        self.network_with_loss = network if loss_fn is None else WithLossCell(network, loss_fn)
        self.weights = ParameterTuple(network.trainable_params())
        self.sens = sens

    def construct(self, *inputs: Any) -> Any:
        """The gradients, in the order of ``network.trainable_params()``."""
        if self.sens is None:
            return GradOperation(get_by_list=True)(self.network_with_loss, self.weights)(*inputs)
        gradients = GradOperation(get_by_list=True, sens_param=True)(self.network_with_loss, self.weights)
        return gradients(*inputs, self.sens)


class TrainOneStepCell(Cell):
    """One training step: loss, gradients, optimizer. In GRAPH_MODE all of it is one compiled program.

    In data and hybrid parallel mode the gradients of all ranks are combined, and with ``parameter_broadcast`` the first
    call gives all ranks the Parameters of rank 0.

    Args:
        network: gives the loss.
        optimizer: updates its Parameters.
        sens: scales the loss before differentiation; None for 1.
        return_grad: also return the gradients by Parameter name.

    Raises:
        SporaxValueError: `sens` is 0 or not finite.
        SporaxTypeError: `return_grad` is not a bool.

    Example:
        >>> step = TrainOneStepCell(WithLossCell(net, CrossEntropyLoss()), Momentum(net.trainable_params(), 0.1, 0.9))
        >>> loss = step(images, labels)
    """

    def __init__(self, network: Cell, optimizer: Cell, sens: float | None = None, return_grad: bool = False) -> None:
        super().__init__(auto_prefix=False)
        For("TrainOneStepCell").refuse(sens == 0, "the input argument 'sens' can not be 0")
        if sens is not None and not math.isfinite(sens):
            raise SporaxValueError(f"For 'TrainOneStepCell', the input argument 'sens' must be finite, but got {sens}.")
        if not isinstance(return_grad, bool):
            raise SporaxTypeError(f"For 'TrainOneStepCell', 'return_grad' must be a bool, but got {return_grad!r}.")
        self.network = network
        self.optimizer = optimizer
        self.weights = optimizer.parameters
        self.sense_flag = sens is not None
        self.sens = 1.0 if sens is None else float(sens)
        self.return_grad = return_grad
        # Kept, since a Cell around this one may rename them.
        self.weights_name = [weight.name for weight in self.weights]
        self.grad_reducer: Any = ReducerOfMode(self.weights)
        self.divisor: Callable[[], int] = _one
        """Gives the number by which gradients are divided when a step is compiled; see `amp.build_train_network`."""
        self._for_subclasses()
        self._has_broadcast = False

    # A step derived from this one may set them; else they are as the settings are when the step is compiled.
    reducer_flag = late_setting("reducer_flag", reduces, "Whether the gradients of all ranks are combined.")
    parallel_mode = late_setting("parallel_mode", context.parallel_mode, "The parallel mode.")
    mean = late_setting(
        "mean", lambda: context.snapshot().gradients_mean, "Whether summed gradients are divided by `degree`."
    )
    degree = late_setting("degree", lambda: context.snapshot().device_num, "The number of ranks.")

    @property
    def _factor(self) -> float:
        """What the loss is multiplied by before it is differentiated."""
        return self.sens / self.divisor()

    def _for_subclasses(self) -> None:
        """What steps derived from this one use, with MindSpore's names."""
        self.grad = GradOperation(get_by_list=True, sens_param=True)
        self.grad_no_sens = GradOperation(get_by_list=True)
        self.hyper_map = ops.HyperMap()
        self.use_grad_accumulation = False

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """Train on one batch; gives the loss."""
        # Before the first step, and outside of compiled ones.
        if not self._has_broadcast and frames.current_frame() is None and broadcasts_first():
            broadcast_parameters(list(self.get_parameters()))
            self._has_broadcast = True
        return super().__call__(*inputs, **kwargs)

    def construct(self, *inputs: Any) -> Any:
        """See `__call__`."""

        def scaled(*args: Any) -> tuple[Any, Any]:
            loss = self.network(*args)
            first = loss[0] if isinstance(loss, tuple) else loss
            # A factor of 1 costs nothing this way.
            return (first if self._factor == 1.0 else first * self._factor), loss

        (_, loss), grads = value_and_grad(scaled, None, self.weights, has_aux=True)(*inputs)
        grads = self.grad_reducer(grads)
        self.optimizer(grads)
        if self.return_grad:
            return loss, {weight.name: grad for weight, grad in zip(self.weights, grads, strict=True)}
        return loss


def _one() -> int:
    return 1


class ParameterUpdate(Cell):
    """Gives a Parameter a new value when called."""

    def __init__(self, param: Any) -> None:
        super().__init__(auto_prefix=False)
        self._param = For("ParameterUpdate").typed("param", param, "a Parameter", Parameter)

    def construct(self, x: Tensor) -> Tensor:
        """The new value."""
        ops.assign(self._param, x)
        return x


_OTHERS = """
    DistributedGradReducer DynamicLossScaleUpdateCell FixedLossScaleUpdateCell GradAccumulationCell MicroBatchInterleaved
    PipelineCell PipelineGradReducer TimeDistributed TrainOneStepWithLossScaleCell
"""
"""What else MindSpore's `nn.wrap` lists: mindformers registers all classes that it finds there."""

if not TYPE_CHECKING:  # checkers should see a missing name themselves

    def __dir__() -> list[str]:
        return sorted({*globals(), *_OTHERS.split()})

    def __getattr__(name: str) -> Any:
        # MindSpore has the steps with loss scales in this package too; here they are built on this module.
        nn = importlib.import_module("sporax.mindspore.nn")
        return getattr(nn, name) if name in nn.__all__ else missing_name(__name__, name)


class Jvp(Layer):
    """Outputs of a network and their derivative in a direction: ``Jvp(net)(*inputs, v)``. Use `ops.jvp` in new code."""

    fn: Any = setting(None, "function or Cell of Tensors.")

    def _prepare(self) -> None:
        _check_function("Jvp", self.fn)

    def construct(self, *args: Any) -> tuple[Any, Any]:
        """Inputs, then the direction: a Tensor for one input, a tuple for several."""
        *inputs, directions = args
        _check_directions("Jvp", directions, len(inputs))
        return ops.jvp(self.fn, tuple(inputs), directions)


class Vjp(Layer):
    """Outputs of a network and the gradients of its inputs: ``Vjp(net)(*inputs, v)``. Use `ops.vjp` in new code."""

    fn: Any = setting(None, "function or Cell of Tensors.")

    def _prepare(self) -> None:
        _check_function("Vjp", self.fn)

    def construct(self, *args: Any) -> tuple[Any, Any]:
        """Inputs, then the cotangent: a Tensor for one output, a tuple for several."""
        *inputs, cotangents = args
        outputs, backward = ops.vjp(self.fn, *inputs)
        _check_directions("Vjp", cotangents, len(outputs) if isinstance(outputs, tuple) else 1)
        gradients = backward(*cotangents) if isinstance(cotangents, tuple) else backward(cotangents)
        # One input: its gradient by itself.
        return outputs, gradients if len(inputs) > 1 else gradients[0]


def _check_directions(name: str, value: object, count: int) -> None:
    have = len(value) if isinstance(value, tuple) else 1
    if have != count or isinstance(value, tuple) == (count == 1):
        raise SporaxTypeError(f"For '{name}', 'v' must be a Tensor for one, or a tuple of {count}, but got {value!r}.")


def _check_function(name: str, fn: object) -> None:
    For(name).refuse_type(not callable(fn), "'fn' must be a function or a Cell", type(fn).__name__)
