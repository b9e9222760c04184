"""Images with a class each: folders of them by class, or lists that name files and classes; MNIST and its kin (idx files)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sporax.base.errors import For, SporaxRuntimeError
from sporax.mindspore._declared import REQUIRED
from sporax.mindspore.dataset import _checks as check
from sporax.mindspore.dataset._checks import in_words
from sporax.mindspore.dataset._rows import Array
from sporax.mindspore.dataset._sources import format as arg
from sporax.mindspore.dataset._sources.format import Format, FormatDataset, Rows
from sporax.mindspore.dataset._sources.reading import (
    IMAGES_MAGIC,
    INT_TABLE_MAGIC,
    LABELS_MAGIC,
    Texts,
    existing,
    folders_in,
    images,
    images_by_folder,
    labelled_images,
    parse_lines,
    read_idx,
)


def _classes(folder: Path, class_indexing: dict[str, int] | None) -> dict[str, int]:
    if class_indexing is not None:
        # MindSpore refuses nothing here: folders that are not listed are left out.
        return class_indexing
    return {path.name: label for label, path in enumerate(folders_in("ImageFolderDataset", folder))}


class ImageFolderDataset(
    FormatDataset,
    arguments=(
        arg.folder("folder that holds the class folders."),
        *(arg.NUM_SAMPLES, arg.WORKERS, arg.SHUFFLE, arg.SAMPLER),
        arg.EXTENSIONS,
        arg.classes("class folder -> label; other folders are left out."),
        *(arg.DECODE, arg.NUM_SHARDS, arg.SHARD_ID, arg.CACHE, arg.DECRYPT),
    ),
):
    """Image files in one folder per class.

    Columns: `image`; `label` () int32, the number of the class folder in alphabetical order, or as `class_indexing` says. A
    folder within a class folder is an error.
    """

    @staticmethod
    def _read(
        where: str, folder: Path, endings: tuple[str, ...] | None, class_indexing: dict[str, int] | None, decoded: bool
    ) -> Rows:
        pairs: list[tuple[Path, int]] = []
        # By name, as MindSpore orders rows, even where the user's labels have another order.
        for name, label in sorted(_classes(folder, class_indexing).items()):
            place = folder / name
            inside = (
                # A listed class may have no folder.
                [path for path in sorted(place.iterdir()) if path.name.endswith(endings or "")]
                if place.is_dir()
                else []
            )
            # A folder inside has usually been unpacked to the wrong place.
            inner = next((path for path in inside if path.is_dir()), None)
            if inner is not None:
                raise For(where).state_error(
                    f"class folders must hold files only, but {str(inner)!r} is a folder; pass 'extensions' to choose files"
                )
            pairs += [(path, label) for path in inside]
        For(where).refuse_state(
            not pairs, f"the folder {str(folder)!r} must hold one folder of images per class, but no files were found"
        )
        return labelled_images(where, pairs, decoded, np.int32)

    def num_classes(self) -> int:
        """Number of classes.

        Raises:
            SporaxRuntimeError: `class_indexing` has a class that has no folder.
        """
        classes, folder = self.get_class_indexing(), self._values[0]
        for name in classes:
            if not (folder / name).is_dir():
                raise in_words(
                    SporaxRuntimeError, "ImageFolderDataset", f"class_indexing: {name} doesn't exist.", str(folder)
                )
        return len(classes)

    def get_class_indexing(self) -> dict[str, int]:
        """Class folder -> label."""
        folder, _, class_indexing, _ = self._values
        return _classes(folder, class_indexing)


class Caltech256Dataset(FormatDataset, arguments=arg.images_in("folder that holds the class folders.")):
    """Caltech-256: one folder of images per class.

    Columns: `image`; `label` () int32, the number of the folder in alphabetical order.
    """

    @staticmethod
    def _read(where: str, folder: Path, decoded: bool) -> Rows:
        return labelled_images(where, images_by_folder(where, folders_in(where, folder)), decoded, np.int32)


class SUN397Dataset(FormatDataset, arguments=arg.images_in("folder that holds ClassName.txt and the class folders.")):
    """SUN397: ClassName.txt names the folders of images, one per class and line.

    Columns: `image`; `label` () uint32, the number of the line.
    """

    @staticmethod
    def _read(where: str, folder: Path, decoded: bool) -> Rows:
        names = parse_lines(where, existing(where, folder / "ClassName.txt"), str.strip)
        # Names begin with a slash.
        return labelled_images(where, images_by_folder(where, [folder / name.lstrip("/") for name in names]), decoded)


class RenderedSST2Dataset(
    FormatDataset, arguments=arg.images_in("folder that holds these folders.", arg.usage("train", "val", "test", "all"))
):
    """Rendered SST2: folders train, test and valid with a folder `negative` (0) and `positive` (1) each.

    Columns: `image`; `label` () uint32.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str, decoded: bool) -> Rows:
        # The folder is called "valid", the argument "val".
        parts = ("test", "train", "valid") if part == "all" else ("valid" if part == "val" else part,)
        pairs = [
            pair
            for name in parts
            for pair in images_by_folder(where, [folder / name / kind for kind in ("negative", "positive")])
        ]
        return labelled_images(where, pairs, decoded)


