"""A full disk ends a job at once, with one line that names the file and what it needs; a small one is used sparingly."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zmq

from background_cluster import background
from sporax.base.errors import SporaxRuntimeError
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.protocol.messages import OptimizerSpec, Options, Record, RegisterProcess, Stop
from sporax.ps.protocol.wire import decode, encode
from sporax.ps.scheduler.journal import Journal, read_journal, write_journal
from sporax.ps.scheduler.scheduler import ServerScheduler
from sporax.ps.slots import record_log as log_module
from sporax.ps.slots.log_file import StorageError
from sporax.ps.slots.record_log import SlotLog
from sporax.ps.slots.slot import SlotState
from sporax.ps.slots.slot_files import folder_of, write_slot

RECORD = Record(0, 1, 1, [], [], [], None)
NEED = r"It needs \d+ bytes there, and \d+ are free"


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["writev", "fdatasync"])
def test_a_log_that_cannot_be_written_says_where_and_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    log = SlotLog(tmp_path, sync=True)
    log.append(RECORD, [])
    monkeypatch.setattr(os, call, full)
    with pytest.raises(
        StorageError, match=rf"the log '{tmp_path}/log-00000000' must .* No space left on device. {NEED}"
    ):
        append_and_flush(log)
    log.close()


def append_and_flush(log: SlotLog) -> None:
    log.append(RECORD, [bytes(4096)])
    log.flush()


def test_a_snapshot_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SlotLog(tmp_path, sync=False)
    log.write_slot(SlotState(3, 0, lsn=5))
    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(StorageError, match=rf"the snapshot '{tmp_path}/slot-0003' must .*{NEED}"):
        log.write_slot(SlotState(3, 0, lsn=6))
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.glob("slot-*")) == ["slot-0003"]
    assert log.recover(0).states[3].lsn == 5
    log.close()


def test_a_checkpoint_that_cannot_be_written_leaves_nothing_half_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_slot(str(tmp_path), 1, *SlotState(3, 0, lsn=5).image())
    assert not list(folder_of(str(tmp_path), 1).iterdir())


def test_pages_ahead_take_a_small_part_of_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SlotLog(tmp_path, sync=False, ahead_bytes=64 << 20)
    monkeypatch.setattr(log_module, "free_bytes", lambda _: 16 << 20)
    while log.prepare():
        pass
    assert next(tmp_path.glob("log-*")).stat().st_size == 2 << 20
    monkeypatch.setattr(log_module, "free_bytes", lambda _: 1 << 40)
    monkeypatch.setattr(os, "pwrite", full)
    assert not log.prepare(), "without pages ahead a log works, too"
    log.append(RECORD, [])
    log.close()


def test_a_disk_that_the_first_steps_would_fill_is_reported_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SlotLog(tmp_path, sync=False)
    monkeypatch.setattr(log_module, "free_bytes", lambda _: 200_000)
    with pytest.raises(
        StorageError, match="the log .* must be written, but there is too little room. It needs 4195304 bytes"
    ):
        log.reserve(1000)
    log.num_bytes = 4 << 20  # it has been as long as that already
    log.reserve(1000)
    log.close()


def test_a_short_disk_makes_logs_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SlotLog(tmp_path, sync=False)
    log.num_bytes = 8 << 20
    monkeypatch.setattr(log_module, "free_bytes", lambda _: 9 << 20)
    assert not log.is_too_long(256 << 20, 0)
    assert log.is_too_long(256 << 20, 2 << 20), "the snapshots must find room, too"
    assert not log.is_too_long(256 << 20, 9 << 20), "snapshots that are longer than the log save nothing"
    log.close()


def test_a_journal_that_cannot_be_written_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scheduler-1.journal"
    write_journal(path, Journal("first", 1, 1))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=rf"the scheduler's journal '{path}' must .*{NEED}"):
        write_journal(path, Journal("second", 1, 1))
    assert read_journal(path).job == "first"
    with pytest.raises(StorageError, match="the scheduler's journal"):  # before any process has joined
        ServerScheduler("127.0.0.1:*", Options(), 1, 1, path)


@pytest.mark.parametrize("position", range(0, 200, 7))
def test_a_damaged_journal_is_an_error(tmp_path: Path, position: int) -> None:
    path = tmp_path / "scheduler-1.journal"
    write_journal(path, Journal("job", 1, 2, epoch=7, workers={0: ("node" * 30, 1, False)}))
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(SporaxRuntimeError, match=f"journal '{path}' must be whole"):
        read_journal(path)


def test_a_journal_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    import msgspec

    path = tmp_path / "scheduler-1.journal"
    path.write_bytes(msgspec.msgpack.encode(Journal("job", 1, 2)))
    assert read_journal(path).job == "job"


def test_processes_receive_why_the_scheduler_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = ServerScheduler("127.0.0.1:*", Options(), 1, 1, tmp_path / "scheduler-1.journal")
    address = scheduler._router.last_endpoint.decode()
    monkeypatch.setattr(os, "fsync", full)
    errors: list[str] = []

    def run() -> None:
        try:
            scheduler.run()
        except SporaxRuntimeError as error:
            errors.append(error.message)

    thread = threading.Thread(target=run)
    thread.start()
    dealer = zmq.Context.instance().socket(zmq.DEALER)
    dealer.connect(address)
    dealer.send_multipart(encode(RegisterProcess("worker", "w", 0)))
    assert dealer.poll(20_000)
    message, _ = decode(dealer.recv_multipart())
    thread.join(20)
    dealer.close(0)
    assert message == Stop(errors[0])
    assert "the scheduler's journal" in errors[0]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)], capture_output=True)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def store_of(address: str, size: int) -> ServerStore:
    store = ServerStore(address, rank=0, timeout=60.0)
    store.declare([Dense("w", size, 0)], [OptimizerSpec("sgd")])
    store.initialise([np.zeros(size)])
    return store


def run_until_failure(directory: Path, size: int, step: Callable[[str, int], None], reason: str) -> None:
    """A job whose worker gets an error in `step`; raises what the launcher says."""
    with background(1, 1, directory, MS_PS_DURABILITY="process", MS_PS_STALENESS="-1") as cluster:
        began = time.monotonic()
        with pytest.raises(SporaxRuntimeError, match=reason):
            step(cluster.cluster.address, size)
        while not cluster.cluster.failure:
            assert time.monotonic() - began < 60
            time.sleep(0.05)


def test_a_job_that_a_disk_cannot_hold_ends_before_its_first_step(small_disk: Path) -> None:
    with pytest.raises(SporaxRuntimeError, match=rf"the log '{small_disk}/.*' must be written.*{NEED}") as caught:
        run_until_failure(small_disk, 2 << 20, store_of, "the log")
    assert "Make room, or let MS_RECOVERY_PATH" in str(caught.value)


def test_a_long_job_needs_no_more_than_a_small_disk(small_disk: Path) -> None:
    """60 MB of records go through logs on 24 MB."""
    size = 50_000
    with background(1, 1, small_disk, MS_PS_DURABILITY="process", MS_PS_STALENESS="-1") as cluster:
        store = store_of(cluster.cluster.address, size)
        for _ in range(300):
            store.wait(store.push([np.full(size, -1, np.float32)], [1.0]))
        cluster.cluster.kill("server", 0)
        store.wait(store.push([np.full(size, -1, np.float32)], [1.0]))
        (values,), _ = store.pull(newest=True)
        np.testing.assert_array_equal(values, 301)
        store.close()


def test_a_disk_that_fills_up_ends_the_job(small_disk: Path) -> None:
    def fill_and_push(address: str, size: int) -> None:
        store = store_of(address, size)
        occupy(small_disk / "other")
        try:
            for _ in range(200):
                store.wait(store.push([np.full(size, -1, np.float32)], [1.0]))
        finally:
            (small_disk / "other").unlink()

    with pytest.raises(SporaxRuntimeError, match=rf"'{small_disk}/.*' must be written.*No space left.*{NEED}"):
        run_until_failure(small_disk, 50_000, fill_and_push, "No space left")


def occupy(path: Path) -> None:
    """Take everything that is free."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while True:
            os.write(file, bytes(1 << 14))
    os.close(file)
