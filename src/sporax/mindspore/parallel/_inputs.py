"""What data sets ask about the step that they feed: how its inputs are sharded, where one process feeds all slices."""

from __future__ import annotations

from typing import Any, Protocol
from weakref import ref

from sporax.ir.layout import Layout
from sporax.mindspore import context
from sporax.runtime.session import SESSION


class _Wrapped(Protocol):
    """A network with settings of its own."""

    @property
    def parallel_config(self) -> Any:
        """Its settings."""


def remember(wrapped: _Wrapped) -> None:
    """Take `wrapped` for the network that is fed: the last one that was told how its inputs arrive."""
    # A weak reference: the data sets must not keep a network alive.
    SESSION.fed_network = ref(wrapped)


def slices_of_global_input(number: int) -> tuple[int, ...] | None:
    """Into how many slices each dimension of a step's input is sharded that this process feeds for all devices.

    The settings are those of the global context, or of the last `AutoParallel` that was told a `dataset_strategy`.

    Args:
        number: of the input.

    Returns:
        None where there is one device, where several processes feed a part each, and where `dataset_strategy` shards nothing
        for this input.
    """
    # Several processes feed a part each, so no data set has to divide the input.
    if context.world_size() > 1 or context.num_devices() == 1:
        return None
    # Settings of the process count first; in other modes those of the last wrapped network.
    config = context.snapshot()
    if not config.in_global_view:
        wrapped = None if SESSION.fed_network is None else SESSION.fed_network()
        if wrapped is None:
            return None
        config = wrapped.parallel_config
    strategy = config.dataset_strategy
    if isinstance(strategy, str) or number >= len(strategy):
        return None
    entry = strategy[number]
    return entry.split if isinstance(entry, Layout) else tuple(entry)
