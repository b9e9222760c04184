"""MNIST and its kin: image and label files in the idx format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset._sources import arguments
from sporax.mindspore.dataset._sources.columns import Stored
from sporax.mindspore.dataset._sources.format import REQUIRED, Format, FormatDataset
from sporax.mindspore.dataset._sources.reading import IMAGES_MAGIC, INT_TABLE_MAGIC, LABELS_MAGIC, read_idx

_IMAGES, _LABELS = "-images-idx3-ubyte", "-labels-idx1-ubyte"
_PREFIXES = {"train": "train", "test": "t10k", "all": ""}


_QMNIST = {"train": ["qmnist-train"], "test": ["qmnist-test"], "nist": ["xnist"]}
# Both parts of the test set are slices of one file.
_QMNIST |= {"test10k": _QMNIST["test"], "test50k": _QMNIST["test"]}
_QMNIST["all"] = _QMNIST["train"] + _QMNIST["test"] + _QMNIST["nist"]


def _qmnist_columns(where: str, folder: Path, part: str, classes: bool) -> Mapping[str, Stored]:
    pairs = [
        _pair(where, _one_file(where, folder, f"{stem}{_IMAGES}"), _one_file(where, folder, f"{stem}-labels-idx2-int"))
        for stem in _QMNIST[part]
    ]
    image, label = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    # The parts are fixed by the publishers: the first 10,000 images were in MNIST.
    selection = {"test10k": slice(10000), "test50k": slice(10000, None)}.get(part, slice(None))
    label = label[selection].astype(np.uint32)
    # The first of the eight numbers is the class.
    return {"image": image[selection, ..., None], "label": label[:, 0] if classes else label}


def _byte_columns(where: str, folder: Path, prefix: str) -> Mapping[str, Stored]:
    """The columns of all files whose names hold `prefix`."""
    # By parts of names: MindSpore finds files like this, with whatever is around.
    images, labels = _find(folder, prefix, _IMAGES), _find(folder, prefix, _LABELS)
    if len(images) != len(labels) or not images:
        raise SporaxRuntimeError(
            f"For '{where}', the folder {str(folder)!r} must hold as many files *{prefix}{_IMAGES}* as "
            f"*{prefix}{_LABELS}*, at least one, but got {len(images)} and {len(labels)}."
        )
    pairs = [_pair(where, *pair) for pair in zip(images, labels, strict=True)]
    # Arrays of one shape can be concatenated without a copy per row.
    shapes = {image.shape[1:] for image, _ in pairs}
    if len(shapes) > 1:
        raise SporaxRuntimeError(f"For '{where}', all files must hold images of one size, but got {shapes}.")
    image, label = (np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*pairs, strict=True))
    return {"image": image[..., None], "label": label.astype(np.uint32)}


def _mnist(where: str, folder: Path, part: str) -> Mapping[str, Stored]:
    return _byte_columns(where, folder, _PREFIXES[part])


def _emnist(where: str, folder: Path, name: str, part: str) -> Mapping[str, Stored]:
    return _byte_columns(where, folder, f"emnist-{name}-" + ("" if part == "all" else part))


def _find(folder: Path, prefix: str, kind: str) -> list[Path]:
    paths = sorted(path for path in folder.iterdir() if prefix in path.name and kind in path.name and path.is_file())
    # A file that is there both plain and compressed counts once.
    return [path for path in paths if path.suffix != ".gz" or path.with_suffix("") not in paths]


def _one_file(where: str, folder: Path, name: str) -> Path:
    # The unpacked file first, as it is faster to read.
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise SporaxRuntimeError(f"For '{where}', the folder {str(folder)!r} must hold the file {name!r}, but does not.")


def _pair(where: str, images: Path, labels: Path) -> tuple[Array, Array]:
    # QMNIST's labels are tables of integers, MNIST's bytes.
    magic = INT_TABLE_MAGIC if "idx2-int" in labels.name else LABELS_MAGIC
    image, label = read_idx(where, images, IMAGES_MAGIC), read_idx(where, labels, magic)
    if len(image) != len(label):
        raise SporaxRuntimeError(
            f"For '{where}', {str(images)!r} and {str(labels)!r} must hold equally many records, "
            f"but got {len(image)} images and {len(label)} labels."
        )
    return image, label


MNIST = Format(
    (
        arguments.folder("folder that holds the files; subfolders are not searched."),
        arguments.usage("train", "test", "all"),
        *arguments.SAMPLED,
    ),
    columns=("image", "label"),
    read=_mnist,
)


class MnistDataset(FormatDataset, format=MNIST):
    """MNIST from its idx files …train-images-idx3-ubyte…, …t10k-images-idx3-ubyte… and the labels, plain or gzip-compressed.

    Columns: `image` (H, W, 1) uint8, H and W as the files say (28 in MNIST); `label` () uint32. Test files come first.
    """


class FashionMnistDataset(MnistDataset, format=MNIST):
    """Fashion-MNIST: the same files and columns as MNIST."""


class KMnistDataset(MnistDataset, format=MNIST):
    """Kuzushiji-MNIST: the same files and columns as MNIST."""


class EMnistDataset(
    FormatDataset,
    format=Format(
        (
            arguments.folder("folder that holds the files."),
            arguments.choice("name", "byclass", "bymerge", "balanced", "letters", "digits", "mnist", default=REQUIRED),
            arguments.usage(
                "train", "test", "all", doc='"train", "test" or "all" (the default; test files come first).'
            ),
            *arguments.SAMPLED,
        ),
        columns=("image", "label"),
        read=_emnist,
    ),
):
    """EMNIST from its idx files emnist-{name}-{train, test}-….

    Columns: `image` (28, 28, 1) uint8, as stored (EMNIST stores images transposed); `label` () uint32.
    """


class QMnistDataset(
    FormatDataset,
    format=Format(
        (
            arguments.folder("folder that holds the files."),
            arguments.usage(
                *("train", "test", "test10k", "test50k", "nist", "all"),
                doc='"train", "test", "test10k" (its first 10,000), "test50k" (the others), "nist" or "all" (the default).',
            ),
            arguments.flag("compat", True, "labels are classes; False for all eight numbers."),
            *arguments.SAMPLED,
        ),
        columns=("image", "label"),
        read=_qmnist_columns,
    ),
):
    """QMNIST from its idx files qmnist-train-…, qmnist-test-… and xnist-….

    Columns: `image` (28, 28, 1) uint8; `label` () uint32, or (8,) uint32 with all that QMNIST knows of an image.
    """
