"""Checks of what `Model` is given."""

from __future__ import annotations

import warnings
from typing import Any

from sporax.context import get_auto_parallel_context
from sporax.ir.errors import SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.nn.cell import Cell
from sporax.train._checks import check_count, check_integer, check_text
from sporax.train._feed import Batch, check_dataset

_OPTIONS = ("loss_scale_manager", "keep_batchnorm_fp32", "boost_config_dict", "acc_level")


def check_parts(network: Any, loss_fn: Any, optimizer: Any) -> None:
    """Refuse what is no network, loss or optimizer.

    Raises:
        SporaxTypeError: names the argument.
    """
    if not isinstance(network, Cell):
        raise SporaxTypeError(f"For 'Model', 'network' must be a Cell, but got {type(network).__name__}.")
    if loss_fn is not None and not callable(loss_fn):
        raise SporaxTypeError(f"For 'Model', 'loss_fn' must be a Cell or a function, but got {type(loss_fn).__name__}.")
    if optimizer is not None and not isinstance(optimizer, Cell):
        raise SporaxTypeError(f"For 'Model', 'optimizer' must be an Optimizer, but got {type(optimizer).__name__}.")


def check_options(options: dict[str, Any], boost_level: str) -> None:
    """Refuse unknown options, and speed-ups that are not offered.

    Raises:
        SporaxValueError: an unknown option.
        SporaxNotImplementedError: a boost level other than ``"O0"``.
    """
    for name in options:
        if name not in _OPTIONS:
            raise SporaxValueError(f"For 'Model', further options must be among {list(_OPTIONS)}, but got '{name}'.")
    level = check_text("Model", "boost_level", options.get("acc_level", boost_level), ("O0", "O1", "O2"))
    if level != "O0":
        raise SporaxNotImplementedError(
            f"For 'Model', 'boost_level' must be 'O0': speed-ups that change the training result are not offered, "
            f"but got '{level}'."
        )
    if "boost_config_dict" in options:
        warnings.warn("'boost_config_dict' changes nothing while 'boost_level' is 'O0'.", stacklevel=3)


def check_epochs(where: str, epoch: Any, initial_epoch: Any, sink_size: Any) -> None:
    """Refuse numbers that make no run.

    Raises:
        SporaxTypeError, SporaxValueError: names the number.
    """
    check_integer(where, "sink_size", sink_size)
    check_count(where, "epoch", epoch, minimum=1)
    check_count(where, "initial_epoch", initial_epoch, minimum=0)
    if initial_epoch >= epoch:
        raise SporaxValueError(
            f"For '{where}', 'epoch' must be greater than 'initial_epoch', but got {epoch} and {initial_epoch}."
        )
    if sink_size < -1 or sink_size == 0:
        raise SporaxValueError(f"For '{where}', 'sink_size' must be -1 or positive, but got {sink_size}.")


def first_batch(where: str, dataset: Any) -> Batch:
    """The first batch of a dataset.

    Raises:
        SporaxTypeError: no dataset.
        SporaxValueError: it is empty.
    """
    check_dataset(where, dataset)
    for batch in dataset.create_tuple_iterator(num_epochs=1):
        return tuple(batch)
    raise SporaxValueError(f"For '{where}', the dataset must not be empty, but it has no batch.")


def layouts(where: str) -> Any:
    """How Parameters are cut over devices.

    Raises:
        SporaxRuntimeError: not in a mode that cuts them.
        SporaxNotImplementedError: there is no plan to ask yet.
    """
    mode = get_auto_parallel_context("parallel_mode")
    if mode not in ("semi_auto_parallel", "auto_parallel"):
        raise SporaxRuntimeError(
            f"For '{where}', the parallel mode must be 'semi_auto_parallel' or 'auto_parallel', but got '{mode}'."
        )
    raise SporaxNotImplementedError(f"For '{where}', layouts of Parameters can be asked for once plans are lowered.")
