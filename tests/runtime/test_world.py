"""This process among the ranks: who feeds which device, and that tensors keep their values through a new backend."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import backend

from compiler_flags import COMPILER
from sporax.cluster.environment import RankEnvironment
from sporax.runtime import world as distributed
from sporax.runtime.session import SESSION


class Holder:
    """Something that holds an array, as Tensors and Parameters do."""

    __slots__ = ("raw",)

    def __init__(self, raw):
        self.raw = raw


def test_without_a_job_there_is_one_rank_and_stopping_is_harmless(monkeypatch):
    monkeypatch.setattr(SESSION, "world", None)
    assert not distributed.has_peers()
    assert distributed.num_devices() == 1
    version = SESSION.version
    world = distributed.start({})
    assert distributed.start({}) is world
    assert (world.rank, world.size, len(world.devices)) == (0, 1, 1)
    assert not distributed.has_peers()
    assert distributed.num_devices() == jax.device_count()
    distributed.stop()
    distributed.stop()
    assert distributed.world() is None
    assert SESSION.version > version  # programs that were compiled for another job look at their guards again


def test_in_a_dry_run_one_process_feeds_for_one_rank_of_many(join, monkeypatch):
    world = join(rank=2)
    assert distributed.num_feeders() == 1
    assert all(map(distributed.drives, world.devices))
    monkeypatch.setattr(SESSION, "dry_run", object())
    assert distributed.num_feeders() == 8
    assert [distributed.drives(device) for device in world.devices].index(True) == 2
    assert sum(map(distributed.drives, world.devices)) == 1
    assert distributed._devices_by_rank(4) == tuple(jax.devices()[:4])


def test_arrays_keep_values_and_stay_shared_through_a_new_backend(monkeypatch):
    shared, lazy = jnp.arange(3.0), Holder(None)
    _half_made = Holder.__new__(Holder)  # its constructor raised
    first, second, half = Holder(shared), Holder(shared), Holder(jnp.ones(2, jnp.bfloat16))
    held = []
    monkeypatch.setattr(backend, "clear_backends", lambda: held.extend(hasattr(item, "raw") for item in (first, half)))
    with distributed.carry_over():
        pass
    assert held == [False, False]  # no one holds an array of the old backend when it goes
    assert first.raw is second.raw is not shared
    np.testing.assert_array_equal(first.raw, [0, 1, 2])
    assert half.raw.dtype == jnp.bfloat16
    assert lazy.raw is None


class FiledHolder(Holder):
    """Its array lies in a file, and is read from it whenever it is requested."""

    __slots__ = ("filed",)

    def __init__(self):
        self.filed = "a file"

    def __getattr__(self, name):
        if name != "raw":
            raise AttributeError(name)
        return jnp.ones(3)


def test_what_lies_in_a_file_stays_there_through_a_new_backend(monkeypatch):
    holder = FiledHolder()
    monkeypatch.setattr(backend, "clear_backends", lambda: None)
    with distributed.carry_over():
        pass
    with pytest.raises(AttributeError):
        object.__getattribute__(holder, "raw")


@pytest.mark.parametrize(
    ("rank", "address", "bound"),
    [
        (0, "127.0.0.1:5000", "127.0.0.1:5000"),
        (1, "127.0.0.1:5000", None),
        (0, "192.0.2.7:5000", None),  # an address of no machine: it forwards
    ],
)
def test_the_coordinator_listens_at_the_one_address_that_ranks_use(rank, address, bound):
    place = RankEnvironment(rank=rank, size=2, coordinator_address=address)
    assert distributed._bind_address(place) == bound


def test_each_process_gives_its_first_device(monkeypatch):
    devices = [SimpleNamespace(process_index=process, name=f"{process}.{n}") for process in (1, 0) for n in range(2)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    assert [device.name for device in distributed._devices_by_rank(2)] == ["0.0", "1.0"]


def test_ranks_of_engines_have_a_device_of_their_own_unless_the_user_says_which():
    started = RankEnvironment(rank=3, size=4, local_rank=1, local_size=2, coordinator_address="10.0.0.1:9")
    assert distributed._own_device(started, {}) == 1
    assert distributed._own_device(started, {"JAX_LOCAL_DEVICE_IDS": "0"}) is None
    assert distributed._own_device(replace(started, scheduler_address=("10.0.0.1", 8)), {}) is None


# ---------------------------------------------------------------------------------------------------- the end of the process

PROGRAM = """
import atexit, sys
import jax, numpy as np
left = []
def look():  # after the handler of Sporax, before that of JAX
    left.extend(array for array in jax.live_arrays() if not array.is_ready())
    print("pending", len(left), flush=True)
atexit.register(look)
import sporax.mindspore as ms
from sporax.mindspore import nn, ops
ms.set_context(mode=ms.GRAPH_MODE)
ms.communication.init()
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True)
net = nn.Dense(8, 8)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params()))
slow = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, y: y @ x, x))
x = ms.Tensor(np.ones((8, 8), np.float32))
step(x, x)
large = ms.Tensor(np.eye(700, dtype=np.float32))
late = ms.Tensor(slow(large.array))
print("begins pending", not late.array.is_ready(), flush=True)
END
"""
ENDS = {"end": ("", 0), "exit": ("sys.exit(3)", 3), "error": ("raise ValueError('mine')", 1)}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("end", ENDS)
def test_pending_work_is_awaited_before_the_process_ends(end, monkeypatch):
    last, code = ENDS[end]
    monkeypatch.setenv("XLA_FLAGS", f"{COMPILER} --xla_force_host_platform_device_count=8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("END", last)], capture_output=True, text=True, timeout=200
    )
    assert "begins pending True" in done.stdout, done.stderr
    assert "pending 0" in done.stdout.splitlines()
    assert done.returncode == code
