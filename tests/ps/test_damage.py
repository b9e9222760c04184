"""A damaged log ends a job at once, with what is lost and where to begin again; or another server's copy is taken."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from simulation import Faults, Simulation

from background_cluster import BackgroundCluster, background
from sporax.base.errors import SporaxRuntimeError
from sporax.ps.client.scheduler_link import Requester
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.protocol.messages import Checkpoint, CheckpointReply, OptimizerSpec, Options, Record
from sporax.ps.slots.log_file import Intact, LogFile

SIZE = 600
SLOTS = 4


def store_of(cluster: BackgroundCluster) -> ServerStore:
    store = ServerStore(cluster.cluster.address, rank=0, timeout=120.0)
    store.declare([Dense("w", SIZE, 0), Dense("v", SIZE, 0)], [OptimizerSpec("sgd")])
    store.initialise([np.zeros(SIZE), np.zeros(SIZE)])
    return store


def push_one(store: ServerStore) -> None:
    store.wait(store.push([np.full(SIZE, -1, np.float32)] * 2, [1.0]))


def take_checkpoint(cluster: BackgroundCluster, store: ServerStore) -> str:
    requester = Requester(cluster.cluster.address, None)
    deadline, folder, runs = time.monotonic() + 120, "", False
    while not folder:
        assert time.monotonic() < deadline
        # In synchronous mode slots are written at a clock that is still to come.
        push_one(store)
        # Begun once: a second checkpoint would be the last one.
        answer = requester.request(Checkpoint(begin=not runs), CheckpointReply, 5.0)
        if answer is not None:
            folder, runs = answer.folder, runs or answer.running
    requester.close()
    return folder


def log_of(directory: Path, index: int) -> Path:
    (path,) = directory.glob(f"sporax-ps/*/server-{index}/log-????????")
    return path


def while_away(cluster: BackgroundCluster, index: int, change: Callable[[Path], None]) -> None:
    """Kill a server, and change its log before its next start reads it."""
    with cluster.lock:
        process = cluster.cluster.process_of("server", index)
        assert process is not None
        process.kill()
        process.wait()
        change(log_of(cluster.cluster.directory, index))


def places(path: Path) -> list[tuple[int, int, int]]:
    """Slot, start and stop of the records of a log."""
    with LogFile(path, int(path.name[4:])) as file:
        return [
            (item.message.slot, item.start, item.stop)
            for item in file.read()
            if isinstance(item, Intact) and isinstance(item.message, Record)
        ]


def flip_a_bit(path: Path) -> None:
    found = places(path)
    data = bytearray(path.read_bytes())
    data[found[len(found) // 2][2] - 9] ^= 16  # in the array of a record in the middle
    path.write_bytes(data)


def zero_a_block(path: Path) -> None:
    data = bytearray(path.read_bytes())
    start = places(path)[SLOTS * 3][1] // 512 * 512
    data[start : start + 512] = bytes(512)
    path.write_bytes(data)


def cut_a_piece_out(path: Path) -> None:
    data = path.read_bytes()
    middle = places(path)[SLOTS * 3]
    path.write_bytes(data[: middle[1] + 30] + data[middle[2] - 10 :])


def flip_in_the_last_record(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[places(path)[-1][2] - 9] ^= 16
    path.write_bytes(data)


def tear_the_tail(path: Path) -> None:
    """As if the server had ended in the middle of its next record."""
    data = path.read_bytes()
    _, start, stop = places(path)[-1]
    path.write_bytes(data[:stop] + data[start : start + 60] + bytes(5000))


def run_into_damage(folder: Path, change: Callable[[Path], None], staleness: str, found: list[str]) -> None:
    """A job whose only server comes back with a changed log."""
    variables = {"MS_PS_SLOTS": str(SLOTS), "MS_PS_STALENESS": staleness, "MS_PS_DURABILITY": "process"}
    with background(1, 1, folder, MS_PS_CHECKPOINT_PATH=str(folder / "saved"), **variables) as cluster:
        store = store_of(cluster)
        found.append(take_checkpoint(cluster, store))
        for _ in range(8):
            push_one(store)
        while_away(cluster, 0, change)
        began = time.monotonic()
        with pytest.raises(SporaxRuntimeError, match=r"slots? "):
            push_some(store)
        assert time.monotonic() - began < 120
        store.close(finished=False)
        while not cluster.cluster.failure:
            assert time.monotonic() - began < 120
            time.sleep(0.05)


def push_some(store: ServerStore) -> None:
    for _ in range(3):
        push_one(store)


def end_of(folder: Path, change: Callable[[Path], None], staleness: str) -> str:
    """The error of the job; it must come soon."""
    found: list[str] = []
    with pytest.raises(SporaxRuntimeError) as caught:
        run_into_damage(folder, change, staleness, found)
    message = str(caught.value)
    assert f"MS_PS_RESTORE={found[0]}" in message
    assert "all copies of acknowledged updates are lost" in message
    return message


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("change", "staleness"), [(flip_a_bit, "-1"), (zero_a_block, "0"), (cut_a_piece_out, "1")])
def test_damage_in_the_middle_ends_the_job_and_the_file_is_kept(
    tmp_path: Path, change: Callable[[Path], None], staleness: str
) -> None:
    before: list[bytes] = []

    def changed(path: Path) -> None:
        change(path)
        before.append(path.read_bytes())

    message = end_of(tmp_path, changed, staleness)
    assert "its log is damaged (bytes " in message
    assert "from record " in message
    (kept,) = (tmp_path / "output").glob("damaged-log-*")
    assert str(kept) in message
    assert kept.read_bytes() == before[0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("staleness", ["-1", "0"])
def test_a_damaged_last_record_is_noticed_by_what_was_acknowledged(tmp_path: Path, staleness: str) -> None:
    """It looks like a torn one; but the worker, or the scheduler, knows that it was acknowledged."""
    message = end_of(tmp_path, flip_in_the_last_record, staleness)
    assert "slot" in message


@pytest.mark.parametrize("staleness", ["-1", "0"])
@pytest.mark.sampled(1)
def test_after_a_torn_tail_a_job_goes_on(tmp_path: Path, staleness: str) -> None:
    variables = {"MS_PS_SLOTS": str(SLOTS), "MS_PS_STALENESS": staleness, "MS_PS_DURABILITY": "process"}
    with background(1, 1, tmp_path, **variables) as cluster:
        store = store_of(cluster)
        for _ in range(5):
            push_one(store)
        while_away(cluster, 0, tear_the_tail)
        for _ in range(4):
            push_one(store)
        (values, _), _ = store.pull(newest=True)
        np.testing.assert_array_equal(values, 9)
        store.close()
    assert not list((tmp_path / "output").glob("damaged-*"))


def test_a_replica_takes_the_place_of_a_damaged_log(tmp_path: Path) -> None:
    variables = {"MS_PS_SLOTS": str(SLOTS), "MS_PS_STALENESS": "-1", "MS_PS_DURABILITY": "replica", "MS_PS_LEASE": "2"}
    with background(2, 1, tmp_path, **variables) as cluster:
        store = store_of(cluster)
        for _ in range(8):
            push_one(store)
        while_away(cluster, 0, flip_a_bit)
        for _ in range(8):
            push_one(store)
        deadline = time.monotonic() + 60
        while not (notices := cluster.cluster.wanted.notices if cluster.cluster.wanted else []):
            assert time.monotonic() < deadline, "the user must learn of a disk that damages files"
            time.sleep(0.1)
        (values, _), _ = store.pull(newest=True)
        np.testing.assert_array_equal(values, 16)
        store.close()
    assert "server 0: its log is damaged" in notices[0]
    assert list((tmp_path / "output").glob("damaged-log-*"))


@pytest.mark.parametrize("first", [0, 1, None])
@pytest.mark.parametrize("seed", range(12))
def test_after_the_end_of_all_machines_the_log_of_a_replica_is_enough(seed: int, first: int | None) -> None:
    """Everything ends at once, one log is damaged, and the servers come back in any order."""
    options = Options(staleness=-1, durability="replica", num_slots=4, lease_seconds=5.0, heartbeat_seconds=0.1)
    simulation = Simulation(seed, 2, 1, options, Faults(delay=0.05))
    simulation.initialise()
    simulation.run_until(lambda: all(holders.synced for holders in simulation.journal.slots))
    done = [0] * 4
    for step in range(6):
        for slot in range(4):
            key = simulation.push(0, slot, step + 1, step)
            simulation.run_until(lambda key=key: key in simulation.answers)
            done[slot] += 1
    broken = simulation.rng.randrange(2)
    disk = simulation.servers[broken].disk
    position = simulation.rng.randrange(len(disk))
    disk[position] = None
    simulation.restart_scheduler()
    simulation.queue.clear()
    for index in (0, 1):
        simulation.crash(index)
        simulation.servers[index].paused = first is not None and index != first
    simulation.run(0.3 if first is not None else 0.0)
    for server in simulation.servers:
        server.paused = False
    for slot in range(4):
        key = simulation.push(0, slot, 7, 6)
        simulation.run_until(lambda key=key: key in simulation.answers or simulation.failures)
        assert not simulation.failures
        np.testing.assert_array_equal(simulation.value_of(0, slot), 7)


@pytest.mark.parametrize("seed", range(6))
def test_a_slot_without_a_whole_log_ends_the_job(seed: int) -> None:
    """The same with both logs damaged, or one that has no replica."""
    durability = ["replica", "process"][seed % 2]
    options = Options(staleness=-1, durability=durability, num_slots=4, lease_seconds=5.0, heartbeat_seconds=0.1)
    simulation = Simulation(seed, 2, 1, options, Faults(delay=0.05))
    simulation.initialise()
    simulation.run(2.0)
    for step in range(6):
        for slot in range(4):
            key = simulation.push(0, slot, step + 1, step)
            simulation.run_until(lambda key=key: key in simulation.answers)
    for server in simulation.servers:
        places = [at for at, entry in enumerate(server.disk) if entry is not None and entry[0].slot == 2]
        if places:
            server.disk[places[len(places) // 2]] = None
    simulation.restart_scheduler()
    simulation.queue.clear()
    for index in (0, 1):
        simulation.crash(index)
    simulation.run_until(lambda: simulation.failures)
    assert "slots [2] must be on server" in simulation.failures[0]
    assert "all copies of acknowledged updates are lost" in simulation.failures[0]
