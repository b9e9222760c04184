"""Where a run's batches come from: one at a time, or in groups for sink mode.

In MindSpore's sink mode the device fetches batches by itself and runs many steps before the host sees it. Here that
is a *group*: batches of equal shape stacked into one array, over which one compiled program runs all their steps. The
host then works once per group instead of once per step, and the numbers are those of single steps.

Checks of what `Model` is given.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.ir.config import ParallelMode
from sporax.mindspore.common._rank_parts import of_all_ranks
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.context import get_auto_parallel_context, snapshot, world_size
from sporax.mindspore.nn.cell import Cell

# 64 MiB: a group must fit next to the model, also on small devices.
_MAX_GROUP_BYTES = 64 << 20
# More steps save nothing measurable, and callbacks would wait longer.
_MAX_GROUP_STEPS = 64

Batch = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Inputs of several steps that run as one program.

    Attributes:
        inputs: Tensors ``[steps, ...]`` (for a single step without the first dimension).
        num_steps: how many steps they are for.
        num_samples: how many samples all of them have.
        last: the last step's inputs, for callbacks.
    """

    inputs: Batch
    num_steps: int
    num_samples: int
    last: Batch


def check_dataset(where: str, dataset: Any) -> int:
    """Number of batches in an epoch of `dataset`.

    Raises:
        SporaxTypeError: it is not a dataset.
    """
    if not hasattr(dataset, "create_tuple_iterator") or not hasattr(dataset, "get_dataset_size"):
        raise SporaxTypeError(f"For '{where}', the dataset must be a Dataset, but got {type(dataset).__name__}.")
    return int(dataset.get_dataset_size())


class Feed:
    """Batches of a dataset, epoch after epoch, without end.

    Data sets of one's own need less than Sporax's: their `create_tuple_iterator` may take fewer arguments, what it gives may have
    no `release`, and `reset` of the data set, where there is one, is called after each epoch, as MindSpore does. They give the
    rows of one rank (`common._rank_parts`).

    Args:
        dataset: gives lists of columns.
        output_numpy: numpy arrays instead of Tensors.
        trains: whether the batches are for steps of training.
        at_once: batches that sink mode takes between two words to the host. As in MindSpore it begins with the first of these:
            `set_init_step` is rounded down, with a warning.

    Raises:
        SporaxTypeError: what `create_tuple_iterator` gives cannot be iterated.
    """

    def __init__(self, dataset: Any, *, output_numpy: bool = False, trains: bool = True, at_once: int = 1) -> None:
        if over := getattr(dataset, "get_init_step", int)() % at_once:
            step = dataset.get_init_step() - over
            warnings.warn(
                f"For 'set_init_step', the step must be the end of an epoch in sink mode, a multiple of {at_once}, but got "
                f"{step + over}; it is {step} now.",
                stacklevel=2,
            )
            dataset.set_init_step(step)
        # Without end: the loop counts epochs itself.
        wanted = {"num_epochs": -1, "output_numpy": output_numpy}
        taken = _accepted(dataset.create_tuple_iterator, wanted)
        self._create = functools.partial(dataset.create_tuple_iterator, **taken)
        self._iterator = self._create()
        if not hasattr(self._iterator, "__iter__") and not hasattr(self._iterator, "__next__"):
            raise SporaxTypeError(
                f"For 'Model', 'create_tuple_iterator' of the dataset ({type(dataset).__name__}) must give an iterator, but got "
                f"{type(self._iterator).__name__}."
            )
        self._ends_after_epoch = "num_epochs" not in taken
        self._is_ours = "output_numpy" in inspect.signature(dataset.create_tuple_iterator).parameters
        self._form = _as_numpy if output_numpy else _as_tensor
        self._reset = None if self._is_ours else getattr(dataset, "reset", None)
        self._begun = False
        self._trains = trains
        self._rows: Iterator[Any] | None = None

    def epoch(self) -> Iterator[Batch]:
        """The batches of the next epoch."""
        if self._is_ours:
            return map(tuple, iter(self._iterator))
        return self._epoch_of_own_class()

    def _epoch_of_own_class(self) -> Iterator[Batch]:
        if self._begun and self._ends_after_epoch:
            self._iterator = self._create()
        self._begun = True
        for row in self._iterator if hasattr(self._iterator, "__iter__") else _until_stopped(self._iterator):
            # A single column may come without a list around it.
            columns = tuple(map(self._form, [row] if isinstance(row, Tensor | np.ndarray) else row))
            yield of_all_ranks(columns) if self._trains else columns
        if self._reset is not None:
            self._reset()

    def take(self, count: int) -> Iterator[Batch]:
        """The next `count` batches, which may end within an epoch; the following call goes on from there.

        Raises:
            SporaxRuntimeError: an epoch had no batch at all, so that there will never be `count` of them.
        """
        # Remembers whether the present pass has given any batch.
        is_empty = False
        while count > 0:
            if self._rows is None:
                self._rows, is_empty = self.epoch(), True
            for batch in self._rows:
                is_empty = False
                yield batch
                count -= 1
                if count == 0:
                    return
            # An empty epoch would be repeated for ever.
            if is_empty:
                raise SporaxRuntimeError(
                    f"For 'Model', an epoch of the dataset must have at least one batch, but got none, and {count} more are "
                    "requested. Look at its filters, `skip`, and `batch(drop_remainder=True)` with fewer rows than a batch."
                )
            self._rows = None

    def close(self) -> None:
        """Stop the dataset's workers."""
        release = getattr(self._iterator, "release", None)
        if release is not None:
            release()


