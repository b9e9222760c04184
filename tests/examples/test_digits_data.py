"""The shipped digits are complete, well-formed and what the script that made them says they are."""

import gzip
import importlib.util
import struct
from pathlib import Path

import numpy as np
import pytest

DATA = Path(__file__).parents[2] / "examples" / "data"
PARTS = {"train": 1437, "t10k": 360}


def read_idx(path):
    """Independent reading of an idx file, with every byte accounted for."""
    raw = gzip.decompress(path.read_bytes())
    zero, kind, ndim = struct.unpack(">HBB", raw[:4])
    assert (zero, kind) == (0, 8)
    shape = struct.unpack(f">{ndim}I", raw[4 : 4 + 4 * ndim])
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * ndim)
    assert values.size == np.prod(shape)
    return values.reshape(shape)


def load(part):
    images = read_idx(DATA / "digits" / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(DATA / "digits" / f"{part}-labels-idx1-ubyte.gz")
    return images, labels


@pytest.fixture(scope="module")
def make_digits():
    spec = importlib.util.spec_from_file_location("make_digits", DATA / "make_digits.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("part", "count"), PARTS.items())
def test_shapes_and_values(part, count):
    images, labels = load(part)
    assert images.shape == (count, 8, 8)
    assert labels.shape == (count,)
    assert set(np.unique(labels)) == set(range(10))
    assert len(np.unique(images)) == 17
    assert (images.min(), images.max()) == (0, 255)


def test_magic_numbers_are_those_of_mnist():
    magic = {"images-idx3": 2051, "labels-idx1": 2049}
    for part in PARTS:
        for kind, number in magic.items():
            raw = gzip.decompress((DATA / "digits" / f"{part}-{kind}-ubyte.gz").read_bytes())
            assert struct.unpack(">I", raw[:4]) == (number,)


def test_every_class_is_split_in_proportion():
    train, test = (np.bincount(load(part)[1], minlength=10) for part in PARTS)
    share = (train + test) * PARTS["t10k"] / (train + test).sum()
    assert np.all(np.abs(test - share) < 1)


def test_no_image_is_in_both_parts():
    train, test = ({image.tobytes() for image in load(part)[0]} for part in PARTS)
    assert not train & test


def test_labels_fit_the_images():
    """Nearest neighbour: a mix-up of labels and images would drop this to chance."""
    (train, train_labels), (test, test_labels) = (load(part) for part in PARTS)
    train, test = (images.reshape(len(images), -1).astype(np.float32) for images in (train, test))
    distance = (train**2).sum(1) - 2 * test @ train.T
    assert (train_labels[distance.argmin(1)] == test_labels).mean() > 0.97


def test_gzip_headers_carry_no_time_or_name():
    for path in (DATA / "digits").glob("*.gz"):
        header = path.read_bytes()[:10]
        assert header[:4] == b"\x1f\x8b\x08\x00"
        assert header[4:8] == b"\0\0\0\0"


def test_script_gives_the_shipped_content(make_digits):
    pytest.importorskip("sklearn")
    result = make_digits.files()
    shipped = {path.name: path.read_bytes() for path in (DATA / "digits").glob("*.gz")}
    assert {k: gzip.decompress(v) for k, v in result.items()} == {k: gzip.decompress(v) for k, v in shipped.items()}


def test_all_of_the_original_is_there(make_digits):
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    images, labels = (np.concatenate(parts) for parts in zip(*(load(part) for part in PARTS), strict=True))
    original = np.rint(digits.images * 255 / 16).astype(np.uint8)
    assert sorted(zip(map(bytes, images), labels, strict=True)) == sorted(
        zip(map(bytes, original), digits.target, strict=True)
    )
