"""A worker's requests: what is given up is sent no more, and its answer is dropped."""

from __future__ import annotations

import time

import numpy as np

from background_cluster import background
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.protocol.messages import OptimizerSpec


def test_a_pull_that_is_given_up_leaves_nothing_behind() -> None:
    size = 1000
    with background(1, 1, MS_PS_STALENESS="0", MS_PS_DURABILITY="memory", MS_PS_SLOTS="2") as cluster:
        store = ServerStore(cluster.cluster.address, timeout=60.0)
        store.declare([Dense("w", size, 0)], [OptimizerSpec("sgd")])
        store.initialise([np.zeros(size, np.float32)])
        plan = store.start_pull(ahead=1)  # of a clock that comes with the push below
        assert store._client.state.open
        store.give_up(plan)
        assert not store._client.state.open
        assert store._client._bytes_open == 0
        store.wait(store.push([np.ones(size, np.float32)], [1.0]))
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            store._client.poll()
            time.sleep(0.01)
        assert not store._client._answers
        np.testing.assert_array_equal(store.pull()[0][0], -np.ones(size, np.float32))
        store.close()
