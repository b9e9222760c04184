"""When a local cluster of a parameter-server job is over."""

import pytest

pytest.importorskip("zmq")

from sporax.launch.servers.ps_cluster import _PARTING_SECONDS, Child, LocalCluster


@pytest.fixture
def cluster():
    """A cluster without processes: a scheduler, a server and a worker that all run."""
    cluster = object.__new__(LocalCluster)
    cluster.children = {(role, 0): Child(role, 0, role, {}) for role in ("scheduler", "server", "worker")}
    cluster._parting_until = 0.0
    return cluster


def test_a_server_that_missed_the_farewell_is_not_waited_for_long(cluster):
    for role in ("scheduler", "worker"):
        cluster.children[role, 0].exit_code = 0
    assert not cluster._is_over(10.0)
    assert not cluster._is_over(10.0 + _PARTING_SECONDS)
    assert cluster._is_over(10.1 + _PARTING_SECONDS)


def test_a_job_is_not_over_while_its_scheduler_or_a_worker_runs(cluster):
    cluster.children["worker", 0].exit_code = 0
    assert not cluster._is_over(10.0)
    assert not cluster._is_over(1e6)


def test_a_job_is_over_at_once_when_all_have_ended(cluster):
    for child in cluster.children.values():
        child.exit_code = 0
    assert cluster._is_over(10.0)