def _accepted(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a function takes by name."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


def _until_stopped(iterator: Any) -> Iterator[Any]:
    """The rows of an object that has `__next__` alone."""
    while True:
        try:
            row = next(iterator)
        except StopIteration:
            return
        yield row


def _as_numpy(column: Any) -> Any:
    return column.asnumpy() if isinstance(column, Tensor) else column


def _as_tensor(column: Any) -> Any:
    return Tensor(column) if isinstance(column, np.ndarray) else column


def groups(batches: Iterator[Batch], groupable: Callable[[Batch], bool]) -> Iterator[Group]:
    """Batches (of numpy arrays) in groups of equal shapes, as large as fits; odd ones alone.

    Args:
        batches: where they come from.
        groupable: read once, with the first batch, whether grouping pays.
    """
    waiting: list[Batch] = []
    limit = 0
    for batch in batches:
        # Decided by the first batch: shapes seldom change in size.
        limit = limit or (_capacity(batch) if groupable(tuple(map(Tensor, batch))) else 1)
        if waiting and (len(waiting) >= limit or _shapes(batch) != _shapes(waiting[0])):
            yield _group(waiting)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield _group(waiting)


def _shapes(batch: Batch) -> tuple[Any, ...]:
    return tuple((column.shape, column.dtype) for column in batch)


def _capacity(batch: Batch) -> int:
    size: int = sum(column.nbytes for column in batch)
    # At least one batch, however large it is.
    return max(1, min(_MAX_GROUP_STEPS, _MAX_GROUP_BYTES // max(size, 1)))


def _group(batches: list[Batch]) -> Group:
    last = tuple(map(Tensor, batches[-1]))
    count = num_samples(last) * len(batches)
    if len(batches) == 1:
        return Group(last, 1, count, last)
    return Group(tuple(Tensor(np.stack(column)) for column in zip(*batches, strict=True)), len(batches), count, last)


def num_samples(batch: Batch) -> int:
    """Number of samples in a batch: the first dimension of its first column."""
    shape = getattr(batch[0], "shape", ()) if batch else ()
    return int(shape[0]) if shape else 1


_OPTIONS = ("loss_scale_manager", "keep_batchnorm_fp32", "boost_config_dict", "acc_level")


def check_parts(network: Any, loss_fn: Any, optimizer: Any) -> None:
    """Refuse what is no network, loss or optimizer.

    Raises:
        SporaxTypeError: names the argument.
    """
    For("Model").typed("network", network, "a Cell", Cell)
    if loss_fn is not None and not callable(loss_fn):
        raise SporaxTypeError(f"For 'Model', 'loss_fn' must be a Cell or a function, but got {type(loss_fn).__name__}.")
    For("Model").typed("optimizer", optimizer, "an Optimizer", Cell | None)


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
        raise For(where).error("'device_num' must be 1 in the parallel mode 'stand_alone'", config.device_num)
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
        For("Model").refuse(name not in _OPTIONS, f"further options must be among {list(_OPTIONS)}, but got '{name}'")
    level = For("Model").text("boost_level", options.get("acc_level", boost_level), ("O0", "O1", "O2"))
    if level != "O0":
        raise For("Model").fault(
            SporaxNotImplementedError,
            "'boost_level' must be 'O0': speed-ups that change the training result are not offered",
            f"'{level}'",
        )
    # Accepted by MindSpore; a warning says that it has no effect.
    if "boost_config_dict" in options:
        warnings.warn("For 'Model', 'boost_config_dict' changes nothing while 'boost_level' is 'O0'.", stacklevel=3)


def check_epochs(where: str, epoch: Any, initial_epoch: Any, sink_size: Any) -> None:
    """Refuse numbers that make no run.

    Raises:
        SporaxTypeError, SporaxValueError: names the number.
    """
    For(where).integer("sink_size", sink_size)
    For(where).integer("epoch", epoch, 1)
    For(where).integer("initial_epoch", initial_epoch, 0)
    if initial_epoch >= epoch:
        raise For(where).error("'epoch' must be greater than 'initial_epoch'", f"{epoch} and {initial_epoch}")
    For(where).refuse(sink_size < -1 or sink_size == 0, "'sink_size' must be -1 or positive", sink_size)


def first_batch(where: str, dataset: Any, trains: bool = True) -> Batch:
    """The first batch of a dataset, which begins again afterwards; as a step of training takes it, or of evaluation.

    Raises:
        SporaxTypeError: no dataset.
        SporaxValueError: it is empty.
    """
    check_dataset(where, dataset)
    feed = Feed(dataset, trains=trains)
    try:
        for batch in feed.epoch():
            return batch
    finally:
        feed.close()
        if feed._reset is not None:
            feed._reset()
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
