import json
from pathlib import Path

import pytest

from sporax.base.errors import SporaxValueError
from sporax.cluster.environment import ProcessRole, RankEnvironment, join_address

CLUSTER = {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "4", "MS_SCHED_HOST": "10.0.0.1", "MS_SCHED_PORT": "8118"}
MPI = {
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def read(variables: dict[str, str]) -> RankEnvironment:
    return RankEnvironment.from_environ(variables)


def test_plain_python_is_one_rank():
    assert read({}) == RankEnvironment(rank=0, size=1)
    assert read({}).is_joined


def test_a_launched_rank_knows_its_number_and_queries_the_scheduler_for_the_coordinator():
    place = read(CLUSTER | {"RANK_ID": "2", "LOCAL_RANK": "0", "LOCAL_RANK_SIZE": "2", "MS_TOPO_TIMEOUT": "600"})
    assert (place.role, place.rank, place.size, place.local_rank, place.local_size) == (ProcessRole.WORKER, 2, 4, 0, 2)
    assert place.scheduler_address == ("10.0.0.1", 8118)
    assert place.timeout_seconds == 600
    assert not place.is_joined


def test_a_worker_started_by_hand_has_no_number_yet():
    place = read(CLUSTER | {"MS_NODE_ID": "worker-3", "MS_WORKER_IP": "10.0.0.7"})
    assert (place.rank, place.node_id, place.worker_host) == (None, "worker-3", "10.0.0.7")
    assert place.timeout_seconds == 1800


@pytest.mark.parametrize(
    ("name", "role", "rank"),
    [
        ("MS_SCHED", ProcessRole.SCHEDULER, 0),
        ("MS_PSERVER", ProcessRole.SERVER, None),
        ("MS_SERVER", ProcessRole.SERVER, None),
        ("MS_WORKER", ProcessRole.WORKER, 1),
    ],
)
def test_a_role_is_read_and_rank_id_counts_workers(name: str, role: ProcessRole, rank: int | None):
    """RANK_ID counts workers; launch scripts often export it to scheduler and servers too."""
    place = read(CLUSTER | {"MS_ROLE": name, "MS_SERVER_NUM": "2", "RANK_ID": "1"})
    assert (place.role, place.rank, place.server_num) == (role, rank, 2)


def test_mpirun_on_one_host():
    place = read(MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "3", "PMIX_NAMESPACE": "j1"})
    other = read(MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0", "PMIX_NAMESPACE": "j1"})
    elsewhere = read(MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "j2"})
    assert (place.rank, place.size, place.local_rank, place.local_size) == (3, 4, 3, 4)
    assert place.coordinator_address == other.coordinator_address != elsewhere.coordinator_address
    assert place.is_joined


def test_mpirun_on_several_hosts_needs_the_first_hosts_address():
    with pytest.raises(SporaxValueError, match="mpirun -x MS_SCHED_HOST"):
        read(MPI)
    place = read(MPI | {"MS_SCHED_HOST": "10.0.0.1", "MS_SCHED_PORT": "9000"})
    assert place.coordinator_address == "10.0.0.1:9000"


SRUN = {
    "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "7", "SLURM_LOCALID": "1", "SLURM_NODEID": "2", "SLURM_JOB_ID": "81",
    "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_STEP_NODELIST": "gpu[03-05,7]",
}  # fmt: skip


def test_srun_on_several_nodes():
    place, other = read(SRUN), read(SRUN | {"SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"})
    assert (place.rank, place.size, place.local_rank, place.local_size) == (5, 7, 1, 2)
    assert place.coordinator_address == other.coordinator_address
    assert place.coordinator_address.startswith("gpu03:")
    assert read(SRUN | {"SLURM_STEP_ID": "1"}).coordinator_address != place.coordinator_address
    assert read(SRUN | {"SLURM_STEP_NODELIST": "a1,b2"}).coordinator_address.startswith("a1:")
    assert read(SRUN | {"MS_SCHED_HOST": "fd77::1", "MS_SCHED_PORT": "9000"}).coordinator_address == "[fd77::1]:9000"
    assert place.is_joined


