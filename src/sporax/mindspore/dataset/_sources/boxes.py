"""Images with things in them, each in its box: COCO, VOC, KITTI and WIDER FACE."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset._rows import FILE_NAME, Array
from sporax.mindspore.dataset._sources import format as arg
from sporax.mindspore.dataset._sources.format import FormatDataset, Rows
from sporax.mindspore.dataset._sources.reading import (
    Stored,
    Texts,
    existing,
    files_in,
    images,
    lines,
    parse_lines,
    read_json,
    read_text,
    reading,
)

if TYPE_CHECKING:
    from xml.etree import ElementTree

# ------------------------------------------------------------------------------------------------------------------ COCO

#: The column of `extra_metadata`: names of the images' files, without folder and ending.
_FILE_NAME = (FILE_NAME,)

_COCO_COLUMNS = {
    "Detection": ("bbox", "category_id", "iscrowd"),
    "Stuff": ("segmentation", "iscrowd"),
    "Keypoint": ("keypoints", "num_keypoints"),
    "Panoptic": ("bbox", "category_id", "iscrowd", "area"),
    "Captioning": ("captions",),
}


def _coco_content(where: str, path: Path) -> Any:
    try:
        return read_json(where, path)
    except SporaxRuntimeError as error:
        fault = f"Invalid annotation file, Coco Dataset annotation file: {path} cannot be read as JSON"
        raise SporaxRuntimeError(f"For '{where}', {fault}.") from error


def _check_categories(where: str, path: Path, content: Any, things: Iterable[dict[str, Any]]) -> None:
    with reading(where, path, "'categories'"):
        known = {kind["id"] for kind in content["categories"]}
    used = (thing["category_id"] for thing in things if "category_id" in thing)
    unknown = next((kind for kind in used if kind not in known), None)
    if unknown is not None:
        fault = f"Invalid annotation, the attribute of 'category_id': {unknown} is missing"
        raise SporaxRuntimeError(f"For '{where}', {fault} among the categories of {str(path)!r}.")


def _numbers(name: str, dtype: Any) -> Callable[[list[dict[str, Any]]], Array]:
    # Two dimensions even for single numbers: MindSpore has one row per thing.
    return lambda things: np.array([thing[name] for thing in things], dtype).reshape(len(things), -1)


def _outlines(things: list[dict[str, Any]]) -> Array:
    rows = [outline for thing in things for outline in _outline(thing)]
    # Outlines differ in length; MindSpore fills up with -1.
    table = np.full((len(rows), max(map(len, rows))), -1, np.float32)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table


def _outline(thing: dict[str, Any]) -> list[list[float]]:
    segmentation = thing["segmentation"]
    # Crowds are stored as run lengths, other things as polygons.
    if thing["iscrowd"]:
        return [segmentation["counts"]]
    return segmentation


_COCO_VALUES: dict[str, Callable[[list[dict[str, Any]]], Array]] = {
    "bbox": _numbers("bbox", np.float32),
    "category_id": _numbers("category_id", np.uint32),
    "iscrowd": lambda things: np.array([[thing.get("iscrowd", 0)] for thing in things], np.uint32),
    "area": _numbers("area", np.uint32),
    "keypoints": _numbers("keypoints", np.float32),
    "num_keypoints": _numbers("num_keypoints", np.uint32),
    "segmentation": _outlines,
    "captions": lambda things: np.array([[thing["caption"]] for thing in things], np.str_),
}


class CocoDataset(
    FormatDataset,
    arguments=(
        arg.folder("folder of the images."),
        arg.file("annotation_file", "the JSON file."),
        arg.choice("task", *_COCO_COLUMNS, default="Detection", words="Invalid task type: {}."),
        *arg.SAMPLED_IMAGES,
        *(arg.EXTRA_METADATA, arg.DECRYPT),
    ),
    # A tuple times a bool: the column is there or not.
    columns=lambda where, folder, path, task, decoded, more: ("image", *_COCO_COLUMNS[task], *_FILE_NAME * more),
):
    """COCO: a folder of images, and a JSON file of annotations. Images without any are left out.

    Columns, with n things in an image: `image`, and

    * Detection: `bbox` (n, 4) float32 (left, top, width, height), `category_id` and `iscrowd` (n, 1) uint32;
    * Stuff: `segmentation` (n, m) float32, a row for each polygon of a thing, filled with -1, and `iscrowd` (n, 1) uint32;
    * Keypoint: `keypoints` (n, 3k) float32, `num_keypoints` (n, 1) uint32;
    * Panoptic: as Detection, and `area` (n, 1) uint32;
    * Captioning: `captions` (n, 1) str.
    """

    @staticmethod
    def _read(where: str, folder: Path, path: Path, task: str, decoded: bool, extra_metadata: bool) -> Rows:
        content = _coco_content(where, path)
        with reading(where, path, "'images'"):
            names = {image["id"]: image["file_name"] for image in content["images"]}
        things: dict[int, list[dict[str, Any]]] = {}
        with reading(where, path, "'annotations'"):
            for note in content["annotations"]:
                # Panoptic annotations hold a list of segments per image; others are one thing each.
                things.setdefault(note["image_id"], []).extend(note["segments_info"] if task == "Panoptic" else [note])
        if "category_id" in _COCO_COLUMNS[task]:
            _check_categories(where, path, content, itertools.chain.from_iterable(things.values()))
        # In the order of "images"; MindSpore leaves out images without annotations.
        annotated = [image for image in names if things.get(image)]
        columns: dict[str, Stored] = {"image": images(where, [folder / names[image] for image in annotated], decoded)}
        for name in _COCO_COLUMNS[task]:
            values = []
            for image in annotated:
                with reading(where, path, f"the annotations of image {image}"):
                    values.append(_COCO_VALUES[name](things[image]))
            columns[name] = values
        if extra_metadata:
            columns[FILE_NAME] = Texts([Path(names[image]).stem for image in annotated])
        return columns

    def get_class_indexing(self) -> dict[str, list[int]]:
        """Class -> its id (for "Panoptic": id, and whether it is a thing); nothing for tasks without classes."""
        _, path, task, *_ = self._values
        if task not in ("Detection", "Panoptic"):
            return {}
        content = read_json("CocoDataset", path)
        with reading("CocoDataset", path, "'categories'"):
            # Only Panoptic files say whether a class is a thing.
            kinds = content["categories"]
            return {kind["name"]: [kind["id"], *([kind["isthing"]] * (task == "Panoptic"))] for kind in kinds}


# ------------------------------------------------------------------------------------------------------------------- VOC


def _voc_values(
    where: str, folder: Path, task: str, usage: str, class_indexing: dict[str, int] | None, decoded: bool,
    extra_metadata: bool,
) -> tuple[Path, bool, Path, dict[str, int] | None, bool, bool]:  # fmt: skip
    """(folder, whether boxes are read, the list of images, classes, decode, whether file names are read)."""
    boxes = task == "Detection"
    # Masks hold classes as colors.
    if not boxes and class_indexing is not None:
        raise SporaxValueError(f"For '{where}', 'class_indexing' needs the task 'Detection', but got {task!r}.")
    listed = folder / "ImageSets" / ("Main" if boxes else "Segmentation") / f"{usage}.txt"
    For(where).refuse(not listed.is_file(), f"'usage' must name a list, but {str(listed)!r} does not exist")
    return folder, boxes, listed, class_indexing, decoded, extra_metadata


def _voc_columns(
    where: str, folder: Path, boxes: bool, listed: Path, class_indexing: dict[str, int] | None, decoded: bool,
    extra_metadata: bool,
) -> tuple[str, ...]:  # fmt: skip
    columns = ("image", "bbox", "label", "difficult", "truncate") if boxes else ("image", "target")
    return (*columns, *_FILE_NAME * extra_metadata)


def _voc_names(where: str, listed: Path) -> list[str]:
    # Lists of classes have a flag behind the name.
    return parse_lines(where, listed, lambda line: line.split()[0])


def _voc_masks(where: str, folder: Path, listed: Path, decoded: bool) -> Rows:
    names = _voc_names(where, listed)
    return {
        "image": images(where, [folder / "JPEGImages" / f"{name}.jpg" for name in names], decoded),
        "target": images(where, [folder / "SegmentationClass" / f"{name}.png" for name in names], decoded),
        FILE_NAME: Texts(names),
    }


def _voc_things(where: str, folder: Path, listed: Path) -> Iterator[tuple[str, list[tuple[str, list[float]]]]]:
    """(image, its things as (class, left, top, width, height, difficult, truncated))."""
    from xml.etree import ElementTree  # loaded by who has such files

    for name in _voc_names(where, listed):
        path = existing(where, folder / "Annotations" / f"{name}.xml")
        with reading(where, path):
            try:
                # XML comes from the user's own data set, so entities are not a concern here.
                root = ElementTree.fromstring(read_text(where, path))
            except ElementTree.ParseError as error:
                raise ValueError(str(error)) from error
            yield name, [_voc_thing(thing) for thing in root.iter("object")]


def _voc_thing(thing: ElementTree.Element) -> tuple[str, list[float]]:
    def number(path: str, default: str | None = None) -> float:
        text = thing.findtext(path, default)
        if text is None:
            raise ValueError(f"an object has no <{path.split('/')[-1]}>")
        return float(text)

    # A missing element means 0 where a default is given; positions have none.
    kind = thing.findtext("name")
    if kind is None:
        raise ValueError("an object has no <name>")
    left, top, right, bottom = (number(f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax"))
    if right < left or bottom < top:
        raise ValueError(
            f"an object's box must not end before it begins, its sides should be greater than 0, but got "
            f"{{{left:g}, {top:g}, {right:g}, {bottom:g}}}"
        )
    # MindSpore's boxes are (left, top, width, height), VOC's the four sides.
    return kind, [left, top, right - left, bottom - top, number("difficult", "0"), number("truncated", "0")]


def _voc_classes(where: str, folder: Path, listed: Path, class_indexing: dict[str, int] | None) -> dict[str, int]:
    if class_indexing is not None:
        return class_indexing
    # Labels follow the classes of the list that is read, in alphabetical order, as in MindSpore.
    kinds = sorted({kind for _, things in _voc_things(where, folder, listed) for kind, _ in things})
    return {kind: label for label, kind in enumerate(kinds)}


def _voc_boxes(where: str, folder: Path, listed: Path, classes: dict[str, int], decoded: bool) -> Rows:
    names, boxes, labels, marks = [], [], [], []
    for name, things in _voc_things(where, folder, listed):
        labelled = [(classes[kind], values) for kind, values in things if kind in classes]
        if labelled:
            names.append(name)
            table = np.array([values for _, values in labelled])
            boxes.append(table[:, :4].astype(np.float32))
            labels.append(np.array([[label] for label, _ in labelled], np.uint32))
            marks.append(table[:, 4:].astype(np.uint32))
    return {
        "image": images(where, [folder / "JPEGImages" / f"{name}.jpg" for name in names], decoded),
        "bbox": boxes,
        "label": labels,
        "difficult": [mark[:, :1] for mark in marks],
        "truncate": [mark[:, 1:] for mark in marks],
        FILE_NAME: Texts(names),
    }


class VOCDataset(
    FormatDataset,
    arguments=(
        arg.folder("folder that holds all this."),
        arg.choice("task", "Segmentation", "Detection", default="Segmentation", words="Invalid task : {}."),
        arg.text("usage", "train", 'name of the list, such as "train", in ImageSets/Segmentation or ImageSets/Main.'),
        arg.classes(
            'class -> label ("Detection" only); other things are left out. By default the classes of the list in '
            "alphabetical order."
        ),
        *arg.SAMPLED_IMAGES,
        *(arg.EXTRA_METADATA, arg.DECRYPT),
    ),
    columns=_voc_columns,
    prepare=_voc_values,
):
    """PASCAL VOC: JPEGImages, Annotations, SegmentationClass, and lists in ImageSets.

    Columns: `image`, and `target` (the image of classes) for "Segmentation"; or for "Detection", with n things in an image,
    `bbox` (n, 4) float32 (left, top, width, height), and `label`, `difficult`, `truncate` (n, 1) uint32.
    """

    @staticmethod
    def _read(
        where: str, folder: Path, boxes: bool, listed: Path, class_indexing: dict[str, int] | None, decoded: bool,
        extra_metadata: bool,
    ) -> Rows:  # fmt: skip
        if not boxes:
            return _voc_masks(where, folder, listed, decoded)
        return _voc_boxes(where, folder, listed, _voc_classes(where, folder, listed, class_indexing), decoded)

    def get_class_indexing(self) -> dict[str, int]:
        """Class -> label; nothing for "Segmentation"."""
        folder, boxes, listed, class_indexing, *_ = self._values
        return _voc_classes("VOCDataset", folder, listed, class_indexing) if boxes else {}


# ----------------------------------------------------------------------------------------------------- KITTI, WIDER FACE

#: Column -> (its dtype, its fields of a line behind the class).
_KITTI = {
    "truncated": (np.float32, slice(0, 1)),
    "occluded": (np.uint32, slice(1, 2)),
    "alpha": (np.float32, slice(2, 3)),
    "bbox": (np.float32, slice(3, 7)),
    "dimensions": (np.float32, slice(7, 10)),
    "location": (np.float32, slice(10, 13)),
    "rotation_y": (np.float32, slice(13, 14)),
}


def _kitti_row(line: str) -> tuple[str, list[float]]:
    kind, *fields = line.split()
    # Results of detectors have a score behind the 14 fields.
    if len(fields) < 14:
        raise ValueError(f"15 fields expected, found {len(fields) + 1}")
    return kind, [float(field) for field in fields[:14]]


class KITTIDataset(
    FormatDataset,
    arguments=arg.images_in("folder that holds both folders.", arg.usage("train", "test")),
    columns=lambda where, folder, part, decoded: ("image", "label", *_KITTI) if part == "train" else ("image",),
):
    """KITTI's objects: images in data_object_image_2, text files of objects in data_object_label_2.

    Columns, with n objects in an image: `image`; for "train" also `label` (n, 1) uint32 (the classes in alphabetical order),
    `truncated`, `alpha`, `rotation_y` (n, 1), `bbox` (n, 4), `dimensions`, `location` (n, 3) float32 and `occluded` (n, 1)
    uint32.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str, decoded: bool) -> Rows:
        place = {"train": "training", "test": "testing"}[part]
        paths = files_in(where, folder / "data_object_image_2" / place / "image_2", ".png", ".jpg")
        columns: dict[str, Stored] = {"image": images(where, paths, decoded)}
        if part == "test":
            return columns
        marks = folder / "data_object_label_2" / place / "label_2"
        files = [parse_lines(where, existing(where, marks / f"{path.stem}.txt"), _kitti_row) for path in paths]
        # Classes of all files, so that labels do not depend on the sampled rows.
        kinds = sorted({kind for rows in files for kind, _ in rows})
        columns["label"] = [np.array([[kinds.index(kind)] for kind, _ in rows], np.uint32) for rows in files]
        # An image without objects has (0, 14).
        tables = [np.array([values for _, values in rows]).reshape(-1, 14) for rows in files]
        for name, (dtype, fields) in _KITTI.items():
            # "occluded" of DontCare is -1, which wraps.
            columns[name] = [
                table[:, fields].astype(np.int64 if dtype is np.uint32 else dtype).astype(dtype) for table in tables
            ]
        return columns


