"""Images whose labels are in files of their own (CelebA, LFW, Flowers102, Caltech101, manifests), and such that come with
another image, a mask or a text (DIV2K, Cityscapes, SBD, Flickr, SBU).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import in_words, refuse
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset._sources import format as arg
from sporax.mindspore.dataset._sources.format import FormatDataset, Rows
from sporax.mindspore.dataset._sources.reading import (
    Computed,
    Files,
    Texts,
    existing,
    files_in,
    folders_in,
    images,
    labelled_images,
    parse_lines,
    read_mat,
    reading,
)


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
):
    """CelebA: images, and their 40 attributes in list_attr_celeba.txt.

    Columns: `image`; `attr` (40,) uint32 of 0 and 1.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str, decoded: bool, endings: tuple[str, ...] | None) -> Rows:
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


_FUNNELED = {"original": "lfw", "funneled": "lfw_funneled", "deepfunneled": "lfw-deepfunneled"}
# Endings of the names of lists.
_LFW_PARTS = {"10fold": [""], "train": ["DevTrain"], "test": ["DevTest"], "all": ["DevTrain", "DevTest"]}


def _lfw_people(where: str, folder: Path, place: Path, lists: Sequence[Path], decoded: bool) -> Rows:
    names = parse_lines(where, existing(where, folder / "lfw-names.txt"), lambda line: line.split()[0])
    # The number of a person is the line in this list.
    numbers = {name: number for number, name in enumerate(names)}
    rows = [row for path in lists for row in parse_lines(where, existing(where, path), _person) if row is not None]
    unknown = next((name for name, _ in rows if name not in numbers), None)
    For(where).refuse_state(unknown is not None, f"{unknown!r} of {str(lists[0])!r} is not in lfw-names.txt")
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
):
    """Labeled Faces in the Wild.

    Columns: `image`, `label` () uint32 (the number of the person in lfw-names.txt) for "people"; `image1`, `image2`,
    `label` () uint32 (whether they show one person) for "pairs".
    """

    @staticmethod
    def _read(where: str, folder: Path, task: str, part: str, image_set: str, decoded: bool) -> Rows:
        place = folder / _FUNNELED[image_set]
        lists = [folder / f"{task}{ending}.txt" for ending in _LFW_PARTS[part]]
        return (_lfw_people if task == "people" else _lfw_pairs)(where, folder, place, lists, decoded)


_FLOWER_PARTS = {"train": ("trnid",), "valid": ("valid",), "test": ("tstid",), "all": ("trnid", "tstid", "valid")}


class Flowers102Dataset(
    FormatDataset,
    arguments=(
        arg.folder("folder that holds all this."),
        arg.choice("task", "Classification", "Segmentation", default="Classification"),
        arg.choice("usage", *_FLOWER_PARTS, default="all"),
        *arg.SAMPLED_UNCACHED,
    ),
    columns=lambda where, folder, task, *options: ("image", *("segmentation",) * (task == "Segmentation"), "label"),
    prepare=arg.with_files(lambda *options: ("jpg/", "imagelabels.mat", "setid.mat")),
):
    """Oxford 102 Flowers: jpg/image_00001.jpg …, with labels and parts in imagelabels.mat and setid.mat.

    Columns: `image`, `label` () uint32; with "Segmentation" `segmentation` (from segmim) between them.
    """

    @staticmethod
    def _read(where: str, folder: Path, task: str, part: str, decoded: bool) -> Rows:
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
            "segmentation": images(
                where, [folder / "segmim" / f"segmim_{number:05d}.jpg" for number in numbers], decoded
            ),
            # Stored from 1, given from 0.
            "label": labels.reshape(-1)[numbers - 1].astype(np.uint32) - np.uint32(1),
        }


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
):
    """Caltech-101: 101_ObjectCategories/{class}/image_0001.jpg …, and outlines in Annotations.

    Columns: `image`; `category` () int64; `annotation` (2, n) float64, the outline.
    """

    @staticmethod
    def _read(where: str, folder: Path, target: str, decoded: bool) -> Rows:
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

    def get_class_indexing(self) -> dict[str, int]:
        """Class folder -> number."""
        folder, *_ = self._values
        return {path.name: number for number, path in enumerate(_categories(folder))}


