"""Checkpoint files tensor by tensor: blocks that are read, files that are streamed, checksums put together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sharded_recipes import W1, W2

from sporax.mindspore import Tensor
from sporax.mindspore.train import _ckpt_format, load_checkpoint, save_checkpoint
from sporax.mindspore.train._stored import open_checkpoint, write_stream
from sporax.runtime.storage.entries import StoredTensor

FORMATS = ["ckpt", "safetensors"]
BLOCK = (slice(3, 7), slice(8, 16))


@pytest.mark.parametrize("format", FORMATS)
def test_a_block_is_read_and_its_bytes_are_counted(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"a.{format}"
    save_checkpoint({"w": Tensor(W1), "v": Tensor(np.float16(3))}, str(path), format=format)
    file = open_checkpoint("test", path)
    assert (file.specs["w"].shape, file.specs["v"].shape, file.bytes_read) == ((16, 32), (), 0)
    np.testing.assert_array_equal(file.read("w", BLOCK), W1[BLOCK])
    assert file.bytes_read == 4 * 8 * 4
    assert file.read("v", ()) == 3


@pytest.mark.parametrize("value_bytes", [12, 100, 128, 300])  # rows have 128
def test_a_tensor_in_several_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value_bytes: int) -> None:
    monkeypatch.setattr(_ckpt_format, "SLICE_BYTES", value_bytes)
    save_checkpoint({"w": Tensor(W1)}, str(tmp_path / "a.ckpt"))
    file = open_checkpoint("test", tmp_path / "a.ckpt", verify=True)
    np.testing.assert_array_equal(file.read("w", BLOCK), W1[BLOCK])
    np.testing.assert_array_equal(file.read("w", (slice(0, 16), slice(0, 32))), W1)


@pytest.mark.parametrize("format", FORMATS)
def test_a_streamed_file_is_like_one_written_at_once(tmp_path: Path, format: str) -> None:
    values = {"w": W1, "b": W2.astype(np.float16), "n": np.array([], np.int8)}
    specs = [StoredTensor(name, value.shape, value.dtype) for name, value in values.items()]
    size = write_stream(tmp_path / f"a.{format}", specs, lambda spec: values[spec.name])
    assert size == (tmp_path / f"a.{format}").stat().st_size
    for name, parameter in load_checkpoint(str(tmp_path / f"a.{format}"), format=format, crc_check=True).items():
        np.testing.assert_array_equal(parameter.asnumpy(), values[name])
    open_checkpoint("test", tmp_path / f"a.{format}", verify=True)


@pytest.mark.parametrize("format", FORMATS)
def test_an_error_while_streaming_leaves_the_old_file(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"a.{format}"
    path.write_bytes(b"old")

    def fail(spec: StoredTensor) -> np.ndarray:
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_stream(path, [StoredTensor("w", (2,), np.dtype(np.float32))], fail)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("format", FORMATS)
def test_broken_files_are_named(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"a.{format}"
    save_checkpoint({"w": Tensor(W1)}, str(path), format=format)
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:-30])
    with pytest.raises(ValueError, match=f"For 'test', the file '.*a.{format}' cannot be read"):
        open_checkpoint("test", path)
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="CRC-32"):
        open_checkpoint("test", path, verify=True)
    with pytest.raises(ValueError, match="must be an existing"):
        open_checkpoint("test", tmp_path / "none.ckpt")
