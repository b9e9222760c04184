"""Images that come with another image, a mask or a text: DIV2K, Cityscapes, SBD, Flickr and SBU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import in_words
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset._sources import arguments as arg
from sporax.mindspore.dataset._sources.columns import Files, Texts, images
from sporax.mindspore.dataset._sources.format import FormatDataset, Rows
from sporax.mindspore.dataset._sources.reading import existing, files_in, folders_in, parse_lines, read_mat, reading

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
    if words:
        raise in_words(SporaxValueError, where, words, scale)
    return folder, part, kind, scale, decoded


def _div2k_columns(where: str, folder: Path, part: str, kind: str, scale: int, decoded: bool) -> Rows:
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
    read=_div2k_columns,
    prepare=_known_scale,
):
    """DIV2K: images of high resolution, and what became of them at a low one.

    Columns: `hr_image`, `lr_image`: the files' bytes (n,) uint8, or the pixels (H, W, 3) uint8 with `decode`.
    """


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


def _city_columns(where: str, folder: Path, parts: Sequence[str], kind: str, ending: str, decoded: bool) -> Rows:
    paths = [
        path
        for part in parts
        for city in folders_in(where, folder / "leftImg8bit" / part)
        for path in files_in(where, city, "_leftimg8bit.png")
    ]
    targets = [
        # Annotations have the same folders and stems as the images.
        existing(where, folder / kind / path.parent.parent.name / path.parent.name / f"{_stem(path)}_{kind}_{ending}")
        for path in paths
    ]
    # Polygons are text, the other tasks images.
    polygons = ending.endswith(".json")
    column = Files(where, targets, _polygons) if polygons else images(where, targets, decoded)
    return {"image": images(where, paths, decoded), "task": column}


def _stem(path: Path) -> str:
    return path.name[: -len("_leftImg8bit.png")]


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
    read=_city_columns,
    prepare=_city_values,
):
    """Cityscapes: leftImg8bit/{part}/{city}, with annotations in gtFine and gtCoarse.

    Columns: `image`; `task`, an image or (for "polygon") a str of JSON.
    """


def _sbd_columns(where: str, folder: Path, kind: str, part: str, decoded: bool) -> Rows:
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
    read=_sbd_columns,
):
    """Semantic Boundaries: images in img, MATLAB files in cls, and the lists train.txt, val.txt and train_noval.txt.

    Columns: `image`; `task`, the boundaries (20, H, W) uint8 or the classes (H, W) uint8 of its pixels.
    """


def _flickr_columns(where: str, folder: Path, path: Path, decoded: bool) -> Rows:
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
    read=_flickr_columns,
):
    """Flickr8k and Flickr30k: images with five captions each.

    Columns: `image`; `annotation` (5,) str.
    """


_SBU_LISTS = ("SBU_captioned_photo_dataset_urls.txt", "SBU_captioned_photo_dataset_captions.txt")


def _fetched_as(address: str) -> str:
    """``http://static.flickr.com/3326/1_a.jpg`` was stored as ``m_3326_1_a.jpg``: MindSpore leaves 23 characters out of any."""
    return address.strip()[23:].replace("/", "_")


def _sbu(where: str, folder: Path, decoded: bool) -> Rows:
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
    return {"image": images(where, [path for path, _ in pairs], decoded), "caption": Texts([text for _, text in pairs])}


class SBUDataset(
    FormatDataset,
    arguments=arg.images_in("folder that holds the lists and the folder of images."),
    columns=("image", "caption"),
    read=_sbu,
    prepare=arg.with_files(lambda *options: _SBU_LISTS),
):
    """SBU captioned photographs: lists of addresses and of captions, and the images that were fetched.

    Columns: `image`; `caption` () str. What was not fetched is left out.
    """
