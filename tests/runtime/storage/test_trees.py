"""`sporax.save` and `sporax.load`: any sharding to any other, all or nothing, damaged and missing files, keys, two processes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import sporax
from compiler_flags import COMPILER
from sporax.runtime.storage import slice_directory, trees

JOB = Path(__file__).with_name("tree_job.py")
VALUES = np.random.default_rng(0).normal(size=(16, 24)).astype(np.float32)
WAYS = {
    "both": ((2, 4), PartitionSpec("a", "b")),
    "one dim, two axes": ((4, 2), PartitionSpec(None, ("b", "a"))),
    "partly": ((2, 4), PartitionSpec("b")),
    "not at all": ((2, 4), PartitionSpec()),
    "few devices": ((1, 2), PartitionSpec("b")),
}


def sharding(way: str) -> NamedSharding:
    shape, spec = WAYS[way]
    devices = np.array(jax.devices()[: shape[0] * shape[1]]).reshape(shape)
    return NamedSharding(Mesh(devices, ("a", "b")), spec)


def bits(array: Any) -> bytes:
    return np.asarray(array).tobytes()


@partial(jax.tree_util.register_dataclass, data_fields=["params", "step"], meta_fields=[])
@dataclass
class State:
    params: Any
    step: Any


@pytest.mark.parametrize("before", WAYS)
@pytest.mark.parametrize("after", WAYS)
def test_values_are_bit_equal_under_any_other_sharding(tmp_path: Path, before: str, after: str) -> None:
    sporax.save(tmp_path / "a", {"w": jax.device_put(VALUES, sharding(before))})
    loaded = sporax.load(
        tmp_path / "a", {"w": jax.ShapeDtypeStruct(VALUES.shape, VALUES.dtype, sharding=sharding(after))}
    )
    assert loaded["w"].sharding == sharding(after)
    assert bits(loaded["w"]) == VALUES.tobytes()
    # Every value is in the files once.
    assert sum(len(part) for part in contents(tmp_path / "a").values()) == VALUES.nbytes


def contents(folder: Path) -> dict[str, bytes]:
    """What is written as another reader of safetensors sees them."""
    found = {}
    for file in folder.glob("*.safetensors"):
        found |= {name: array.tobytes() for name, array in safetensors.numpy.load_file(file).items()}
    return found


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int32", "int64", "uint8", "uint32", "float16", "bfloat16", "float32", "float64", "complex64"],
)
def test_dtypes(tmp_path: Path, dtype: str) -> None:
    values = jnp.asarray(np.arange(-12, 12).reshape(4, 6)).astype(dtype)
    placed = jax.device_put(values, NamedSharding(Mesh(np.array(jax.devices()[:4]), ("a",)), PartitionSpec("a")))
    sporax.save(tmp_path, [placed, np.asarray(values)])
    one, other = sporax.load(tmp_path, [values, np.asarray(values)])
    assert (one.dtype, other.dtype) == (dtype, np.dtype(values.dtype))
    assert isinstance(other, np.ndarray)
    assert bits(one) == bits(other) == bits(values)


def test_structure_numbers_and_places(tmp_path: Path) -> None:
    device = SingleDeviceSharding(jax.devices()[3])
    tree = State(
        params=({"w": jnp.ones((2, 3)), "e": jnp.zeros((0, 3))}, None, [jax.device_put(jnp.float32(2), device)]),
        step={"count": 7, "rate": 0.5, "on": True, "scalar": np.float16(3)},
    )
    sporax.save(tmp_path, tree)
    loaded = sporax.load(tmp_path, tree)
    assert jax.tree.structure(loaded) == jax.tree.structure(tree)
    assert [type(leaf) for leaf in jax.tree.leaves(loaded)] == [type(leaf) for leaf in jax.tree.leaves(tree)]
    assert jax.tree.all(jax.tree.map(lambda a, b: bits(a) == bits(b), loaded, tree))
    assert loaded.params[2][0].sharding == device
    # What was on the default device by default may still go anywhere.
    assert not loaded.params[0]["w"].committed
    part = sporax.load(tmp_path, State(params=None, step={"count": 0}))
    assert part.step == {"count": 7}


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_random_keys(tmp_path: Path, implementation: str) -> None:
    mesh = Mesh(np.array(jax.devices()[:4]), ("a",))
    keys = jax.device_put(
        jax.random.split(jax.random.key(3, impl=implementation), 8), NamedSharding(mesh, PartitionSpec("a"))
    )
    sporax.save(tmp_path, {"keys": keys})
    described = jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=keys.sharding)
    for like in (keys, described):
        loaded = sporax.load(tmp_path, {"keys": like})["keys"]
        assert loaded.dtype == keys.dtype
        assert loaded.sharding.is_equivalent_to(keys.sharding, 1)
        assert bits(jax.random.key_data(loaded)) == bits(jax.random.key_data(keys))
    other = jax.random.split(jax.random.key(0, impl="unsafe_rbg" if implementation == "rbg" else "rbg"), 8)
    with pytest.raises(ValueError, match=r"leaf 'keys' must (be|have)"):
        sporax.load(tmp_path, {"keys": other})
    with pytest.raises(ValueError, match=r"leaf 'keys' must be no random keys, but is key<"):
        sporax.load(tmp_path, {"keys": jax.random.key_data(keys)})


def test_each_device_reads_its_block(tmp_path: Path) -> None:
    sporax.save(tmp_path, {"w": jax.device_put(VALUES, sharding("both"))})
    source = slice_directory.open_directory("load", tmp_path, verify=False)
    block = (slice(0, 8), slice(0, 6))
    np.testing.assert_array_equal(source.read("w", block), VALUES[block])
    assert source.bytes_read == 8 * 6 * 4


# ---------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("tree", "error", "message"),
    [
        ({"a": {"b": "text"}}, TypeError, r"For 'save', leaf 'a/b' must be an array or a number .* 'text'"),
        ([np.array(["x"])], TypeError, r"For 'save', leaf '0' must have one of the dtypes .*bfloat16.*, but has <U1"),
        ([1j], TypeError, r"leaf '0' must have one of the dtypes .* but has complex128"),
        ([np.zeros(2, ml_dtypes.float8_e5m2)], TypeError, r"leaf '0' .* but has float8_e5m2"),
        ({"a/b": 1, "a": {"b": 2}}, ValueError, r"two have 'a/b': \['a/b'\]"),
    ],
)
def test_what_cannot_be_saved(tmp_path: Path, tree: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sporax.save(tmp_path / "a", tree)
    assert not (tmp_path / "a").exists()


def test_inside_of_jit(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"leaf 'x' must be .* outside of jit"):
        jax.jit(lambda x: sporax.save(tmp_path / "a", {"x": x}))(1.0)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(ValueError, match=r"'path' must be a directory, but '.*a' is a file"):
        sporax.save(tmp_path / "a", [1])


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (
            {"w": jnp.zeros((16, 23), jnp.float32)},
            r"leaf 'w' must have shape \(16, 23\) and dtype float32, but has \(16, 24\) and",
        ),
        (
            {"w": jnp.zeros((16, 24), jnp.bfloat16)},
            r"leaf 'w' must have .* dtype bfloat16, but has \(16, 24\) and float32",
        ),
        (
            {"v": {"x": 1.0}, "w": 1.0},
            r"leaf 'v/x' is missing, there are \['w'\]; leaf 'w' must have shape \(\) and dtype float64",
        ),
        ([0] * 8, r"leaf '4' is missing, there are \['w'\]; and 3 more\.$"),
        ({"w": jax.random.split(jax.random.key(0), 3)}, r"leaf 'w' must be key<fry>, but is no random keys"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, like: Any, message: str) -> None:
    sporax.save(tmp_path, {"w": VALUES})
    with pytest.raises(ValueError, match=message):
        sporax.load(tmp_path, like)


def test_wide_numbers_need_the_setting(tmp_path: Path) -> None:
    sporax.save(tmp_path, {"n": np.int64(2**40)})
    with jax.enable_x64(False), pytest.raises(ValueError, match=r"leaf 'n' can have dtype int64 with .*jax_enable_x64"):
        sporax.load(tmp_path, {"n": jax.ShapeDtypeStruct((), np.int64)})
    assert sporax.load(tmp_path, {"n": 0}) == {"n": 2**40}


def test_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"For 'load', '.*none' must be a complete checkpoint"):
        sporax.load(tmp_path / "none", [1])
    sporax.save(tmp_path, {"a": 1})
    with pytest.raises(TypeError, match=r"For 'load', leaf 'a' of 'like' must be an array"):
        sporax.load(tmp_path, {"a": "text"})


def test_a_damaged_slice_is_named(tmp_path: Path) -> None:
    sporax.save(tmp_path, {"v": jnp.zeros(4), "w": jax.device_put(VALUES, sharding("both"))})
    (path,) = tmp_path.glob("*.safetensors")
    content = bytearray(path.read_bytes())
    place = bytes(content).index(VALUES[:8, :6].tobytes()[:24])
    content[place] ^= 1
    path.write_bytes(content)
    # A part of the slice does not hold the wrong value, but the slice is damaged.
    few = NamedSharding(Mesh(np.array(jax.devices()[:8]), ("a",)), PartitionSpec("a"))
    for how in (few, sharding("both"), None):
        like = {"w": jax.ShapeDtypeStruct(VALUES.shape, VALUES.dtype, sharding=how)}
        with pytest.raises(
            ValueError, match=r"For 'load', parameter 'w' in '.*rank_0-.*' of rank 0 is broken: .*CRC-32"
        ):
            sporax.load(tmp_path, like)
    assert sporax.load(tmp_path, {"v": np.zeros(4)})["v"].tolist() == [0] * 4


def test_missing_and_short_files(tmp_path: Path) -> None:
    sporax.save(tmp_path, {"w": VALUES})
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"'complete.json' or a file is missing or of another size"):
        sporax.load(tmp_path, {"w": VALUES})
    path.unlink()
    with pytest.raises(ValueError, match=r"'complete.json' or a file is missing or of another size"):
        sporax.load(tmp_path, {"w": VALUES})


def test_a_slice_that_no_file_has(tmp_path: Path) -> None:
    sporax.save(tmp_path, {"w": VALUES})
    (path,) = tmp_path.glob("*.safetensors")
    half = slice_directory.Slice("w", VALUES.shape, (0, 0), VALUES[:8])
    slice_directory.write_slices(path, [half], {})
    slice_directory.write_marker("save", tmp_path, [path.name], 1, {})
    with pytest.raises(ValueError, match=r"parameter 'w' in .* must have 384 values in the block .* but has 192"):
        sporax.load(tmp_path, {"w": VALUES})


@pytest.mark.parametrize("moment", ["write_slices", "write_marker", "_remove_others"])
def test_a_save_that_fails_leaves_the_one_before_or_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    sporax.save(tmp_path, {"w": VALUES})

    def fail(*args: Any, **options: Any) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(trees, moment, fail)
        with pytest.raises(OSError, match="no room"):
            sporax.save(tmp_path, {"w": VALUES + 1})
    expected = VALUES + (moment == "_remove_others")
    assert bits(sporax.load(tmp_path, {"w": VALUES})["w"]) == expected.tobytes()
    sporax.save(tmp_path, {"w": VALUES + 2})
    assert bits(sporax.load(tmp_path, {"w": VALUES})["w"]) == (VALUES + 2).tobytes()
    # What failed saves left is gone.
    assert len(list(tmp_path.iterdir())) == 2


KILLED = """
import os, sys
import numpy as np
import sporax
from sporax.runtime.storage import trees, slice_directory
from sporax.base import atomic_file
owner, name = {"trees": trees, "slice_directory": slice_directory, "os": os}[sys.argv[2]], sys.argv[3]
before, count = getattr(owner, name), [int(sys.argv[4])]
def killing(*args, **options):
    if count[0] == 0:
        os._exit(9)
    count[0] -= 1
    return before(*args, **options)