class Food101Dataset(
    FormatDataset, arguments=arg.images_in("folder that holds meta and images.", arg.usage("train", "test", "all"))
):
    """Food-101: meta/train.txt and meta/test.txt name the files in `images`.

    Columns: `image`; `label` () str, the class.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str, decoded: bool) -> Rows:
        lists = [
            existing(where, folder / "meta" / f"{name}.txt")
            for name in (("train", "test") if part == "all" else (part,))
        ]
        names = [name for path in lists for name in parse_lines(where, path, str.strip)]
        return {
            "image": images(where, [folder / "images" / f"{name}.jpg" for name in names], decoded),
            "label": Texts([name.split("/")[0] for name in names]),
        }


def _lsun_folders(where: str, folder: Path, part: str, classes: tuple[str, ...] | None) -> list[Path]:
    if part == "test":
        return [folder / "test"]
    endings = {"train": ("_train",), "valid": ("_val",)}.get(part, ("_train", "_val"))
    folders = [path for path in folders_in(where, folder) if path.name.endswith(endings)]
    if classes is None:
        return folders
    # All endings of the part must be there for each class.
    names = {f"{name}{ending}" for name in classes for ending in endings}
    missing = sorted(names - {path.name for path in folders})
    if missing:
        raise SporaxRuntimeError(f"For '{where}', {str(folder)!r} must hold the folder {missing[0]!r}, but does not.")
    return [path for path in folders if path.name in names]


def _list_of_names(where: str, name: str, value: object) -> tuple[str, ...]:
    check.instance(where, name, value, list)
    return check.names(where, name, value)


class LSUNDataset(
    FormatDataset,
    arguments=arg.images_in(
        "folder that holds these folders.",
        arg.usage(
            *("train", "test", "valid", "all"),
            doc='"train", "test", "valid" or "all" (the default: training and validation).',
        ),
        arg.optional("classes", list[str], "only these classes; all by default.", _list_of_names),
    ),
):
    """LSUN: image files in folders {class}_train and {class}_val, and in `test`.

    Columns: `image`; `label` () uint32, the number of the folder.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str, classes: tuple[str, ...] | None, decoded: bool) -> Rows:
        return labelled_images(where, images_by_folder(where, _lsun_folders(where, folder, part, classes)), decoded)


class OmniglotDataset(
    FormatDataset,
    arguments=arg.images_in(
        "folder that holds images_background and images_evaluation.",
        arg.optional(
            "background", bool, "read the background set (the default); False for the evaluation set.", check.boolean
        ),
    ),
):
    """Omniglot: images_{background, evaluation}/{alphabet}/{character}/*.png.

    Columns: `image`; `label` () int32, the number of the character.
    """

    @staticmethod
    def _read(where: str, folder: Path, background: bool | None, decoded: bool) -> Rows:
        # None means the default, True.
        alphabets = folders_in(where, folder / ("images_evaluation" if background is False else "images_background"))
        # Characters are counted over all alphabets.
        characters = [place for alphabet in alphabets for place in folders_in(where, alphabet)]
        return labelled_images(where, images_by_folder(where, characters), decoded, np.int32)


