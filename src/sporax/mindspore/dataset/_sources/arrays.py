"""Sources whose files hold pixels as numbers: CIFAR, STL-10, SVHN, USPS, Semeion, PhotoTour, and images of no file at all."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.mindspore._declared import REQUIRED, Argument
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import in_words
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset._shuffles import drawn
from sporax.mindspore.dataset._sources import format as arg, reading as sources
from sporax.mindspore.dataset._sources.format import FileDataset, FormatDataset, Rows
from sporax.mindspore.dataset._streams import Table
from sporax.mindspore.dataset.vision._files import decode


class Cifar10Dataset(
    FormatDataset,
    arguments=arg.in_folder(
        "folder that holds data_batch_*.bin and test_batch.bin.", arg.usage("train", "test", "all")
    ),
):
    """CIFAR-10 from its binary files.

    Columns: `image` (32, 32, 3) uint8; `label` () uint32.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str) -> Rows:
        # MindSpore finds files by the beginnings of their names.
        stems = {"train": ("data_batch",), "test": ("test_batch",)}.get(part, ("data_batch", "test_batch"))
        return _cifar_columns(where, folder, stems, ("label",))


class Cifar100Dataset(
    FormatDataset,
    arguments=arg.in_folder("folder that holds the files.", arg.usage("train", "test", "all")),
    columns=("image", "coarse_label", "fine_label"),
):
    """CIFAR-100 from its binary files train.bin and test.bin.

    Columns: `image` (32, 32, 3) uint8; `coarse_label` and `fine_label` () uint32.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str) -> Rows:
        stems = ("train", "test") if part == "all" else (part,)
        return _cifar_columns(where, folder, stems, ("coarse_label", "fine_label"))


def _cifar_columns(where: str, folder: Path, stems: tuple[str, ...], labels: Sequence[str]) -> Rows:
    """Records of label bytes and three 32 x 32 planes."""
    # Sorted, since the order of a folder depends on the file system.
    paths = sorted(path for path in folder.glob("*.bin") if path.name.startswith(stems))
    if not paths:
        raise SporaxRuntimeError(
            f"For '{where}', cifar(.bin) files are missing: the folder {str(folder)!r} must hold files "
            f"{'*.bin, '.join(stems)}*.bin, but there are none."
        )
    # 3 planes of 32 x 32 bytes behind the labels.
    records = np.concatenate([_full_records(where, path, len(labels) + 3072) for path in paths])
    planes = records[:, len(labels) :].reshape(-1, 3, 32, 32)
    # MindSpore gives channels last; contiguous, as every row is handed out as a view.
    columns: dict[str, Any] = {"image": np.ascontiguousarray(planes.transpose(0, 2, 3, 1))}
    return columns | {name: records[:, i].astype(np.uint32) for i, name in enumerate(labels)}


def _full_records(where: str, path: Path, size: int) -> Array:
    """The records (n, size) uint8 of a file."""
    content = sources.read_bytes(where, path)
    # A truncated file must not lose its last record silently.
    count, rest = divmod(len(content), size)
    if rest or not count:
        raise SporaxRuntimeError(
            f"For '{where}', {str(path)!r} must consist of records of {size} bytes, but record {count} at offset "
            f"{count * size} has {rest}; the file is truncated or of another format."
        )
    return np.frombuffer(content, np.uint8).reshape(count, size)


def _stl10_parts(part: str) -> list[str]:
    return ["test", "train", "unlabeled"] if part == "all" else part.split("+")


def _stl10_files(part: str) -> list[str]:
    parts = _stl10_parts(part)
    return [f"{name}_X.bin" for name in parts] + [f"{name}_y.bin" for name in parts if name != "unlabeled"]


class STL10Dataset(
    FormatDataset,
    arguments=arg.in_folder(
        "folder that holds the files.", arg.usage("train", "test", "unlabeled", "train+unlabeled", "all")
    ),
    prepare=arg.with_files(_stl10_files),
):
    """STL-10 from its binary files {train, test, unlabeled}_X.bin and {train, test}_y.bin.

    Columns: `image` (96, 96, 3) uint8; `label` () int32, -1 for what has no label.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str) -> Rows:
        parts = _stl10_parts(part)
        images = [_full_records(where, folder / f"{name}_X.bin", 3 * 96 * 96) for name in parts]
        labels = [_stl10_labels(where, folder, name, len(image)) for name, image in zip(parts, images, strict=True)]
        # Each plane is stored column by column.
        planes = np.concatenate(images).reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
        return {"image": np.ascontiguousarray(planes), "label": np.concatenate(labels)}