def _manifest_rows(where: str, path: Path, part: str) -> list[tuple[Path, list[str]]]:
    def row(line: str) -> tuple[str, Path, list[str]]:
        content = json.loads(line)
        for name in ("source", "usage"):
            if name not in content:
                raise in_words(
                    SporaxRuntimeError, where, f"Invalid manifest file, '{name}' is missing in {path}", line[:80]
                )
        # Other annotations, such as boxes, have no name.
        names = [mark["name"] for mark in content.get("annotation", ()) if "name" in mark]
        # Usages have any case, as in MindSpore.
        return content["usage"].lower(), Path(content["source"]), names

    rows = [(source, names) for usage, source, names in parse_lines(where, path, row) if usage == part]
    return [(source, names) for source, names in rows if _is_image(where, source)]


def _is_image(where: str, path: Path) -> bool:
    """Whether a file begins as images do: MindSpore leaves others out."""
    try:
        with path.open("rb") as file:
            begin = file.read(3)
    except OSError as error:
        raise in_words(SporaxRuntimeError, where, f"Invalid file path, {path} does not exist.", str(error)) from error
    if len(begin) < 3:
        words = f"Invalid manifest file, failed to read {path}: the manifest file is damaged or permission denied."
        raise in_words(SporaxRuntimeError, where, words, begin)
    return begin.startswith((b"\xff\xd8\xff", b"\x89PN", b"GIF", b"BM"))


def _manifest_classes(where: str, path: Path, part: str, class_indexing: dict[str, int] | None) -> dict[str, int]:
    if class_indexing is not None:
        return class_indexing
    kinds = sorted({name for _, names in _manifest_rows(where, path, part) for name in names})
    return {name: label for label, name in enumerate(kinds)}


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
):
    """Images and classes that a manifest lists: one JSON object per line with source, usage and annotation.

    Columns: `image`; `label` () int32, or (n,) int32 for an image of several classes.
    """

    @staticmethod
    def _read(where: str, path: Path, part: str, class_indexing: dict[str, int] | None, decoded: bool) -> Rows:
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

    def get_class_indexing(self) -> dict[str, int]:
        """Class -> label."""
        path, part, class_indexing, _ = self._values
        return _manifest_classes("ManifestDataset", path, part, class_indexing)

    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.get_class_indexing())


# Downgrade -> the scales that were published.
_SCALES = {"bicubic": (2, 3, 4, 8), "unknown": (2, 3, 4), "mild": (4,), "difficult": (4,), "wild": (4,)}


def _known_scale(where: str, folder: Path, part: str, kind: str, scale: int, decoded: bool) -> tuple[Any, ...]:
    words = ""
    if scale not in (2, 3, 4, 8):
        words = "Input scale is not within the valid set of [2, 3, 4, 8]."
    elif scale == 8 and kind != "bicubic":
        words = "DIV2KNode: scale equal to 8 is allowed only in bicubic downgrade."
    elif scale not in _SCALES[kind]:
        words = f"DIV2KNode: {kind} downgrade requires scale equal to 4."
    refuse(words, SporaxValueError, where, words, scale)
    return folder, part, kind, scale, decoded


