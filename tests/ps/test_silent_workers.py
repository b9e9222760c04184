"""A worker that is too busy for heartbeats, for longer than its lease, changes no number of a synchronous job."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from sporax.cluster import ports
from sporax.launch.servers.ps_cluster import LocalCluster
from sporax.launch.target import Target, TargetKind

LEASE = "2"
WORKER = """
import ctypes, os
import numpy as np
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.environment import PsEnvironment
from sporax.ps.protocol.messages import OptimizerSpec

place = PsEnvironment.read()
store = ServerStore(place.scheduler, node=place.node, rank=int(os.environ["RANK_ID"]), timeout=60.0)
store.declare([Dense("w", 1, 0)], [OptimizerSpec("sgd")])
store.initialise([np.zeros(1)] if store.rank == 0 else None)
for number in range(4):
    if number == 1 and store.rank == 1:
        ctypes.PyDLL(None).usleep(5_000_000)  # with Python's lock: no other thread of this process runs
    assert store.wait(store.push([np.full(1, -1.0 - store.rank, np.float32)], [1.0]))
    print("value", store.pull()[0][0].item(), flush=True)
store.close()
"""


@pytest.mark.full
def test_a_worker_that_is_silent_for_longer_than_its_lease_is_waited_for(tmp_path: Path) -> None:
    """The others went on without it, with the mean of fewer gradients."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    environ = {
        **os.environ, "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": str(ports.two_free_ports()), "MS_PS_WORKER_LEASE": LEASE,
        "MS_PS_LEASE": "20",
    }  # fmt: skip
    target = Target(TargetKind.SCRIPT, str(script))
    cluster = LocalCluster(environ, tmp_path, servers=1, workers=2, worker=target, log_dir=tmp_path)
    try:
        while cluster.step():
            time.sleep(0.02)
    finally:
        cluster.close()
    assert not cluster.failure
    outputs = [(tmp_path / f"worker_{rank}.log").read_text() for rank in range(2)]
    assert [re.findall(r"value (\S+)", output) for output in outputs] == [["1.5", "3.0", "4.5", "6.0"]] * 2, outputs
    assert cluster.wanted is not None
    assert cluster.wanted.notices == []
