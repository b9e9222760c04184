"""The Cell that does one training step, with or without mixed precision."""

from __future__ import annotations

import importlib
from typing import Any

from sporax import nn
from sporax.ir.errors import SporaxNotImplementedError, SporaxValueError
from sporax.nn.cell import Cell

LEVELS = ("O0", "O1", "O2", "O3", "auto")


def train_network(network: Cell, loss_fn: Any, optimizer: Any, level: str, options: dict[str, Any]) -> Cell:
    """Network, loss and optimizer as one Cell.

    Args:
        network: the network.
        loss_fn: the loss; None when the network gives it.
        optimizer: None when the network is a whole training step.
        level: of mixed precision.
        options: ``loss_scale_manager`` and ``keep_batchnorm_fp32``.

    Raises:
        SporaxValueError: mixed precision without an optimizer.
        SporaxNotImplementedError: this installation has no mixed precision.
    """
    manager = options.get("loss_scale_manager")
    if optimizer is None:
        if level != "O0" or manager is not None:
            raise SporaxValueError(
                "For 'Model', mixed precision and 'loss_scale_manager' need an 'optimizer', but it is None; "
                f"'amp_level' is '{level}'."
            )
        return network if loss_fn is None else nn.WithLossCell(network, loss_fn)
    if level == "O0" and manager is None:
        return nn.TrainOneStepCell(network if loss_fn is None else nn.WithLossCell(network, loss_fn), optimizer)
    given = {name: options[name] for name in ("loss_scale_manager", "keep_batchnorm_fp32") if name in options}
    try:
        amp = importlib.import_module("sporax.amp")
    except ModuleNotFoundError as error:
        raise SporaxNotImplementedError(
            f"For 'Model', mixed precision is not part of this installation, but 'amp_level' is '{level}' and "
            f"'loss_scale_manager' is {manager!r}."
        ) from error
    built: Cell = amp.build_train_network(network, optimizer, loss_fn, level=level, **given)
    return built