def _stl10_labels(where: str, folder: Path, name: str, count: int) -> Array:
    if name == "unlabeled":
        # These rows have no file of labels.
        return np.full(count, -1, np.int32)
    path = folder / f"{name}_y.bin"
    # Labels are stored from 1, MindSpore gives them from 0.
    labels = np.frombuffer(sources.read_bytes(where, path), np.uint8).astype(np.int32) - 1
    if len(labels) != count:
        raise For(where).state_error(
            f"{str(path)!r} must hold one label for each of the {count} images of {name}_X.bin, but holds {len(labels)}"
        )
    return labels


def _svhn_files(part: str) -> list[str]:
    return [f"{name}_32x32.mat" for name in (("train", "test", "extra") if part == "all" else (part,))]


class SVHNDataset(
    FormatDataset,
    arguments=(
        arg.folder("folder that holds the files."),
        arg.usage("train", "test", "extra", "all"),
        *(arg.NUM_SAMPLES, arg.ONE_WORKER, arg.SHUFFLE, arg.SAMPLER, arg.NUM_SHARDS, arg.SHARD_ID),
    ),
    prepare=arg.with_files(_svhn_files),
):
    """SVHN from its MATLAB files {train, test, extra}_32x32.mat.

    Columns: `image` (32, 32, 3) uint8; `label` () uint32, the digit.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str) -> Rows:
        images, labels = [], []
        for path in (folder / name for name in _svhn_files(part)):
            pixels, digits = sources.read_mat(where, path, ("X", "y"))
            with sources.reading(where, path):
                image, label = pixels.transpose(3, 0, 1, 2), digits.reshape(-1).astype(np.uint32)
                if len(image) != len(label):
                    # ValueError, so that `reading` names the file.
                    raise ValueError(f"{len(image)} images, but {len(label)} labels")
            images.append(image)
            # The files count the digit 0 as 10.
            labels.append(label % 10)
        return {"image": np.concatenate(images), "label": np.concatenate(labels)}


# Part -> name of its file.
_USPS = {"train": "usps", "test": "usps.t"}


class USPSDataset(
    FileDataset,
    arguments=(arg.folder("folder that holds the files."), arg.usage("train", "test", "all"), *arg.SAMPLED_FILES),
):
    """USPS from its text files usps and usps.t, one image per line.

    Columns: `image` (16, 16, 1) uint8; `label` () uint32, the digit.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str) -> Table:
        files = list(_USPS.values()) if part == "all" else [_USPS[part]]

        def parse(path: Path) -> sources.Columns:
            rows = sources.parse_lines(where, path, _usps_row)
            # float32 first, as MindSpore parses the text; the truncated byte depends on it.
            pixels = (np.array([values for _, values in rows], np.float32).astype(np.float64) + 1) / 2 * 255
            labels = np.array([label for label, _ in rows], np.uint32)
            return {"image": pixels.astype(np.uint8).reshape(-1, 16, 16, 1), "label": labels}

        return sources.FileTable(where, sources.files_named(where, folder, files), parse)


def _usps_row(line: str) -> tuple[int, list[float]]:
    """``7 1:-1 2:-0.9 …``: a digit counted from 1, and 256 numbered values in [-1, 1]."""
    label, *fields = line.split()
    values = [float(field.split(":")[1]) for field in fields]
    if len(values) != 256:
        raise ValueError(f"256 values expected, found {len(values)}")
    return int(label) - 1, values


class SemeionDataset(FormatDataset, arguments=arg.in_folder("folder that holds the file.")):
    """Semeion from its text file semeion.data.

    Columns: `image` (16, 16) uint8 of 0 and 1; `label` () uint32.
    """

    @staticmethod
    def _read(where: str, folder: Path) -> Rows:
        rows = sources.parse_lines(where, folder / "semeion.data", _semeion_row)
        return {
            "image": np.array([image for image, _ in rows], np.uint8).reshape(-1, 16, 16),
            "label": np.array([label for _, label in rows], np.uint32),
        }


def _semeion_row(line: str) -> tuple[list[int], int]:
    fields = [float(field) for field in line.split()]
    # 256 pixels and ten flags, one per digit.
    if len(fields) != 266:
        raise ValueError(f"266 numbers expected, found {len(fields)}")
    # The class is the place of the flag that is set.
    return [int(value) for value in fields[:256]], fields[256:].index(1.0)


# Pixels of a patch's side, and patches per side of a file.
_PATCH, _PER_SIDE = 64, 16
_MOTIFS = ("notredame", "yosemite", "liberty")


