"""Parameter servers as Ray actors on two nodes (raylets) of this machine."""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib.util import find_spec

import numpy as np
import pytest

from sporax.base.errors import SporaxImportError
from sporax.cluster import ports
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.protocol.messages import OptimizerSpec
from sporax.ps.ray import RayServers


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SporaxImportError, match=r"sporax\[ray\]"):
        RayServers(1, 1, port=1)


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
@pytest.mark.filterwarnings("ignore")  # ray's own
def test_servers_on_two_nodes_survive_a_kill_without_losing_a_push() -> None:
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        nodes.add_node(num_cpus=1)
        ray.init(address=nodes.address, log_to_driver=False)
        variables = {"MS_PS_STALENESS": "-1", "MS_PS_LEASE": "2.0", "MS_PS_SLOTS": "4"}
        with RayServers(2, 1, port=ports.two_free_ports(), variables=variables) as job:
            store = ServerStore(job.address, timeout=60.0)
            store.declare([Dense("w", 5, 0)], [OptimizerSpec("sgd")])
            store.initialise([np.zeros(5)])
            assert job.node_of("server", 0) != job.node_of("server", 1)
            until = time.monotonic() + 30
            while not all(slot.synced for slot in store.link.view.slots) and time.monotonic() < until:
                time.sleep(0.1)
            for number in range(20):
                if number == 8:
                    os.kill(job.process_of("server", 0), signal.SIGKILL)
                store.wait(store.push([-np.ones(5, np.float32)], [1.0]))
            assert store.pull(newest=True)[0][0].tolist() == [20.0] * 5
            store.close()
            assert job.wait(30)
    finally:
        ray.shutdown()
        nodes.shutdown()
