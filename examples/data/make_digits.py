"""Write the UCI handwritten digits as MNIST-style idx files, from the copy that scikit-learn ships.

The data behind `examples/01-train-digits`. Running the script again gives the same files: the split is fixed by a
seed and the gzip headers carry neither a time nor a name (another zlib may compress differently, the content stays).
It needs scikit-learn; training does not.

    python examples/data/make_digits.py [directory]
"""

from __future__ import annotations

import argparse
import gzip
import io
import struct
from pathlib import Path

import numpy as np

SPLIT_SEED = 1998
TEST_COUNT = 360
NUM_CLASSES = 10
SOURCE_MAX = 16
IDX_UINT8 = 0x08


def idx_bytes(array: np.ndarray) -> bytes:
    """The idx form of a uint8 array: two zero bytes, type code, rank, big-endian sizes, then the values."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, IDX_UINT8, array.ndim, *array.shape)
    return header + np.ascontiguousarray(array, dtype=np.uint8).tobytes()


def gzip_bytes(data: bytes) -> bytes:
    """`data` compressed, without the time stamp and file name that would make every run differ."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as stream:
        stream.write(data)
    return buffer.getvalue()


def scale_pixels(images: np.ndarray) -> np.ndarray:
    """Grey levels 0..16 stretched to 0..255 (rounded half to even), the range MNIST readers expect."""
    return np.rint(images * (255 / SOURCE_MAX)).astype(np.uint8)


def class_quota(labels: np.ndarray) -> np.ndarray:
    """How many test images each class gives: in proportion to its size, largest remainders rounded up."""
    share = np.bincount(labels, minlength=NUM_CLASSES) * TEST_COUNT / len(labels)
    counts = np.floor(share).astype(int)
    largest = np.argsort(counts - share, kind="stable")[: TEST_COUNT - counts.sum()]
    counts[largest] += 1
    return counts


def split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the train and the test images, each in a shuffled order fixed by `SPLIT_SEED`."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    counts = class_quota(labels)
    is_test = np.zeros(len(labels), bool)
    for digit in range(NUM_CLASSES):
        is_test[order[labels[order] == digit][: counts[digit]]] = True
    return order[~is_test[order]], order[is_test[order]]


def files() -> dict[str, bytes]:
    """Name and content of the four files."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = scale_pixels(digits.images), digits.target.astype(np.uint8)
    train, test = split(labels)
    arrays = {
        "train-images-idx3-ubyte.gz": images[train],
        "train-labels-idx1-ubyte.gz": labels[train],
        "t10k-images-idx3-ubyte.gz": images[test],
        "t10k-labels-idx1-ubyte.gz": labels[test],
    }
    return {name: gzip_bytes(idx_bytes(array)) for name, array in arrays.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the UCI handwritten digits as idx files.")
    parser.add_argument("directory", nargs="?", type=Path, default=Path(__file__).parent / "digits")
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (directory / name).write_bytes(content)
        print(f"{directory / name}: {len(content):,} bytes")


if __name__ == "__main__":
    main()
