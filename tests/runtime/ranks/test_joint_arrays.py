"""Joint arrays and programs: every device has a copy of its own, programs run in turn, variables change their form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from sporax.base.errors import SporaxRuntimeError
from sporax.runtime.ranks import exchanges, joint_arrays
from sporax.runtime.ranks.collective_order import AXIS
from sporax.runtime.ranks.exchanges import Axis
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames

ROWS = np.arange(16.0, dtype=np.float32).reshape(8, 2)


class Variable:
    """One array in one of its forms."""

    __slots__ = ("joint", "name", "raw")

    def __init__(self, raw):
        self.raw, self.name = raw, "v"

    def __getattr__(self, name):
        return joint_arrays.change_form(self, name)


class Watchdog:
    """Notes what it is notified of."""

    def __init__(self):
        self.received = []

    def note_start(self, name, devices):
        self.received.append(("start", name, len(devices)))

    def note_end(self, zero):
        self.received.append(("end", int(joint_arrays.to_local(zero))))

    def explain(self, name, error):
        return SporaxRuntimeError(f"rank 3 is lost in {name}: {error}")


@pytest.fixture
def devices(join, monkeypatch):
    monkeypatch.setattr(SESSION.turn, "zero", None)
    return join().devices


def stacked(devices):
    """A joint array of which every device has its own row."""
    copies = [jax.device_put(row, device) for row, device in zip(ROWS, devices, strict=True)]
    return jax.make_array_from_single_device_arrays(
        (2,), NamedSharding(joint_arrays.mesh(devices), PartitionSpec()), copies
    )


@pytest.fixture
def in_one_process(monkeypatch, devices):
    """The first number of a chain of programs: one process has to give every device its copy."""
    sharding = NamedSharding(joint_arrays.mesh(devices), PartitionSpec())
    monkeypatch.setattr(SESSION.turn, "zero", jax.device_put(np.int32(0), sharding))
    monkeypatch.setattr(SESSION.turn, "devices", devices)


@pytest.mark.usefixtures("in_one_process")
def test_copies_differ_and_a_collective_makes_them_equal(devices):
    axis = Axis(8, tuple(range(8)), 0)
    program = joint_arrays.compile_jointly(lambda x: (x + 1, exchanges.reduce(axis, x, "sum")), devices)
    own, total = joint_arrays.run(program, "sums", devices, stacked(devices))
    assert own.shape == (2,)
    for shard, row in zip(own.addressable_shards, ROWS, strict=True):
        np.testing.assert_array_equal(shard.data, row + 1)
    for shard in total.addressable_shards:
        np.testing.assert_array_equal(shard.data, ROWS.sum(0))
    np.testing.assert_array_equal(joint_arrays.to_local(own), ROWS[0] + 1)


@pytest.mark.usefixtures("in_one_process")
def test_each_program_takes_the_number_that_the_one_before_gave(devices, monkeypatch):
    watchdog = Watchdog()
    monkeypatch.setattr(SESSION, "watchdog", watchdog)
    first, given = joint_arrays.zero(devices), []

    def program(x, zero):
        given.append(zero)
        return x, zero + 0

    joint_arrays.run(program, "one", devices, 1)
    joint_arrays.run(program, "two", devices, 2, members=devices[:3])
    assert given[0] is first
    assert given[1] is not first
    SESSION.turn.finish()
    assert watchdog.received == [("start", "one", 8), ("end", 0), ("start", "two", 3), ("end", 0)]


@pytest.mark.usefixtures("in_one_process")
def test_the_watchdog_explains_why_a_program_failed(devices, monkeypatch):
    def program(*_):
        raise RuntimeError("Gloo timed out")

    with pytest.raises(RuntimeError, match="^Gloo timed out$"):
        joint_arrays.run(program, "step", devices)
    monkeypatch.setattr(SESSION, "watchdog", Watchdog())
    with pytest.raises(SporaxRuntimeError, match="^rank 3 is lost in step: Gloo timed out$"):
        joint_arrays.run(program, "step", devices)


def test_a_variable_is_in_one_form_at_a_time(join):
    join(size=1)
    variable = Variable(jnp.arange(3.0))
    assert variable.joint.sharding.mesh.axis_names == (AXIS,)
    assert frames.slot(variable, "raw") is None
    np.testing.assert_array_equal(variable.raw, [0, 1, 2])
    assert frames.slot(variable, "joint") is None
    with pytest.raises(AttributeError):
        _ = variable.other


def test_whole_arrays_come_to_the_devices_of_a_sharding_and_back(devices):
    sharding = NamedSharding(joint_arrays.mesh(devices), PartitionSpec(AXIS))
    placed = joint_arrays.place(ROWS, sharding)
    assert placed.sharding == sharding
    assert joint_arrays.place(placed, sharding) is placed
    np.testing.assert_array_equal(joint_arrays.replicated(placed), ROWS)


def test_communication_before_init_is_an_error():
    with pytest.raises(
        SporaxRuntimeError, match=r"^For 'communication', the ranks must have been joined: call init\(\) first\.$"
    ):
        joint_arrays.all_devices()
