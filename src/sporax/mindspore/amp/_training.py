"""A training step in mixed precision, built of network, loss and optimizer."""

from __future__ import annotations

import functools
from typing import Any

import jax

from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore import context, nn
from sporax.mindspore.amp._precision import auto_mixed_precision
from sporax.mindspore.amp._scalers import DynamicLossScaleManager, LossScaleManager
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.optim import Optimizer

# The names that MindSpore takes as keyword arguments; others are mistakes.
_SETTINGS = ("cast_model_type", "keep_batchnorm_fp32", "loss_scale_manager")


def build_train_network(
    network: Cell, optimizer: Optimizer, loss_fn: Any = None, level: str = "O0", boost_level: str = "O0", **kwargs: Any
) -> Cell:
    """One training step as a Cell, in training mode.

    Args:
        network: the network.
        optimizer: updates its Parameters.
        loss_fn: the loss; None when the network gives it.
        level: as in `auto_mixed_precision`. ``"O2"`` also takes a `DynamicLossScaleManager`.
        boost_level: ``"O0"``; MindSpore's other levels are not offered.
        kwargs: override what the level says: ``cast_model_type`` (float16 or float32), ``keep_batchnorm_fp32`` (bool),
            ``loss_scale_manager`` (a `LossScaleManager`, or None).

    Raises:
        SporaxTypeError, SporaxValueError: settings of another kind.
        SporaxNotImplementedError: `boost_level` above O0.
    """
    name = "build_train_network"
    check_type(name, "optimizer", optimizer, "an Optimizer", Optimizer)
    if level not in ("O0", "O1", "O2", "O3", "auto"):
        raise SporaxValueError(f"For '{name}', 'level' must be 'O0' to 'O3' or 'auto', but got {level!r}.")
    if boost_level != "O0":
        raise SporaxNotImplementedError(f"For '{name}', 'boost_level' must be 'O0', but got {boost_level!r}.")
    _check_settings(name, kwargs)
    network = auto_mixed_precision(network, _effective_level(level, kwargs))
    if loss_fn is not None:
        # Levels whose outputs may be in half precision; a loss summed there would lose small terms.
        in_half = _effective_level(level, kwargs) in ("O2", "O3", "auto")
        network = _InFloat32(network, loss_fn) if in_half else nn.WithLossCell(network, loss_fn)
    # Level O2 has a dynamic scale by default, as in MindSpore; an explicit None turns it off.
    manager = kwargs.get("loss_scale_manager", DynamicLossScaleManager() if level == "O2" else None)
    step: nn.TrainOneStepCell
    if manager is None:
        step = nn.TrainOneStepCell(network, optimizer)
    elif (update := manager.get_update_cell()) is None:
        # A fixed scale without overflow check: one multiplication, so the plain training Cell is enough.
        step = nn.TrainOneStepCell(network, optimizer, manager.get_loss_scale())
    else:
        step = nn.TrainOneStepWithLossScaleCell(network, optimizer, update)
    # Asked when the step is compiled: the number of stages may be set later than this.
    step.divisor = functools.partial(_gradient_divisor, network)
    return step.set_train()


def _gradient_divisor(network: Cell) -> int:
    """By what gradients are divided: the number of micro batches, where they are summed by a pipeline or `GradAccumulation`.

    The loss stays the sum over the micro batches.
    """
    cells = [cell for _, cell in network.cells_and_names()]
    stages = [cell.get_pipeline_stages() for cell in cells if hasattr(cell, "get_pipeline_stages")]
    # The number of stages may come from the context or from an `AutoParallel` Cell around the network.
    piped = max([context.snapshot().pipeline_stages, *stages]) > 1
    for cell in cells:
        size = getattr(cell, "micro_size", None)
        # Cells with micro batches divide only where something sums their gradients.
        if isinstance(size, int) and (piped or getattr(cell, "divides_gradients", False)):
            return size
    return 1


class _InFloat32(nn.WithLossCell):
    """Network and loss, the loss of float32 outputs and labels."""

    def construct(self, data: Any, label: Any) -> Tensor:
        """Loss of one batch."""
        return self._loss_fn(_raised(self._backbone(data)), _raised(label))


def _raised(value: Any) -> Any:
    def raise_one(leaf: Any) -> Any:
        return leaf.astype(dtypes.float32) if isinstance(leaf, Tensor) and leaf.dtype in dtypes.float_type else leaf

    return jax.tree.map(raise_one, value, is_leaf=lambda leaf: isinstance(leaf, Tensor))


def _effective_level(level: str, settings: dict[str, Any]) -> str:
    """The level that settings given one by one amount to."""
    # Settings beat the level, so the level gives the defaults and what results is named again.
    in_half = settings.get("cast_model_type", dtypes.float16 if level in ("O2", "O3") else None)
    if in_half == dtypes.float32:
        # float32 undoes only the levels that cast all Cells; O1 and auto do not depend on this setting.
        return "O0" if level in ("O2", "O3") else level
    if in_half == dtypes.float16:
        return "O2" if settings.get("keep_batchnorm_fp32", level == "O2") else "O3"
    return level


def _check_settings(name: str, settings: dict[str, Any]) -> None:
    for what, value in settings.items():
        if what not in _SETTINGS:
            raise SporaxValueError(f"For '{name}', the settings are {_SETTINGS}, but got '{what}'.")
        if what == "cast_model_type" and value not in (dtypes.float16, dtypes.float32):
            raise SporaxTypeError(f"For '{name}', 'cast_model_type' must be float16 or float32, but got {value!r}.")
        if what == "keep_batchnorm_fp32" and not isinstance(value, bool):
            raise SporaxTypeError.must(name, "keep_batchnorm_fp32", "be a bool", type(value).__name__)
        if what == "loss_scale_manager" and value is not None and not isinstance(value, LossScaleManager):
            raise SporaxTypeError.must(name, "loss_scale_manager", "be a LossScaleManager", type(value).__name__)
