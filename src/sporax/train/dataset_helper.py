"""`DatasetHelper`: the batches of an epoch, for training loops that are written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sporax.ir.errors import SporaxNotImplementedError, SporaxTypeError
from sporax.ir.missing import missing_names
from sporax.train._checks import check_bool, check_integer
from sporax.train._feed import Batch, Feed, check_dataset

__all__ = ["DatasetHelper", "connect_network_with_dataset"]
if not TYPE_CHECKING:  # checkers shall see a missing name themselves
    __getattr__ = missing_names(__name__)


class DatasetHelper:
    """Iterating over it gives the batches of the next epoch.

    Args:
        dataset: where batches come from.
        dataset_sink_mode: must be False, which is not MindSpore's default: `data_sink` makes a function that fetches its own
            batches, and `Model.train` has a sink mode.
        sink_size: must be -1.
        epoch_num: checked; epochs do not end.

    Raises:
        SporaxTypeError: an argument is not valid.
        SporaxNotImplementedError: sink mode, or a `sink_size`.

    Example:
        >>> helper = DatasetHelper(dataset, dataset_sink_mode=False)
        >>> for epoch in range(3):
        ...     for batch in helper:
        ...         loss = network(*batch)
    """

    def __init__(self, dataset: Any, dataset_sink_mode: bool = True, sink_size: int = -1, epoch_num: int = 1) -> None:
        check_bool("DatasetHelper", "dataset_sink_mode", dataset_sink_mode)
        check_integer("DatasetHelper", "epoch_num", epoch_num)
        if dataset_sink_mode:
            raise SporaxNotImplementedError(
                "For 'DatasetHelper', 'dataset_sink_mode' must be False; use 'data_sink' or 'Model.train' for sink mode."
            )
        if sink_size != -1:
            raise SporaxNotImplementedError(f"For 'DatasetHelper', 'sink_size' must be -1, but got {sink_size!r}.")
        self._size = check_dataset("DatasetHelper", dataset)
        self._dataset = dataset
        self._feed = Feed(dataset)

    def __iter__(self) -> Iterator[Batch]:
        return self._feed.epoch()

    def sink_size(self) -> int:
        """Batches that one step of the iteration stands for: 1."""
        return 1

    def types_shapes(self) -> tuple[list[Any], list[Any]]:
        """Dtypes and shapes of a batch's columns."""
        return self._dataset.output_types(), self._dataset.output_shapes()

    def release(self) -> None:
        """Stop the dataset's workers."""
        self._feed.close()

    def stop_send(self) -> None:
        """Stop the dataset's workers."""
        self.release()


def connect_network_with_dataset(network: Any, dataset_helper: DatasetHelper) -> Any:
    """The network itself: without sink mode it takes the helper's batches as arguments, as in MindSpore.

    Raises:
        SporaxTypeError: `dataset_helper` is none.
    """
    if not isinstance(dataset_helper, DatasetHelper):
        raise SporaxTypeError(
            f"For 'connect_network_with_dataset', 'dataset_helper' must be a DatasetHelper, but got {dataset_helper!r}."
        )
    return network
