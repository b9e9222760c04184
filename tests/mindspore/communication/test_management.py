"""Ranks and groups as a single process sees them, before and after `init`."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, communication, mint, nn, ops
from sporax.mindspore.communication import GlobalComm, comm_func, management


@pytest.fixture
def joined(monkeypatch):
    """This process as the only rank of a job."""
    for name in ("MS_ROLE", "RANK_TABLE_FILE", "RANK_SIZE", "RANK_ID", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    communication.init()
    yield
    communication.release()


def test_before_init_the_environment_answers(monkeypatch):
    monkeypatch.setenv("RANK_ID", "3")
    monkeypatch.setenv("RANK_SIZE", "8")
    assert communication.get_rank() == 3
    assert communication.get_group_size() == 8
    assert not GlobalComm.INITED


def test_variables_of_parameter_servers_have_no_effect_without_them(monkeypatch):
    monkeypatch.setenv("MS_PS_LEASE", "5")
    with pytest.warns(UserWarning, match="MS_PS_LEASE has no effect: there are no parameter servers"):
        communication.init()
    communication.release()


def test_a_rank_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("RANK_ID", "first")
    with pytest.raises(ValueError, match="For 'RANK_ID', the value must be a whole number from 0 on, but got 'first'"):
        communication.get_rank()


def test_before_init_groups_are_refused():
    for call in (
        lambda: communication.create_group("g", [0]),
        communication.release,
        lambda: communication.destroy_group("g"),
    ):
        with pytest.raises(RuntimeError, match="call init"):
            call()


def test_one_process_is_a_rank_for_each_of_its_devices(joined):
    assert (communication.get_rank(), communication.get_group_size()) == (0, 8)
    assert (communication.get_local_rank(), communication.get_local_rank_size()) == (0, 8)
    assert GlobalComm.INITED
    assert GlobalComm.WORLD_COMM_GROUP in (management.MCCL_WORLD_COMM_GROUP, management.NCCL_WORLD_COMM_GROUP)
    assert communication.get_rank("hccl_world_group") == 0


def test_both_interfaces_say_the_same_of_ranks(joined):
    assert (mint.distributed.get_rank(), mint.distributed.get_world_size()) == (0, 8)
    ms.set_auto_parallel_context(parallel_mode="data_parallel", device_num=4)
    assert mint.distributed.get_world_size() == communication.get_group_size() == 4
    ms.reset_auto_parallel_context()


@pytest.mark.parametrize("parallel_mode", ["semi_auto_parallel", "auto_parallel"])
def test_one_process_counts_its_devices_where_a_plan_shards_the_step(joined, parallel_mode):
    ms.set_auto_parallel_context(parallel_mode=parallel_mode)
    try:
        assert (communication.get_rank(), communication.get_group_size()) == (0, 8)
        ms.set_auto_parallel_context(device_num=4)
        assert communication.get_group_size() == 4
        rows = ms.dataset.NumpySlicesDataset(list(range(12)), shuffle=False, num_shards=4, shard_id=0)
        assert rows.get_dataset_size() == 12
        rows = ms.dataset.NumpySlicesDataset(list(range(12)), shuffle=False, num_shards=2, shard_id=0)
        assert rows.get_dataset_size() == 6
    finally:
        ms.reset_auto_parallel_context()
    assert communication.get_group_size() == 8


LAUNCHES = {
    "one device": ("run", "1 1"),
    "local devices": ("run --local_devices 8", "8 1"),
    "processes with devices": ("run --worker_num 2 --local_devices 4", "8 2"),
    "plan": ("plan --devices 8 --steps 99", "8 1 plan"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("launch", LAUNCHES)
def test_idioms_of_scripts_have_all_devices(launch, start_command):
    command, arguments = LAUNCHES[launch]
    job = start_command(f"{command} launch_idioms.py {arguments}")
    assert job.stdout.count("all is well") == (2 if "worker_num" in command else 1), job.stdout + job.stderr


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_collectives_of_one_rank_change_nothing(joined, mode):
    before = ms.get_context("mode")
    ms.set_context(mode=mode)
    x = Tensor(np.arange(4, dtype=np.float32))
    for run in (ops.AllReduce(), ops.AllGather(), ops.ReduceScatter("max"), ops.Reduce(0), ops.CollectiveGather(0)):
        np.testing.assert_array_equal(run(x).asnumpy(), x.asnumpy())
    assert ms.grad(lambda x: ops.AllReduce()(x).sum())(x).asnumpy().tolist() == [1] * 4
    np.testing.assert_array_equal(comm_func.all_reduce(x)[0].asnumpy(), x.asnumpy())
    ms.set_context(mode=before)


def test_init_refuses_unknown_backends():
    with pytest.raises(TypeError):
        communication.init(3)
    with pytest.raises(RuntimeError, match="must be one of"):
        communication.init("smoke")


@pytest.mark.parametrize("name", ["hccl", "nccl", "mccl"])
def test_init_takes_the_name_of_any_backend(joined, name):
    """The transport is JAX's own, so scripts for other hardware join as well."""
    communication.init(name)
    assert (GlobalComm.BACKEND, GlobalComm.WORLD_COMM_GROUP) == (name, f"{name}_world_group")
    assert communication.get_rank(f"{name}_world_group") == 0


def test_the_reducer_checks_its_arguments():
    parameters = [ms.Parameter(Tensor(np.ones(2, np.float32)), name="w")]
    for degree in (0, -1, 1.5, "2"):
        with pytest.raises(ValueError, match="'degree' must be a positive int"):
            nn.DistributedGradReducer(parameters, degree=degree)
    with pytest.raises(TypeError, match="Parameters"):
        nn.DistributedGradReducer(3)
    reducer = nn.DistributedGradReducer(parameters, mean=True, degree=4)
    with pytest.raises(ValueError, match="one gradient for each"):
        reducer(())
    assert reducer((Tensor([4.0, 8.0]),))[0].asnumpy().tolist() == [1, 2]


def test_a_parameter_is_in_one_form_at_a_time(joined):
    parameter = ms.Parameter(Tensor([1.0, 2.0]), name="w")
    spread = parameter.joint
    with pytest.raises(AttributeError):
        object.__getattribute__(parameter, "raw")
    assert parameter.asnumpy().tolist() == [1, 2]
    with pytest.raises(AttributeError):
        object.__getattribute__(parameter, "joint")
    assert spread.shape == (2,)
    parameter.joint  # noqa: B018 - reading changes the form
    parameter.set_data(Tensor([3.0, 4.0]))
    assert parameter.asnumpy().tolist() == [3, 4]


def test_an_exchange_between_fewer_ranks_than_a_script_counted_is_refused(joined):
    """A reset of the context between the count and the exchange changes nothing."""
    assert communication.get_group_size() == 8
    ms.reset_auto_parallel_context()
    with pytest.raises(RuntimeError, match=r"^For 'AllReduce', the exchange is between 1 process.* has said 8"):
        ops.AllReduce()(Tensor(np.ones(2, np.float32)))
