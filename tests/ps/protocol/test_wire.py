"""Bytes to messages and back; what is damaged, too long or not a message is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sporax.ps.protocol import wire
from sporax.ps.protocol.messages import Acked, Pull, Push, Source, VariableValues


def push() -> tuple[Push, list[wire.Frame]]:
    ids, values = np.array([1, 5]), np.arange(6, dtype=np.float32)
    message = Push(3, 2, 7, Source(0, 1, 4, 9), 1.0, [VariableValues(1, 0.5, 2, 6)])
    return message, [*wire.chunks(ids), *wire.chunks(values)]


def sent(message: object, frames: list[wire.Frame]) -> list[bytes]:
    return [bytes(part) for part in wire.encode(message, frames)]


def test_a_message_survives_the_way_with_its_arrays() -> None:
    message, frames = push()
    got, rest = wire.decode(sent(message, frames))
    ids, values = wire.EntryReader(rest).take(got.entries[0])
    assert got == message
    assert ids.tolist() == [1, 5]
    assert values.tolist() == [0, 1, 2, 3, 4, 5]


def test_long_arrays_travel_in_chunks() -> None:
    array = np.arange(3 * wire.CHUNK_BYTES // 8 + 5, dtype=np.float32)
    frames = wire.chunks(array)
    assert [len(frame) for frame in frames] == [wire.CHUNK_BYTES, wire.CHUNK_BYTES // 2 + 20]
    _, back = wire.EntryReader(frames).take(VariableValues(0, 0.0, -1, array.size))
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_size_of_a_message_is_that_of_all_its_parts(count: int) -> None:
    """Who sends it sees by this number whether the kernel took all."""
    frames = [memoryview(bytes(10 * (number + 1))) for number in range(count)]
    head, size = wire.head_and_size(Acked(1, 2, 3), frames)
    assert [head, *frames] == wire.encode(Acked(1, 2, 3), frames)
    assert size == sum(map(len, wire.encode(Acked(1, 2, 3), frames)))
    assert wire.total_bytes(frames) == size - len(head)


def test_arrays_with_gaps_are_sent_as_their_values() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    assert b"".join(map(bytes, wire.chunks(array))) == array.tobytes()


@given(st.integers(0, 10_000), st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_a_damaged_byte_is_refused_or_harmless(position: int, change: int) -> None:
    """The struct has a checksum, the header is checked field by field; only array bytes may differ."""
    message, frames = push()
    parts = sent(message, frames)
    head = bytearray(parts[0])
    head[position % len(head)] ^= change
    with pytest.raises(wire.WireError):
        wire.decode([bytes(head), *parts[1:]])


@given(st.lists(st.binary(max_size=80), max_size=4))
@settings(max_examples=300, deadline=None)
def test_any_bytes_at_all_are_refused(parts: list[bytes]) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(parts)


def test_frames_that_do_not_fit_are_refused() -> None:
    message, frames = push()
    parts = sent(message, frames)
    for wrong in (parts[:-1], [*parts, b"x"], [*parts[:-1], parts[-1][:-4]]):
        with pytest.raises(wire.WireError):
            wire.decode(wrong)
    with pytest.raises(wire.WireError):
        wire.decode(parts, max_body_bytes=10)


def test_a_struct_of_the_wrong_types_is_refused() -> None:
    good = wire.encode(Acked(1, 2, 3))[0]
    packed = bytes(good[wire.HEADER.size :]).replace(b"\x01", b"\xa1x", 1)
    import zlib

    header = wire.HEADER.pack(b"SPXP\2\0\0\0", len(packed), zlib.crc32(packed), 0)
    with pytest.raises(wire.WireError, match="malformed"):
        wire.decode([header + packed])


def test_sizes_in_entries_must_fit_the_frames() -> None:
    for entry in (VariableValues(0, 0.0, -1, 5), VariableValues(0, 0.0, -1, -1), VariableValues(0, 0.0, -5, 1)):
        with pytest.raises(wire.WireError):
            wire.EntryReader([bytes(8)]).take(entry)
    reader = wire.EntryReader([bytes(8), b"more"])
    reader.take(VariableValues(0, 0.0, -1, 2))
    with pytest.raises(wire.WireError, match="more array frames"):
        reader.finish()


def test_pulls_carry_no_values() -> None:
    message = Pull(1, 0, 1, 0, -1, [VariableValues(4, 0.0, 2, 0)])
    _, rest = wire.decode(sent(message, wire.chunks(np.array([3, 4]))))
    ids, values = wire.EntryReader(rest).take(message.entries[0])
    assert ids.tolist() == [3, 4]
    assert values is None
