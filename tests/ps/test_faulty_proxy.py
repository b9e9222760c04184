"""Real sockets through a proxy that drops, repeats, delays and reorders messages: sums stay exact."""

from __future__ import annotations

import functools
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("zmq")
sys.path.insert(0, str(Path(__file__).parent))

from faulty_proxy import FaultyNetwork

from background_cluster import background
from sporax.ps.client import client_state
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.protocol.messages import OptimizerSpec, VariableSpec

SIZE, PUSHES = 50, 12
TABLE = VariableSpec(1, "table", 0, 2, OptimizerSpec("sgd"), distribution="zeros")
IDS = np.arange(20)


@pytest.mark.parametrize("staleness", [0, -1])
@pytest.mark.sampled(1)
def test_every_push_counts_once_through_a_faulty_network(monkeypatch, staleness):
    # What was lost is sent again sooner than users want: a dozen messages are lost, each of which everybody waits for.
    monkeypatch.setattr(client_state, "_LONGEST_WAIT_SECONDS", 0.5)
    monkeypatch.setattr(client_state, "_Open", functools.partial(client_state._Open, wait=0.25))
    network = FaultyNetwork(monkeypatch, seed=3)
    with background(2, 2, MS_PS_STALENESS=str(staleness)) as cluster:
        pulled = {}

        def work(rank):
            store = ServerStore(cluster.cluster.address, rank=rank, timeout=60.0)
            store.declare([Dense("w", SIZE, 0)], [OptimizerSpec("sgd")], [TABLE])
            store.initialise([np.zeros(SIZE)] if rank == 0 else None)
            for _ in range(PUSHES):
                rows = IDS, np.full((len(IDS), 2), -1, np.float32), 1.0
                store.wait(store.push([np.full(SIZE, -1, np.float32)], [1.0], {1: rows}))
            done.wait(60)
            pulled[rank] = store.pull({1: IDS}, newest=True)
            store.close()

        done = threading.Barrier(2)
        threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    network.close()
    for rank in (0, 1):
        (dense,), rows = pulled[rank]
        per_push = 1 if staleness == 0 else 2  # synchronous: gradients of the workers are averaged into one update
        np.testing.assert_array_equal(dense, PUSHES * per_push)
        np.testing.assert_array_equal(rows[1], PUSHES * per_push)
    assert min(network.faults[kind] for kind in ("dropped", "repeated", "delayed")) >= 3, network.faults
