"""Image sources: the CIFAR files, and folders of image files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sporax.dataset import _checks
from sporax.dataset._idx import read_bytes
from sporax.dataset._mappable import MappableDataset
from sporax.dataset._nodes import Source
from sporax.dataset._rows import Block
from sporax.dataset._sources_memory import ArrayTable
from sporax.dataset._tables import Indices, Table
from sporax.dataset.samplers import select_sampler
from sporax.dataset.vision._decode import decode
from sporax.ir.errors import SporaxRuntimeError


def _labels(table: Table) -> Any:
    assert isinstance(table, (ArrayTable, _FolderTable))
    return table.labels if isinstance(table, _FolderTable) else table.columns["label"]


class Cifar10Dataset(MappableDataset):
    """CIFAR-10 from its binary files.

    Columns: `image` (32, 32, 3) uint8; `label` () uint32.

    Args:
        dataset_dir: folder that holds data_batch_*.bin and test_batch.bin.
        usage: "train", "test", or "all" (the default; training files come first).
        num_samples: see MnistDataset, like all further arguments.
        num_parallel_workers: see MnistDataset.
        shuffle: see MnistDataset.
        sampler: see MnistDataset.
        num_shards: see MnistDataset.
        shard_id: see MnistDataset.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxRuntimeError: an argument is not valid; (when read) no files, or a file
            that does not consist of whole records.
    """

    _files: ClassVar[dict[str, tuple[str, ...]]] = {"train": ("data_batch",), "test": ("test_batch",)}
    _labels: ClassVar[tuple[str, ...]] = ("label",)

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
        part = "all" if usage is None else _checks.check_choice(where, "usage", usage, ("train", "test", "all"))
        stems = self._files.get(part, self._files["train"] + self._files["test"])
        chosen = select_sampler(where, num_samples, sampler, shuffle, num_shards, shard_id)
        workers = _checks.check_workers(where, num_parallel_workers)
        load = _CifarFiles(where, folder, stems, self._labels)
        labels = _labels if self._labels == ("label",) else None
        super().__init__(Source(("image", *self._labels), load, chosen, labels=labels, workers=workers))


class Cifar100Dataset(Cifar10Dataset):
    """CIFAR-100 from its binary files train.bin and test.bin.

    Columns: `image` (32, 32, 3) uint8; `coarse_label` and `fine_label` () uint32. Arguments and errors: see
    Cifar10Dataset.
    """

    _files: ClassVar[dict[str, tuple[str, ...]]] = {"train": ("train",), "test": ("test",)}
    _labels: ClassVar[tuple[str, ...]] = ("coarse_label", "fine_label")


class _CifarFiles:
    """Loads the binary files of a folder: records of label bytes and three 32 x 32 planes."""

    def __init__(self, where: str, folder: Path, stems: tuple[str, ...], labels: tuple[str, ...]) -> None:
        self._where = where
        self._folder = folder
        self._stems = stems
        self._labels = labels

    def __call__(self) -> Table:
        found = sorted(path for path in self._folder.glob("*.bin") if path.name.startswith(self._stems))
        if not found:
            raise SporaxRuntimeError(
                f"For '{self._where}', the folder {str(self._folder)!r} must hold files {'*.bin, '.join(self._stems)}*.bin, "
                "but there are none."
            )
        records = np.concatenate([self._read(path) for path in found])
        count = len(self._labels)
        planes = records[:, count:].reshape(-1, 3, 32, 32)
        columns: dict[str, Any] = {"image": np.ascontiguousarray(planes.transpose(0, 2, 3, 1))}
        return ArrayTable(columns | {name: records[:, i].astype(np.uint32) for i, name in enumerate(self._labels)})

    def _read(self, path: Path) -> np.ndarray[Any, Any]:
        size = len(self._labels) + 3072
        content = read_bytes(path)
        whole, rest = divmod(len(content), size)
        if rest or not whole:
            raise SporaxRuntimeError(
                f"For '{self._where}', {str(path)!r} must consist of records of {size} bytes, but record {whole} at offset "
                f"{whole * size} has {rest}; the file is truncated or of another format."
            )
        return np.frombuffer(content, np.uint8).reshape(whole, size)


class ImageFolderDataset(MappableDataset):
    """Image files in one folder per class.

    Columns: `image`, the file's bytes (n,) uint8, or the pixels (H, W, 3) uint8 with `decode`; `label` () int32, the
    number of the class folder in alphabetical order, or as `class_indexing` says.

    Args:
        dataset_dir: folder that holds the class folders.
        num_samples: see MnistDataset.
        num_parallel_workers: see MnistDataset.
        shuffle: see MnistDataset.
        sampler: see MnistDataset.
        extensions: only files with these endings, such as [".jpg", ".png"]; all files by default.
        class_indexing: class folder -> label; other folders are left out.
        decode: decode the images (needs Pillow).
        num_shards: see MnistDataset.
        shard_id: see MnistDataset.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxRuntimeError: an argument is not valid; (when read) no files, a folder
            within a class folder, or a file that is not an image.
    """

    def __init__(
        self,
        dataset_dir: str,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        extensions: list[str] | None = None,
        class_indexing: dict[str, int] | None = None,
        decode: bool = False,
        num_shards: int | None = None,
        shard_id: int | None = None,
    ) -> None:
        where = "ImageFolderDataset"
        folder = _checks.check_directory(where, dataset_dir)
        endings = None if extensions is None else _checks.check_names(where, "extensions", extensions)
        classes = self._checked_classes(class_indexing)
        chosen = select_sampler(where, num_samples, sampler, shuffle, num_shards, shard_id)
        self._load = _ImageFolder(folder, endings, classes, _checks.check_bool(where, "decode", decode))
        workers = _checks.check_workers(where, num_parallel_workers)
        super().__init__(Source(("image", "label"), self._load, chosen, labels=_labels, workers=workers))

    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.get_class_indexing())

    def get_class_indexing(self) -> dict[str, int]:
        """Class folder -> label."""
        return self._load.classes()

    @staticmethod
    def _checked_classes(class_indexing: object) -> dict[str, int] | None:
        if class_indexing is None:
            return None
        if not isinstance(class_indexing, dict):
            raise _checks.type_error("ImageFolderDataset", "class_indexing", "a dict of folder -> int", class_indexing)
        return {
            _checks.check_str("ImageFolderDataset", "class_indexing", name): _checks.check_int(
                "ImageFolderDataset", f"class_indexing[{name!r}]", label
            )
            for name, label in class_indexing.items()
        }


class _ImageFolder:
    """Finds the files of the class folders."""

    def __init__(
        self, folder: Path, endings: tuple[str, ...] | None, given: dict[str, int] | None, decode: bool
    ) -> None:
        self._folder = folder
        self._endings = endings
        self._given = given
        self._decode = decode

    def classes(self) -> dict[str, int]:
        """Class folder -> label."""
        if self._given is not None:
            return self._given
        folders = sorted(path.name for path in self._folder.iterdir() if path.is_dir())
        return {name: label for label, name in enumerate(folders)}

    def __call__(self) -> Table:
        files: list[tuple[Path, int]] = []
        for name, label in sorted(self.classes().items()):
            folder = self._folder / name
            found = sorted(folder.iterdir()) if folder.is_dir() else []
            if self._endings is not None:
                found = [path for path in found if path.name.endswith(self._endings)]
            inner = next((path for path in found if path.is_dir()), None)
            if inner is not None:
                raise SporaxRuntimeError(
                    f"For 'ImageFolderDataset', class folders must hold files only, but {str(inner)!r} is a folder; pass "
                    "'extensions' to choose files."
                )
            files += [(path, label) for path in found]
        if not files:
            raise SporaxRuntimeError(
                f"For 'ImageFolderDataset', the folder {str(self._folder)!r} must hold one folder of images per class, "
                "but no files were found."
            )
        return _FolderTable(
            [path for path, _ in files], np.array([label for _, label in files], np.int32), self._decode
        )


class _FolderTable(Table):
    """Image files, read when a row is asked for."""

    def __init__(self, paths: list[Path], labels: np.ndarray[Any, Any], decode: bool) -> None:
        self._paths = paths
        self.labels = labels
        self._decode = decode
        self.size = len(paths)

    def gather(self, indices: Indices) -> Block:
        """See Table."""
        return {"image": [self._image(self._paths[index]) for index in indices], "label": self.labels[indices]}

    def _image(self, path: Path) -> np.ndarray[Any, Any]:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise SporaxRuntimeError(
                f"For 'ImageFolderDataset', the file {str(path)!r} cannot be read: {error}"
            ) from error
        return decode(content, str(path)) if self._decode else np.frombuffer(content, np.uint8).copy()
