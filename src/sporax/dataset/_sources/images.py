"""Images with a class each: folders of them by class, or lists that name files and classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sporax.dataset import _checks
from sporax.dataset._sources.columns import Stored, Texts, images
from sporax.dataset._sources.folder import FormatDataset, ImageDataset, UsageImageDataset, checked_usage
from sporax.dataset._sources.reading import IMAGE_ENDINGS, existing, files_in, folders_in, parse_lines
from sporax.ir.errors import SporaxRuntimeError

Labelled = Iterable[tuple[Path, int]]


def labelled_images(where: str, found: Labelled, decoded: bool, dtype: Any = np.uint32) -> Mapping[str, Stored]:
    """The columns `image` and `label` of (file, class) pairs."""
    pairs = list(found)
    return {
        "image": images(where, [path for path, _ in pairs], decoded),
        "label": np.array([label for _, label in pairs], dtype),
    }


def images_by_folder(where: str, folders: Sequence[Path]) -> Labelled:
    """The images of every folder, with the number of the folder."""
    for label, folder in enumerate(folders):
        for path in files_in(where, folder, *IMAGE_ENDINGS):
            yield path, label


class ImageFolderDataset(FormatDataset):
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
        cache: see MnistDataset.
        decrypt: must be None.

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
        cache: None = None,
        decrypt: None = None,
    ) -> None:
        where = "ImageFolderDataset"
        folder = _checks.check_directory(where, dataset_dir)
        endings = () if extensions is None else _checks.check_names(where, "extensions", extensions)
        given = checked_classes(where, class_indexing)
        decoded = _checks.check_bool(where, "decode", decode)
        self._folder = folder
        self._given = given
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache, decrypt)
        load = lambda: _class_folders(where, folder, _classes(folder, given), endings, decoded)  # noqa: E731
        super().__init__(("image", "label"), load, *arguments)

    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.get_class_indexing())

    def get_class_indexing(self) -> dict[str, int]:
        """Class folder -> label."""
        return _classes(self._folder, self._given)


def checked_classes(where: str, class_indexing: object) -> dict[str, int] | None:
    """`class_indexing`, if it maps names to ints."""
    if class_indexing is None:
        return None
    if not isinstance(class_indexing, dict):
        raise _checks.type_error(where, "class_indexing", "a dict of name -> int", class_indexing)
    return {
        _checks.check_str(where, "class_indexing", name): _checks.check_int(where, f"class_indexing[{name!r}]", label)
        for name, label in class_indexing.items()
    }


def _classes(folder: Path, given: dict[str, int] | None) -> dict[str, int]:
    if given is not None:
        return given
    return {path.name: label for label, path in enumerate(folders_in("ImageFolderDataset", folder))}


def _class_folders(
    where: str, folder: Path, classes: dict[str, int], endings: tuple[str, ...], decoded: bool
) -> Mapping[str, Stored]:
    found: list[tuple[Path, int]] = []
    for name, label in sorted(classes.items()):
        place = folder / name
        inside = (
            [path for path in sorted(place.iterdir()) if path.name.endswith(endings or "")] if place.is_dir() else []
        )
        inner = next((path for path in inside if path.is_dir()), None)
        if inner is not None:
            raise SporaxRuntimeError(
                f"For '{where}', class folders must hold files only, but {str(inner)!r} is a folder; pass 'extensions' to "
                "choose files."
            )
        found += [(path, label) for path in inside]
    if not found:
        raise SporaxRuntimeError(
            f"For '{where}', the folder {str(folder)!r} must hold one folder of images per class, but no files were found."
        )
    return labelled_images(where, found, decoded, np.int32)


class Caltech256Dataset(ImageDataset):
    """Caltech-256: one folder of images per class.

    Columns: `image`; `label` () int32, the number of the folder in alphabetical order. Arguments and errors: see
    ImageFolderDataset.
    """

    @staticmethod
    def _load(where: str, folder: Path, decoded: bool) -> Mapping[str, Stored]:
        return labelled_images(where, images_by_folder(where, folders_in(where, folder)), decoded, np.int32)


class SUN397Dataset(ImageDataset):
    """SUN397: ClassName.txt names the folders of images, one per class and line.

    Columns: `image`; `label` () uint32, the number of the line. Arguments and errors: see ImageFolderDataset.
    """

    @staticmethod
    def _load(where: str, folder: Path, decoded: bool) -> Mapping[str, Stored]:
        names = parse_lines(where, existing(where, folder / "ClassName.txt"), str.strip)
        return labelled_images(where, images_by_folder(where, [folder / name.lstrip("/") for name in names]), decoded)


class RenderedSST2Dataset(UsageImageDataset):
    """Rendered SST2: folders train, test and valid with a folder `negative` (0) and `positive` (1) each.

    Columns: `image`; `label` () uint32. Arguments and errors: see ImageFolderDataset; `usage` is "train", "val", "test" or
    "all" (the default).
    """

    _usages: ClassVar[tuple[str, ...]] = ("train", "val", "test", "all")

    @staticmethod
    def _load(where: str, folder: Path, part: str, decoded: bool) -> Mapping[str, Stored]:
        parts = ("test", "train", "valid") if part == "all" else ("valid" if part == "val" else part,)
        found = [
            pair
            for name in parts
            for pair in images_by_folder(where, [folder / name / kind for kind in ("negative", "positive")])
        ]
        return labelled_images(where, found, decoded)


class Food101Dataset(UsageImageDataset):
    """Food-101: meta/train.txt and meta/test.txt name the files in `images`.

    Columns: `image`; `label` () str, the class. Arguments and errors: see ImageFolderDataset; `usage` is "train", "test" or
    "all" (the default).
    """

    @staticmethod
    def _load(where: str, folder: Path, part: str, decoded: bool) -> Mapping[str, Stored]:
        lists = [existing(where, folder / "meta" / f"{each}.txt") for each in _all(part, ("train", "test"))]
        names = [name for path in lists for name in parse_lines(where, path, str.strip)]
        return {
            "image": images(where, [folder / "images" / f"{name}.jpg" for name in names], decoded),
            "label": Texts([name.split("/")[0] for name in names]),
        }


def _all(part: str, parts: tuple[str, ...]) -> tuple[str, ...]:
    return parts if part == "all" else (part,)


class LSUNDataset(FormatDataset):
    """LSUN: image files in folders {class}_train and {class}_val, and in `test`.

    Columns: `image`; `label` () uint32, the number of the folder.

    Args:
        dataset_dir: folder that holds these folders.
        usage: "train", "test", "valid", or "all" (the default: training and validation).
        classes: only these classes; all by default.
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
        usage: str | None = None,
        classes: list[str] | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        decode: bool = False,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "LSUNDataset"
        folder = _checks.check_directory(where, dataset_dir)
        part = checked_usage(where, usage, ("train", "test", "valid", "all"))
        if classes is not None and not isinstance(classes, list):
            raise _checks.type_error(where, "classes", "a list of str", classes)
        wanted = None if classes is None else _checks.check_names(where, "classes", classes)
        decoded = _checks.check_bool(where, "decode", decode)
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        super().__init__(
            ("image", "label"),
            lambda: labelled_images(
                where, images_by_folder(where, _lsun_folders(where, folder, part, wanted)), decoded
            ),
            *arguments,
        )