class Places365Dataset(
    FormatDataset,
    arguments=arg.in_folder(
        "folder that holds the lists and the folders of images.",
        arg.usage("train-standard", "train-challenge", "val"),
        arg.flag("small", True, "read the images of 256 x 256 pixels; False for the large ones."),
        arg.DECODE,
    ),
):
    """Places365: places365_train_{standard, challenge}.txt and places365_val.txt list files and classes.

    Columns: `image`; `label` () uint32.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str, small: bool, decoded: bool) -> Rows:
        size = "256" if small else "large"
        place = folder / (f"val_{size}" if part == "val" else f"data_{size}_{part.removeprefix('train-')}")
        path = existing(where, folder / f"places365_{part.replace('-', '_')}.txt")

        def row(line: str) -> tuple[Path, int]:
            # From the right, since names may have spaces.
            name, label = line.rsplit(" ", 1)
            return place / name.lstrip("/"), int(label)

        return labelled_images(where, parse_lines(where, path, row), decoded)


_IMAGES, _LABELS = "-images-idx3-ubyte", "-labels-idx1-ubyte"
_PREFIXES = {"train": "train", "test": "t10k", "all": ""}


_QMNIST = {"train": ["qmnist-train"], "test": ["qmnist-test"], "nist": ["xnist"]}
# Both parts of the test set are slices of one file.
_QMNIST |= {"test10k": _QMNIST["test"], "test50k": _QMNIST["test"]}
_QMNIST["all"] = _QMNIST["train"] + _QMNIST["test"] + _QMNIST["nist"]


def _byte_columns(where: str, folder: Path, prefix: str) -> Rows:
    """The columns of all files whose names hold `prefix`."""
    # By parts of names: MindSpore finds files like this, with whatever is around.
    images, labels = _find(folder, prefix, _IMAGES), _find(folder, prefix, _LABELS)
    if len(images) != len(labels) or not images:
        raise SporaxRuntimeError(
            f"For '{where}', the folder {str(folder)!r} must hold as many files *{prefix}{_IMAGES}* as "
            f"*{prefix}{_LABELS}*, at least one, but got {len(images)} and {len(labels)}."
        )
    pairs = [_pair(where, *pair) for pair in zip(images, labels, strict=True)]
    # Arrays of one shape can be concatenated without a copy per row.
    shapes = {image.shape[1:] for image, _ in pairs}
    For(where).refuse_state(len(shapes) > 1, "all files must hold images of one size", shapes)
    image, label = (np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*pairs, strict=True))
    return {"image": image[..., None], "label": label.astype(np.uint32)}


def _mnist(where: str, folder: Path, part: str) -> Rows:
    return _byte_columns(where, folder, _PREFIXES[part])


def _find(folder: Path, prefix: str, kind: str) -> list[Path]:
    paths = sorted(path for path in folder.iterdir() if prefix in path.name and kind in path.name and path.is_file())
    # A file that is there both plain and compressed counts once.
    return [path for path in paths if path.suffix != ".gz" or path.with_suffix("") not in paths]


def _one_file(where: str, folder: Path, name: str) -> Path:
    # The unpacked file first, as it is faster to read.
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise SporaxRuntimeError(f"For '{where}', the folder {str(folder)!r} must hold the file {name!r}, but does not.")


def _pair(where: str, images: Path, labels: Path) -> tuple[Array, Array]:
    # QMNIST's labels are tables of integers, MNIST's bytes.
    magic = INT_TABLE_MAGIC if "idx2-int" in labels.name else LABELS_MAGIC
    image, label = read_idx(where, images, IMAGES_MAGIC), read_idx(where, labels, magic)
    if len(image) != len(label):
        raise SporaxRuntimeError(
            f"For '{where}', {str(images)!r} and {str(labels)!r} must hold equally many records, "
            f"but got {len(image)} images and {len(label)} labels."
        )
    return image, label


MNIST = Format(
    arg.in_folder("folder that holds the files; subfolders are not searched.", arg.usage("train", "test", "all")),
    columns=("image", "label"),
    read=_mnist,
)


class MnistDataset(FormatDataset, format=MNIST):
    """MNIST from its idx files …train-images-idx3-ubyte…, …t10k-images-idx3-ubyte… and the labels, plain or gzip-compressed.

    Columns: `image` (H, W, 1) uint8, H and W as the files say (28 in MNIST); `label` () uint32. Test files come first.
    """


class FashionMnistDataset(MnistDataset, format=MNIST):
    """Fashion-MNIST: the same files and columns as MNIST."""


class KMnistDataset(MnistDataset, format=MNIST):
    """Kuzushiji-MNIST: the same files and columns as MNIST."""


class EMnistDataset(
    FormatDataset,
    arguments=arg.in_folder(
        "folder that holds the files.",
        arg.choice("name", "byclass", "bymerge", "balanced", "letters", "digits", "mnist", default=REQUIRED),
        arg.usage("train", "test", "all", doc='"train", "test" or "all" (the default; test files come first).'),
    ),
):
    """EMNIST from its idx files emnist-{name}-{train, test}-….

    Columns: `image` (28, 28, 1) uint8, as stored (EMNIST stores images transposed); `label` () uint32.
    """

    @staticmethod
    def _read(where: str, folder: Path, name: str, part: str) -> Rows:
        return _byte_columns(where, folder, f"emnist-{name}-" + ("" if part == "all" else part))


class QMnistDataset(
    FormatDataset,
    arguments=arg.in_folder(
        "folder that holds the files.",
        arg.usage(
            *("train", "test", "test10k", "test50k", "nist", "all"),
            doc='"train", "test", "test10k" (its first 10,000), "test50k" (the others), "nist" or "all" (the default).',
        ),
        arg.flag("compat", True, "labels are classes; False for all eight numbers."),
    ),
):
    """QMNIST from its idx files qmnist-train-…, qmnist-test-… and xnist-….

    Columns: `image` (28, 28, 1) uint8; `label` () uint32, or (8,) uint32 with all that QMNIST knows of an image.
    """

    @staticmethod
    def _read(where: str, folder: Path, part: str, classes: bool) -> Rows:
        pairs = [
            _pair(
                where, _one_file(where, folder, f"{stem}{_IMAGES}"), _one_file(where, folder, f"{stem}-labels-idx2-int")
            )
            for stem in _QMNIST[part]
        ]
        image, label = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        # The parts are fixed by the publishers: the first 10,000 images were in MNIST.
        selection = {"test10k": slice(10000), "test50k": slice(10000, None)}.get(part, slice(None))
        label = label[selection].astype(np.uint32)
        # The first of the eight numbers is the class.
        return {"image": image[selection, ..., None], "label": label[:, 0] if classes else label}
