"""Sources whose files hold pixels as numbers: CIFAR, STL-10, SVHN, USPS, Semeion, PhotoTour, and images of no file at all."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sporax.dataset import _checks
from sporax.dataset._rows import Array
from sporax.dataset._sources.columns import Computed, Stored
from sporax.dataset._sources.folder import FormatDataset, PlainDataset, UsageDataset, checked_usage
from sporax.dataset._sources.idx import read_bytes
from sporax.dataset._sources.reading import existing, parse_lines, read_mat, reading
from sporax.dataset._sources.text import FileTable
from sporax.dataset._sources.texts import PartsDataset
from sporax.dataset._tables import Table
from sporax.dataset.vision._decode import decode
from sporax.ir.errors import SporaxRuntimeError, SporaxValueError


class Cifar10Dataset(UsageDataset):
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
        cache: see MnistDataset.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxRuntimeError: an argument is not valid; (when read) no files, or a file
            that does not consist of whole records.
    """

    @staticmethod
    def _load(where: str, folder: Path, part: str) -> Mapping[str, Stored]:
        stems = {"train": ("data_batch",), "test": ("test_batch",)}.get(part, ("data_batch", "test_batch"))
        return _cifar_columns(where, folder, stems, ("label",))


class Cifar100Dataset(UsageDataset):
    """CIFAR-100 from its binary files train.bin and test.bin.

    Columns: `image` (32, 32, 3) uint8; `coarse_label` and `fine_label` () uint32. Arguments and errors: see
    Cifar10Dataset.
    """

    _fields: ClassVar[tuple[str, ...]] = ("image", "coarse_label", "fine_label")

    @staticmethod
    def _load(where: str, folder: Path, part: str) -> Mapping[str, Stored]:
        stems = ("train", "test") if part == "all" else (part,)
        return _cifar_columns(where, folder, stems, ("coarse_label", "fine_label"))


def _cifar_columns(where: str, folder: Path, stems: tuple[str, ...], labels: Sequence[str]) -> Mapping[str, Stored]:
    """Records of label bytes and three 32 x 32 planes."""
    found = sorted(path for path in folder.glob("*.bin") if path.name.startswith(stems))
    if not found:
        raise SporaxRuntimeError(
            f"For '{where}', the folder {str(folder)!r} must hold files {'*.bin, '.join(stems)}*.bin, but there are none."
        )
    records = np.concatenate([_whole_records(where, path, len(labels) + 3072) for path in found])
    planes = records[:, len(labels) :].reshape(-1, 3, 32, 32)
    columns: dict[str, Any] = {"image": np.ascontiguousarray(planes.transpose(0, 2, 3, 1))}
    return columns | {name: records[:, i].astype(np.uint32) for i, name in enumerate(labels)}


def _whole_records(where: str, path: Path, size: int) -> Array:
    """The records (n, size) uint8 of a file."""
    content = read_bytes(where, path)
    whole, rest = divmod(len(content), size)
    if rest or not whole:
        raise SporaxRuntimeError(
            f"For '{where}', {str(path)!r} must consist of records of {size} bytes, but record {whole} at offset "
            f"{whole * size} has {rest}; the file is truncated or of another format."
        )
    return np.frombuffer(content, np.uint8).reshape(whole, size)


class STL10Dataset(UsageDataset):
    """STL-10 from its binary files {train, test, unlabeled}_X.bin and {train, test}_y.bin.

    Columns: `image` (96, 96, 3) uint8; `label` () int32, -1 for what has no label. Arguments and errors: see
    MnistDataset; `usage` may be "unlabeled" and "train+unlabeled" as well.
    """

    _usages: ClassVar[tuple[str, ...]] = ("train", "test", "unlabeled", "train+unlabeled", "all")

    @staticmethod
    def _load(where: str, folder: Path, part: str) -> Mapping[str, Stored]:
        parts = ("test", "train", "unlabeled") if part == "all" else part.split("+")
        images = [_whole_records(where, existing(where, folder / f"{name}_X.bin"), 3 * 96 * 96) for name in parts]
        labels = [_stl10_labels(where, folder, name, len(image)) for name, image in zip(parts, images, strict=True)]
        # Each plane is stored column by column.
        planes = np.concatenate(images).reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
        return {"image": np.ascontiguousarray(planes), "label": np.concatenate(labels)}


