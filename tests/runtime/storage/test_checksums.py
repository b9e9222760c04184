"""Checksums: of pieces put together, and of what a file is given."""

from __future__ import annotations

import io
import zlib

import pytest
from hypothesis import given, settings, strategies as st

from sporax.runtime.storage.safetensors_format import CheckedWriter, combined_crc


@settings(max_examples=50, deadline=None)
@given(first=st.binary(max_size=50), second=st.binary(max_size=2000))
def test_checksums_of_pieces_make_that_of_the_whole(first: bytes, second: bytes) -> None:
    assert combined_crc(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


@pytest.mark.parametrize("size", [0, 10, 1 << 20])
def test_a_writer_gives_the_checksum_of_each_piece(size: int) -> None:
    file, piece = io.BytesIO(), bytes(range(256)) * (size // 256) + bytes(size % 256)
    with CheckedWriter(file) as writer:
        assert [writer.write(piece), writer.write(memoryview(piece))] == [zlib.crc32(piece)] * 2
    assert file.getvalue() == piece * 2
