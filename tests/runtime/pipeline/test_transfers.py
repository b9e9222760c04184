import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sporax.lowering.marks.host_transfer import KIND, is_on_host, on_host_of
from sporax.runtime.pipeline.stage_transfer import ByDevices, CachedTransfer, in_memory


def test_an_array_that_no_step_changes_is_brought_once():
    brought = []
    once = CachedTransfer(lambda array: brought.append(array) or (jax.device_put(array, jax.devices()[1]),), 1)
    first, second = jnp.ones(2), jnp.zeros(2)

    def step(variable, array):
        once.begin([None, variable])
        return once(array)

    assert step(first, first) is step(first, jnp.ones(2))  # the same variable, brought to its place once more
    np.testing.assert_array_equal(step(second, second)[0], [0, 0])
    assert [array is first for array in brought] == [True, False]


def test_a_process_that_holds_nothing_of_a_variable_takes_part_whenever_it_is_sent():
    received = []
    once = CachedTransfer(lambda array: received.append(array) or (jnp.ones(2),), 0)
    for placeholder in [first := object(), first, object()]:
        once.begin([placeholder])
        once(None)
    assert received == [None, None]


def test_what_is_on_a_host_is_carried_by_devices():
    """The transfer sees what devices hold; what arrives is on the host of the other stage."""
    here, there = (NamedSharding(Mesh(np.array([device]), "a"), PartitionSpec()) for device in jax.devices()[:2])
    seen = []

    def transfer(array):
        seen.append(None if array is None else array.sharding.memory_kind)
        return (None if array is None else jax.device_put(array, there),)

    mover = ByDevices(transfer, on_host_of(here), on_host_of(there))
    (arrived,) = mover(jax.device_put(jnp.arange(3.0), on_host_of(here)))
    assert seen == ["device"] and is_on_host(arrived) and arrived.sharding.device_set == there.device_set
    np.testing.assert_array_equal(arrived, [0, 1, 2])
    assert mover(None) == (None,)  # a process that takes part and holds nothing


def test_parts_of_an_array_change_their_memory_where_they_are():
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:2]), "a"), PartitionSpec("a"))
    array = jax.device_put(np.arange(4.0, dtype=np.float32), sharding)
    there = in_memory(array, KIND)
    assert there.sharding == sharding.with_memory_kind(KIND)
    np.testing.assert_array_equal(there, array)
    assert in_memory(there, "device").sharding.memory_kind == "device"
