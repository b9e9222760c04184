"""Images that come with another image, a mask or a text: DIV2K, Cityscapes, SBD, Flickr and SBU."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sporax.dataset import _checks
from sporax.dataset._rows import Array
from sporax.dataset._sources.columns import Files, Stored, Texts, images
from sporax.dataset._sources.folder import FormatDataset, ImageDataset
from sporax.dataset._sources.reading import existing, files_in, folders_in, parse_lines, read_mat, reading
from sporax.ir.errors import SporaxRuntimeError, SporaxValueError

_SCALES = {"bicubic": (2, 3, 4, 8), "unknown": (2, 3, 4), "mild": (4,), "difficult": (4,), "wild": (4,)}


class DIV2KDataset(FormatDataset):
    """DIV2K: images of high resolution, and what became of them at a low one.

    Columns: `hr_image`, `lr_image`: the files' bytes (n,) uint8, or the pixels (H, W, 3) uint8 with `decode`.

    Args:
        dataset_dir: folder that holds DIV2K_{train, valid}_HR and DIV2K_{train, valid}_LR_….
        usage: "train", "valid" or "all".
        downgrade: "bicubic", "unknown", "mild", "difficult" or "wild".
        scale: 2, 3, 4 or 8; 8 with "bicubic" only, and 4 alone with "mild", "difficult" and "wild".
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
        usage: str = "train",
        downgrade: str = "bicubic",
        scale: int = 2,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        decode: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "DIV2KDataset"
        folder = _checks.check_directory(where, dataset_dir)
        part = _checks.check_choice(where, "usage", usage, ("train", "valid", "all"))
        kind = _checks.check_choice(where, "downgrade", downgrade, tuple(_SCALES))
        if _checks.check_int(where, "scale", scale) not in _SCALES[kind]:
            raise SporaxValueError(
                f"For '{where}', 'scale' must be among {_SCALES[kind]} where 'downgrade' is {kind!r}, but got {scale}."
            )
        decoded = decode is not None and _checks.check_bool(where, "decode", decode)
        parts = ("train", "valid") if part == "all" else (part,)
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        load = lambda: _div2k_columns(where, folder, parts, kind, scale, decoded)  # noqa: E731
        super().__init__(("hr_image", "lr_image"), load, *arguments)


def _div2k_columns(
    where: str, folder: Path, parts: Sequence[str], kind: str, scale: int, decoded: bool
) -> Mapping[str, Stored]:
    high, low = [], []
    for part in parts:
        if scale == 8:
            place, ending = folder / f"DIV2K_{part}_LR_x8", "x8"
        elif kind in ("bicubic", "unknown"):
            place, ending = folder / f"DIV2K_{part}_LR_{kind}" / f"X{scale}", f"x{scale}"
        else:
            place, ending = folder / f"DIV2K_{part}_LR_{kind}", f"x4{kind[0]}"
        found = files_in(where, folder / f"DIV2K_{part}_HR", ".png")
        high += found
        low += [existing(where, place / f"{path.stem}{ending}.png") for path in found]
    return {"hr_image": images(where, high, decoded), "lr_image": images(where, low, decoded)}


_CITY_PARTS = {"fine": ("train", "test", "val", "all"), "coarse": ("train", "train_extra", "val", "all")}
_CITY_TASKS = {
    "instance": "instanceIds.png",
    "semantic": "labelIds.png",
    "polygon": "polygons.json",
    "color": "color.png",
}


