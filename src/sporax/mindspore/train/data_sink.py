"""`data_sink`: a function that fetches its own batches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common.jit import jit
from sporax.mindspore.train._feed import Feed, check_dataset

__all__ = ["data_sink"]
answer_missing_names(__name__)


def data_sink(
    fn: Callable[..., Any], dataset: Any, sink_size: int = 1, jit_config: Any = None, input_signature: Any = None
) -> Callable[[], Any]:
    """A function without arguments that runs `fn` on the next batches of a dataset, epoch after epoch.

    Args:
        fn: takes the columns of a batch.
        dataset: where batches come from.
        sink_size: batches per call.
        jit_config: anything but None compiles `fn`; what it says is for MindSpore's compiler.
        input_signature: Tensors whose shapes (-1 for any size) and dtypes batches must have; with `jit_config` only.

    Returns:
        The function; it gives what `fn` gave for the last batch of the call.

    Raises:
        SporaxTypeError: `fn` cannot be called, or `dataset` is none.
        SporaxValueError: `sink_size` is not positive, `dataset` is empty, or a signature without `jit_config`.

    Example:
        >>> step = data_sink(train_step, dataset, sink_size=10)
        >>> for _ in range(100):
        ...     loss = step()
    """
    For("data_sink").refuse_type(not callable(fn), "'fn' must be a function", type(fn).__name__)
    if For("data_sink").integer("sink_size", sink_size) <= 0:
        raise SporaxValueError(f"For 'data_sink', 'sink_size' must be positive, but got {sink_size}.")
    if input_signature is not None and jit_config is None:
        raise SporaxValueError("For 'data_sink', 'input_signature' is for compiled functions; give 'jit_config' too.")
    if check_dataset("data_sink", dataset) == 0:
        raise SporaxValueError("For 'data_sink', the dataset must not be empty, but it has no batch.")
    run = fn if jit_config is None else jit(fn, input_signature=input_signature)
    feed = Feed(dataset, at_once=sink_size)

    # The feed goes on where the last call stopped.
    @functools.wraps(fn)
    def run_next() -> Any:
        result = None
        for batch in feed.take(sink_size):
            result = run(*batch)
        return result

    return run_next