def test_srun_on_one_node_uses_the_loopback_address_and_one_task_is_one_rank():
    assert read(SRUN | {"SLURM_STEP_TASKS_PER_NODE": "7", "SLURM_NODEID": "0"}).coordinator_address.startswith(
        "127.0.0.1:"
    )
    assert read(SRUN | {"SLURM_STEP_NUM_TASKS": "1"}) == RankEnvironment()
    # Ranks of a launcher that srun has started belong to the launcher's job.
    assert read(SRUN | CLUSTER | {"RANK_ID": "2"}).rank == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, "must add up to SLURM_STEP_NUM_TASKS, 7"),
        ({"SLURM_STEP_TASKS_PER_NODE": "two"}, r"numbers as in '2\(x3\),1', but got 'two'"),
        ({"SLURM_STEP_TASKS_PER_NODE": ""}, "must be set in a step of srun"),
        ({"SLURM_STEP_NODELIST": ""}, "For 'SLURM_STEP_NODELIST', the variable must be set in a step of srun"),
    ],
)
def test_what_srun_never_says_is_refused(changed: dict[str, str], message: str):
    with pytest.raises(SporaxValueError, match=message):
        read(SRUN | changed)


def rank_table(path: Path, *servers: list[int]) -> str:
    table = {
        "version": "1.0",
        "server_count": str(len(servers)),
        "server_list": [
            {
                "server_id": f"10.0.0.{number}",
                "device": [{"device_id": str(i), "device_ip": "x", "rank_id": str(r)} for i, r in enumerate(ranks)],
                "host_nic_ip": "reserve",
            }
            for number, ranks in enumerate(servers)
        ],
        "status": "completed",
    }
    path.write_text(json.dumps(table))
    return str(path)


def test_rank_table(tmp_path: Path):
    path = rank_table(tmp_path / "table.json", [2, 3], [0, 1])
    place = read({"RANK_TABLE_FILE": path, "RANK_ID": "3", "DEVICE_ID": "1"})
    assert (place.rank, place.size, place.local_rank, place.local_size) == (3, 4, 1, 2)
    assert place.coordinator_address == "10.0.0.1:8118"
    one_server = rank_table(tmp_path / "one.json", [0, 1])
    assert read({"RANK_TABLE_FILE": one_server, "RANK_ID": "0"}).coordinator_address == "127.0.0.1:8118"


def test_rank_table_that_does_not_fit(tmp_path: Path):
    path = rank_table(tmp_path / "table.json", [0, 1])
    with pytest.raises(SporaxValueError, match=r"lists \[0, 1\] and RANK_ID is 2"):
        read({"RANK_TABLE_FILE": path, "RANK_ID": "2"})
    with pytest.raises(SporaxValueError, match=r"number of ranks in .*, 2, but got 8"):
        read({"RANK_TABLE_FILE": path, "RANK_ID": "1", "RANK_SIZE": "8"})
    with pytest.raises(SporaxValueError, match="must be JSON"):
        read({"RANK_TABLE_FILE": str(tmp_path / "none.json"), "RANK_ID": "1"})


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK_SIZE": "8"}, "For 'RANK_SIZE', the value must be 1 where nothing says"),
        (CLUSTER | {"MS_ROLE": "MS_CHEF"}, "For 'MS_ROLE'.*but got 'MS_CHEF'"),
        (CLUSTER | {"MS_WORKER_NUM": "many"}, "For 'MS_WORKER_NUM'.*but got 'many'"),
        (CLUSTER | {"MS_WORKER_NUM": "0"}, "For 'MS_WORKER_NUM'.*from 1 on, but got '0'"),
        (CLUSTER | {"RANK_ID": "4"}, r"must be in \[0, 4\).*but got 4"),
        ({"MS_ROLE": "MS_WORKER"}, "For 'MS_WORKER_NUM', the variable must be set"),
        (CLUSTER | {"MS_SCHED_HOST": ""}, "For 'MS_SCHED_HOST', the variable must be set"),
    ],
)
def test_variables_that_make_no_sense_are_named(variables: dict[str, str], message: str):
    with pytest.raises(SporaxValueError, match=message):
        read(variables)


def test_addresses_as_text():
    assert join_address("10.0.0.1", 80) == "10.0.0.1:80"
    assert join_address("::1", 80) == "[::1]:80"


def test_a_dry_run_simulates_a_place_and_meets_nobody():
    variables = CLUSTER | {"MS_SIMULATION_LEVEL": "1", "RANK_ID": "5", "RANK_SIZE": "64", "LOCAL_RANK": "5"}
    place = read(variables)
    assert (place.rank, place.size, place.local_rank, place.simulation_level) == (5, 64, 5, 1)
    assert place.is_joined
    assert read({"MS_SIMULATION_LEVEL": "0"}).size == 1
    with pytest.raises(SporaxValueError, match=r"must be in \[0, 4\)"):
        read({"MS_SIMULATION_LEVEL": "0", "RANK_ID": "4", "RANK_SIZE": "4"})