def _patches(where: str, folder: Path) -> Rows:
    # One line per patch, so the list is their count.
    count = len(sources.parse_lines(where, sources.existing(where, folder / "info.txt"), str.split))
    return {"image": sources.Computed(count, functools.partial(_patch, folder))}


def _patch_pairs(where: str, folder: Path) -> Rows:
    rows = sources.parse_lines(where, sources.existing(where, folder / "m50_100000_100000_0.txt"), _pair_of_patches)
    firsts, seconds = [row[0] for row in rows], [row[1] for row in rows]
    return {
        "image1": sources.Computed(len(rows), lambda index: _patch(folder, firsts[index])),
        "image2": sources.Computed(len(rows), lambda index: _patch(folder, seconds[index])),
        "matches": np.array([row[2] for row in rows], np.uint32),
    }


def _pair_of_patches(line: str) -> tuple[int, int, bool]:
    # Fields 0 and 3 are patches, 1 and 4 the points that they show.
    fields = line.split()
    return int(fields[0]), int(fields[3]), fields[1] == fields[4]


def _patch(folder: Path, number: int) -> Array:
    file, inside = divmod(number, _PER_SIDE**2)
    row, column = divmod(inside, _PER_SIDE)
    sheet = _sheet(folder / f"patches{file:04d}.bmp")
    # A copy, since the sheet stays in the cache and rows may be changed.
    return sheet[row * _PATCH : (row + 1) * _PATCH, column * _PATCH : (column + 1) * _PATCH, None].copy()


# 64 sheets of 1 MB: neighbouring patches come from few files.
@functools.lru_cache(maxsize=64)
def _sheet(path: Path) -> Array:
    """The pixels (1024, 1024) of a file, kept for the next patches."""
    pixels = decode(sources.read_bytes("PhotoTourDataset", path), str(path))
    if pixels.shape != (_PATCH * _PER_SIDE, _PATCH * _PER_SIDE, 3):
        raise SporaxRuntimeError(
            f"For 'PhotoTourDataset', {str(path)!r} must have 1024 x 1024 pixels, but has shape {pixels.shape[:2]}."
        )
    # Gray images, decoded as three equal planes.
    return pixels[..., 0]


class PhotoTourDataset(
    FormatDataset,
    arguments=arg.in_folder(
        "folder that holds one folder per place.",
        arg.choice("name", *_MOTIFS, *(f"{place}_harris" for place in _MOTIFS), default=REQUIRED),
        arg.usage("train", "test"),
    ),
    columns=lambda where, folder, place, part: ("image",) if part == "train" else ("image1", "image2", "matches"),
):
    """PhotoTour: patches of photographs, 256 to a file patches####.bmp (needs Pillow).

    Columns: `image` (64, 64, 1) uint8 with "train"; `image1`, `image2` (64, 64, 1) uint8 and `matches` () uint32, whether
    they show the same point, with "test".
    """

    @staticmethod
    def _read(where: str, folder: Path, place: str, part: str) -> Rows:
        return _patches(where, folder / place) if part == "train" else _patch_pairs(where, folder / place)


def _image_size(where: str, name: str, value: object) -> list[int]:
    if not isinstance(value, (list, tuple)) or len(value) != 3:
        got = len(value) if isinstance(value, (list, tuple)) else value
        raise in_words(SporaxValueError, where, f"{name} should be a list or tuple of length 3, but got {got}.")
    return [check.integer(where, f"{name}[{i}]", size, 1, check.INT32_MAX) for i, size in enumerate(value)]


class FakeImageDataset(
    FormatDataset,
    arguments=(
        arg.integer("num_images", 1000, "how many.", low=1),
        Argument("image_size", Sequence[int], "(height, width, channels).", (224, 224, 3), _image_size),
        arg.integer("num_classes", 10, "labels are below this number.", low=1),
        arg.integer("base_seed", 0, "another seed gives other images.", low=0),
        *arg.SAMPLED,
    ),
):
    """Random images, for trying out a pipeline. Labels are MindSpore's, pixels are not.

    Columns: `image` `image_size` uint8; `label` () uint32.
    """

    @staticmethod
    def _read(where: str, count: int, shape: list[int], classes: int, seed: int) -> Rows:
        def image(index: int) -> Array:
            # By row number, so that shuffling and sharding do not change an image.
            return np.random.default_rng((seed, index)).integers(0, 256, shape, np.uint8)

        # Each from a seed of its own, as in MindSpore.
        labels = np.concatenate([drawn(classes, 1, seed + i) for i in range(count)]).astype(np.uint32)
        return {"image": sources.Computed(count, image), "label": labels}
