"""MNIST and its kin: image and label files in the idx format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sporax.dataset import _checks
from sporax.dataset._rows import Array
from sporax.dataset._sources.columns import Stored
from sporax.dataset._sources.folder import FormatDataset, UsageDataset, checked_usage
from sporax.dataset._sources.idx import IMAGES_MAGIC, INT_TABLE_MAGIC, LABELS_MAGIC, read_idx
from sporax.ir.errors import SporaxRuntimeError

_IMAGES, _LABELS = "-images-idx3-ubyte", "-labels-idx1-ubyte"
_PREFIXES = {"train": "train", "test": "t10k", "all": ""}


class MnistDataset(UsageDataset):
    """MNIST from its idx files, plain or gzip-compressed.

    Columns: `image` (H, W, 1) uint8, H and W as the files say (28 in MNIST); `label` () uint32.

    Args:
        dataset_dir: folder that holds the files (…train-images-idx3-ubyte…, …t10k-images-idx3-ubyte… and the labels);
            subfolders are not searched.
        usage: "train", "test", or "all" (the default; test files come first).
        num_samples: at most this many rows.
        num_parallel_workers: threads that prepare rows.
        shuffle: shuffle each epoch anew; the default.
        sampler: a sampler or row numbers, instead of `shuffle`, `num_samples` and sharding.
        num_shards: number of ranks that share the rows.
        shard_id: this rank.
        cache: must be None.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxRuntimeError: an argument is not valid; (when read) no files, or a file
            that is not what it should be.
    """

    @staticmethod
    def _load(where: str, folder: Path, part: str) -> Mapping[str, Stored]:
        return _byte_columns(where, folder, _PREFIXES[part])


class FashionMnistDataset(MnistDataset):
    """Fashion-MNIST: the same files as MNIST. Columns, arguments and errors: see MnistDataset."""


class KMnistDataset(MnistDataset):
    """Kuzushiji-MNIST: the same files as MNIST. Columns, arguments and errors: see MnistDataset."""


class EMnistDataset(FormatDataset):
    """EMNIST from its idx files emnist-{name}-{train, test}-….

    Columns: `image` (28, 28, 1) uint8, as stored (EMNIST stores images transposed); `label` () uint32.

    Args:
        dataset_dir: folder that holds the files.
        name: "byclass", "bymerge", "balanced", "letters", "digits" or "mnist".
        usage: "train", "test", or "all" (the default; test files come first).
        num_samples: see MnistDataset, like all further arguments.
        num_parallel_workers: see MnistDataset.
        shuffle: see MnistDataset.
        sampler: see MnistDataset.
        num_shards: see MnistDataset.
        shard_id: see MnistDataset.
        cache: see MnistDataset.
    """

    def __init__(
        self,
        dataset_dir: str,
        name: str,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "EMnistDataset"
        folder = _checks.check_directory(where, dataset_dir)
        names = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")
        stem = f"emnist-{_checks.check_choice(where, 'name', name, names)}-"
        part = checked_usage(where, usage, ("train", "test", "all"))
        prefix = stem if part == "all" else stem + part
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        super().__init__(("image", "label"), lambda: _byte_columns(where, folder, prefix), *arguments)


_QMNIST = {"train": ["qmnist-train"], "test": ["qmnist-test"], "nist": ["xnist"]}
_QMNIST |= {"test10k": _QMNIST["test"], "test50k": _QMNIST["test"]}
_QMNIST["all"] = _QMNIST["train"] + _QMNIST["test"] + _QMNIST["nist"]


class QMnistDataset(FormatDataset):
    """QMNIST from its idx files qmnist-train-…, qmnist-test-… and xnist-….

    Columns: `image` (28, 28, 1) uint8; `label` () uint32, or (8,) uint32 with all that QMNIST knows of an image.

    Args:
        dataset_dir: folder that holds the files.
        usage: "train", "test", "test10k" (the first 10,000 of test), "test50k" (the others), "nist", or "all" (the default).
        compat: labels are classes; False for all eight numbers.
        num_samples: see MnistDataset, like all further arguments.
        num_parallel_workers: see MnistDataset.
        shuffle: see MnistDataset.
        sampler: see MnistDataset.
        num_shards: see MnistDataset.
        shard_id: see MnistDataset.
        cache: see MnistDataset.
    """

    def __init__(
        self,
        dataset_dir: str,
        usage: str | None = None,
        compat: bool = True,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "QMnistDataset"
        folder = _checks.check_directory(where, dataset_dir)
        part = checked_usage(where, usage, ("train", "test", "test10k", "test50k", "nist", "all"))
        classes = _checks.check_bool(where, "compat", compat)
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        super().__init__(("image", "label"), lambda: _qmnist_columns(where, folder, part, classes), *arguments)


def _qmnist_columns(where: str, folder: Path, part: str, classes: bool) -> Mapping[str, Stored]:
    pairs = [
        _pair(where, _one_file(where, folder, f"{stem}{_IMAGES}"), _one_file(where, folder, f"{stem}-labels-idx2-int"))
        for stem in _QMNIST[part]
    ]
    image, label = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    kept = {"test10k": slice(10000), "test50k": slice(10000, None)}.get(part, slice(None))
    label = label[kept].astype(np.uint32)
    return {"image": image[kept, ..., None], "label": label[:, 0] if classes else label}


def _byte_columns(where: str, folder: Path, prefix: str) -> Mapping[str, Stored]:
    """The columns of all files whose names hold `prefix`."""
    images, labels = _find(folder, prefix, _IMAGES), _find(folder, prefix, _LABELS)
    if len(images) != len(labels) or not images:
        raise SporaxRuntimeError(
            f"For '{where}', the folder {str(folder)!r} must hold as many files *{prefix}{_IMAGES}* as "
            f"*{prefix}{_LABELS}*, at least one, but got {len(images)} and {len(labels)}."
        )
    pairs = [_pair(where, *pair) for pair in zip(images, labels, strict=True)]
    shapes = {image.shape[1:] for image, _ in pairs}
    if len(shapes) > 1:
        raise SporaxRuntimeError(f"For '{where}', all files must hold images of one size, but got {shapes}.")
    image, label = (np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*pairs, strict=True))
    return {"image": image[..., None], "label": label.astype(np.uint32)}


def _find(folder: Path, prefix: str, kind: str) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if prefix in path.name and kind in path.name and path.is_file())
    # A file that is there both plain and compressed counts once.
    return [path for path in found if path.suffix != ".gz" or path.with_suffix("") not in found]


def _one_file(where: str, folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise SporaxRuntimeError(f"For '{where}', the folder {str(folder)!r} must hold the file {name!r}, but does not.")


def _pair(where: str, images: Path, labels: Path) -> tuple[Array, Array]:
    magic = INT_TABLE_MAGIC if "idx2-int" in labels.name else LABELS_MAGIC
    image, label = read_idx(where, images, IMAGES_MAGIC), read_idx(where, labels, magic)
    if len(image) != len(label):
        raise SporaxRuntimeError(
            f"For '{where}', {str(images)!r} and {str(labels)!r} must hold equally many records, "
            f"but got {len(image)} images and {len(label)} labels."
        )
    return image, label
