"""The log gives back what was written; a torn or damaged end is cut off, everything before it stays."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.ps.protocol.messages import Members, OptimizerSpec, Record, Source, VariableSpec, VariableValues
from sporax.ps.protocol.wire import Frame, chunks, encode
from sporax.ps.slots import record_log
from sporax.ps.slots.record_log import SlotLog
from sporax.ps.slots.slot import SlotState

ADAM = OptimizerSpec("adam", {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8})


def history(count: int) -> list[tuple[Record, list[Frame]]]:
    """Creation of two variables, then updates."""
    variables = [VariableSpec(0, "d", 3, 0, ADAM), VariableSpec(1, "t", 0, 2, OptimizerSpec("sgd"))]
    first = np.arange(3, dtype=np.float32)
    records = [(Record(0, 1, 1, variables, [], [VariableValues(0, 0, -1, 3)], [Members(0, [0])]), chunks(first))]
    for number in range(count):
        gradient, ids = np.full(3, number, np.float32), np.array([number % 3, 7])
        entries = [VariableValues(0, 0.1, -1, 3), VariableValues(1, 0.1, 2, 4)]
        frames = [*chunks(gradient), *chunks(ids), *chunks(np.ones(4, np.float32))]
        records.append((Record(0, number + 2, 1, [], [Source(0, 1, number + 1, number)], entries), frames))
    return records


def same(left: SlotState, right: SlotState) -> bool:
    (one, frames), (other, others) = left.image(), right.image()
    return one == other and [bytes(frame) for frame in frames] == [bytes(frame) for frame in others]


def written(directory: Path, records: list[tuple[Record, list[Frame]]]) -> None:
    log = SlotLog(directory, sync=False)
    for record, frames in records:
        log.append(record, frames)
    log.close()


def replayed(records: list[tuple[Record, list[Frame]]]) -> SlotState:
    state = SlotState(0, 0)
    for record, frames in records:
        state.apply(record, frames)
    return state


def test_truncated_at_every_byte_the_log_gives_back_every_complete_record(tmp_path: Path) -> None:
    records = history(4)
    ends = []
    for count in range(len(records) + 1):
        written(tmp_path / f"prefix{count}", records[:count])
        files = list((tmp_path / f"prefix{count}").glob("log-*"))
        ends.append(files[0].stat().st_size if files else 0)
    data = next((tmp_path / f"prefix{len(records)}").glob("log-*")).read_bytes()
    states = [replayed(records[:count]) for count in range(len(records) + 1)]
    directory = tmp_path / "torn"
    directory.mkdir()
    for cut in range(len(data) + 1):
        (directory / "log-00000000").write_bytes(data[:cut])
        log = SlotLog(directory, sync=False)
        recovered = log.recover(0).states
        whole = max(count for count, end in enumerate(ends) if end <= cut)
        assert (directory / "log-00000000").stat().st_size == ends[whole], "the torn tail must be gone"
        assert recovered == {} if whole == 0 else same(recovered[0], states[whole])
        if whole < len(records) and cut % 37 == 0:  # writing goes on where the whole records end
            log.append(*records[whole])
            log.close()
            log = SlotLog(directory, sync=False)
            assert same(log.recover(0).states[0], states[whole + 1])
        log.close()


def test_snapshots_shorten_the_log_and_change_nothing(tmp_path: Path) -> None:
    records, state = history(6), SlotState(0, 0)
    log = SlotLog(tmp_path, sync=True)
    for record, frames in records[:4]:
        log.append(record, frames)
        state.apply(record, frames)
    log.begin_file()
    log.append(*records[4])  # before the slot has been written
    state.apply(*records[4])
    log.write_slot(state)
    log.delete_old()
    for record, frames in records[5:]:
        log.append(record, frames)
    log.flush()
    log.close()
    assert len(list(tmp_path.glob("log-*"))) == 1
    again = SlotLog(tmp_path, sync=True)
    assert same(again.recover(0).states[0], replayed(records))
    again.close()


def test_a_file_that_is_written_over_gives_back_the_new_records_alone(tmp_path: Path) -> None:
    records, state = history(12), SlotState(0, 0)
    log = SlotLog(tmp_path, sync=False)
    sizes = []
    for number, (record, frames) in enumerate(records):
        log.append(record, frames)
        state.apply(record, frames)
        if number in (4, 7, 9):
            log.begin_file()
            log.write_slot(state)
            log.delete_old()
            sizes.append(next(tmp_path.glob("log-*")).stat().st_size)
    log.close()
    assert sizes[0] == 0
    assert sizes[1] > 0, "the second file must be the first one again, with its old records in it"
    again = SlotLog(tmp_path, sync=False)
    assert same(again.recover(0).states[0], replayed(records))
    again.append(Record(0, state.lsn + 1, 1, [], [], [], [Members(3, [0, 1])]), [])
    again.close()
    once_more = SlotLog(tmp_path, sync=False)
    assert once_more.recover(0).states[0].lsn == state.lsn + 1
    once_more.close()


def test_pages_prepared_ahead_are_no_records(tmp_path: Path) -> None:
    records = history(5)
    log = SlotLog(tmp_path, sync=False, ahead_bytes=600_000)
    assert log.prepare()
    log.append(*records[0])
    while log.prepare():
        pass
    size = next(tmp_path.glob("log-*")).stat().st_size
    assert 600_000 <= size < 1_200_000
    for record, frames in records[1:]:
        log.append(record, frames)
    assert next(tmp_path.glob("log-*")).stat().st_size == size
    log.close()
    again = SlotLog(tmp_path, sync=False, ahead_bytes=600_000)
    assert same(again.recover(0).states[0], replayed(records))
    assert next(tmp_path.glob("log-*")).stat().st_size == again.num_bytes
    again.close()


def test_records_that_another_server_has_overruled_are_passed_over(tmp_path: Path) -> None:
    records = history(3)
    log = SlotLog(tmp_path, sync=False)
    for record, frames in records[:3]:
        log.append(record, frames)
    taken_over = replayed(records[:2])
    taken_over.epoch = 5  # the image of the new leader, without this server's last record
    log.write_slot(taken_over)
    log.close()
    again = SlotLog(tmp_path, sync=False)
    assert same(again.recover(0).states[0], taken_over)
    again.close()


def earlier_form(record: Record, frames: list[Frame]) -> bytes:
    """A record as the version before this one wrote it."""
    head, *rest = [bytes(part) for part in encode(record, frames)]
    head = b"SPXP" + struct.pack("<BBH", 1, 0, len(rest)) + head[8:]
    lengths = b"".join(struct.pack("<Q", len(part)) for part in (head, *rest))
    body = b"".join([head, *rest])
    return struct.pack("<4sIIQ", b"SPXL", zlib.crc32(lengths + body), 1 + len(rest), len(body)) + lengths + body


def test_records_of_the_earlier_format_are_read_and_written_on(tmp_path: Path) -> None:
    records = history(4)
    (tmp_path / "log-00000003").write_bytes(b"".join(earlier_form(*record) for record in records[:3]))
    log = SlotLog(tmp_path, sync=False)
    assert same(log.recover(0).states[0], replayed(records[:3]))
    for record, frames in records[3:]:
        log.append(record, frames)
    log.close()
    again = SlotLog(tmp_path, sync=False)
    assert same(again.recover(0).states[0], replayed(records))
    again.close()


def test_a_directory_belongs_to_one_server(tmp_path: Path) -> None:
    log = SlotLog(tmp_path, sync=False)
    with pytest.raises(SporaxRuntimeError, match="must belong to one server"):
        SlotLog(tmp_path, sync=False)
    log.close()


def test_pages_are_wanted_again_when_half_of_them_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_log, "_AHEAD_BYTES", 1 << 20)
    record, _ = history(1)[0]
    log = SlotLog(tmp_path, sync=False, ahead_bytes=64 << 20)
    while log.prepare():
        pass
    assert not log.wants_pages
    log.append(record, [bytes(500 << 10)])
    assert not log.wants_pages
    log.append(record, [bytes(100 << 10)])
    assert log.wants_pages
    monkeypatch.setattr(record_log, "free_bytes", lambda _: 0)
    assert not log.prepare()
    assert not log.wants_pages, "a disk without room is not tried again and again"
    log.close()
