"""Global checkpoints: all slots at one clock, loaded by another number of servers; what is lost is said."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from background_cluster import BackgroundCluster, background
from sporax.base.errors import SporaxRuntimeError
from sporax.launch import cli
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.protocol.messages import CheckpointPart, OptimizerSpec, VariableSpec
from sporax.ps.scheduler.scheduler_checkpoints import CheckpointRound, first_clock
from sporax.ps.slots import slot_files

MOMENTUM = OptimizerSpec("momentum", {"momentum": 0.9})
TABLE = VariableSpec(40, "table", 0, 2, OptimizerSpec("adagrad", {"accum": 0.1}), seed=3)
SIZE, IDS = 60, np.arange(30)


def store_of(cluster: BackgroundCluster, rank: int = 0) -> ServerStore:
    store = ServerStore(cluster.cluster.address, rank=rank, timeout=40.0)
    store.declare([Dense("w", SIZE, 0)], [MOMENTUM], [TABLE])
    store.initialise([np.linspace(-1, 1, SIZE)] if rank == 0 else None)
    return store


def step(store: ServerStore) -> None:
    """One step whose gradients depend on the values and the clock."""
    (value,), rows = store.pull({40: IDS})
    gradient = np.sin(value + store.clock).astype(np.float32)
    store.wait(store.push([gradient], [0.1], {40: (IDS, np.cos(rows[40]), 0.1)}))


def values(store: ServerStore) -> bytes:
    (value,), rows = store.pull({40: IDS})
    return value.tobytes() + rows[40].tobytes()


def write_checkpoint(address: str) -> None:
    """Have one written; the scheduler is notified a little later than the workers that there are values."""
    until = time.monotonic() + 20
    while cli.main(["ps", "checkpoint", "--scheduler", address]) != 0:
        assert time.monotonic() < until


def test_a_slot_beyond_the_clock_makes_the_round_begin_again_later() -> None:
    attempt = CheckpointRound(4, first_clock(0, [7, 9]), 2)
    question = attempt.question("p", 0.0)
    assert question is not None
    assert (question.number, question.clock) == (4, 9)
    assert attempt.question("p", 0.1) is None
    attempt.take(CheckpointPart(4, 0, 9))
    attempt.take(CheckpointPart(4, 1, 11, is_late=True))
    assert (attempt.number, attempt.clock, attempt.parts) == (5, 12, {})
    attempt.take(CheckpointPart(4, 1, 9))  # of the first attempt
    attempt.take(CheckpointPart(5, 0, 12))
    assert not attempt.is_complete
    attempt.take(CheckpointPart(5, 1, 12))
    assert attempt.is_complete
    assert first_clock(-1, [3]) == -1


@pytest.mark.full
def test_a_synchronous_job_continues_from_its_checkpoint_with_other_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "checkpoints"
    with background(2, 1, MS_PS_STALENESS="0", MS_PS_CHECKPOINT_PATH=str(path)) as cluster:
        store = store_of(cluster)
        for _ in range(3):
            step(store)
        thread = threading.Thread(target=write_checkpoint, args=(cluster.cluster.address,))
        thread.start()
        while thread.is_alive():  # slots are written while the job goes on
            step(store)
        (folder,) = [entry.parent for entry in path.glob("*/manifest.json")]
        clocks = {entry.clock for entry in slot_files.read_manifest(str(folder)).slots}
        assert len(clocks) == 1, "all slots must be of one clock"
        last = store.clock + 3
        while store.clock < last:
            step(store)
        expected = values(store)
        store.close()
    with background(3, 1, MS_PS_STALENESS="0", MS_PS_RESTORE=str(folder)) as cluster:
        store = store_of(cluster)
        assert store.clock == clocks.pop()
        while store.clock < last:
            step(store)
        assert values(store) == expected
        cluster.cluster.kill("server", 1)  # what was loaded is in the logs and on the backups
        step(store)
        store.close()
    assert str(folder) in capsys.readouterr().out


def test_an_asynchronous_job_continues_and_its_pushes_count(tmp_path: Path) -> None:
    with background(1, 1, MS_PS_STALENESS="-1", MS_PS_CHECKPOINT_PATH=str(tmp_path)) as cluster:
        store = store_of(cluster)
        step(store)
        write_checkpoint(cluster.cluster.address)
        expected = values(store)
        store.close()
    (folder,) = [str(entry.parent) for entry in tmp_path.glob("*/manifest.json")]
    with background(2, 1, MS_PS_STALENESS="-1", MS_PS_RESTORE=folder) as cluster:
        store = store_of(cluster)
        assert values(store) == expected
        step(store)  # the first push of the new job must not look like the first of the old one
        assert values(store) != expected
        store.close()


def fails(cluster: BackgroundCluster, seconds: float = 30.0) -> str:
    until = time.monotonic() + seconds
    while not cluster.cluster.failure and time.monotonic() < until:
        time.sleep(0.05)
    return cluster.cluster.failure


def test_losing_every_copy_names_the_slots_and_the_last_checkpoint(tmp_path: Path) -> None:
    variables = {"MS_PS_DURABILITY": "memory", "MS_PS_CHECKPOINT_SECONDS": "0.2"}
    cluster = background(1, 1, MS_PS_STALENESS="-1", MS_PS_CHECKPOINT_PATH=str(tmp_path), **variables)
    with cluster:
        store = store_of(cluster)
        # A busy scheduler may not answer in time, and is queried again.
        while (status := cluster.cluster.status()) is None or not json.loads(status.text)["checkpoint"]:
            time.sleep(0.05)
        cluster.cluster.kill("server", 0)
        reason = fails(cluster)
        store.link.close()
        store._client.close()
        cluster.cluster.failure = ""  # else the end of the block raises it
    assert "slots [0, 1, 2" in reason
    assert f"MS_PS_RESTORE={tmp_path}/checkpoint-" in reason


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SporaxRuntimeError, match="folder of a complete checkpoint"):
        slot_files.read_manifest(str(tmp_path))
    (tmp_path / "manifest.json").write_text(
        '{"number": 1, "num_slots": 1, "staleness": 0, "slots": [{"slot": 0, "clock": 0, "crc": 5, "bytes": 7}]}',
        encoding="utf-8",
    )
    (tmp_path / "slot-0000").write_bytes(b"no slot")
    with pytest.raises(SporaxRuntimeError, match="checksum is another one"):
        slot_files.read_slot(str(tmp_path), 0)
