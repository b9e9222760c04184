"""The global view: which devices, where arrays are on them, and how fed data gets there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout
from sporax.ir.placement import Placement
from sporax.planner.devices import fitting_hardware
from sporax.planner.pins.data_placement import data_placement
from sporax.runtime import world
from sporax.runtime.devices import global_view

MESH = DeviceMatrix((2, 2, 2))
P = Placement


def config(strategy="data_parallel", **more):
    return ParallelConfig(device_num=8, parallel_mode="semi_auto_parallel", dataset_strategy=strategy, **more)


def test_devices_of_a_run_have_axes_of_prime_sizes():
    assert global_view.devices_here().mesh(config()).shape == (2, 2, 2)
    with pytest.raises(
        SporaxRuntimeError, match=r"'device_num' is 16, but there are 8 devices\. Start the script with"
    ):
        global_view.devices_here().mesh(ParallelConfig(device_num=16))
    with pytest.raises(
        SporaxRuntimeError, match=r"the number of devices must be 1, 2, 4 or a multiple of 8, but got 6\.$"
    ):
        global_view.devices_here().mesh(ParallelConfig(device_num=6))


def test_a_mesh_of_some_ranks_has_their_devices_in_order():
    mesh = global_view.jax_mesh(DeviceMatrix((2, 2), (), (6, 4, 5, 7)))
    assert [device.id for device in mesh.devices.flat] == [6, 4, 5, 7]
    assert mesh.axis_names == ("a0", "a1")


def test_placements_and_shardings_say_the_same():
    placement = P(((2, 0), (), (1,)))
    assert global_view.partition_spec(placement, MESH) == PartitionSpec(("a2", "a0"), None, ("a1",))
    array = jax.device_put(np.zeros((4, 3, 2)), global_view.sharding_of(placement, MESH))
    assert global_view.placement_of(array, MESH) == placement
    assert global_view.is_on_devices(array)
    assert global_view.placement_of(array, DeviceMatrix((2, 4))) is None
    assert global_view.placement_of(jnp.zeros(3), MESH) is None
    assert not global_view.is_on_devices(jnp.zeros(3))


@pytest.mark.parametrize(
    ("strategy", "shape", "dims"),
    [
        ("full_batch", (8, 3), ((), ())),
        ("data_parallel", (8, 3), ((0, 1, 2), ())),
        ("data_parallel", (12, 3), ((0, 1), ())),  # four divides the rows, eight does not
        ("data_parallel", (3,), ((),)),
        ("data_parallel", (), ()),
        (((1, 1), (2, 4)), (4, 8), ((0,), (1, 2))),
        (((1, 1), Layout(DeviceMatrix((4, 2)), ((1,), (0,)))), (4, 8), ((2,), (0, 1))),
    ],
)
def test_data_is_sharded_as_the_dataset_strategy_says(strategy, shape, dims):
    assert data_placement(shape, 1, config(strategy), MESH) == P(dims)


@pytest.mark.parametrize(
    ("position", "shape", "words"),
    [
        (1, (4, 8), r"there must be an entry for each input, but input 1 has none in \(\(2, 4\),\)"),
        (0, (4,), r"the entry of input 0 must have a number for each dimension of its shape \(4,\), but got \(2, 4\)"),
        (0, (3, 8), r"the entry of input 0 must divide its shape \(3, 8\), but got \(2, 4\)"),
    ],
)
def test_entries_that_do_not_fit_an_input_are_refused(position, shape, words):
    with pytest.raises(SporaxRuntimeError, match=f"^For 'dataset_strategy', {words}"):
        data_placement(shape, position, config(((2, 4),)), MESH)


@pytest.mark.parametrize(
    ("strategy", "stages", "whole"),
    [
        ("data_parallel", 1, (24, 5)),
        ("data_parallel", 2, (12, 5)),  # the processes of a stage feed it together
        ("full_batch", 1, (6, 5)),
        (((4, 2),), 1, (24, 5)),  # this process drives two devices, which have both halves of the columns
    ],
)
def test_the_whole_batch_is_what_all_processes_feed_together(monkeypatch, strategy, stages, whole):
    monkeypatch.setattr(world, "num_feeders", lambda: 4)
    monkeypatch.setattr(world, "drives", lambda device: device.id in (2, 3))
    assert global_view.global_shape((6, 5), 0, config(strategy, pipeline_stages=stages)) == whole
    assert global_view.global_shape((), 0, config(strategy)) == ()


def test_one_process_that_feeds_alone_feeds_all():
    assert global_view.global_shape((6, 5), 0, config()) == (6, 5)
    sharding = global_view.sharding_of(P(((0, 1, 2), ())), MESH)
    rows = np.arange(16.0).reshape(8, 2)
    for shard in global_view.place_data(rows, sharding, config()).addressable_shards:
        np.testing.assert_array_equal(shard.data, rows[shard.index])


def test_hardware_is_found_by_the_kind_of_devices():
    assert [fitting_hardware(kind) for kind in ("cpu", "gpu", "tpu")] == ["cpu", "h100", "tpu-v5e"]
