"""Hostile files are refused by name: in one line, with what is wrong and where, in time and memory bounded by their size."""

import gzip
import io
import json
import random
import resource
import struct
import sys
import warnings
import zlib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxError
from sporax.ir.hardware import load_profile
from sporax.mindspore import Tensor
from sporax.mindspore.context._strategy_files.documents import strategy_from_json
from sporax.mindspore.dataset.vision._files import decode

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "iopddl"))
from solve_contest import main as solve

FLOATS = np.arange(12, dtype=np.float32).reshape(3, 4)


def safetensors(header, values=b"\0" * 16):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + values


def entry(shape=(4,), offsets=(0, 16), dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


HEADERS = {
    "shape is a number": ({"x": entry(shape=4)}, "'x'"),
    "shape is text": ({"x": entry(shape="4")}, "'x'"),
    "shape is null": ({"x": entry(shape=None)}, "'x'"),
    "shape is a table": ({"x": entry(shape={"0": 4})}, "'x'"),
    "shape of floats": ({"x": entry(shape=[4.0])}, "'x'"),
    "shape of bools": ({"x": entry(shape=[True, 4])}, "'x'"),
    "shape of texts": ({"x": entry(shape=["4"])}, "'x'"),
    "shape of lists": ({"x": entry(shape=[[4]])}, "'x'"),
    "shape negative": ({"x": entry(shape=[-4])}, "'x'"),
    "shape twice negative": ({"x": entry(shape=[-2, -2])}, "'x'"),
    "shape beyond 64 bits": ({"x": entry(shape=[2**70])}, "'x'"),
    "shape overflows to the right size": ({"x": entry(shape=[2**62, 4, 4])}, "'x'"),
    "zero hides a huge size": ({"x": entry(shape=[0, 2**63], offsets=(0, 0))}, "'x'"),
    "too many dims": ({"x": entry(shape=[1] * 40 + [4])}, "'x' must have at most 32 dimensions"),
    "a million dims": ({"x": entry(shape=[1] * 1_000_000)}, "'x' must have at most 32 dimensions"),
    "offsets are missing": ({"x": {"dtype": "F32", "shape": [4]}}, "'x'"),
    "one offset": ({"x": entry(offsets=[0])}, "'x'"),
    "three offsets": ({"x": entry(offsets=[0, 8, 16])}, "'x'"),
    "offsets of floats": ({"x": entry(offsets=[0.0, 16.0])}, "'x'"),
    "offsets of texts": ({"x": entry(offsets=["0", "16"])}, "'x'"),
    "offsets of bools": ({"x": entry(shape=[], offsets=[False, True])}, "'x'"),
    "offsets negative": ({"x": entry(offsets=[-16, 0])}, "'x'"),
    "offsets backwards": ({"x": entry(offsets=[16, 0])}, "'x'"),
    "offsets beyond the end": ({"x": entry(offsets=[0, 32], shape=[8])}, "'x' ends at byte 32"),
    "offsets beyond 64 bits": ({"x": entry(offsets=[0, 2**80], shape=[2**40])}, "'x'"),
    "dtype unknown": ({"x": entry(dtype="F4")}, "'x'"),
    "dtype is a list": ({"x": entry(dtype=["F32"])}, "'x'"),
    "dtype is missing": ({"x": {"shape": [4], "data_offsets": [0, 16]}}, "'x'"),
    "size and dtype disagree": ({"x": entry(dtype="F64")}, "'x'"),
    "entry is a number": ({"x": 7}, "'x'"),
    "entry is null": ({"x": None}, "'x'"),
    "overlap": ({"x": entry(), "y": entry([2], [8, 16])}, "'y' overlaps"),
    "alias": ({"x": entry(), "y": entry()}, "'y' overlaps"),
    "gap before": ({"x": entry([2], [8, 16])}, "'x' leaves a gap"),
    "gap between": ({"x": entry([1], [0, 4]), "y": entry([1], [12, 16])}, "'y' leaves a gap"),
    "gap behind": ({"x": entry([2], [0, 8])}, "8 bytes, but the file has 16"),
    "duplicate name": (b'{"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"x":7}', "'x' is there twice"),
    "duplicate field": (b'{"x":{"dtype":"F32","dtype":"F64","shape":[4],"data_offsets":[0,16]}}', "is there twice"),
    "metadata of a list": ({"__metadata__": [1], "x": entry()}, "metadata"),
    "checksum of another file": ({"__metadata__": {"crc_num": "1"}, "x": entry()}, "CRC"),
    "checksum is no number": ({"__metadata__": {"crc_num": "one"}, "x": entry()}, "CRC"),
    "NaN": (b'{"x":{"dtype":"F32","shape":[NaN],"data_offsets":[0,16]}}', "no JSON"),
    "Infinity": (b'{"x":{"dtype":"F32","shape":[Infinity],"data_offsets":[0,16]}}', "no JSON"),
    "a number of 10,000 digits": (b'{"x":{"dtype":"F32","shape":[' + b"9" * 10_000 + b"]}}", "no JSON"),
    "deep nesting": (b"[" * 60_000, "no JSON"),
    "deep tables": (b'{"a":' * 60_000, "no JSON"),
    "not UTF-8": (b'{"\xff\xfe":{}}', "no JSON"),
    "an array": (b"[1, 2]", "no table"),
    "cut off": (b'{"x":{"dtype":', "no JSON"),
    "empty": (b"  ", "no JSON"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_safetensors_headers_are_refused_by_file_and_parameter(tmp_path, case):
    header, words = HEADERS[case]
    path = tmp_path / "net.safetensors"
    path.write_bytes(safetensors(header))
    with pytest.raises(ValueError, match=words) as refused:
        ms.load_checkpoint(str(path))
    assert "net.safetensors" in str(refused.value)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("size", [0, 1, 7, 2**31, 2**63, 2**64 - 1])
def test_sizes_of_headers_are_not_believed(tmp_path, size):
    path = tmp_path / "net.safetensors"
    path.write_bytes(size.to_bytes(8, "little") + b"{}" * 20)
    with pytest.raises(ValueError, match=r"net\.safetensors"):
        ms.load_checkpoint(str(path))


def test_aliases_cannot_claim_more_memory_than_the_file_has(tmp_path):
    values = b"\0" * 800_000
    path = tmp_path / "net.safetensors"
    path.write_bytes(safetensors({f"p{n}": entry([200_000], [0, 800_000]) for n in range(3_000)}, values))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="overlaps"):
        ms.load_checkpoint(str(path))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


# ----------------------------------------------------------------------------------------------------------------- .ckpt


def varint(value):
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def value(name=b"x", dims=(4,), kind=b"Float32", content=b"\0" * 16, ones=0):
    """One entry of a checkpoint; its shape is `dims` after `ones` times 1."""
    tensor = b"\x08\x01" * ones + b"".join(b"\x08" + varint(dim) for dim in dims) + field(2, kind) + field(3, content)
    return field(1, field(1, name) + field(2, tensor))


CHECKPOINTS = {
    "empty": b"",
    "one byte": b"\x0a",
    "text": b"this is no checkpoint at all",
    "zeros": b"\0" * 100,
    "all ones": b"\xff" * 100,
    "size beyond the end": b"\x0a\xff\xff\xff\xff\x0f",
    "varint without end": b"\x0a" + b"\xff" * 30,
    "no name": field(1, field(2, b"\x08\x04" + field(2, b"Float32") + field(3, b"\0" * 16))),
    "no tensor": field(1, field(1, b"x")),
    "name is a number": field(1, b"\x08\x04"),
    "name is not text": value(name=b"\xff\xfe"),
    "map parameter": field(1, field(1, b"x") + field(3, b"")),
    "unknown field": field(5, b"abc"),
    "unknown dtype": value(kind=b"Float99"),
    "long dtype": value(kind=b"F" * 100_000),
    "dtype is not text": value(kind=b"\xff"),
    "negative dim": value(dims=(2**64 - 4,)),
    "huge dim": value(dims=(2**63,)),
    "dims overflow": value(dims=(2**62, 4, 4)),
    "zero hides a huge dim": value(dims=(0, 2**63), content=b""),
    "many dims": value(dims=(1,) * 40 + (4,)),
    "a million dims": value(dims=(), ones=1_000_000),
    "too few values": value(content=b"\0" * 12),
    "too many values": value(content=b"\0" * 20),
    "twice": value() + value(b"y") + value(),
    "slices that differ": value(dims=(8,)) + value(dims=(4, 2)),
    "twice in a row": value() + value(),
    "wrong checksum": value() + b"crc_num" + (12345).to_bytes(10, "big"),
    "checksum cut off": (value() + b"crc_num" + (12345).to_bytes(10, "big"))[:-4],
    "text that is none": value(kind=b"str", dims=(0,), content=b"\xff\xff\xff"),
    "group": b"\x0b" + b"\0" * 10,
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_checkpoints_are_refused_by_file(tmp_path, case):
    path = tmp_path / "net.ckpt"
    path.write_bytes(CHECKPOINTS[case])
    with pytest.raises(ValueError, match=r"net\.ckpt' cannot be read") as refused:
        ms.load_checkpoint(str(path))
    assert len(str(refused.value)) < 1000


def loaded_or_refused(path):
    """What a file holds, or None where it is refused by its name."""
    try:
        return ms.load_checkpoint(str(path))
    except ValueError as error:
        if path.name not in str(error):
            raise
        return None


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", ["ckpt", "safetensors"])
def test_a_changed_byte_anywhere_is_refused_or_changes_nothing(tmp_path, kind, seed):
    path = tmp_path / f"net.{kind}"
    ms.save_checkpoint(
        [ms.Parameter(Tensor(FLOATS), name="weight"), ms.Parameter(Tensor(FLOATS[0]), name="bias")], str(path)
    )
    content, draw = bytearray(path.read_bytes()), random.Random(seed)
    place = draw.randrange(len(content))
    content[place] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        actual = loaded_or_refused(path)
    if actual is None:
        return
    assert {name: item.asnumpy().tolist() for name, item in actual.items()} == {
        "weight": FLOATS.tolist(),
        "bias": FLOATS[0].tolist(),
    }


# ------------------------------------------------------------------------------------------------------------ cost graphs


def graph(**changes):
    problem = {
        "name": "g",
        "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[1, 2], [3]], "usages": [[1, 1], [1]]},
        "edges": {"nodes": [[0, 1]], "costs": [[5, 6]]},
        "usage_limit": 9,
    }
    for path, new in changes.items():
        place = problem
        *way, last = path.split("__")
        for step in way:
            place = place[step]
        place[last] = new
    return json.dumps({"problem": problem}).encode()


GRAPHS = {
    "limit beyond 64 bits": graph(usage_limit=2**70),
    "limit is text": graph(usage_limit="9"),
    "limit negative": graph(usage_limit=-1),
    "usage beyond 64 bits": graph(nodes__usages=[[2**70, 1], [1]]),
    "usage negative": graph(nodes__usages=[[-1, 1], [1]]),
    "usage Infinity": graph(nodes__usages=[[float("inf"), 1], [1]]),
    "cost NaN": graph(nodes__costs=[[float("nan"), 2], [3]]),
    "cost -Infinity": graph(nodes__costs=[[float("-inf"), 2], [3]]),
    "cost beyond floats": graph(nodes__costs=[[10**400, 2], [3]]),
    "interval beyond 64 bits": graph(nodes__intervals=[[0, 2**70], [1, 3]]),
    "interval negative": graph(nodes__intervals=[[-1, 2], [1, 3]]),
    "interval of three": graph(nodes__intervals=[[0, 1, 2], [1, 3]]),
    "edge beyond the nodes": graph(edges__nodes=[[0, 2]]),
    "edge beyond 64 bits": graph(edges__nodes=[[0, 2**70]]),
    "edge negative": graph(edges__nodes=[[-1, 1]]),
    "edge on one node too far": graph(edges__nodes=[[2**40]]),
    "edge of bools": graph(edges__nodes=[[True, False]]),
    "edge without nodes": graph(edges__nodes=[[]]),
    "edge of three": graph(edges__nodes=[[0, 1, 1]]),
    "table of another size": graph(edges__costs=[[5]]),
    "table NaN": graph(edges__costs=[[5, float("nan")]]),
    "table of texts": graph(edges__costs=[["5", "6"]]),
    "nodes are a list": graph(nodes=[1]),
    "no problem": b"{}",
    "a list": b"[]",
    "a number of 10,000 digits": b'{"problem": ' + b"9" * 10_000 + b"}",
    "deep nesting": b"[" * 100_000,
    "not text": b"\xff\xfe\xfd",
    "empty": b"",
    "gzip cut off": gzip.compress(graph())[:-8],
    "gzip of nothing": b"\x1f\x8b",
    "gzip broken": b"\x1f\x8b" + b"\0" * 40,
}


@pytest.mark.parametrize("case", GRAPHS)
def test_cost_graphs_are_refused_in_one_line(tmp_path, capsys, case):
    path = tmp_path / "graph.json"
    path.write_bytes(GRAPHS[case])
    assert solve([str(path), "--time", "1"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "graph.json" in said
    assert len(said) < 1000


def test_a_small_file_cannot_unpack_to_any_size(tmp_path, capsys):
    bomb = tmp_path / "bomb.gz"
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    with open(bomb, "wb") as file:
        for _ in range(64):
            file.write(packer.compress(b" " * (1 << 20)))
        file.write(packer.flush())
    assert bomb.stat().st_size < 100_000
    assert solve([str(bomb), "--max-size", "1MB"]) == 2
    assert "--max-size allows more" in capsys.readouterr().err


@pytest.mark.parametrize(
    "choices", ["[Infinity, 0]", "[0, NaN]", "[0, 1e3]", "[0, 99999999999999999999]", "[-1, 0]", "{}"]
)
def test_choices_are_refused_in_one_line(tmp_path, capsys, choices):
    (tmp_path / "graph.json").write_bytes(graph())
    (tmp_path / "choices.json").write_text(choices)
    assert solve([str(tmp_path / "graph.json"), "--check", str(tmp_path / "choices.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "strategy",
    [
        "[[Infinity, 1], [1, 1]]",
        "[[NaN, 1]]",
        "[[1.5, 1]]",
        "[[true, 1]]",
        "[[1e400, 1]]",
        "[1]",
        "null",
        '"22"',
        "[[0, 1]]",
        "[[-2, 1]]",
        "[[2147483648, 1]]",
        "[[1180591620717411303424, 1]]",
    ],
)
def test_strategies_are_refused_in_one_line(strategy):
    with pytest.raises(SporaxError, match=r"For 'strategy\.json', an operator must have") as refused:
        strategy_from_json({"parallel_strategy": json.loads(strategy)}, "strategy.json")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("Infinity", r"<= 1e\+30, but got inf"),
        ("-Infinity", "> 0, but got -inf"),
        ("NaN", "> 0, but got nan"),
        ("-1", "> 0, but got -1"),
        ("0", "> 0, but got 0"),
        ("1" + "0" * 400, "of at most 64 bits, but got 1"),
        ("true", ", but got "),
        ('"1"', ", but got "),
        ("null", ", but got "),
        ("[1]", ", but got "),
    ],
)
def test_hardware_profiles_are_refused_by_file_and_number(tmp_path, number, words):
    profile = json.loads((files("sporax.ir") / "profiles" / "a100.json").read_text())
    (tmp_path / "mine.json").write_text(json.dumps(profile | {"memory_bandwidth": json.loads(number)}))
    with pytest.raises(ValueError, match=rf"'memory_bandwidth' of '.*mine\.json' must be a number ?{words}") as refused:
        load_profile(str(tmp_path / "mine.json"))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1000


# ----------------------------------------------------------------------------------------------------------------- images


def png(width, height):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


IMAGES = {
    "60000 x 60000": png(60_000, 60_000),
    "2 billion wide": png(2**31 - 1, 2**31 - 1),
    "no width": png(0, 10),
    "cut off": png(100, 100)[:40],
    "text": b"no image",
    "empty": b"",
    "BMP of any size": b"BM"
    + struct.pack("<IHHIIiiHHIIiiII", 1000, 0, 0, 54, 40, 60_000, 60_000, 1, 24, 0, 0, 0, 0, 0, 0),
    "GIF without frames": b"GIF89a" + struct.pack("<HH", 65_535, 65_535) + b"\0" * 3,
}


@pytest.mark.parametrize("case", IMAGES)
def test_images_are_refused_by_file(case):
    with pytest.raises(SporaxError, match=r"For 'photos/cat\.png'") as refused:
        decode(IMAGES[case], "photos/cat.png")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_an_image_without_a_file_is_refused_by_row():
    sound = io.BytesIO()
    pytest.importorskip("PIL.Image").new("RGB", (2, 2)).save(sound, "PNG")
    contents = [np.frombuffer(sound.getvalue(), np.uint8), np.frombuffer(IMAGES["60000 x 60000"], np.uint8)]
    data = ms.dataset.GeneratorDataset(contents, ["image"], shuffle=False).map(ms.dataset.vision.Decode(), "image")
    with pytest.raises(SporaxError, match=r"For 'Decode', the image of \d+ bytes of row 1 has too many pixels"):
        list(data.create_tuple_iterator(num_epochs=1))


@pytest.mark.parametrize("decoded", [True, False])
@pytest.mark.parametrize("case", IMAGES)
def test_images_of_a_folder_are_refused_by_file_and_row(tmp_path, case, decoded):
    (tmp_path / "cats").mkdir()
    for number in range(4):
        pytest.importorskip("PIL.Image").new("RGB", (2, 2)).save(tmp_path / "cats" / f"{number}.png")
    (tmp_path / "cats" / "2.png").write_bytes(IMAGES[case])
    data = ms.dataset.ImageFolderDataset(str(tmp_path), decode=decoded, shuffle=False)
    if not decoded:
        data = data.map(ms.dataset.vision.Decode(), "image")
    with pytest.raises(SporaxError, match=r"cats/2\.png") as refused:
        list(data.batch(2).create_tuple_iterator(num_epochs=1))
    assert "number 2 of 'ImageFolderDataset'" in str(refused.value) or "row 2" in str(refused.value)


def test_a_sound_file_is_read_whatever_was_refused_before(tmp_path):
    path = tmp_path / "net.safetensors"
    path.write_bytes(safetensors({"x": entry()}, np.arange(4, dtype=np.float32).tobytes()))
    np.testing.assert_array_equal(ms.load_checkpoint(str(path))["x"].asnumpy(), [0, 1, 2, 3])
