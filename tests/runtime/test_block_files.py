"""Files of arrays: blocks, order of reads and writes, limits, full disks, and that nothing stays."""

import errno
import os

import numpy as np
import pytest

from sporax.ir.errors import SporaxRuntimeError
from sporax.runtime.block_files import BlockFiles, DiskSettings

VALUES = np.arange(1000, dtype=np.float32).reshape(10, 100)


def files(folder, **settings):
    return BlockFiles(DiskSettings(str(folder), **settings))


@pytest.mark.parametrize("block_bytes", [0, 7, 4000, 10**6])
@pytest.mark.parametrize("asynchronous", [True, False])
def test_what_is_written_is_read(tmp_path, block_bytes, asynchronous):
    array = files(tmp_path, block_bytes=block_bytes, asynchronous=asynchronous, queue_depth=3).new(
        "w", VALUES.shape, VALUES.dtype
    )
    for factor in (1, 2, 3):
        array.write(VALUES * factor)
        array.prefetch()
        np.testing.assert_array_equal(array.read(), VALUES * factor)
        np.testing.assert_array_equal(array.read(), VALUES * factor)


def test_values_may_change_after_they_were_handed_over(tmp_path):
    array, values = files(tmp_path).new("w", VALUES.shape, VALUES.dtype), VALUES.copy()
    array.write(values)
    values[:] = 0
    np.testing.assert_array_equal(array.read(), VALUES)


def test_what_was_read_ahead_before_a_write_is_not_used(tmp_path):
    array = files(tmp_path).new("w", VALUES.shape, VALUES.dtype)
    array.write(VALUES)
    array.prefetch()
    array.write(-VALUES)
    np.testing.assert_array_equal(array.read(), -VALUES)


def test_no_file_has_a_name_and_a_new_folder_is_removed(tmp_path):
    store = files(tmp_path / "offload")
    array = store.new("w", VALUES.shape, VALUES.dtype)
    array.write(VALUES)
    np.testing.assert_array_equal(array.read(), VALUES)
    assert os.listdir(tmp_path / "offload") == []
    del array, store
    assert not (tmp_path / "offload").exists()


def test_the_limit_counts_all_files(tmp_path):
    store = files(tmp_path, limit_bytes=5000)
    store.new("w", VALUES.shape, VALUES.dtype)
    with pytest.raises(SporaxRuntimeError, match="'offload_disk_size' is 5000 bytes, but 8000 bytes .* with 'm'"):
        store.new("m", VALUES.shape, VALUES.dtype)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="files are not reserved on this system")
def test_a_full_disk_is_told_before_a_step_runs(tmp_path, monkeypatch):
    def full(descriptor, offset, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        SporaxRuntimeError, match=r"must have room for 4000 bytes of 'w', but .* is full: \d+ bytes are free"
    ):
        files(tmp_path).new("w", VALUES.shape, VALUES.dtype)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(SporaxRuntimeError, match="'offload_path' must be a folder that can be made"):
        files(tmp_path / "taken" / "inside")
