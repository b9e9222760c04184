"""Saving and loading: what comes back, what is refused, and what broken files say."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn
from sporax.mindspore.train import _entries, _stored, serialization
from sporax.mindspore.train.serialization import (
    async_ckpt_thread_status,
    ckpt_to_safetensors,
    load_checkpoint,
    load_checkpoint_async,
    load_param_into_net,
    safetensors_to_ckpt,
    save_checkpoint,
)

FORMATS = ["ckpt", "safetensors"]


def make_net(fill: float = 1.0) -> nn.Cell:
    net = nn.SequentialCell(nn.Dense(3, 4), nn.Dense(4, 2))
    for parameter in net.get_parameters():
        parameter.set_data(Tensor(np.full(parameter.shape, fill, np.float32)))
    return net


def contents(net: nn.Cell) -> list[Any]:
    return [parameter.asnumpy() for parameter in net.get_parameters()]


# ------------------------------------------------------------------------------------------------------------ round trip


@pytest.mark.parametrize("format", FORMATS)
def test_a_net_comes_back(tmp_path: Path, format: str) -> None:
    path = str(tmp_path / f"net.{format}")
    save_checkpoint(make_net(3.0), path, format=format, crc_check=True)
    net = make_net(0.0)
    assert load_param_into_net(net, load_checkpoint(path, format=format, crc_check=True)) == ([], [])
    assert all((value == 3).all() for value in contents(net))


@pytest.mark.parametrize("format", FORMATS)
def test_loading_straight_into_a_net(tmp_path: Path, format: str) -> None:
    path = str(tmp_path / f"net.{format}")
    save_checkpoint(make_net(3.0), path, format=format)
    net = make_net(0.0)
    load_checkpoint(path, net, format=format)
    assert all((value == 3).all() for value in contents(net))


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(0, 4), max_size=4),
    dtype=st.sampled_from(
        ["bool_", "int8", "uint16", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
    ),
    format=st.sampled_from(FORMATS),
)
def test_any_shape_and_dtype_comes_back(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], dtype: str, format: str
) -> None:
    kind = getattr(ms, dtype)
    values = (np.arange(int(np.prod(shape))).reshape(shape) % 2).astype(kind.np_dtype)
    path = str(tmp_path_factory.mktemp("ckpt") / f"x.{format}")
    save_checkpoint([Parameter(Tensor(values), name="x")], path, format=format, crc_check=True)
    actual = load_checkpoint(path, format=format, crc_check=True)["x"]
    assert actual.dtype == kind
    assert actual.shape == tuple(shape)
    np.testing.assert_array_equal(actual.asnumpy(), values)


def test_names_get_the_suffix_of_the_format(tmp_path: Path) -> None:
    for name, format in (("a", "ckpt"), ("b", "safetensors"), ("c.ckpt", "safetensors")):
        save_checkpoint(make_net(), str(tmp_path / name), format=format)
    save_checkpoint(make_net(), str(tmp_path / "d.safetensors"))
    assert sorted(os.listdir(tmp_path)) == ["a.ckpt", "b.safetensors", "c.ckpt.safetensors", "d.safetensors"]
    assert len(load_checkpoint(str(tmp_path / "d.safetensors"))) == 4


def test_lists_and_dicts_can_be_saved(tmp_path: Path) -> None:
    path, one = str(tmp_path / "x.ckpt"), Tensor(np.ones((2,), np.float32))
    save_checkpoint([{"name": "a", "data": one}], path)
    assert list(load_checkpoint(path)) == ["a"]
    save_checkpoint({"b": Parameter(one), "note": "text", "c": np.zeros((3,), np.int8)}, path)
    actual = load_checkpoint(path)
    assert (actual["b"].name, actual["note"], actual["c"].dtype) == ("b", "text", ms.int8)


def test_appended_values_come_back(tmp_path: Path) -> None:
    path = str(tmp_path / "x.ckpt")
    extra = {"epoch_num": 2, "rate": 0.5, "done": True, "who": "me", "state": Tensor([1, 2])}
    save_checkpoint(make_net(), path, append_dict=extra)
    actual = load_checkpoint(path)
    assert (actual["epoch_num"].asnumpy(), actual["rate"].dtype, actual["done"].dtype) == (2, ms.float32, ms.bool_)
    assert actual["who"] == "me"
    assert load_param_into_net(make_net(), actual) == ([], ["epoch_num", "rate", "done", "who", "state"])


def test_an_appended_value_wins_over_a_parameter_and_says_so(tmp_path: Path) -> None:
    path = str(tmp_path / "x.ckpt")
    with pytest.warns(UserWarning, match=r"'1\.bias' of 'append_dict' takes the place of the parameter"):
        save_checkpoint(make_net(), path, append_dict={"1.bias": 3})
    assert load_checkpoint(path)["1.bias"].asnumpy() == 3


def test_choosing_what_to_save_and_to_load(tmp_path: Path) -> None:
    path = str(tmp_path / "x.ckpt")
    save_checkpoint(make_net(), path, choice_func=lambda name: name != "1.bias")
    assert list(load_checkpoint(path)) == ["0.weight", "0.bias", "1.weight"]
    assert list(load_checkpoint(path, choice_func=lambda name: "weight" in name)) == ["0.weight", "1.weight"]
    assert list(load_checkpoint(path, specify_prefix="0.")) == ["0.weight", "0.bias"]
    assert list(load_checkpoint(path, filter_prefix=["0.b", "1."])) == ["0.weight"]
    assert list(load_checkpoint(path, specify_prefix="0.", filter_prefix="0.b")) == ["0.weight"]
    with pytest.raises(ValueError, match="nothing is left of"):
        load_checkpoint(path, specify_prefix="nonsense")


def test_lazy_parameters_are_saved_with_values_and_loaded_without_making_any(tmp_path: Path) -> None:
    path = str(tmp_path / "x.ckpt")
    save_checkpoint(make_net(2.0), path)
    with nn.utils.no_init_parameters():
        net = nn.SequentialCell(nn.Dense(3, 4), nn.Dense(4, 2))
    load_checkpoint(path, net)
    assert not any(parameter.has_init for parameter in net.get_parameters())
    assert all((value == 2).all() for value in contents(net))


def test_a_bytesio_holds_safetensors(tmp_path: Path) -> None:
    save_checkpoint(make_net(), str(tmp_path / "x.safetensors"))
    content = io.BytesIO((tmp_path / "x.safetensors").read_bytes())
    assert len(load_checkpoint(content, format="safetensors")) == 4
    with pytest.raises(TypeError, match="BytesIO must hold format 'safetensors'"):
        load_checkpoint(content)


def test_two_parameters_of_one_name_are_said(tmp_path: Path) -> None:
    same = [Parameter(Tensor([value]), name="x") for value in (1.0, 2.0)]
    with pytest.warns(UserWarning, match="two different parameters are called 'x'"):
        save_checkpoint(same, str(tmp_path / "x.ckpt"))
    assert load_checkpoint(str(tmp_path / "x.ckpt"))["x"].asnumpy() == [2.0]


def test_sharded_parameters_are_saved_complete_and_keep_their_sharding(tmp_path: Path) -> None:
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if jax.device_count() < 2:
        pytest.skip("needs two devices")
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    cut = NamedSharding(mesh, PartitionSpec("x"))
    parameter = Parameter(Tensor(np.arange(4, dtype=np.float32)), name="w")
    parameter.raw = jax.device_put(parameter.raw, cut)
    path = str(tmp_path / "x.ckpt")
    save_checkpoint([parameter], path)
    np.testing.assert_array_equal(load_checkpoint(path)["w"].asnumpy(), [0, 1, 2, 3])
    save_checkpoint([parameter], path, integrated_save=False)  # this process holds all slices
    np.testing.assert_array_equal(load_checkpoint(path)["w"].asnumpy(), [0, 1, 2, 3])

    net = nn.Cell()
    net.w = Parameter(Tensor(np.zeros(4, np.float32)), name="w")
    net.w.raw = jax.device_put(net.w.raw, cut)
    load_checkpoint(path, net)
    assert net.w.raw.sharding == cut
    np.testing.assert_array_equal(net.w.asnumpy(), [0, 1, 2, 3])


# ------------------------------------------------------------------------------------------------------- broken files


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_truncated_file_is_never_taken_for_a_complete_one(
    tmp_path_factory: pytest.TempPathFactory, format: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("ckpt") / f"x.{format}"
    save_checkpoint(make_net(), str(path), format=format, crc_check=True)
    content = path.read_bytes()
    length = data.draw(st.integers(0, len(content) - 1))
    path.write_bytes(content[:length])
    try:
        actual = load_checkpoint(str(path), format=format)
    except ValueError:
        return
    # Cut exactly between two parameters, so those before are whole; or just before the checksum.
    assert format == "ckpt"
    assert len(actual) < 4 or length == len(content) - len("crc_num") - 10


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.sampled(1)
def test_a_flipped_bit_is_found_by_the_checksum(
    tmp_path_factory: pytest.TempPathFactory, format: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("ckpt") / f"x.{format}"
    save_checkpoint(make_net(), str(path), format=format, crc_check=True)
    content = bytearray(path.read_bytes())
    first = 0 if format == "ckpt" else 8 + int.from_bytes(content[:8], "little")  # the values; not the JSON's own text
    last = len(content) - 18 if format == "ckpt" else len(content) - 1
    content[data.draw(st.integers(first, last))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises((ValueError, NotImplementedError), match=r"CRC-32|encrypted"):
        load_checkpoint(str(path), format=format)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
@pytest.mark.sampled(1)
def test_changed_bytes_raise_nothing_but_valueerror(
    tmp_path_factory: pytest.TempPathFactory, format: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("ckpt") / f"x.{format}"
    save_checkpoint(make_net(), str(path), format=format)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(ValueError):
        load_checkpoint(str(path), format=format)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=200))
def test_garbage_raises_nothing_but_valueerror(
    tmp_path_factory: pytest.TempPathFactory, format: str, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("ckpt") / f"x.{format}"
    path.write_bytes(content)
    with pytest.raises((ValueError, NotImplementedError), match=path.name):
        load_checkpoint(str(path), format=format)


def test_broken_files_name_the_parameter(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    save_checkpoint(make_net(), str(path))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\x08\x04\x08\x03", b"\x08\x04\x08\x05"))
    with pytest.raises(ValueError, match=r"x\.ckpt.*'0\.weight' of shape \(4, 5\) .* must have 80 bytes, but has 48"):
        load_checkpoint(str(path))
    path.write_bytes(content.replace(b"Float32", b"Float99"))
    with pytest.raises(ValueError, match=r"'0\.weight' has dtype 'Float99'"):
        load_checkpoint(str(path))
    for length, place in ((20, "in the first parameter"), (len(content) - 20, r"behind parameter '1\.weight'")):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=rf"x\.ckpt.*truncated \({place}\)"):
            load_checkpoint(str(path))
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"x\.ckpt' cannot be read: it is empty"):
        load_checkpoint(str(path))
    other = tmp_path / "x.safetensors"
    save_checkpoint(make_net(), str(other))
    other.write_bytes(other.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"x\.safetensors.*parameter '1\.weight' ends at byte .* truncated"):
        load_checkpoint(str(other))


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (
            {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {"x": "Int4"}},
            "'x' has dtype Int4",
        ),
        ({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, r"'x' of shape \(2,\) .* must have 8 bytes"),
        ({"x": {"dtype": "F32", "shape": [-2], "data_offsets": [8, 0]}}, "'x' cannot lie between bytes 8 and 0"),
        ({"x": {"dtype": "F8", "shape": [2], "data_offsets": [0, 4]}}, "entry for parameter 'x' is broken"),
        ({"x": 3}, "entry for parameter 'x' is broken"),
        ({"__metadata__": 3}, "the metadata are no table"),
        ([1], "no table of tensors"),
    ],
)
def test_broken_headers_name_the_parameter(tmp_path: Path, header: Any, text: str) -> None:
    content = json.dumps(header).encode()
    (tmp_path / "x.safetensors").write_bytes(len(content).to_bytes(8, "little") + content + bytes(8))
    with pytest.raises(ValueError, match=text):
        load_checkpoint(str(tmp_path / "x.safetensors"))


def test_a_missing_checksum_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    save_checkpoint(make_net(), str(path))
    path.write_bytes(path.read_bytes()[:-17])  # as older versions wrote it
    with pytest.warns(UserWarning, match="carries no checksum"):
        load_checkpoint(str(path), crc_check=True)


@pytest.mark.parametrize("kind", ["ckpt", "safetensors"])
def test_a_changed_value_is_noticed_without_a_request_for_a_checksum(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"x.{kind}"
    save_checkpoint(make_net(), str(path))
    content = bytearray(path.read_bytes())
    content[-40 if kind == "ckpt" else -4] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"x\.{kind}.*CRC-32"):
        load_checkpoint(str(path))


# ------------------------------------------------------------------------------------------------------------ atomicity

WRITER = """
    import io, sys, time
    import numpy as np
    from sporax.mindspore import Parameter, Tensor
    from sporax.mindspore.train import _ckpt_format, save_checkpoint
    from sporax.runtime.storage import safetensors_format

    path, where = sys.argv[1:]
    save_checkpoint([Parameter(Tensor(np.ones(1000, np.float32)), name="x")], path)
    stuck = lambda: (print("stuck", flush=True), time.sleep(60))
    if where == "write":
        kind, name = (_ckpt_format, "write") if path.endswith(".ckpt") else (safetensors_format, "write_stream")
        write = getattr(kind, name)
        def halting(file, *arguments):
            whole = io.BytesIO()
            write(whole, *arguments)
            file.write(whole.getvalue()[: whole.tell() // 2])
            stuck()
        setattr(kind, name, halting)
    else:
        import os
        os.fsync = lambda descriptor: stuck()
    save_checkpoint([Parameter(Tensor(np.zeros(1000, np.float32)), name="x")], path)
"""


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("where", ["write", "fsync"])
@pytest.mark.sampled(1)
def test_a_kill_in_the_middle_leaves_the_old_file(tmp_path: Path, where: str, format: str) -> None:
    path = tmp_path / f"x.{format}"
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "XLA_FLAGS": ""}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stuck\n"
        process.send_signal(signal.SIGKILL)
    assert (load_checkpoint(str(path))["x"].asnumpy() == 1).all()
    assert len(list(tmp_path.glob(f"*.{format}"))) == 1
    assert len(list(tmp_path.glob(".*.tmp"))) == 1
    save_checkpoint(make_net(1.0), str(path))
    assert os.listdir(tmp_path) == [path.name]  # the next save removes what the killed one has left


def test_an_error_while_writing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(make_net(1.0), str(tmp_path / "x.ckpt"))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device, while it was written: '.*/x\.ckpt'"):
        save_checkpoint(make_net(2.0), str(tmp_path / "x.ckpt"))
    assert os.listdir(tmp_path) == ["x.ckpt"]
    assert (load_checkpoint(str(tmp_path / "x.ckpt"))["0.bias"].asnumpy() == 1).all()


# ----------------------------------------------------------------------------------------------------- in the background


@pytest.mark.parametrize("how", [True, "thread", "process"])
def test_saving_in_the_background_saves_the_values_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any
) -> None:
    go = threading.Event()
    write = _stored.write_stream

    def held(*args: Any) -> None:
        go.wait(10)
        write(*args)

    monkeypatch.setattr(_stored, "write_stream", held)
    net, path = make_net(1.0), tmp_path / "x.ckpt"
    save_checkpoint(net, str(path), async_save=how)
    assert async_ckpt_thread_status()
    assert any(thread.name == "asyn_save_ckpt" for thread in threading.enumerate())
    assert not path.exists()
    for parameter in net.get_parameters():
        parameter.set_data(Tensor(np.full(parameter.shape, 5, np.float32)))
    go.set()
    _entries.writer.wait()
    assert not async_ckpt_thread_status()
    assert all((value.asnumpy() == 1).all() for value in load_checkpoint(str(path)).values())


def test_an_error_in_the_background_comes_up_at_the_next_save(tmp_path: Path) -> None:
    save_checkpoint(make_net(), str(tmp_path / "missing" / "x.ckpt"), async_save=True)
    with pytest.raises(FileNotFoundError, match="missing' must exist"):
        save_checkpoint(make_net(), str(tmp_path / "x.ckpt"), async_save=True)
    save_checkpoint(make_net(), str(tmp_path / "x.ckpt"), async_save=True)
    _entries.writer.wait()
    assert len(load_checkpoint(str(tmp_path / "x.ckpt"))) == 4


def test_loading_in_the_background(tmp_path: Path) -> None:
    save_checkpoint(make_net(2.0), str(tmp_path / "x.ckpt"))
    net = make_net(0.0)
    actual = load_checkpoint_async(str(tmp_path / "x.ckpt"), net).result()
    assert len(actual) == 4
    assert all((value == 2).all() for value in contents(net))
    with pytest.raises(ValueError, match="does not exist"):
        load_checkpoint_async(str(tmp_path / "y.ckpt")).result()


# ------------------------------------------------------------------------------------------------------ into a network


def test_nothing_is_loaded_when_something_does_not_fit() -> None:
    net = make_net(0.0)
    wrong = {parameter.name: parameter for parameter in make_net(1.0).get_parameters()}
    wrong["1.weight"] = Parameter(Tensor(np.ones((2, 5), np.float32)), name="1.weight")
    wrong["1.bias"] = Parameter(Tensor(np.ones((2,), np.int32)), name="1.bias")
    with pytest.raises(RuntimeError, match=r"'1.weight' has shape \(2, 4\), but '1.weight' has \(2, 5\)") as caught:
        load_param_into_net(net, wrong)
    assert "'1.bias' has dtype Float32, but '1.bias' has Int32" in str(caught.value)
    assert "Nothing was loaded" in str(caught.value)
    assert all((value == 0).all() for value in contents(net))


def test_a_slice_of_another_job_names_what_puts_slices_together() -> None:
    net = make_net(0.0)
    for shape, looks_so in (((1, 2), True), ((2, 2), True), ((2, 3), False), ((1, 4, 1), False)):
        wrong = {"1.weight": Parameter(Tensor(np.ones(shape, np.float32)), name="1.weight")}
        with pytest.raises(RuntimeError, match=r"'1.weight' has shape \(2, 4\), but '1.weight' has ") as caught:
            load_param_into_net(net, wrong)
        assert ("load_distributed_checkpoint or transform_checkpoints" in str(caught.value)) is looks_so
    assert all((value == 0).all() for value in contents(net))


def test_what_was_not_loaded_is_said() -> None:
    net = make_net(0.0)
    some = {"0.weight": next(iter(make_net(1.0).get_parameters())), "other": Parameter(Tensor([1.0]), name="other")}
    with pytest.warns(UserWarning, match="3 of 4 parameters of the network .* keep their values: 0.bias, 1.weight"):
        assert load_param_into_net(net, some) == (["0.bias", "1.weight", "1.bias"], ["other"])


def test_floats_become_floats_unless_strict() -> None:
    net = nn.Dense(2, 2)
    half = {name: Parameter(value.astype(ms.float16), name=name) for name, value in net.parameters_dict().items()}
    with pytest.raises(RuntimeError, match="'weight' has dtype Float32, but 'weight' has Float16"):
        load_param_into_net(net, half, strict_load=True)
    with pytest.warns(UserWarning, match=r"converted: weight \(Float16 to Float32\)"):
        load_param_into_net(net, half)
    assert net.weight.dtype == ms.float32


def test_a_prefix_is_left_out_unless_strict() -> None:
    outer = {f"backbone.{item.name}": Parameter(item, name=item.name) for item in make_net(1.0).get_parameters()}
    net = make_net(0.0)
    with pytest.warns(UserWarning, match="4 of 4"):
        assert len(load_param_into_net(net, outer, strict_load=True)[0]) == 4
    with pytest.warns(UserWarning, match="without their prefix 'backbone.'"):
        assert load_param_into_net(net, outer) == ([], [])
    assert all((value == 1).all() for value in contents(net))


def test_further_dimensions_of_size_one_are_dropped() -> None:
    net = nn.Dense(2, 3)
    values = {
        "weight": Parameter(Tensor(np.ones((3, 2, 1, 1), np.float32)), name="weight"),
        "bias": Parameter(Tensor(np.ones((3,), np.float32)), name="bias"),
    }
    assert load_param_into_net(net, values) == ([], [])
    assert net.weight.shape == (3, 2)


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"save_obj": 3}, TypeError, "'save_obj' must be a Cell, a list or a dict, but got int"),
        ({"save_obj": [3]}, TypeError, "a list must hold Parameters"),
        ({"save_obj": {"a": 3}}, TypeError, "str -> int"),
        ({"ckpt_file_name": 3}, TypeError, "'ckpt_file_name' must be a string"),
        ({"ckpt_file_name": "."}, IsADirectoryError, "is a directory"),
        ({"integrated_save": 1}, TypeError, "'integrated_save' must be a bool"),
        ({"async_save": 3}, TypeError, "'async_save' must be a bool or str"),
        ({"async_save": "x"}, ValueError, "'thread' or 'process', but got 'x'"),
        ({"append_dict": [1]}, TypeError, "'append_dict' must be a dict"),
        ({"append_dict": {"a": [1]}}, TypeError, "str -> list"),
        ({"enc_key": b"0" * 16}, NotImplementedError, "encryption is not offered"),
        ({"enc_key": "x"}, ValueError, "'enc_key' must be bytes"),
        ({"crc_check": 1}, TypeError, "'crc_check' must be a bool"),
        ({"format": "pt"}, ValueError, "'format' must be one of"),
        ({"nonsense": 1}, ValueError, "but got \\['nonsense'\\]"),
        ({"format": "safetensors", "append_dict": {"a": "b"}}, TypeError, "has no strings, but 'a' is one"),
    ],
)
def test_save_refuses(tmp_path: Path, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    given = {"save_obj": make_net(), "ckpt_file_name": str(tmp_path / "x"), **arguments}
    with pytest.raises(error, match=text):
        save_checkpoint(**given)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"ckpt_file_name": 3}, TypeError, "'ckpt_file_name' must be a string"),
        ({"ckpt_file_name": "x.pt"}, ValueError, "must end in '.ckpt', but got 'x.pt'"),
        ({"ckpt_file_name": "missing.ckpt"}, ValueError, "missing.ckpt' does not exist"),
        ({"format": "pt"}, ValueError, "'format' must be one of"),
        ({"dec_key": b"0" * 16}, NotImplementedError, "encryption is not offered"),
        ({"dec_key": "x"}, ValueError, "'dec_key' must be bytes"),
        ({"specify_prefix": 3}, TypeError, "'specify_prefix' must be a string or a list"),
        ({"filter_prefix": [""]}, ValueError, "'filter_prefix' must not be empty"),
        ({"filter_prefix": []}, ValueError, "'filter_prefix' must not be empty"),
        ({"crc_check": 1}, TypeError, "'crc_check' must be a bool"),
        ({"net": 3}, TypeError, "'net' must be a Cell"),
        ({"net": nn.Dense(1, 1), "remove_redundancy": True}, TypeError, "'remove_redundancy' must be False"),
    ],
)
def test_load_refuses(tmp_path: Path, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    save_checkpoint(make_net(), str(tmp_path / "x.ckpt"))
    with pytest.raises(error, match=text):
        load_checkpoint(**{"ckpt_file_name": str(tmp_path / "x.ckpt"), **arguments})


def test_load_into_net_refuses() -> None:
    with pytest.raises(TypeError, match="'parameter_dict' must be a dict"):
        load_param_into_net(make_net(), [])
    with pytest.raises(TypeError, match="must map strings to Parameters, but got str -> int"):
        load_param_into_net(make_net(), {"a": 3})


# ---------------------------------------------------------------------------------------------------------- conversion


def test_files_are_converted_both_ways(tmp_path: Path) -> None:
    first = tmp_path / "x.ckpt"
    save_checkpoint(make_net(2.0), str(first))
    ckpt_to_safetensors(str(first), str(tmp_path / "new"), {"0.weight": "first"})
    safetensors_to_ckpt(str(tmp_path / "new" / "x.safetensors"))
    actual = load_checkpoint(str(tmp_path / "new" / "x.ckpt"))
    assert set(actual) == {"first", "0.bias", "1.weight", "1.bias"}
    assert all((value.asnumpy() == 2).all() for value in actual.values())


def test_directories_of_ranks_are_converted(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / "in" / f"rank_{rank}").mkdir(parents=True)
        save_checkpoint(make_net(rank), str(tmp_path / "in" / f"rank_{rank}" / "a.ckpt"))
        save_checkpoint(make_net(rank), str(tmp_path / "in" / f"rank_{rank}" / "b.ckpt"))
    ckpt_to_safetensors(str(tmp_path / "in"), str(tmp_path / "out"), file_name_regex="a")
    assert sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")) == [
        "rank_0/a.safetensors",
        "rank_1/a.safetensors",
    ]
    with pytest.raises(ValueError, match="directories called rank"):
        ckpt_to_safetensors(str(tmp_path / "out" / "rank_0"))
    with pytest.raises(ValueError, match="must be a file or a directory"):
        safetensors_to_ckpt(str(tmp_path / "nonsense"))


def test_functions_of_distributed_checkpoints_are_in_this_module_too_as_in_mindspore():
    from sporax.mindspore.train import checkpoint

    assert checkpoint.__all__
    for name in checkpoint.__all__:
        assert getattr(serialization, name) is getattr(checkpoint, name)
