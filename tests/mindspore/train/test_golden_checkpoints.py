"""Files written by MindSpore load here, and what is written here is what MindSpore writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import checkpoint_recipes as recipes
import numpy as np
import pytest
from safetensors import safe_open

import sporax.mindspore as ms
from sporax.mindspore.train import _ckpt_format

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoints"


def load(name: str, **options: Any) -> dict[str, Any]:
    return ms.load_checkpoint(str(GOLDEN / name), **options)


def assert_same(actual: Any, expected: Any) -> None:
    assert actual.name == expected.name
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual.asnumpy(), expected.asnumpy())


@pytest.mark.parametrize("name", ["dtypes.ckpt", "dtypes_crc.ckpt", "dtypes.safetensors"])
def test_every_dtype_loads(name: str) -> None:
    actual = load(name, crc_check="crc" in name)
    expected = recipes.parameters(ms)
    assert set(actual) == {parameter.name for parameter in expected}
    for parameter in expected:
        assert_same(actual[parameter.name], parameter)


def test_the_checksum_of_safetensors_is_that_of_mindspore() -> None:
    assert len(load("dtypes_crc.safetensors", crc_check=True)) == len(recipes.DTYPES) + 1  # no bfloat16


def test_appended_values_load() -> None:
    actual = load("appended.ckpt")
    assert actual["note"] == recipes.APPENDED["note"]
    assert [actual[name].asnumpy().item() for name in ("epoch_num", "loss_scale", "finished")] == [3, 1024.5, True]


def test_slices_are_put_together() -> None:
    actual = load("sliced.ckpt")
    assert list(actual) == ["before", "big", "after"]
    for parameter in recipes.sliced(ms):
        assert_same(actual[parameter.name], parameter)


def test_a_training_step_goes_on_from_mindspore() -> None:
    step = recipes.training_step(ms)
    expected = {parameter.name: parameter.asnumpy() for parameter in step.get_parameters()}
    for parameter in step.get_parameters():
        parameter.set_data(ms.Tensor(np.zeros(parameter.shape, parameter.asnumpy().dtype)))
    assert ms.load_param_into_net(step, load("training.ckpt"), strict_load=True) == ([], [])
    for parameter in step.get_parameters():
        np.testing.assert_allclose(parameter.asnumpy(), expected[parameter.name], rtol=1e-4, atol=1e-6)


def test_encrypted_files_are_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match=r"encrypted\.ckpt' is encrypted"):
        load("encrypted.ckpt")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dtypes.ckpt", {}),
        ("dtypes_crc.ckpt", {"crc_check": True}),
        ("appended.ckpt", {"append_dict": recipes.APPENDED}),
    ],
)
def test_files_are_byte_for_byte_those_of_mindspore(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    parameters = recipes.parameters(ms)
    saved = parameters[:1] if "append_dict" in options else parameters
    ms.save_checkpoint(saved, str(tmp_path / name), **options)
    assert without_checksum(tmp_path / name) == without_checksum(GOLDEN / name)


def without_checksum(path: Path) -> bytes:
    """A file's bytes without the checksum that Sporax always writes, and MindSpore where it is set to."""
    content = path.read_bytes()
    return content[:-17] if content[-17:-10] == b"crc_num" else content


def test_checksums_are_those_of_mindspore(tmp_path: Path) -> None:
    ms.save_checkpoint(recipes.parameters(ms), str(tmp_path / "x.ckpt"))
    assert (tmp_path / "x.ckpt").read_bytes() == (GOLDEN / "dtypes_crc.ckpt").read_bytes()


def test_slices_are_byte_for_byte_those_of_mindspore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ckpt_format, "SLICE_BYTES", recipes.SLICE_BYTES)
    ms.save_checkpoint(recipes.sliced(ms), str(tmp_path / "sliced.ckpt"))
    assert without_checksum(tmp_path / "sliced.ckpt") == (GOLDEN / "sliced.ckpt").read_bytes()


def test_safetensors_files_have_what_the_library_finds_in_those_of_mindspore(tmp_path: Path) -> None:
    path = tmp_path / "dtypes_crc.safetensors"
    kept = [parameter for parameter in recipes.parameters(ms) if parameter.dtype != ms.bfloat16]
    ms.save_checkpoint(kept, str(path), crc_check=True)
    with safe_open(path, "np") as mine, safe_open(GOLDEN / path.name, "np") as theirs:
        assert mine.metadata() == theirs.metadata()
        assert sorted(mine.keys()) == sorted(theirs.keys())
        for name in mine.keys():  # noqa: SIM118 - not a dict
            np.testing.assert_array_equal(mine.get_tensor(name), theirs.get_tensor(name), strict=True)


def test_the_safetensors_library_reads_bfloat16(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    ms.save_checkpoint([ms.Parameter(ms.Tensor([1.5, -2.0], ms.bfloat16), name="x")], str(path))
    with safe_open(path, "np") as file:
        assert file.get_slice("x").get_dtype() == "BF16"
        assert file.get_slice("x").get_shape() == [2]