class DIV2KDataset(
    FormatDataset,
    arguments=(
        arg.folder("folder that holds DIV2K_{train, valid}_HR and DIV2K_{train, valid}_LR_…."),
        arg.choice("usage", "train", "valid", "all", default="train"),
        arg.choice("downgrade", *_SCALES, default="bicubic"),
        arg.integer(
            "scale", 2, '2, 3, 4 or 8; 8 with "bicubic" only, and 4 alone with "mild", "difficult" and "wild".'
        ),
        *arg.replaced(arg.SAMPLED_IMAGES, arg.DECODE_OR_NONE),
    ),
    columns=("hr_image", "lr_image"),
    prepare=_known_scale,
):
    """DIV2K: images of high resolution, and what became of them at a low one.

    Columns: `hr_image`, `lr_image`: the files' bytes (n,) uint8, or the pixels (H, W, 3) uint8 with `decode`.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str, kind: str, scale: int, decoded: bool) -> Rows:
        high, low = [], []
        for name in ("train", "valid") if part == "all" else (part,):
            # Scale 8 exists once, without a kind in its names.
            if scale == 8:
                place, ending = folder / f"DIV2K_{name}_LR_x8", "x8"
            elif kind in ("bicubic", "unknown"):
                place, ending = folder / f"DIV2K_{name}_LR_{kind}" / f"X{scale}", f"x{scale}"
            else:
                # The three tracks of 2018 are marked by the first letter: m, d, w.
                place, ending = folder / f"DIV2K_{name}_LR_{kind}", f"x4{kind[0]}"
            paths = files_in(where, folder / f"DIV2K_{name}_HR", ".png")
            high += paths
            low += [existing(where, place / f"{path.stem}{ending}.png") for path in paths]
        return {"hr_image": images(where, high, decoded), "lr_image": images(where, low, decoded)}


_CITY_PARTS = {"fine": ("train", "test", "val", "all"), "coarse": ("train", "train_extra", "val", "all")}
_CITY_TASKS = {
    "instance": "instanceIds.png",
    "semantic": "labelIds.png",
    "polygon": "polygons.json",
    "color": "color.png",
}


def _city_values(where: str, folder: Path, part: str, quality: str, task: str, decoded: bool) -> tuple[Any, ...]:
    """(folder, the parts, the folder of annotations, the ending of their names, decode)."""
    part = check.choice(where, "usage", part, _CITY_PARTS[quality])
    # "all" is last and stands for the others.
    parts = _CITY_PARTS[quality][:-1] if part == "all" else (part,)
    return folder, parts, f"gt{quality.title()}", _CITY_TASKS[task], decoded


def _polygons(content: bytes, path: Path) -> Array:
    with reading("CityscapesDataset", path):
        # MindSpore gives the text in the form of its JSON library: sorted keys, no spaces.
        text = json.dumps(json.loads(content), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return np.array(text, np.str_)


class CityscapesDataset(
    FormatDataset,
    arguments=(
        arg.folder("folder that holds all this."),
        arg.text(
            "usage",
            "train",
            '"train", "test", "val" or "all" where `quality_mode` is "fine"; "train", "train_extra", "val" or "all" '
            'where it is "coarse".',
        ),
        arg.choice("quality_mode", *_CITY_PARTS, default="fine"),
        arg.choice("task", *_CITY_TASKS, default="instance"),
        *arg.replaced(arg.SAMPLED_IMAGES, arg.DECODE_OR_NONE),
    ),
    columns=("image", "task"),
    prepare=_city_values,
):
    """Cityscapes: leftImg8bit/{part}/{city}, with annotations in gtFine and gtCoarse.

    Columns: `image`; `task`, an image or (for "polygon") a str of JSON.
    """

    @staticmethod
    def _read(where: str, folder: Path, parts: Sequence[str], kind: str, ending: str, decoded: bool) -> Rows:
        paths = [
            path
            for part in parts
            for city in folders_in(where, folder / "leftImg8bit" / part)
            for path in files_in(where, city, "_leftimg8bit.png")
        ]
        targets = [
            # Annotations have the same folders and stems as the images.
            existing(where, folder.joinpath(kind, *path.parts[-3:-1], f"{path.name[:-16]}_{kind}_{ending}"))
            for path in paths
        ]
        # Polygons are text, the other tasks images.
        polygons = ending.endswith(".json")
        column = Files(where, targets, _polygons) if polygons else images(where, targets, decoded)
        return {"image": images(where, paths, decoded), "task": column}


class SBDataset(
    FormatDataset,
    arguments=(
        arg.folder("folder that holds all this."),
        arg.choice("task", "Boundaries", "Segmentation", default="Boundaries"),
        arg.choice(
            *("usage", "train", "val", "train_noval", "all"),
            doc='"train", "val", "train_noval" or "all" (training and validation).',
            default="all",
        ),
        *arg.replaced(arg.SAMPLED_UNCACHED, arg.DECODE_OR_NONE),
    ),
    columns=("image", "task"),
):
    """Semantic Boundaries: images in img, MATLAB files in cls, and the lists train.txt, val.txt and train_noval.txt.

    Columns: `image`; `task`, the boundaries (20, H, W) uint8 or the classes (H, W) uint8 of its pixels.
    """

    @staticmethod
    def _read(where: str, folder: Path, kind: str, part: str, decoded: bool) -> Rows:
        parts = ("train", "val") if part == "all" else (part,)
        lists = [existing(where, folder / f"{part}.txt") for part in parts]
        names = [name for path in lists for name in parse_lines(where, path, str.strip)]

        def target(content: bytes, path: Path) -> Array:
            # scipy imports slowly, so files are opened with the row.
            (truth,) = read_mat(where, path, ("GTcls",))
            with reading(where, path):
                value = truth[0][0][kind]
                if kind == "Segmentation":
                    return np.ascontiguousarray(value, np.uint8)
                # Boundaries are sparse matrices, one for each of 20 classes.
                return np.stack([boundary[0].toarray() for boundary in value]).astype(np.uint8)

        return {
            "image": images(where, [folder / "img" / f"{name}.jpg" for name in names], decoded),
            "task": Files(where, [folder / "cls" / f"{name}.mat" for name in names], target),
        }


def _caption(line: str) -> tuple[str, str]:
    name, text = line.split("\t")
    # ``name.jpg#0``; names may have a # of their own.
    return name[: name.rindex("#")], text


class FlickrDataset(
    FormatDataset,
    arguments=(
        arg.folder("folder of the images."),
        arg.file("annotation_file", "the captions, one per line as ``name.jpg#0<tab>caption``."),
        *arg.replaced(arg.SAMPLED_IMAGES, arg.DECODE_OR_NONE),
    ),
    columns=("image", "annotation"),
):
    """Flickr8k and Flickr30k: images with five captions each.

    Columns: `image`; `annotation` (5,) str.
    """

    @staticmethod
    def _read(where: str, folder: Path, path: Path, decoded: bool) -> Rows:
        # Images in the order in which the file names them first.
        captions: dict[str, list[str]] = {}
        for name, text in parse_lines(where, path, _caption):
            captions.setdefault(name, []).append(text)
        odd = next((name for name, texts in captions.items() if len(texts) != 5), None)
        if odd is not None:
            raise SporaxRuntimeError(
                f"For '{where}', every image of {str(path)!r} must have 5 captions, but {odd!r} has {len(captions[odd])}."
            )
        return {
            "image": images(where, [folder / name for name in captions], decoded),
            "annotation": [np.array(texts, np.str_) for texts in captions.values()],
        }


_SBU_LISTS = ("SBU_captioned_photo_dataset_urls.txt", "SBU_captioned_photo_dataset_captions.txt")


def _fetched_as(address: str) -> str:
    """``http://static.flickr.com/3326/1_a.jpg`` was stored as ``m_3326_1_a.jpg``: MindSpore leaves 23 characters out of any."""
    return address.strip()[23:].replace("/", "_")


class SBUDataset(
    FormatDataset,
    arguments=arg.images_in("folder that holds the lists and the folder of images."),
    columns=("image", "caption"),
    prepare=arg.with_files(lambda *options: _SBU_LISTS),
):
    """SBU captioned photographs: lists of addresses and of captions, and the images that were fetched.

    Columns: `image`; `caption` () str. What was not fetched is left out.
    """

    @staticmethod
    def _read(where: str, folder: Path, decoded: bool) -> Rows:
        names = parse_lines(where, folder / _SBU_LISTS[0], _fetched_as)
        texts = parse_lines(where, folder / _SBU_LISTS[1], str.rstrip)
        if len(names) != len(texts):
            raise SporaxRuntimeError(
                f"For '{where}', the lists in {str(folder)!r} must be equally long, but there are {len(names)} addresses "
                f"and {len(texts)} captions."
            )
        paths = [folder / "sbu_images" / name for name in names]
        # Many addresses are dead by now, so a missing image is no error.
        pairs = [(path, text) for path, text in zip(paths, texts, strict=True) if path.is_file()]
        return {
            "image": images(where, [path for path, _ in pairs], decoded),
            "caption": Texts([text for _, text in pairs]),
        }