setattr(owner, name, killing)
sporax.save(sys.argv[1], {"w": np.ones((4, 4), np.float32)})
"""


@pytest.mark.parametrize(
    ("owner", "name", "calls", "value"),
    [("os", "fsync", 0, 0), ("os", "replace", 0, 0), ("trees", "write_marker", 0, 0), ("os", "replace", 1, 0),
     ("trees", "_remove_others", 0, 1)],
)  # fmt: skip
@pytest.mark.sampled(2)
def test_a_killed_save(tmp_path: Path, owner: str, name: str, calls: int, value: float) -> None:
    zeros = np.zeros((4, 4), np.float32)
    sporax.save(tmp_path, {"w": zeros})
    words = [sys.executable, "-c", KILLED, str(tmp_path), owner, name, str(calls)]
    assert subprocess.run(words, timeout=120, env=os.environ).returncode == 9
    assert bits(sporax.load(tmp_path, {"w": zeros})["w"]) == (zeros + value).tobytes()
    sporax.save(tmp_path, {"w": zeros + 3})
    assert bits(sporax.load(tmp_path, {"w": zeros})["w"]) == (zeros + 3).tobytes()


def test_a_directory_that_an_earlier_version_wrote_is_read() -> None:
    golden = Path(__file__).parent / "golden_tree"
    like = {
        "layers": [jax.ShapeDtypeStruct((8, 4), jnp.bfloat16, sharding=sharding("few devices"))],
        "step": 0,
        "key": jax.random.key(0),
    }
    loaded = sporax.load(golden, like)
    np.testing.assert_array_equal(np.asarray(loaded["layers"][0], np.float32), np.arange(32).reshape(8, 4))
    assert loaded["step"] == 7
    assert bits(jax.random.key_data(loaded["key"])) == bits(jax.random.key_data(jax.random.key(3)))
    assert json.loads((golden / "complete.json").read_text()).keys() == {"files", "sums"}


def test_the_save_path_knows_no_name_of_mindspore() -> None:
    program = (
        "import sys, tempfile, jax.numpy as jnp, sporax; folder = tempfile.mkdtemp(); sporax.save(folder, [jnp.ones(3)]);"
        "assert sporax.load(folder, [jnp.ones(3)])[0].tolist() == [1, 1, 1];"
        "names = [name for name in sys.modules if name.startswith(('sporax.mindspore', 'sporax.planner', 'scipy'))]; print(names)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


# -------------------------------------------------------------------------------------------------------- two processes


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def of_two_processes(folder: Path, devices: int) -> list[str]:
    flags = f"{COMPILER} --xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, str(JOB), str(folder), str(free_port())]
    started = [
        subprocess.Popen(
            [*command, str(rank)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(2)
    ]
    texts = []
    try:
        for process in started:
            text, _ = process.communicate(timeout=200)
            texts.append(text)
            assert process.returncode == 0, text
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    return texts


def test_two_processes(tmp_path: Path) -> None:
    sporax.save(tmp_path / "alone", {"w": jax.device_put(VALUES, sharding("both")), "step": 3})
    np.save(tmp_path / "expected.npy", VALUES)
    for text in of_two_processes(tmp_path, 2):
        assert "read half" in text, text
        assert "all processes must save the same tree, but processes [1]" in text, text
        assert "other failed" in text, text
    # Each process has written its half of the sharded array; the copies are dealt out.
    folder = tmp_path / "together"
    files = sorted(folder.glob("rank_*.safetensors"))
    assert [file.name[:7] for file in files] == ["rank_0-", "rank_1-"]
    sizes = [sum(array.nbytes for array in safetensors.numpy.load_file(file).values()) for file in files]
    assert sum(sizes) == VALUES.nbytes + 2 * VALUES[0].nbytes + 8
    loaded = sporax.load(
        folder,
        {
            "w": jax.ShapeDtypeStruct(VALUES.shape, VALUES.dtype, sharding=sharding("partly")),
            "v": [VALUES[0]] * 2,
            "step": 0,
        },
    )
    assert bits(loaded["w"]) == (VALUES + 1).tobytes()
    assert loaded["step"] == 4
    assert bits(loaded["v"][0]) == bits(loaded["v"][1]) == VALUES[0].tobytes()
    files[1].unlink()
    with pytest.raises(ValueError, match=r"a file is missing"):
        sporax.load(folder, {"step": 0})
