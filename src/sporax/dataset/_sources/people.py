"""Images whose labels lie in files of their own: CelebA, LFW, Flowers102, Caltech101, and manifests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sporax.dataset import _checks
from sporax.dataset._rows import Array
from sporax.dataset._sources.columns import Computed, Stored, images
from sporax.dataset._sources.folder import FormatDataset, checked_usage
from sporax.dataset._sources.images import checked_classes, labelled_images
from sporax.dataset._sources.reading import existing, folders_in, parse_lines, read_mat
from sporax.ir.errors import SporaxRuntimeError


class CelebADataset(FormatDataset):
    """CelebA: images, and their 40 attributes in list_attr_celeba.txt.

    Columns: `image`; `attr` (40,) uint32 of 0 and 1.

    Args:
        dataset_dir: folder that holds the images, the list, and (for a part) list_eval_partition.txt.
        num_parallel_workers: see ImageFolderDataset.
        shuffle: see ImageFolderDataset.
        usage: "train", "valid", "test" or "all".
        sampler: see ImageFolderDataset.
        decode: see ImageFolderDataset.
        extensions: see ImageFolderDataset.
        num_samples: see ImageFolderDataset.
        num_shards: see ImageFolderDataset.
        shard_id: see ImageFolderDataset.
        cache: see ImageFolderDataset.
        decrypt: must be None.
    """

    def __init__(
        self,
        dataset_dir: str,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        usage: str = "all",
        sampler: Any = None,
        decode: bool = False,
        extensions: list[str] | None = None,
        num_samples: int | None = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
        decrypt: None = None,
    ) -> None:
        where = "CelebADataset"
        folder = _checks.check_directory(where, dataset_dir)
        part = _checks.check_choice(where, "usage", usage, ("train", "valid", "test", "all"))
        endings = ("",) if extensions is None else _checks.check_names(where, "extensions", extensions)
        decoded = _checks.check_bool(where, "decode", decode)
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache, decrypt)
        super().__init__(("image", "attr"), lambda: _celeba_columns(where, folder, part, endings, decoded), *arguments)


def _celeba_columns(
    where: str, folder: Path, part: str, endings: tuple[str, ...], decoded: bool
) -> Mapping[str, Stored]:
    rows = parse_lines(where, existing(where, folder / "list_attr_celeba.txt"), _attributes, skip=2)
    if part != "all":
        wanted = ("train", "valid", "test").index(part)
        listed = parse_lines(where, existing(where, folder / "list_eval_partition.txt"), _numbered)
        kept = {name for name, number in listed if number == wanted}
        rows = [row for row in rows if row[0] in kept]
    rows = [row for row in rows if row[0].endswith(endings)]
    return {
        "image": images(where, [folder / name for name, _ in rows], decoded),
        "attr": np.array([values for _, values in rows], np.uint32),
    }


def _numbered(line: str) -> tuple[str, int]:
    name, number = line.split()
    return name, int(number)


def _attributes(line: str) -> tuple[str, list[bool]]:
    name, *fields = line.split()
    if len(fields) != 40:
        raise ValueError(f"40 attributes expected, found {len(fields)}")
    return name, [int(field) > 0 for field in fields]


_FUNNELED = {"original": "lfw", "funneled": "lfw_funneled", "deepfunneled": "lfw-deepfunneled"}
_LFW_PARTS = {"10fold": [""], "train": ["DevTrain"], "test": ["DevTest"], "all": ["DevTrain", "DevTest"]}


class LFWDataset(FormatDataset):
    """Labeled Faces in the Wild.

    Columns: `image`, `label` () uint32 (the number of the person in lfw-names.txt) for "people"; `image1`, `image2`,
    `label` () uint32 (whether they show one person) for "pairs".

    Args:
        dataset_dir: folder that holds the lists and the folders of images.
        task: "people" (the default) or "pairs".
        usage: "10fold", "train", "test", or "all" (the default: training and test).
        image_set: "original", "funneled" (the default) or "deepfunneled".
        num_samples: see ImageFolderDataset, like all further arguments.
        num_parallel_workers: see ImageFolderDataset.
        shuffle: see ImageFolderDataset.
        decode: see ImageFolderDataset.
        sampler: see ImageFolderDataset.
        num_shards: see ImageFolderDataset.
        shard_id: see ImageFolderDataset.
        cache: see ImageFolderDataset.
    """

    def __init__(
        self,
        dataset_dir: str,
        task: str | None = None,
        usage: str | None = None,
        image_set: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        decode: bool = False,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "LFWDataset"
        folder = _checks.check_directory(where, dataset_dir)
        kind = "people" if task is None else _checks.check_choice(where, "task", task, ("people", "pairs"))
        part = checked_usage(where, usage, ("10fold", "train", "test", "all"))
        chosen = (
            "funneled" if image_set is None else _checks.check_choice(where, "image_set", image_set, tuple(_FUNNELED))
        )
        place = folder / _FUNNELED[chosen]
        decoded = _checks.check_bool(where, "decode", decode)
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        columns = ("image", "label") if kind == "people" else ("image1", "image2", "label")
        load = _lfw_people if kind == "people" else _lfw_pairs
        lists = [folder / f"{kind}{ending}.txt" for ending in _LFW_PARTS[part]]
        super().__init__(columns, lambda: load(where, folder, place, lists, decoded), *arguments)


def _lfw_people(where: str, folder: Path, place: Path, lists: Sequence[Path], decoded: bool) -> Mapping[str, Stored]:
    names = parse_lines(where, existing(where, folder / "lfw-names.txt"), lambda line: line.split()[0])
    numbers = {name: number for number, name in enumerate(names)}
    rows = [row for path in lists for row in parse_lines(where, existing(where, path), _person) if row is not None]
    unknown = next((name for name, _ in rows if name not in numbers), None)
    if unknown is not None:
        raise SporaxRuntimeError(
            f"For '{where}', every person must be in lfw-names.txt, but {unknown!r} of {str(lists[0])!r} is not."
        )
    found = [(_face(place, name, i), numbers[name]) for name, count in rows for i in range(1, count + 1)]
    return labelled_images(where, found, decoded)


def _person(line: str) -> tuple[str, int] | None:
    """(name, number of images); None for a line that only counts those behind it."""
    fields = line.split()
    return None if len(fields) == 1 else (fields[0], int(fields[1]))


def _lfw_pairs(where: str, folder: Path, place: Path, lists: Sequence[Path], decoded: bool) -> Mapping[str, Stored]:
    pairs = [row for path in lists for row in parse_lines(where, existing(where, path), _two_faces) if row is not None]
    return {
        "image1": images(where, [_face(place, name, i) for name, i, _, _ in pairs], decoded),
        "image2": images(where, [_face(place, name, i) for _, _, name, i in pairs], decoded),
        "label": np.array([first == second for first, _, second, _ in pairs], np.uint32),
    }


def _two_faces(line: str) -> tuple[str, int, str, int] | None:
    """(name, number, name, number), the same name given once; None for the line that counts."""
    fields = line.split()
    if len(fields) < 3:
        return None
    first, one, *second, other = fields
    return first, int(one), second[0] if second else first, int(other)


def _face(place: Path, name: str, number: int) -> Path:
    return place / name / f"{name}_{number:04d}.jpg"


_FLOWER_PARTS = {"train": ("trnid",), "valid": ("valid",), "test": ("tstid",), "all": ("trnid", "tstid", "valid")}


class Flowers102Dataset(FormatDataset):
    """Oxford 102 Flowers: jpg/image_00001.jpg …, with labels and parts in imagelabels.mat and setid.mat.

    Columns: `image`, `label` () uint32; with "Segmentation" `segmentation` (from segmim) between them.

    Args:
        dataset_dir: folder that holds all this.
        task: "Classification" or "Segmentation".
        usage: "train", "valid", "test" or "all".
        num_samples: see ImageFolderDataset, like all further arguments.
        num_parallel_workers: see ImageFolderDataset.
        shuffle: see ImageFolderDataset.
        decode: see ImageFolderDataset.
        sampler: see ImageFolderDataset.
        num_shards: see ImageFolderDataset.
        shard_id: see ImageFolderDataset.
    """

    def __init__(
        self,
        dataset_dir: str,
        task: str = "Classification",
        usage: str = "all",
        num_samples: int | None = None,
        num_parallel_workers: int = 1,
        shuffle: bool | None = None,
        decode: bool = False,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
    ) -> None:
        where = "Flowers102Dataset"
        folder = _checks.check_directory(where, dataset_dir)
        segments = _checks.check_choice(where, "task", task, ("Classification", "Segmentation")) == "Segmentation"
        part = _checks.check_choice(where, "usage", usage, tuple(_FLOWER_PARTS))
        decoded = _checks.check_bool(where, "decode", decode)
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id)
        columns = ("image", "segmentation", "label") if segments else ("image", "label")
        super().__init__(columns, lambda: _flower_columns(where, folder, part, decoded), *arguments)


def _flower_columns(where: str, folder: Path, part: str, decoded: bool) -> Mapping[str, Stored]:
    (labels,) = read_mat(where, existing(where, folder / "imagelabels.mat"), ("labels",))
    sets = read_mat(where, existing(where, folder / "setid.mat"), _FLOWER_PARTS[part])
    numbers = np.concatenate([each.reshape(-1) for each in sets])
    if len(numbers) and not 1 <= numbers.min() <= numbers.max() <= labels.size:
        raise SporaxRuntimeError(
            f"For '{where}', setid.mat must name images from 1 to {labels.size}, but names {numbers.max()}."
        )
    return {
        "image": images(where, [folder / "jpg" / f"image_{number:05d}.jpg" for number in numbers], decoded),
        "segmentation": images(where, [folder / "segmim" / f"segmim_{number:05d}.jpg" for number in numbers], decoded),
        "label": labels.reshape(-1)[numbers - 1].astype(np.uint32) - np.uint32(1),
    }


_ANNOTATED_AS = {
    "Faces": "Faces_2",
    "Faces_easy": "Faces_3",
    "Motorbikes": "Motorbikes_16",
    "airplanes": "Airplanes_Side_2",
}
_TARGETS = {"category": ("category",), "annotation": ("annotation",), "all": ("category", "annotation")}


class Caltech101Dataset(FormatDataset):
    """Caltech-101: 101_ObjectCategories/{class}/image_0001.jpg …, and outlines in Annotations.

    Columns: `image`; `category` () int64; `annotation` (2, n) float64, the outline.

    Args:
        dataset_dir: folder that holds both folders.
        target_type: "category" (the default), "annotation" or "all".
        num_samples: see ImageFolderDataset, like all further arguments.
        num_parallel_workers: see ImageFolderDataset.
        shuffle: see ImageFolderDataset.
        decode: see ImageFolderDataset.
        sampler: see ImageFolderDataset.
        num_shards: see ImageFolderDataset.
        shard_id: see ImageFolderDataset.
    """

    def __init__(
        self,
        dataset_dir: str,
        target_type: str | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int = 1,
        shuffle: bool | None = None,
        decode: bool = False,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
    ) -> None:
        where = "Caltech101Dataset"
        self._folder = _checks.check_directory(where, dataset_dir)
        kind = "category" if target_type is None else target_type
        targets = _TARGETS[_checks.check_choice(where, "target_type", kind, tuple(_TARGETS))]
        decoded = _checks.check_bool(where, "decode", decode)
        folder = self._folder
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id)
        super().__init__(("image", *targets), lambda: _caltech_columns(where, folder, decoded), *arguments)

    def get_class_indexing(self) -> dict[str, int]:
        """Class folder -> number."""
        return {path.name: number for number, path in enumerate(_categories(self._folder))}


def _categories(folder: Path) -> list[Path]:
    found = folders_in("Caltech101Dataset", folder / "101_ObjectCategories")
    return [path for path in found if path.name != "BACKGROUND_Google"]


def _caltech_columns(where: str, folder: Path, decoded: bool) -> Mapping[str, Stored]:
    paths, classes, outlines = [], [], []
    for number, place in enumerate(_categories(folder)):
        annotated = folder / "Annotations" / _ANNOTATED_AS.get(place.name, place.name)
        for path in sorted(place.glob("image_*.jpg")):
            paths.append(path)
            classes.append(number)
            outlines.append(annotated / f"{path.stem.replace('image', 'annotation')}.mat")

    def outline(index: int) -> Array:
        contour: Array = read_mat(where, existing(where, outlines[index]), ("obj_contour",))[0]
        return contour

    return {
        "image": images(where, paths, decoded),
        "category": np.array(classes, np.int64),
        "annotation": Computed(len(paths), outline),
    }


class ManifestDataset(FormatDataset):
    """Images and classes that a manifest lists: one JSON object per line with source, usage and annotation.

    Columns: `image`; `label` () int32, or (n,) int32 for an image of several classes.

    Args:
        dataset_file: the manifest.
        usage: "train", "eval" or "inference".
        num_samples: see ImageFolderDataset, like all further arguments.
        num_parallel_workers: see ImageFolderDataset.
        shuffle: see ImageFolderDataset.
        sampler: see ImageFolderDataset.
        class_indexing: class -> label; images of other classes are left out. By default the classes in alphabetical
            order.
        decode: see ImageFolderDataset.
        num_shards: see ImageFolderDataset.
        shard_id: see ImageFolderDataset.
        cache: see ImageFolderDataset.
    """

    def __init__(
        self,
        dataset_file: str,
        usage: str = "train",
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        class_indexing: dict[str, int] | None = None,
        decode: bool = False,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "ManifestDataset"
        path = _checks.check_file(where, "dataset_file", dataset_file)
        part = _checks.check_choice(where, "usage", usage, ("train", "eval", "inference"))
        given = checked_classes(where, class_indexing)
        decoded = _checks.check_bool(where, "decode", decode)
        self._classes = lambda: _manifest_classes(where, path, part, given)
        classes = self._classes
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        load = lambda: _manifest_columns(where, path, part, classes(), decoded)  # noqa: E731
        super().__init__(("image", "label"), load, *arguments)

    def get_class_indexing(self) -> dict[str, int]:
        """Class -> label."""
        return self._classes()

    def num_classes(self) -> int:
        """Number of classes."""
        return len(self._classes())


def _manifest_rows(where: str, path: Path, part: str) -> list[tuple[Path, list[str]]]:
    def row(line: str) -> tuple[str, Path, list[str]]:
        content = json.loads(line)
        names = [mark["name"] for mark in content.get("annotation", ()) if "name" in mark]
        return content["usage"], Path(content["source"]), names

    return [(source, names) for usage, source, names in parse_lines(where, path, row) if usage == part]


def _manifest_classes(where: str, path: Path, part: str, given: dict[str, int] | None) -> dict[str, int]:
    if given is not None:
        return given
    names = sorted({name for _, found in _manifest_rows(where, path, part) for name in found})
    return {name: label for label, name in enumerate(names)}


def _manifest_columns(
    where: str, path: Path, part: str, classes: dict[str, int], decoded: bool
) -> Mapping[str, Stored]:
    known = [
        (source, [classes[name] for name in names if name in classes])
        for source, names in _manifest_rows(where, path, part)
    ]
    rows = [row for row in known if row[1]]
    single = all(len(labels) == 1 for _, labels in rows)
    arrays = [np.array(labels[0] if len(labels) == 1 else labels, np.int32) for _, labels in rows]
    return {
        "image": images(where, [source for source, _ in rows], decoded),
        "label": np.array(arrays, np.int32) if single else arrays,
    }
