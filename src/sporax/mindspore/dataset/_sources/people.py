"""Images whose labels are in files of their own: CelebA, LFW, Flowers102, Caltech101, and manifests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset._sources import arguments as arg
from sporax.mindspore.dataset._sources.columns import Computed, images, labelled_images
from sporax.mindspore.dataset._sources.format import FormatDataset, Rows
from sporax.mindspore.dataset._sources.reading import existing, folders_in, parse_lines, read_mat


def _celeba_columns(where: str, folder: Path, part: str, decoded: bool, endings: tuple[str, ...] | None) -> Rows:
    # Two lines come first: the count and the names of the attributes.
    rows = parse_lines(where, existing(where, folder / "list_attr_celeba.txt"), _attributes, skip=2)
    if part != "all":
        code = ("train", "valid", "test").index(part)
        listed = parse_lines(where, existing(where, folder / "list_eval_partition.txt"), _numbered)
        # A set, since the list has 200,000 names.
        of_part = {name for name, number in listed if number == code}
        rows = [row for row in rows if row[0] in of_part]
    rows = [row for row in rows if row[0].endswith(endings or "")]
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
    # The file has 1 and -1, MindSpore gives 1 and 0.
    return name, [int(field) > 0 for field in fields]


class CelebADataset(
    FormatDataset,
    arguments=(
        arg.folder("folder that holds the images, the list, and (for a part) list_eval_partition.txt."),
        *(arg.WORKERS, arg.SHUFFLE),
        arg.choice(
            *("usage", "train", "valid", "test", "all"),
            default="all",
            words="usage should be 'all', 'train', 'valid' or 'test'.",
        ),
        *(arg.SAMPLER, arg.DECODE, arg.EXTENSIONS),
        *(arg.NUM_SAMPLES, arg.NUM_SHARDS, arg.SHARD_ID, arg.CACHE, arg.DECRYPT),
    ),
    columns=("image", "attr"),
    read=_celeba_columns,
):
    """CelebA: images, and their 40 attributes in list_attr_celeba.txt.

    Columns: `image`; `attr` (40,) uint32 of 0 and 1.
    """


_FUNNELED = {"original": "lfw", "funneled": "lfw_funneled", "deepfunneled": "lfw-deepfunneled"}
# Endings of the names of lists.
_LFW_PARTS = {"10fold": [""], "train": ["DevTrain"], "test": ["DevTest"], "all": ["DevTrain", "DevTest"]}


def _lfw_people(where: str, folder: Path, place: Path, lists: Sequence[Path], decoded: bool) -> Rows:
    names = parse_lines(where, existing(where, folder / "lfw-names.txt"), lambda line: line.split()[0])
    # The number of a person is the line in this list.
    numbers = {name: number for number, name in enumerate(names)}
    rows = [row for path in lists for row in parse_lines(where, existing(where, path), _person) if row is not None]
    unknown = next((name for name, _ in rows if name not in numbers), None)
    if unknown is not None:
        raise SporaxRuntimeError(f"For '{where}', {unknown!r} of {str(lists[0])!r} is not in lfw-names.txt.")
    # Images are counted from 1.
    faces = [(_face(place, name, i), numbers[name]) for name, count in rows for i in range(1, count + 1)]
    return labelled_images(where, faces, decoded)


def _person(line: str) -> tuple[str, int] | None:
    """(name, number of images); None for a line that only counts those behind it."""
    fields = line.split()
    # 10-fold lists have a count in front of each fold.
    return None if len(fields) == 1 else (fields[0], int(fields[1]))


def _lfw_pairs(where: str, folder: Path, place: Path, lists: Sequence[Path], decoded: bool) -> Rows:
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
    # Three fields: two images of one person; four: of two people.
    first, one, *second, other = fields
    return first, int(one), second[0] if second else first, int(other)


def _face(place: Path, name: str, number: int) -> Path:
    return place / name / f"{name}_{number:04d}.jpg"


def _lfw(where: str, folder: Path, task: str, part: str, image_set: str, decoded: bool) -> Rows:
    place = folder / _FUNNELED[image_set]
    lists = [folder / f"{task}{ending}.txt" for ending in _LFW_PARTS[part]]
    return (_lfw_people if task == "people" else _lfw_pairs)(where, folder, place, lists, decoded)


class LFWDataset(
    FormatDataset,
    arguments=arg.images_in(
        "folder that holds the lists and the folders of images.",
        arg.choice("task", "people", "pairs"),
        arg.usage(
            *("10fold", "train", "test", "all"),
            doc='"10fold", "train", "test" or "all" (the default: training and test).',
        ),
        arg.choice("image_set", "original", "funneled", "deepfunneled", missing="funneled"),
    ),
    columns=lambda where, folder, task, *options: (
        ("image", "label") if task == "people" else ("image1", "image2", "label")
    ),
    read=_lfw,
):
    """Labeled Faces in the Wild.

    Columns: `image`, `label` () uint32 (the number of the person in lfw-names.txt) for "people"; `image1`, `image2`,
    `label` () uint32 (whether they show one person) for "pairs".
    """


_FLOWER_PARTS = {"train": ("trnid",), "valid": ("valid",), "test": ("tstid",), "all": ("trnid", "tstid", "valid")}


def _flower_columns(where: str, folder: Path, task: str, part: str, decoded: bool) -> Rows:
    (labels,) = read_mat(where, folder / "imagelabels.mat", ("labels",))
    sets = read_mat(where, folder / "setid.mat", _FLOWER_PARTS[part])
    # The matrix has all images, `setid` the numbers of a part's images.
    numbers = np.concatenate([part_numbers.reshape(-1) for part_numbers in sets])
    if len(numbers) and not 1 <= numbers.min() <= numbers.max() <= labels.size:
        raise SporaxRuntimeError(
            f"For '{where}', setid.mat must name images from 1 to {labels.size}, but names {numbers.max()}."
        )
    return {
        "image": images(where, [folder / "jpg" / f"image_{number:05d}.jpg" for number in numbers], decoded),
        "segmentation": images(where, [folder / "segmim" / f"segmim_{number:05d}.jpg" for number in numbers], decoded),
        # Stored from 1, given from 0.
        "label": labels.reshape(-1)[numbers - 1].astype(np.uint32) - np.uint32(1),
    }


class Flowers102Dataset(
    FormatDataset,
    arguments=(
        arg.folder("folder that holds all this."),
        arg.choice("task", "Classification", "Segmentation", default="Classification"),
        arg.choice("usage", *_FLOWER_PARTS, default="all"),
        *arg.SAMPLED_UNCACHED,
    ),
    columns=lambda where, folder, task, *options: ("image", *("segmentation",) * (task == "Segmentation"), "label"),
    read=_flower_columns,
    prepare=arg.with_files(lambda *options: ("imagelabels.mat", "setid.mat")),
):
    """Oxford 102 Flowers: jpg/image_00001.jpg …, with labels and parts in imagelabels.mat and setid.mat.

    Columns: `image`, `label` () uint32; with "Segmentation" `segmentation` (from segmim) between them.
    """


# Folder of images -> folder of annotations, where the publishers named them differently.
_ANNOTATED_AS = {
    "Faces": "Faces_2",
    "Faces_easy": "Faces_3",
    "Motorbikes": "Motorbikes_16",
    "airplanes": "Airplanes_Side_2",
}


def _categories(folder: Path) -> list[Path]:
    folders = folders_in("Caltech101Dataset", folder / "101_ObjectCategories")
    return [path for path in folders if path.name != "BACKGROUND_Google"]


def _caltech_columns(where: str, folder: Path, target: str, decoded: bool) -> Rows:
    paths, classes, outlines = [], [], []
    for number, place in enumerate(_categories(folder)):
        annotated = folder / "Annotations" / _ANNOTATED_AS.get(place.name, place.name)
        # The order of names is that of numbers.
        for path in sorted(place.glob("image_*.jpg")):
            paths.append(path)
            classes.append(number)
            outlines.append(annotated / f"{path.stem.replace('image', 'annotation')}.mat")

    # Read when requested: one file per image.
    def outline(index: int) -> Array:
        return read_mat(where, existing(where, outlines[index]), ("obj_contour",))[0]

    return {
        "image": images(where, paths, decoded),
        "category": np.array(classes, np.int64),
        "annotation": Computed(len(paths), outline),
    }


class Caltech101Dataset(
    FormatDataset,
    arguments=(
        arg.folder("folder that holds both folders."),
        arg.choice("target_type", "category", "annotation", "all"),
        *arg.SAMPLED_UNCACHED,
    ),
    columns=lambda where, folder, target, decoded: (
        ("image", "category", "annotation") if target == "all" else ("image", target)
    ),
    read=_caltech_columns,
):
    """Caltech-101: 101_ObjectCategories/{class}/image_0001.jpg …, and outlines in Annotations.

    Columns: `image`; `category` () int64; `annotation` (2, n) float64, the outline.
    """

    def get_class_indexing(self) -> dict[str, int]:
        """Class folder -> number."""
        folder, *_ = self._values
        return {path.name: number for number, path in enumerate(_categories(folder))}


def _manifest_rows(where: str, path: Path, part: str) -> list[tuple[Path, list[str]]]:
    def row(line: str) -> tuple[str, Path, list[str]]:
        content = json.loads(line)
        # Other annotations, such as boxes, have no name.
        names = [mark["name"] for mark in content.get("annotation", ()) if "name" in mark]
        # Usages have any case, as in MindSpore.
        return content["usage"].lower(), Path(content["source"]), names

    return [(source, names) for usage, source, names in parse_lines(where, path, row) if usage == part]


def _manifest_classes(where: str, path: Path, part: str, class_indexing: dict[str, int] | None) -> dict[str, int]:
    if class_indexing is not None:
        return class_indexing
    kinds = sorted({name for _, names in _manifest_rows(where, path, part) for name in names})
    return {name: label for label, name in enumerate(kinds)}


def _manifest_columns(where: str, path: Path, part: str, class_indexing: dict[str, int] | None, decoded: bool) -> Rows:
    classes = _manifest_classes(where, path, part, class_indexing)
    labelled = [
        (source, [classes[name] for name in names if name in classes])
        for source, names in _manifest_rows(where, path, part)
    ]
    rows = [row for row in labelled if row[1]]
    # One label per image makes a column of single numbers.
    single = all(len(labels) == 1 for _, labels in rows)
    arrays = [np.array(labels[0] if len(labels) == 1 else labels, np.int32) for _, labels in rows]
    return {
        "image": images(where, [source for source, _ in rows], decoded),
        "label": np.array(arrays, np.int32) if single else arrays,
    }


class ManifestDataset(
    FormatDataset,
    arguments=(
        arg.file("dataset_file", "the manifest."),
        arg.choice("usage", "train", "eval", "inference", default="train"),
        *(arg.NUM_SAMPLES, arg.WORKERS, arg.SHUFFLE, arg.SAMPLER),
        arg.classes(
            "class -> label; images of other classes are left out. By default the classes in alphabetical order."
        ),
        *(arg.DECODE, arg.NUM_SHARDS, arg.SHARD_ID, arg.CACHE),
    ),
    read=_manifest_columns,
):
    """Images and classes that a manifest lists: one JSON object per line with source, usage and annotation.

    Columns: `image`; `label` () int32, or (n,) int32 for an image of several classes.
    """

    def get_class_indexing(self) -> dict[str, int]:
        """Class -> label."""
        path, part, class_indexing, _ = self._values
        return _manifest_classes("ManifestDataset", path, part, class_indexing)

    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.get_class_indexing())