def _lsun_folders(where: str, folder: Path, part: str, wanted: tuple[str, ...] | None) -> list[Path]:
    if part == "test":
        return [folder / "test"]
    endings = {"train": ("_train",), "valid": ("_val",)}.get(part, ("_train", "_val"))
    found = [path for path in folders_in(where, folder) if path.name.endswith(endings)]
    if wanted is None:
        return found
    names = {f"{name}{ending}" for name in wanted for ending in endings}
    missing = sorted(names - {path.name for path in found})
    if missing:
        raise SporaxRuntimeError(f"For '{where}', {str(folder)!r} must hold the folder {missing[0]!r}, but does not.")
    return [path for path in found if path.name in names]


class OmniglotDataset(FormatDataset):
    """Omniglot: images_{background, evaluation}/{alphabet}/{character}/*.png.

    Columns: `image`; `label` () int32, the number of the character.

    Args:
        dataset_dir: folder that holds images_background and images_evaluation.
        background: read the background set (the default); False for the evaluation set.
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
        background: bool | None = None,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        decode: bool = False,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "OmniglotDataset"
        first = background is None or _checks.check_bool(where, "background", background)
        folder = _checks.check_directory(where, dataset_dir) / ("images_background" if first else "images_evaluation")
        decoded = _checks.check_bool(where, "decode", decode)
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        super().__init__(("image", "label"), lambda: _omniglot_columns(where, folder, decoded), *arguments)


def _omniglot_columns(where: str, folder: Path, decoded: bool) -> Mapping[str, Stored]:
    characters = [place for alphabet in folders_in(where, folder) for place in folders_in(where, alphabet)]
    return labelled_images(where, images_by_folder(where, characters), decoded, np.int32)


class Places365Dataset(FormatDataset):
    """Places365: places365_train_{standard, challenge}.txt and places365_val.txt list files and classes.

    Columns: `image`; `label` () uint32.

    Args:
        dataset_dir: folder that holds the lists and the folders of images.
        usage: "train-standard" (the default), "train-challenge" or "val".
        small: read the images of 256 x 256 pixels; False for the large ones.
        decode: see ImageFolderDataset.
        num_samples: see ImageFolderDataset, like all further arguments.
        num_parallel_workers: see ImageFolderDataset.
        shuffle: see ImageFolderDataset.
        sampler: see ImageFolderDataset.
        num_shards: see ImageFolderDataset.
        shard_id: see ImageFolderDataset.
        cache: see ImageFolderDataset.
    """

    def __init__(
        self,
        dataset_dir: str,
        usage: str | None = None,
        small: bool = True,
        decode: bool = False,
        num_samples: int | None = None,
        num_parallel_workers: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
        cache: None = None,
    ) -> None:
        where = "Places365Dataset"
        folder = _checks.check_directory(where, dataset_dir)
        part = checked_usage(where, usage, ("train-challenge", "val", "train-standard"))
        size = "256" if _checks.check_bool(where, "small", small) else "large"
        decoded = _checks.check_bool(where, "decode", decode)
        arguments = (num_samples, num_parallel_workers, shuffle, sampler, num_shards, shard_id, cache)
        super().__init__(("image", "label"), lambda: _places_columns(where, folder, part, size, decoded), *arguments)


def _places_columns(where: str, folder: Path, part: str, size: str, decoded: bool) -> Mapping[str, Stored]:
    place = folder / (f"val_{size}" if part == "val" else f"data_{size}_{part.removeprefix('train-')}")
    path = existing(where, folder / f"places365_{part.replace('-', '_')}.txt")

    def row(line: str) -> tuple[Path, int]:
        name, label = line.rsplit(" ", 1)
        return place / name.lstrip("/"), int(label)

    return labelled_images(where, parse_lines(where, path, row), decoded)
