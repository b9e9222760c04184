"""Checks of what `Model` is given."""

from __future__ import annotations

import warnings
from typing import Any

from sporax.base.errors import (
    SporaxNotImplementedError,
    SporaxRuntimeError,
    SporaxTypeError,
    SporaxValueError,
    check_type,
)
from sporax.ir.config.parallel_config import ParallelMode
from sporax.mindspore.context import get_auto_parallel_context, snapshot, world_size
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train._checks import check_count, check_integer, check_text
from sporax.mindspore.train._feed import Batch, check_dataset

_OPTIONS = ("loss_scale_manager", "keep_batchnorm_fp32", "boost_config_dict", "acc_level")


def check_parts(network: Any, loss_fn: Any, optimizer: Any) -> None:
    """Refuse what is no network, loss or optimizer.

    Raises:
        SporaxTypeError: names the argument.
    """
    check_type("Model", "network", network, "a Cell", Cell)
    if loss_fn is not None and not callable(loss_fn):
        raise SporaxTypeError(f"For 'Model', 'loss_fn' must be a Cell or a function, but got {type(loss_fn).__name__}.")
    if optimizer is not None and not isinstance(optimizer, Cell):
        raise SporaxTypeError(f"For 'Model', 'optimizer' must be an Optimizer, but got {type(optimizer).__name__}.")


def check_parallel(where: str) -> None:
    """Refuse parallel settings that contradict each other, before anything is compiled.

    Raises:
        SporaxRuntimeError: the whole batch on every rank, in a mode in which the step is not sharded.
        SporaxValueError: several devices in a mode for one, or a broadcast of rank 0's Parameters in a mode without it.
    """
    config = snapshot()
    mode = config.parallel_mode
    # Every rank would compute the same, since nothing divides the batch.
    if config.full_batch and not config.in_global_view:
        raise SporaxRuntimeError(
            f"For '{where}', 'full_batch' (dataset_strategy='full_batch') must come with the parallel mode "
            f"'semi_auto_parallel' or 'auto_parallel', but got '{mode}'."
        )
    # One device per rank is the usual case, also in a job.
    if mode == ParallelMode.STAND_ALONE and config.device_num not in (1, world_size()):
        raise SporaxValueError.must(where, "device_num", "be 1 in the parallel mode 'stand_alone'", config.device_num)
    if config.parameter_broadcast and mode not in (ParallelMode.DATA_PARALLEL, ParallelMode.HYBRID_PARALLEL):
        raise SporaxValueError(
            f"For '{where}', 'parameter_broadcast' must come with the parallel mode 'data_parallel' or "
            f"'hybrid_parallel', but got '{mode}'. Set one seed on all ranks instead."
        )


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
    # Accepted by MindSpore; a warning says that it has no effect.
    if "boost_config_dict" in options:
        warnings.warn("For 'Model', 'boost_config_dict' changes nothing while 'boost_level' is 'O0'.", stacklevel=3)


def check_epochs(where: str, epoch: Any, initial_epoch: Any, sink_size: Any) -> None:
    """Refuse numbers that make no run.

    Raises:
        SporaxTypeError, SporaxValueError: names the number.
    """
    check_integer(where, "sink_size", sink_size)
    check_count(where, "epoch", epoch, minimum=1)
    check_count(where, "initial_epoch", initial_epoch, minimum=0)
    if initial_epoch >= epoch:
        raise SporaxValueError.must(where, "epoch", "be greater than 'initial_epoch'", f"{epoch} and {initial_epoch}")
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


def check_sharding_mode(where: str) -> None:
    """Refuse to say how Parameters are sharded in a mode that does not shard them.

    Raises:
        SporaxRuntimeError: not in semi_auto_parallel or auto_parallel mode, or in PYNATIVE_MODE.
    """
    mode = get_auto_parallel_context("parallel_mode")
    if mode not in ("semi_auto_parallel", "auto_parallel"):
        raise SporaxRuntimeError(
            f"For '{where}', the parallel mode must be 'semi_auto_parallel' or 'auto_parallel', but got '{mode}'."
        )
