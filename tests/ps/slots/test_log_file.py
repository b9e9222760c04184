"""Damage of any kind, anywhere: what is read back is exact, or is said to be missing; a torn tail is no damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from sporax.ps.protocol.messages import Members, OptimizerSpec, Record, Source, VariableSpec, VariableValues
from sporax.ps.protocol.wire import Frame, chunks
from sporax.ps.slots.log_file import Damage, Intact, LogFile, pack
from sporax.ps.slots.record_log import UNKNOWN, SlotLog
from sporax.ps.slots.slot import SlotState

SGD = OptimizerSpec("sgd")
NUM_SLOTS = 3


def records_of(order: list[int], size: int = 20) -> list[tuple[Record, list[Frame]]]:
    """One record after the other, of the slots in `order`; the first of each creates a variable."""
    records, lsns = [], dict.fromkeys(range(NUM_SLOTS), 0)
    for slot in order:
        lsns[slot] += 1
        values = np.random.default_rng(len(records)).normal(size=size).astype(np.float32)
        specs = [VariableSpec(0, "d", size, 0, SGD)] if lsns[slot] == 1 else []
        sources = [] if specs else [Source(0, 1, lsns[slot], lsns[slot])]
        entries = [VariableValues(0, 0.1, -1, size)]
        members = [Members(0, [0])] if specs else None
        records.append((Record(slot, lsns[slot], 1, specs, sources, entries, members), chunks(values)))
    return records


def states_of(records: list[tuple[Record, list[Frame]]]) -> dict[int, SlotState]:
    states: dict[int, SlotState] = {}
    for record, frames in records:
        states.setdefault(record.slot, SlotState(record.slot, 0)).apply(record, frames)
    return states


def bytes_of(state: SlotState) -> tuple[object, list[bytes]]:
    image, frames = state.image()
    return image, [bytes(frame) for frame in frames]


def written(directory: Path, records: list[tuple[Record, list[Frame]]], flush_every: int = 0) -> list[int]:
    """Write a log, flushed every so many records (0: it is not flushed); gives where each record ends."""
    log, ends = SlotLog(directory, sync=flush_every > 0), []
    for number, record in enumerate(records):
        log.append(*record)
        ends.append(log.num_bytes)
        if flush_every and (number + 1) % flush_every == 0:
            log.flush()
    log.close()
    return ends


def one_log(directory: Path) -> Path:
    (path,) = directory.glob("log-*")
    return path


DAMAGES = st.one_of(
    st.tuples(st.just("flip"), st.floats(0, 1, exclude_max=True), st.integers(0, 7)),
    st.tuples(st.just("zeros"), st.floats(0, 1, exclude_max=True), st.integers(1, 4096)),
    st.tuples(st.just("garbage"), st.floats(0, 1, exclude_max=True), st.integers(1, 600)),
    st.tuples(st.just("cut out"), st.floats(0, 1, exclude_max=True), st.integers(1, 600)),
    st.tuples(st.just("older"), st.floats(0, 1, exclude_max=True), st.integers(1, 4096)),
)


def damaged(data: bytes, kind: str, where: float, how: int, older: bytes) -> tuple[bytes, int, int]:
    """Data with damage, and the range of the bytes that are no longer what they were."""
    start = int(where * len(data))
    stop = min(start + how, len(data))
    if kind == "flip":
        return data[:start] + bytes([data[start] ^ (1 << how)]) + data[start + 1 :], start, start + 1
    if kind == "zeros":
        return data[:start] + bytes(stop - start) + data[stop:], start, stop
    if kind == "garbage":
        noise = np.random.default_rng(how).bytes(stop - start)
        return data[:start] + noise + data[stop:], start, stop
    if kind == "older":  # a page that was never written still has what the file had before
        return data[:start] + older[start:stop] + data[stop:], start, stop
    return data[:start] + data[stop:], start, stop


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(order=st.lists(st.integers(0, NUM_SLOTS - 1), min_size=2, max_size=24), damage=DAMAGES, prepared=st.booleans())
def test_after_damage_a_slot_is_exact_or_named(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], damage: tuple[str, float, int], prepared: bool
) -> None:
    """No slot comes back with less than was acknowledged unless it is named; only the last record may pass for a torn one."""
    records = records_of(order)
    directory = tmp_path_factory.mktemp("log") / "log"
    ends = written(directory, records)
    path = one_log(directory)
    data = path.read_bytes()
    older = b"".join(b"".join(pack(*record, number=7)) for record in records)  # those of another file
    changed, start, stop = damaged(data, *damage, older)
    path.write_bytes(changed + (bytes(5000) if prepared else b""))
    log = SlotLog(directory, sync=False)
    replay = log.recover(0)
    log.close()
    expected = states_of(records)
    if changed == data:
        assert not replay.damages
        assert {slot: bytes_of(state) for slot, state in replay.states.items()} == {
            slot: bytes_of(state) for slot, state in expected.items()
        }
        return
    if len(changed) == len(data):
        different = [at for at in range(len(data)) if data[at] != changed[at]]
        start, stop = different[0], different[-1] + 1
    # Records that were cut out at their edges leave no damaged bytes; numbers of slots show them.
    assume(len(changed) == len(data) or start not in (0, *ends))
    starts = [0, *ends[:-1]]
    hit = {number for number in range(len(records)) if starts[number] < stop and ends[number] > start}
    # Behind the last record that is whole nothing distinguishes damage from a torn record.
    whole = [number for number in range(len(records)) if number not in hit]
    tail = {number for number in hit if not whole or number > whole[-1]}
    assert bool(replay.damages) == bool(hit - tail)
    readable = states_of(records[: min(tail)]) if tail else expected
    for slot, state in readable.items():
        if slot in replay.states:
            assert bytes_of(replay.states[slot]) == bytes_of(state)
        elif not any(record.slot == slot for number, (record, _) in enumerate(records) if number < min(hit)):
            # All of its records are damaged: the scheduler knows that it was here.
            assert slot in replay.missing or all(
                number in hit for number, (record, _) in enumerate(records) if record.slot == slot
            )
        else:
            assert slot in replay.missing


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    order=st.lists(st.integers(0, NUM_SLOTS - 1), min_size=1, max_size=12),
    flush_every=st.integers(0, 4),
    lost=st.data(),
)
def test_a_torn_tail_is_no_damage(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], flush_every: int, lost: st.DataObject
) -> None:
    """What ended in the middle of writing was never acknowledged: also pages of one flush that reached the disk out of order."""
    records = records_of(order)
    directory = tmp_path_factory.mktemp("log") / "log"
    ends = written(directory, records, flush_every)
    path = one_log(directory)
    data = path.read_bytes()
    flushed = len(records) // flush_every * flush_every if flush_every else len(records) - 1
    safe = ends[flushed - 1] if flushed else 0
    if flush_every:
        pages = [lost.draw(st.booleans()) for _ in range(safe, len(data), 64)]
        torn = data[:safe] + b"".join(
            data[at : at + 64] if kept else bytes(len(data[at : at + 64]))
            for at, kept in zip(range(safe, len(data), 64), pages, strict=True)
        )
    else:
        torn = data[: lost.draw(st.integers(safe, len(data)))]
    path.write_bytes(torn)
    log = SlotLog(directory, sync=flush_every > 0)
    replay = log.recover(0)
    assert not replay.damages
    assert not replay.missing
    whole = {slot: state.lsn for slot, state in states_of(records[:flushed]).items()}
    for slot, state in replay.states.items():
        assert state.lsn >= whole.get(slot, 0)
    # Writing goes on behind the last whole record.
    count = sum(state.lsn for state in replay.states.values())
    more = records_of([*order[:count], 0])[count:]
    log.append(*more[0])
    log.close()
    again = SlotLog(directory, sync=False)
    second = again.recover(0)
    again.close()
    assert sum(state.lsn for state in second.states.values()) == count + 1
    assert not second.damages


def test_damage_in_flushed_records_is_not_a_torn_group(tmp_path: Path) -> None:
    records = records_of([0, 1, 2, 0, 1, 2])
    ends = written(tmp_path / "log", records, flush_every=2)
    path = one_log(tmp_path / "log")
    data = bytearray(path.read_bytes())
    data[ends[0] + 40] ^= 1  # the second record, which the first flush has covered
    path.write_bytes(data)
    with LogFile(path) as file:
        items = list(file.read())
    assert items[1] == Damage(path, ends[0], ends[1])
    assert [isinstance(item, Intact) for item in items] == [True, False, True, True, True, True]


def test_damage_is_set_aside_and_the_rest_goes_on(tmp_path: Path) -> None:
    """The file stays as it is, slots that are whole are in new files, and those that are not are named, now and later."""
    records = records_of([0, 1, 2] * 4)
    ends = written(tmp_path / "log", records)
    path = one_log(tmp_path / "log")
    data = bytearray(path.read_bytes())
    data[ends[3] + 50] ^= 4  # the second record of slot 1
    path.write_bytes(data)
    log = SlotLog(tmp_path / "log", sync=False)
    replay = log.recover(0)
    assert sorted(replay.states) == [0, 2]
    assert str(replay.missing[1]) == "from record 2 on (of 4)"
    (kept,) = log.set_aside(replay, tmp_path / "kept")
    assert kept.read_bytes() == bytes(data)
    more = records_of([0, 1, 2] * 4 + [0])[-1]
    log.append(*more)
    log.close()
    again = SlotLog(tmp_path / "log", sync=False)
    second = again.recover(0)
    again.close()
    assert not second.damages
    assert sorted(second.states) == [0, 2]
    assert second.states[0].lsn == 5


@pytest.mark.parametrize("what", ["snapshot", "the end of an old file"])
def test_damage_beside_the_newest_log_is_found(tmp_path: Path, what: str) -> None:
    records = records_of([0, 1, 2, 0, 1, 2])
    log = SlotLog(tmp_path / "log", sync=False)
    for record in records[:3]:
        log.append(*record)
    log.prepare()
    log.begin_file()
    for state in states_of(records[:3]).values():
        if what == "snapshot":
            log.write_slot(state)
    log.append(*records[3])
    log.close()
    if what == "snapshot":
        target = tmp_path / "log" / "slot-0001"
        target.write_bytes(target.read_bytes()[:-3])
        (tmp_path / "log" / "log-00000000").unlink()
    else:
        target = tmp_path / "log" / "log-00000000"
        data = bytearray(target.read_bytes())
        data[-5] ^= 1  # the record of slot 2
        target.write_bytes(data)
    again = SlotLog(tmp_path / "log", sync=False)
    replay = again.recover(0)
    again.close()
    assert [damage.path for damage in replay.damages] == [target]
    if what == "snapshot":
        assert sorted(replay.states) == [0, 2]
        assert replay.missing[1].last == UNKNOWN
    else:
        # Slot 1 has no later record to show that none of its own was there.
        assert sorted(replay.states) == [0]
        assert sorted(replay.missing) == [1]
