"""`DatasetHelper`: the batches of an epoch, for training loops that are written by hand.

In MindSpore's sink mode the device fetches batches by itself: the loop runs a network without inputs. Here
`connect_network_with_dataset` gives such a network; each call fetches as many batches as MindSpore's would and runs their
steps, in GRAPH_MODE in groups that are one program (`sporax.mindspore.train._feed`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore import context
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train._feed import Batch, Feed, check_dataset, groups
from sporax.mindspore.train._loop import GroupedSteps

__all__ = ["DatasetHelper", "connect_network_with_dataset"]
answer_missing_names(__name__)


class DatasetHelper:
    """Iterating over it gives the inputs of the next epoch's calls.

    Args:
        dataset: where batches come from.
        dataset_sink_mode: whether the network fetches its own batches; the inputs are empty then, and the network is that of
            `connect_network_with_dataset`. An epoch is one call in GRAPH_MODE, and one per batch in PYNATIVE_MODE.
        sink_size: batches of an epoch in sink mode; -1 for all of the dataset. Without sink mode it says nothing.
        epoch_num: checked; epochs do not end.

    Raises:
        SporaxTypeError: an argument is not valid.
        SporaxValueError: `sink_size` is neither -1 nor positive.

    Example:
        >>> helper = DatasetHelper(dataset, dataset_sink_mode=False)
        >>> for epoch in range(3):
        ...     for batch in helper:
        ...         loss = network(*batch)
    """

    def __init__(self, dataset: Any, dataset_sink_mode: bool = True, sink_size: int = -1, epoch_num: int = 1) -> None:
        self.is_sunk = For("DatasetHelper").boolean("dataset_sink_mode", dataset_sink_mode)
        For("DatasetHelper").integer("epoch_num", epoch_num)
        if For("DatasetHelper").integer("sink_size", sink_size) != -1 and sink_size < 1:
            raise SporaxValueError(f"For 'DatasetHelper', 'sink_size' must be -1 or positive, but got {sink_size}.")
        size = check_dataset("DatasetHelper", dataset)
        self._dataset = dataset
        self._steps = size if sink_size == -1 else sink_size
        self._in_groups = self.is_sunk and context.graph_mode()
        # Groups are stacked on the host, which needs numpy arrays.
        self._feed = Feed(dataset, output_numpy=self._in_groups, at_once=self.sink_size())
        self._network: Any = None
        self._fed: _FedNetwork | None = None

    def __iter__(self) -> Iterator[Batch]:
        if not self.is_sunk:
            return self._feed.epoch()
        # One call runs all steps of the epoch.
        calls = 1 if self._in_groups else self._steps
        return iter([()] * calls)

    def connected(self, network: Any) -> _FedNetwork:
        """The network that fetches its own batches; always the same.

        Raises:
            SporaxValueError: another network was connected before.
        """
        # The same network again: a second one would fetch batches that the first should get.
        if self._fed is None:
            self._network = network
            steps = GroupedSteps(network) if self._in_groups and isinstance(network, Cell) else None
            self._fed = _FedNetwork(network, self._feed, self._steps if self._in_groups else 1, steps)
        if self._network is not network:
            raise For("connect_network_with_dataset").error(
                "the dataset is connected to another network already; use another DatasetHelper"
            )
        return self._fed

    def sink_size(self) -> int:
        """Batches of an epoch in sink mode; 1 without."""
        return self._steps if self.is_sunk else 1

    def types_shapes(self) -> tuple[list[Any], list[Any]]:
        """Dtypes and shapes of a batch's columns."""
        # MindSpore's order: types before shapes.
        return self._dataset.output_types(), self._dataset.output_shapes()

    def release(self) -> None:
        """Stop the dataset's workers."""
        self._feed.close()

    def stop_send(self) -> None:
        """Stop the dataset's workers."""
        self.release()

    def continue_send(self) -> None:
        """Nothing: batches are read when the network needs them."""


class _FedNetwork:
    """A network that is called without inputs. Everything else it has from the network.

    Args:
        network: runs a step.
        feed: where batches come from; of numpy arrays if there are `grouped` steps.
        num_steps: steps of a call.
        grouped: runs groups of steps.
    """

    def __init__(self, network: Any, feed: Feed, num_steps: int, grouped: GroupedSteps | None) -> None:
        self._network = network
        self._feed = feed
        self._num_steps = num_steps
        self._grouped = grouped

    # Reached only for names that this class lacks.
    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def __call__(self) -> Any:
        """Run the steps of a call; gives the outputs of the last one."""
        result = None
        batches = self._feed.take(self._num_steps)
        if self._grouped is None:
            for batch in batches:
                result = self._network(*batch)
        else:
            # A group ends where batches change their shape.
            for group in groups(batches, self._grouped.groupable):
                result = self._grouped(group)
        return result


def connect_network_with_dataset(network: Any, dataset_helper: DatasetHelper) -> Any:
    """A network that fetches its own batches, for sink mode.

    Args:
        network: runs a step: a Cell, or another callable.
        dataset_helper: where batches come from.

    Raises:
        SporaxTypeError: `dataset_helper` is none.
        SporaxRuntimeError: it is not in sink mode.
        SporaxValueError: it is connected to another network.

    Example:
        >>> helper = DatasetHelper(dataset, sink_size=100)
        >>> step = connect_network_with_dataset(train_network, helper)
        >>> for epoch in range(3):
        ...     for inputs in helper:
        ...         loss = step(*inputs)
    """
    For("connect_network_with_dataset").typed("dataset_helper", dataset_helper, "a DatasetHelper", DatasetHelper)
    if not dataset_helper.is_sunk:
        raise For("connect_network_with_dataset").state_error(
            "the DatasetHelper must be in sink mode; without it, call the network with the batches"
        )
    return dataset_helper.connected(network)
