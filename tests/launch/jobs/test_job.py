import argparse

import pytest

from sporax.base.errors import SporaxValueError
from sporax.cluster import ports
from sporax.launch import options
from sporax.launch.jobs import cores
from sporax.launch.jobs.cores import allocation_settings
from sporax.launch.jobs.job import NodeJob, connection_variables, plan_job
from sporax.launch.options import RUN_DEFAULTS


def plan(*words: str, **variables: str) -> NodeJob:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser, RUN_DEFAULTS)
    chosen = options.checked(parser.parse_args([*words, "sh"]), RUN_DEFAULTS)
    return plan_job(chosen, {"JAX_PLATFORMS": "cpu", **variables})


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with four cores whose address is 10.0.0.1."""
    monkeypatch.setattr(cores, "available_cores", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(cores, "numa_nodes", lambda _: {0: (0, 1, 2, 3)})
    monkeypatch.setattr(ports, "is_local", lambda host: host in ("10.0.0.1", "127.0.0.1"))


def test_one_node():
    job = plan("--worker_num=2", "--log_dir=logs")
    assert (job.serves, job.options.is_one_node, job.scheduler_address) == (True, True, ("127.0.0.1", None))
    first, second = job.ranks
    assert second.variables == {
        **allocation_settings({}),
        "RANK_ID": "1",
        "RANK_SIZE": "2",
        "DEVICE_NUM": "2",
        "DEVICE_ID": "1",
        "LOCAL_RANK": "1",
        "LOCAL_RANK_SIZE": "2",
        "MS_NODE_ID": "1",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
    }
    assert (first.share.cores, second.share.cores) == ((0, 1), (2, 3))
    assert second.log_path == "logs/worker_1.log"
    assert job.scheduler_log == "logs/scheduler.log"
    assert connection_variables(job, 5000) == {
        "MS_ROLE": "MS_WORKER",
        "MS_WORKER_NUM": "2",
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": "5000",
        "MS_TOPO_TIMEOUT": "600",
    }


def test_a_dry_run_has_one_process_that_knows_its_place():
    job = plan("--worker_num=64", "--local_worker_num=8", "--sim_level=1", "--sim_rank_id=13", "--master_addr=10.9.9.9")
    assert (job.serves, job.scheduler_address) == (True, ("127.0.0.1", None))
    (rank,) = job.ranks
    expected = {
        "RANK_ID": "13",
        "RANK_SIZE": "64",
        "LOCAL_RANK": "5",
        "LOCAL_RANK_SIZE": "8",
        "MS_SIMULATION_LEVEL": "1",
    }
    assert expected.items() <= rank.variables.items()
    assert rank.variables["SPORAX_DRY_RUN_DIR"].endswith("/dry_run")
    assert rank.log_path == "worker_13.log"


def test_what_the_user_has_set_stays():
    (rank,) = plan("--worker_num=1", PYTHONUNBUFFERED="", OMP_NUM_THREADS="7").ranks
    assert not {"PYTHONUNBUFFERED", "OMP_NUM_THREADS"} & rank.variables.keys()


def test_cores_are_shared_out_only_where_ranks_compute_on_them():
    assert "GLIBC_TUNABLES" not in plan("--worker_num=2", JAX_PLATFORMS="cuda").ranks[0].variables
    assert plan("--worker_num=2", JAX_PLATFORMS="cuda").ranks[0].share == cores.Share()
    assert plan("--worker_num=2", "--bind_core=True", JAX_PLATFORMS="cuda").ranks[0].share.cores == (0, 1)
    assert plan("--worker_num=2", "--bind_core=False").ranks[0].share == cores.Share()
    simulated = plan("--worker_num=2", "--local_devices=4", JAX_PLATFORMS="").ranks[0]
    assert simulated.variables["DEVICE_NUM"] == "8"
    assert plan("--worker_num=2", DEVICE_NUM="3").ranks[0].variables["DEVICE_NUM"] == "3"
    assert simulated.share.cores == (0, 1)
    assert simulated.variables["XLA_FLAGS"] == "--xla_force_host_platform_device_count=4"
    assert plan("--worker_num=1", '--bind_core={"scheduler": ["3"]}').scheduler_cores == (3,)


def test_several_nodes_agree_on_a_port_and_only_one_serves():
    words = ["--worker_num=8", "--local_worker_num=4", "--master_addr=10.0.0.1"]
    first = plan(*words, "--node_rank=0")
    assert (first.serves, first.scheduler_address) == (True, ("10.0.0.1", 8118))
    second = plan(*words, "--node_rank=1")
    assert (second.serves, second.scheduler_address) == (False, ("10.0.0.1", 8118))
    assert [rank.rank for rank in second.ranks] == [4, 5, 6, 7]
    assert second.ranks[0].variables["LOCAL_RANK"] == "0"
    assert second.ranks[0].log_path == "worker_4.log"


def test_ranks_without_a_node_number_are_numbered_by_the_scheduler():
    job = plan("--worker_num=8", "--local_worker_num=2", "--master_addr=10.0.0.9")
    assert [rank.rank for rank in job.ranks] == [None, None]
    assert "RANK_ID" not in job.ranks[0].variables
    assert len({rank.variables["MS_NODE_ID"] for rank in job.ranks}) == 2
    assert not job.serves


@pytest.mark.parametrize("words", [["--worker_num=2"], ["--worker_num=4", "--local_worker_num=2", "--node_rank=0"]])
def test_a_master_address_that_is_not_here(words: list[str]):
    with pytest.raises(SporaxValueError, match=r"master_addr must be an address of the node .* but got '10\.0\.0\.9'"):
        plan(*words, "--master_addr=10.0.0.9")


def test_whose_output_is_shown():
    assert plan("--worker_num=3").printed == (0, 1, 2)
    assert plan("--worker_num=3", "--tail_worker_log=1").printed == (1,)
    assert plan("--worker_num=3", "--join=False").printed == ()
