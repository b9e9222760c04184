"""Image sources in their published file formats: MNIST and its kin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sporax.dataset import _checks
from sporax.dataset._idx import IMAGES_MAGIC, LABELS_MAGIC, read_idx
from sporax.dataset._mappable import MappableDataset
from sporax.dataset._nodes import Source
from sporax.dataset._sources_memory import ArrayTable
from sporax.dataset._tables import Table
from sporax.dataset.samplers import select_sampler
from sporax.ir.errors import SporaxRuntimeError

_IMAGES, _LABELS = "-images-idx3-ubyte", "-labels-idx1-ubyte"
_PREFIXES = {"train": "train", "test": "t10k", "all": ""}


class MnistDataset(MappableDataset):
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

    Raises:
        SporaxTypeError, SporaxValueError, SporaxRuntimeError: an argument is not valid; (when read) no files, or a file
            that is not what it should be.
    """

    def __init__(
        self,
        dataset_dir: str,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
    ) -> None:
        where = type(self).__name__
        folder = _checks.check_directory(where, dataset_dir)
        part = "all" if usage is None else _checks.check_choice(where, "usage", usage, tuple(_PREFIXES))
        chosen = select_sampler(where, num_samples, sampler, shuffle, num_shards, shard_id)
        workers = _checks.check_workers(where, num_parallel_workers)
        load = _IdxFiles(where, folder, _PREFIXES[part])
        super().__init__(Source(("image", "label"), load, chosen, labels=_labels, workers=workers))


class FashionMnistDataset(MnistDataset):
    """Fashion-MNIST: the same files as MNIST. Columns, arguments and errors: see MnistDataset."""


class KMnistDataset(MnistDataset):
    """Kuzushiji-MNIST: the same files as MNIST. Columns, arguments and errors: see MnistDataset."""


class _IdxFiles:
    """Loads the image and label files of a folder."""

    def __init__(self, where: str, folder: Path, prefix: str) -> None:
        self._where = where
        self._folder = folder
        self._prefix = prefix

    def __call__(self) -> Table:
        images, labels = self._find(_IMAGES), self._find(_LABELS)
        if len(images) != len(labels) or not images:
            raise SporaxRuntimeError(
                f"For '{self._where}', the folder {str(self._folder)!r} must hold as many files *{self._prefix}{_IMAGES}* "
                f"as *{self._prefix}{_LABELS}*, at least one, but got {len(images)} and {len(labels)}."
            )
        pairs = [self._read(*pair) for pair in zip(images, labels, strict=True)]
        shapes = {image.shape[1:] for image, _ in pairs}
        if len(shapes) > 1:
            raise SporaxRuntimeError(f"For '{self._where}', all files must hold images of one size, but got {shapes}.")
        image, label = (np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*pairs, strict=True))
        return ArrayTable({"image": image[..., None], "label": label.astype(np.uint32)})

    def _find(self, kind: str) -> list[Path]:
        found = sorted(path for path in self._folder.iterdir() if self._prefix + kind in path.name and path.is_file())
        # A file that is there both plain and compressed counts once.
        return [path for path in found if path.suffix != ".gz" or path.with_suffix("") not in found]

    def _read(self, images: Path, labels: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        image, label = read_idx(images, IMAGES_MAGIC, 3), read_idx(labels, LABELS_MAGIC, 1)
        if len(image) != len(label):
            raise SporaxRuntimeError(
                f"For '{self._where}', {str(images)!r} and {str(labels)!r} must hold equally many records, "
                f"but got {len(image)} images and {len(label)} labels."
            )
        return image, label


def _labels(table: Table) -> Any:
    assert isinstance(table, ArrayTable)
    return table.columns["label"]