class CityscapesDataset(FormatDataset):
    """Cityscapes: leftImg8bit/{part}/{city}, with annotations in gtFine and gtCoarse.

    Columns: `image`; `task`, an image or (for "polygon") a str of JSON.

    Args:
        dataset_dir: folder that holds all this.
        usage: "train", "test", "val" or "all" where `quality_mode` is "fine"; "train", "train_extra", "val" or "all" where
            it is "coarse".
        quality_mode: "fine" or "coarse".
        task: "instance", "semantic", "polygon" or "color".
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
        usage: str = "train",
        quality_mode: str = "fine",
        task: str = "instance",
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        decode: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "CityscapesDataset"
        folder = _checks.check_directory(where, dataset_dir)
        quality = _checks.check_choice(where, "quality_mode", quality_mode, tuple(_CITY_PARTS))
        part = _checks.check_choice(where, "usage", usage, _CITY_PARTS[quality])
        ending = _CITY_TASKS[_checks.check_choice(where, "task", task, tuple(_CITY_TASKS))]
        decoded = decode is not None and _checks.check_bool(where, "decode", decode)
        parts = _CITY_PARTS[quality][:-1] if part == "all" else (part,)
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        load = lambda: _city_columns(where, folder, parts, f"gt{quality.title()}", ending, decoded)  # noqa: E731
        super().__init__(("image", "task"), load, *arguments)


def _city_columns(
    where: str, folder: Path, parts: Sequence[str], kind: str, ending: str, decoded: bool
) -> Mapping[str, Stored]:
    found = [
        path
        for part in parts
        for city in folders_in(where, folder / "leftImg8bit" / part)
        for path in files_in(where, city, "_leftimg8bit.png")
    ]
    targets = [
        existing(where, folder / kind / path.parent.parent.name / path.parent.name / f"{_stem(path)}_{kind}_{ending}")
        for path in found
    ]
    polygons = ending.endswith(".json")
    column = Files(where, targets, _polygons) if polygons else images(where, targets, decoded)
    return {"image": images(where, found, decoded), "task": column}


def _stem(path: Path) -> str:
    return path.name[: -len("_leftImg8bit.png")]


def _polygons(content: bytes, path: Path) -> Array:
    with reading("CityscapesDataset", path):
        text = json.dumps(json.loads(content), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return np.array(text, np.str_)


class SBDataset(FormatDataset):
    """Semantic Boundaries: images in img, MATLAB files in cls, and the lists train.txt, val.txt and train_noval.txt.

    Columns: `image`; `task`, the boundaries (20, H, W) uint8 or the classes (H, W) uint8 of its pixels.

    Args:
        dataset_dir: folder that holds all this.
        task: "Boundaries" or "Segmentation".
        usage: "train", "val", "train_noval" or "all" (training and validation).
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
        task: str = "Boundaries",
        usage: str = "all",
        num_samples: int | None = None,
        num_parallel_workers: int = 1,
        shuffle: bool | None = None,
        decode: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
    ) -> None:
        where = "SBDataset"
        folder = _checks.check_directory(where, dataset_dir)
        kind = _checks.check_choice(where, "task", task, ("Boundaries", "Segmentation"))
        part = _checks.check_choice(where, "usage", usage, ("train", "val", "train_noval", "all"))
        parts = ("train", "val") if part == "all" else (part,)
        decoded = decode is not None and _checks.check_bool(where, "decode", decode)
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id)
        super().__init__(("image", "task"), lambda: _sbd_columns(where, folder, parts, kind, decoded), *arguments)


def _sbd_columns(where: str, folder: Path, parts: Sequence[str], kind: str, decoded: bool) -> Mapping[str, Stored]:
    lists = [existing(where, folder / f"{part}.txt") for part in parts]
    names = [name for path in lists for name in parse_lines(where, path, str.strip)]

    def target(content: bytes, path: Path) -> Array:
        (truth,) = read_mat(where, path, ("GTcls",))
        with reading(where, path):
            value = truth[0][0][kind]
            if kind == "Segmentation":
                return np.ascontiguousarray(value, np.uint8)
            return np.stack([each[0].toarray() for each in value]).astype(np.uint8)

    return {
        "image": images(where, [folder / "img" / f"{name}.jpg" for name in names], decoded),
        "task": Files(where, [folder / "cls" / f"{name}.mat" for name in names], target),
    }


class FlickrDataset(FormatDataset):
    """Flickr8k and Flickr30k: images with five captions each.

    Columns: `image`; `annotation` (5,) str.

    Args:
        dataset_dir: folder of the images.
        annotation_file: the captions, one per line as ``name.jpg#0<tab>caption``.
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
        annotation_file: str,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        decode: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "FlickrDataset"
        folder = _checks.check_directory(where, dataset_dir)
        path = _checks.check_file(where, "annotation_file", annotation_file)
        decoded = decode is not None and _checks.check_bool(where, "decode", decode)
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        super().__init__(("image", "annotation"), lambda: _flickr_columns(where, folder, path, decoded), *arguments)


def _flickr_columns(where: str, folder: Path, path: Path, decoded: bool) -> Mapping[str, Stored]:
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
    return name[: name.rindex("#")], text


class SBUDataset(ImageDataset):
    """SBU captioned photographs: lists of addresses and of captions, and the images that were fetched.

    Columns: `image`; `caption` () str. What was not fetched is left out. Arguments and errors: see ImageFolderDataset.
    """

    _fields: ClassVar[tuple[str, ...]] = ("image", "caption")

    @staticmethod
    def _load(where: str, folder: Path, decoded: bool) -> Mapping[str, Stored]:
        stem = "SBU_captioned_photo_dataset"
        names = parse_lines(where, existing(where, folder / f"{stem}_urls.txt"), _fetched_as)
        texts = parse_lines(where, existing(where, folder / f"{stem}_captions.txt"), str.rstrip)
        if len(names) != len(texts):
            raise SporaxRuntimeError(
                f"For '{where}', the lists in {str(folder)!r} must be equally long, but there are {len(names)} addresses "
                f"and {len(texts)} captions."
            )
        paths = [folder / "sbu_images" / name for name in names]
        pairs = [(path, text) for path, text in zip(paths, texts, strict=True) if path.is_file()]
        return {
            "image": images(where, [path for path, _ in pairs], decoded),
            "caption": Texts([text for _, text in pairs]),
        }


def _fetched_as(address: str) -> str:
    """``http://…/3326/1_a.jpg`` was stored as ``m_3326_1_a.jpg``."""
    parts = address.strip().split("/")
    return f"m_{parts[-2]}_{parts[-1]}"