def _stl10_labels(where: str, folder: Path, name: str, count: int) -> Array:
    if name == "unlabeled":
        return np.full(count, -1, np.int32)
    path = existing(where, folder / f"{name}_y.bin")
    labels = np.frombuffer(read_bytes(where, path), np.uint8).astype(np.int32) - 1
    if len(labels) != count:
        raise SporaxRuntimeError(
            f"For '{where}', {str(path)!r} must hold one label for each of the {count} images of {name}_X.bin, but holds "
            f"{len(labels)}."
        )
    return labels


class SVHNDataset(FormatDataset):
    """SVHN from its MATLAB files {train, test, extra}_32x32.mat.

    Columns: `image` (32, 32, 3) uint8; `label` () uint32, the digit.

    Args:
        dataset_dir: folder that holds the files.
        usage: "train", "test", "extra" or "all" (the default).
        num_samples: see MnistDataset, like all further arguments.
        num_parallel_workers: see MnistDataset.
        shuffle: see MnistDataset.
        sampler: see MnistDataset.
        num_shards: see MnistDataset.
        shard_id: see MnistDataset.
    """

    def __init__(
        self,
        dataset_dir: str,
        usage: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
    ) -> None:
        where = "SVHNDataset"
        folder = _checks.check_directory(where, dataset_dir)
        part = checked_usage(where, usage, ("train", "test", "extra", "all"))
        parts = ("train", "test", "extra") if part == "all" else (part,)
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id)
        super().__init__(("image", "label"), lambda: _svhn_columns(where, folder, parts), *arguments)


def _svhn_columns(where: str, folder: Path, parts: Sequence[str]) -> Mapping[str, Stored]:
    images, labels = [], []
    for part in parts:
        path = existing(where, folder / f"{part}_32x32.mat")
        pixels, digits = read_mat(where, path, ("X", "y"))
        with reading(where, path):
            image, label = pixels.transpose(3, 0, 1, 2), digits.reshape(-1).astype(np.uint32)
            if len(image) != len(label):
                raise ValueError(f"{len(image)} images, but {len(label)} labels")
        images.append(image)
        labels.append(label % 10)
    return {"image": np.concatenate(images), "label": np.concatenate(labels)}


class USPSDataset(PartsDataset):
    """USPS from its text files usps and usps.t, one image per line.

    Columns: `image` (16, 16, 1) uint8; `label` () uint32, the digit. Arguments and errors: see PartsDataset; `usage` is
    "train", "test" or "all" (the default).
    """

    _parts: ClassVar[Mapping[str, str]] = {"train": "usps", "test": "usps.t"}
    _fields: ClassVar[tuple[str, ...]] = ("image", "label")

    @classmethod
    def _load(cls, where: str, paths: Sequence[Path]) -> Table:
        def parse(path: Path) -> Mapping[str, Sequence[Any]]:
            rows = parse_lines(where, path, _usps_row)
            pixels = (np.array([values for _, values in rows], np.float32).astype(np.float64) + 1) / 2 * 255
            labels = np.array([label for label, _ in rows], np.uint32)
            return {"image": pixels.astype(np.uint8).reshape(-1, 16, 16, 1), "label": labels}  # type: ignore[dict-item]

        return FileTable(where, paths, parse)


def _usps_row(line: str) -> tuple[int, list[float]]:
    """``7 1:-1 2:-0.9 …``: a digit counted from 1, and 256 numbered values in [-1, 1]."""
    label, *fields = line.split()
    values = [float(field.split(":")[1]) for field in fields]
    if len(values) != 256:
        raise ValueError(f"256 values expected, found {len(values)}")
    return int(label) - 1, values


class SemeionDataset(PlainDataset):
    """Semeion from its text file semeion.data.

    Columns: `image` (16, 16) uint8 of 0 and 1; `label` () uint32. Arguments and errors: see MnistDataset.
    """

    @staticmethod
    def _load(where: str, folder: Path) -> Mapping[str, Stored]:
        rows = parse_lines(where, folder / "semeion.data", _semeion_row)
        return {
            "image": np.array([image for image, _ in rows], np.uint8).reshape(-1, 16, 16),
            "label": np.array([label for _, label in rows], np.uint32),
        }


def _semeion_row(line: str) -> tuple[list[int], int]:
    fields = [float(field) for field in line.split()]
    if len(fields) != 266:
        raise ValueError(f"266 numbers expected, found {len(fields)}")
    return [int(value) for value in fields[:256]], fields[256:].index(1.0)


_PATCH, _PER_SIDE = 64, 16
_PLACES = ("notredame", "yosemite", "liberty")


