"""Memory of stages while they run: arrays that are there, and what a task needs inside."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sporax.ir.pipeline_schedule import Task, TaskKind
from sporax.lowering.marks.host_transfer import stored_on_host
from sporax.runtime.pipeline.stage_program import MemoryWatch, bytes_on


def test_a_stage_is_watched_on_its_first_device(planned):
    assert {stage: device.id for stage, device in MemoryWatch(planned).devices.items()} == {0: 0, 1: 2}


def test_bytes_of_one_devices_parts_count_once():
    devices = jax.devices()
    spread = jax.device_put(
        np.zeros(8, np.float32), NamedSharding(Mesh(np.array(devices[:4]), "a"), PartitionSpec("a"))
    )
    here, gone = jax.device_put(np.zeros(3, np.float32), devices[0]), jnp.zeros(100)
    gone.delete()
    values = [here, here, None, spread, gone]
    assert bytes_on(devices[0], values) == 12 + 8
    assert bytes_on(devices[3], values) == 8
    assert bytes_on(devices[7], values) == 0


def test_what_is_on_the_host_does_not_count():
    device = jax.devices()[0]
    there = stored_on_host(jax.device_put(np.zeros(5, np.float32), device))
    assert bytes_on(device, [there, jax.device_put(np.zeros(2, np.float32), device)]) == 8


def test_the_peak_is_what_is_there_and_what_the_largest_task_needs(planned):
    watch = MemoryWatch(planned)

    def instruction(label, temporary):
        needs = SimpleNamespace(temp_size_in_bytes=temporary, output_size_in_bytes=20, alias_size_in_bytes=4)
        return SimpleNamespace(label=label, run=SimpleNamespace(memory_analysis=lambda: needs))

    held = [jax.device_put(np.zeros(25, np.float32), watch.devices[1])]
    for temporary in (10, 30, 20):
        watch.note(instruction(Task(1, 0, 0, TaskKind.FORWARD), temporary), held)
    watch.note(instruction((0, 1, 0, 5), 1000), held)  # a transfer
    assert watch.peaks == {1: 100 + 30 + 20 - 4}
