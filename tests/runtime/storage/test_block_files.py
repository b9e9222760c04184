"""Files of arrays: blocks, order of reads and writes, limits, full disks, and that nothing stays."""

import errno
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from sporax.base.errors import SporaxRuntimeError
from sporax.lowering.passes.host.file_values import Reads
from sporax.lowering.rewriter import JaxprRewriter
from sporax.runtime.storage.block_files import BlockFiles, DiskSettings

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
def test_a_full_disk_is_reported_before_a_step_runs(tmp_path, monkeypatch):
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


def test_requests_are_blocks(tmp_path, monkeypatch):
    """Every read and write is of one block, and the queue bounds how many run at the same time."""
    sizes, running, most = [], set(), []
    original = os.pwrite, os.preadv

    def noted(run, size, *args):
        running.add(name := object())
        most.append(len(running))
        sizes.append(size)
        time.sleep(0.002)
        running.discard(name)
        return run(*args)

    monkeypatch.setattr(os, "pwrite", lambda *args: noted(original[0], len(args[1]), *args))
    monkeypatch.setattr(os, "preadv", lambda *args: noted(original[1], len(args[1][0]), *args))
    array = files(tmp_path, block_bytes=600, queue_depth=3).new("w", VALUES.shape, VALUES.dtype)
    array.write(VALUES)
    np.testing.assert_array_equal(array.read(), VALUES)
    assert sorted(sizes) == sorted(2 * [*[600] * 6, 400])
    assert 1 < max(most) <= 3


def test_the_next_array_is_read_while_the_present_one_is_used(tmp_path):
    """A step's reads begin one after another, each by the one before it."""
    store, events = files(tmp_path), []

    class Noted:
        def __init__(self, name):
            self.array, self.name = store.new(name, VALUES.shape, VALUES.dtype), name
            self.shape, self.dtype = VALUES.shape, VALUES.dtype
            self.array.write(VALUES)

        def read(self):
            events.append(f"read {self.name}")
            return self.array.read()

        def prefetch(self):
            events.append(f"read ahead {self.name}")
            self.array.prefetch()

    reads = Reads()
    waits = jnp.zeros((), jnp.int32)

    def program(token):
        for name in "abc":
            jaxpr = jax.make_jaxpr(lambda item: item + 1)(token)
            writer = JaxprRewriter(jaxpr)
            writer.walk()
            whole = writer.finish(reads.read(writer, Noted(name), jaxpr.jaxpr.outvars))
            values, token = jaxpr_as_fun(whole)(token)
        return values

    np.testing.assert_array_equal(jax.jit(program)(waits), VALUES)
    assert events == ["read a", "read ahead b", "read b", "read ahead c", "read c"]


_PROGRAM = """
import os, resource, signal, sys
import numpy as np
from sporax.runtime.storage.block_files import BlockFiles, DiskSettings
folder, ending = sys.argv[1:]
values = np.ones(100_000, np.float32)
if ending == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
array = BlockFiles(DiskSettings(folder)).new("w", values.shape, values.dtype)
array.write(values)
array.read()
assert os.listdir(folder) == []
if ending == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if ending == "exception":
    raise RuntimeError("in the middle of a step")
"""


@pytest.mark.parametrize(
    ("ending", "code", "error"),
    [
        ("well", 0, ""),
        ("exception", 1, "in the middle of a step"),
        ("kill", -signal.SIGKILL, ""),
        ("full", 1, "'offload_path' must have room for 400000 bytes of 'w', but"),
    ],
)
@pytest.mark.sampled(2)
def test_nothing_stays_however_a_process_ends(tmp_path, ending, code, error):
    """The system removes the files; the folder goes unless the process was killed."""
    folder = tmp_path / "offload"
    command = [sys.executable, "-c", _PROGRAM, str(folder), ending]
    job = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "JAX_PLATFORMS": "cpu"}
    )
    assert job.returncode == code, job.stderr
    assert error in job.stderr
    assert list(tmp_path.rglob("*")) == ([folder] if ending == "kill" else [])
