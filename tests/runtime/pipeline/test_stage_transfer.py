"""Arrays go from one sharding to another block by block: the blocks, their rounds, and the arrays at the end."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sporax.runtime.pipeline import stage_transfer
from sporax.runtime.pipeline.stage_transfer import BlockMessage, DeviceTransfer, Line

ARRAY = np.arange(32, dtype=np.float32).reshape(8, 4)


def sharding(first, shape, *spec):
    """Devices from number `first` on, as a grid of this shape."""
    count = int(np.prod(shape))
    devices = np.array(jax.devices()[first : first + count]).reshape(shape)
    return NamedSharding(Mesh(devices, ("a", "b")[: len(shape)]), PartitionSpec(*spec))


SHARDINGS = {
    "rows": sharding(0, (4,), "a"),
    "rows of others": sharding(4, (4,), "a"),
    "columns": sharding(4, (2,), None, "a"),
    "both": sharding(4, (2, 2), "a", "b"),
    "two rows twice": sharding(4, (2, 2), "b"),
    "whole": sharding(4, (4,)),
    "one": sharding(7, (1,)),
}


@pytest.mark.parametrize("target", SHARDINGS)
@pytest.mark.parametrize("source", ["rows", "both", "one"])
def test_every_device_gets_its_slice(source, target):
    placed = jax.device_put(ARRAY, SHARDINGS[source])
    mover = DeviceTransfer(placed, SHARDINGS[source], SHARDINGS[target], Line())
    assert mover.involves_this_process
    assert not mover.rounds  # one process copies
    (moved,) = mover(placed)
    if target != "one":
        assert moved.sharding == SHARDINGS[target]
    for shard in moved.addressable_shards:
        np.testing.assert_array_equal(shard.data, ARRAY[shard.index])


def test_a_block_comes_from_the_nearest_device_that_has_it():
    same = sharding(4, (4,), "a")
    assert all(message.source is message.target for message in stage_transfer.messages((8, 4), same, same))
    twice = sharding(0, (2, 2), "b")  # devices 0 and 2 have the first rows, 1 and 3 the others
    pairs = {
        (message.target.id, message.source.id)
        for message in stage_transfer.messages((8, 4), twice, sharding(4, (2, 2), "b"))
    }
    assert pairs == {(4, 0), (5, 1), (6, 2), (7, 3)}  # of the same place in their stages


def test_blocks_cover_what_the_target_needs_once():
    messages = stage_transfer.messages((8, 4), SHARDINGS["rows"], SHARDINGS["columns"])
    counts = np.zeros((2, 8, 4), int)
    for message in messages:
        (top, bottom), (left, right) = message.box
        counts[message.target.id - 4, top:bottom, left:right] += 1
        assert message.shape == (bottom - top, right - left)
    np.testing.assert_array_equal(counts[0], [[1, 1, 0, 0]] * 8)
    np.testing.assert_array_equal(counts[1], [[0, 0, 1, 1]] * 8)


def test_in_a_round_a_device_takes_part_once_and_shapes_are_equal():
    here = [SimpleNamespace(process_index=0, name=f"a{n}") for n in range(2)]
    there = [SimpleNamespace(process_index=1, name=f"b{n}") for n in range(2)]
    small, large = ((0, 1), (0, 4)), ((0, 2), (0, 4))
    remote = [
        BlockMessage(here[0], there[0], small),
        BlockMessage(here[0], there[1], small),  # here[0] sends already
        BlockMessage(here[1], there[1], small),
        BlockMessage(here[1], there[0], large),
        BlockMessage(there[0], here[0], small),
    ]
    actual = stage_transfer.rounds(remote)
    assert actual == [(remote[0], remote[2]), (remote[1],), (remote[3],), (remote[4],)]
    assert stage_transfer.rounds(remote[::-1])[-1] == (remote[4],)
    twice = [BlockMessage(source, there[0], small) for source in here]  # both send to one device
    assert stage_transfer.rounds(twice) == [(twice[0],), (twice[1],)]


def test_a_line_waits_for_the_end_of_the_program_before(monkeypatch):
    waited = []
    monkeypatch.setattr(jax, "block_until_ready", waited.append)
    line = Line()
    line.waits = True
    results = [line.next(lambda x: x + 1, jax.device_put(number)) for number in range(2)]
    assert [int(result) for result in results] == [1, 2]
    assert waited == [[], [results[0]]]
    results[1].delete()
    line.finish()
    assert waited[-1] == []


def test_this_process_drives_some_of_the_devices_or_none():
    assert stage_transfer.is_here(SHARDINGS["rows"])
    assert not stage_transfer.is_here(SimpleNamespace(addressable_devices=frozenset()))