_FACES = ("bbox", "blur", "expression", "illumination", "occlusion", "pose", "invalid")
_FACE_FIELDS = ("blur", "expression", "illumination", "invalid", "occlusion", "pose")


def _wider_faces(where: str, path: Path) -> Iterator[tuple[str, Sequence[list[int]]]]:
    """(image, faces): a line with its name, one with their number, one for each. An image without faces has one line of 0."""
    # One iterator for all: a face list is read on from the line of its number.
    numbered = lines(where, path)
    for number, name in numbered:
        with reading(where, path, f"line {number}"):
            count = int(_line_behind(numbered, name))
            # Even 0 faces have a line.
            faces = [[int(field) for field in _line_behind(numbered, name).split()] for _ in range(max(count, 1))]
            if any(len(face) != 10 for face in faces):
                raise ValueError("a face must have 10 numbers")
            yield name.strip(), faces


def _line_behind(numbered: Iterator[tuple[int, str]], name: str) -> str:
    for _, line in numbered:
        return line
    raise ValueError(f"the file ends within the faces of {name!r}")


class WIDERFaceDataset(
    FormatDataset,
    arguments=arg.images_in(
        "folder that holds all this.",
        arg.usage(
            *("train", "test", "valid", "all"),
            doc='"train", "test", "valid" or "all" (the default: training and validation).',
        ),
    ),
    columns=lambda where, folder, part, decoded: ("image",) if part == "test" else ("image", *_FACES),
):
    """WIDER FACE: WIDER_{train, val, test}/images, and lists in wider_face_split.

    Columns, with n faces in an image: `image`; but for "test" also `bbox` (n, 4) int32 (left, top, width, height), `blur`,
    `expression`, `illumination`, `occlusion`, `pose`, `invalid` (n,) int32.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str, decoded: bool) -> Rows:
        split = folder / "wider_face_split"
        if part == "test":
            names = parse_lines(where, existing(where, split / "wider_face_test_filelist.txt"), str.strip)
            return {"image": images(where, [folder / "WIDER_test" / "images" / name for name in names], decoded)}
        paths, tables = [], []
        for kind in {"train": ("train",), "valid": ("val",)}.get(part, ("train", "val")):
            for name, faces in _wider_faces(where, existing(where, split / f"wider_face_{kind}_bbx_gt.txt")):
                paths.append(folder / f"WIDER_{kind}" / "images" / name)
                tables.append(np.array(faces, np.int32))
        # A copy: a view would keep the whole table alive for each column.
        columns: dict[str, Stored] = {"image": images(where, paths, decoded), "bbox": [t[:, :4].copy() for t in tables]}
        # Fields 4 to 9 behind the box.
        for place, name in enumerate(_FACE_FIELDS, 4):
            columns[name] = [table[:, place].copy() for table in tables]
        return columns