class PhotoTourDataset(FormatDataset):
    """PhotoTour: patches of photographs, 256 to a file patches####.bmp (needs Pillow).

    Columns: `image` (64, 64, 1) uint8 with "train"; `image1`, `image2` (64, 64, 1) uint8 and `matches` () uint32, whether
    they show the same point, with "test".

    Args:
        dataset_dir: folder that holds one folder per place.
        name: "notredame", "yosemite", "liberty", or one of these with "_harris".
        usage: "train" (the default) or "test".
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
        where = "PhotoTourDataset"
        places = (*_PLACES, *(f"{place}_harris" for place in _PLACES))
        folder = _checks.check_directory(where, dataset_dir) / _checks.check_choice(where, "name", name, places)
        pairs = checked_usage(where, usage, ("test", "train")) == "test"
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        columns = ("image1", "image2", "matches") if pairs else ("image",)
        super().__init__(columns, lambda: (_patch_pairs if pairs else _patches)(where, folder), *arguments)


def _patches(where: str, folder: Path) -> Mapping[str, Stored]:
    count = len(parse_lines(where, existing(where, folder / "info.txt"), str.split))
    return {"image": Computed(count, functools.partial(_patch, folder))}


def _patch_pairs(where: str, folder: Path) -> Mapping[str, Stored]:
    rows = parse_lines(where, existing(where, folder / "m50_100000_100000_0.txt"), _pair_of_patches)
    firsts, seconds = [row[0] for row in rows], [row[1] for row in rows]
    return {
        "image1": Computed(len(rows), lambda index: _patch(folder, firsts[index])),
        "image2": Computed(len(rows), lambda index: _patch(folder, seconds[index])),
        "matches": np.array([row[2] for row in rows], np.uint32),
    }


def _pair_of_patches(line: str) -> tuple[int, int, bool]:
    fields = line.split()
    return int(fields[0]), int(fields[3]), fields[1] == fields[4]


def _patch(folder: Path, number: int) -> Array:
    file, inside = divmod(number, _PER_SIDE**2)
    row, column = divmod(inside, _PER_SIDE)
    sheet = _sheet(folder / f"patches{file:04d}.bmp")
    return sheet[row * _PATCH : (row + 1) * _PATCH, column * _PATCH : (column + 1) * _PATCH, None].copy()


@functools.lru_cache(maxsize=64)
def _sheet(path: Path) -> Array:
    """The pixels (1024, 1024) of a file, kept for the next patches."""
    pixels = decode(read_bytes("PhotoTourDataset", path), str(path))
    if pixels.shape != (_PATCH * _PER_SIDE, _PATCH * _PER_SIDE, 3):
        raise SporaxRuntimeError(
            f"For 'PhotoTourDataset', {str(path)!r} must have 1024 x 1024 pixels, but has shape {pixels.shape[:2]}."
        )
    return pixels[..., 0]


class FakeImageDataset(FormatDataset):
    """Random images, for trying out a pipeline. The numbers are not MindSpore's.

    Columns: `image` `image_size` uint8; `label` () uint32.

    Args:
        num_images: how many.
        image_size: (height, width, channels).
        num_classes: labels are below this number.
        base_seed: another seed gives other images.
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
        num_images: int = 1000,
        image_size: Sequence[int] = (224, 224, 3),
        num_classes: int = 10,
        base_seed: int = 0,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "FakeImageDataset"
        count = _checks.check_int(where, "num_images", num_images, 1, _checks.INT32_MAX)
        classes = _checks.check_int(where, "num_classes", num_classes, 1, _checks.INT32_MAX)
        seed = _checks.check_int(where, "base_seed", base_seed, 0, _checks.INT32_MAX)
        if not isinstance(image_size, (list, tuple)) or len(image_size) != 3:
            raise SporaxValueError(
                f"For '{where}', 'image_size' must be (height, width, channels), but got {image_size!r}."
            )
        shape = [_checks.check_int(where, "image_size", size, 1, _checks.INT32_MAX) for size in image_size]
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        super().__init__(("image", "label"), lambda: _fake_columns(count, shape, classes, seed), *arguments)


def _fake_columns(count: int, shape: list[int], classes: int, seed: int) -> Mapping[str, Stored]:
    def image(index: int) -> Array:
        return np.random.default_rng((seed, index)).integers(0, 256, shape, np.uint8)

    labels = np.random.default_rng(seed).integers(0, classes, count).astype(np.uint32)
    return {"image": Computed(count, image), "label": labels}
