"""Small data files and a clean seed for the dataset tests."""

import struct
import sys
from pathlib import Path

import numpy as np
import pytest

import sporax.mindspore.dataset as ds

sys.path.insert(0, str(Path(__file__).parent))  # the cases shared with tools/golden


@pytest.fixture(autouse=True)
def _clean_settings():
    config = ds.config
    before, config._settings = config._settings, config._Settings()
    config._settings.seed = None
    yield
    config._settings = before


def rows(dataset, epochs=1):
    """All values of an iterator, as Python lists, epoch by epoch; one list for one epoch."""
    iterator = dataset.create_tuple_iterator(num_epochs=epochs, output_numpy=True)
    read = [[[value.tolist() for value in row] for row in iterator] for _ in range(epochs)]
    return read[0] if epochs == 1 else read


def column(dataset, epochs=1):
    """The values of the first column."""
    read = rows(dataset, epochs)
    return [row[0] for row in read] if epochs == 1 else [[row[0] for row in epoch] for epoch in read]


def write_mnist(folder, count, prefix="train", *, seed=0, suffix=""):
    """Files of `count` random images; returns (images, labels)."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 28, 28), np.uint8)
    labels = rng.integers(0, 10, count, np.uint8)
    folder.mkdir(exist_ok=True, parents=True)
    header = struct.pack(">4I", 2051, count, 28, 28)
    (folder / f"{prefix}-images-idx3-ubyte{suffix}").write_bytes(header + images.tobytes())
    (folder / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(struct.pack(">2I", 2049, count) + labels.tobytes())
    return images, labels
