"""Data sets as MindRecord files: `ImageNetToMR`, `CsvToMR`, `MnistToMR`, `Cifar10ToMR` and `Cifar100ToMR`.

Each has rows of its own and writes them, 256 at a time, with `FileWriter`. `TFRecordToMR` is not offered: the features that it
takes are objects of TensorFlow.
"""

from __future__ import annotations

import csv
import io
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore import log
from sporax.mindspore.dataset._sources.reading import IMAGES_MAGIC, LABELS_MAGIC, read_idx
from sporax.mindspore.dataset.vision import encode_jpeg
from sporax.mindspore.mindrecord._schema import PathNotExistsError, Row
from sporax.mindspore.mindrecord._write import FileWriter, check_file_name

# Rows of one call of `write_raw_data`, as in MindSpore.
_CALL_ROWS = 256
# Bytes, 64 MiB: MindSpore's converters have larger pages than its writer.
_PAGE_BYTES = 1 << 26
# Of 100: OpenCV's quality, with which MindSpore's converters encode.
_JPEG_QUALITY = 95


def _write(
    writer: FileWriter, schema: Row, name: str, index: Sequence[str], rows: Iterable[Row], parallel: bool = False
) -> None:
    writer.add_schema(schema, name)
    if index:
        writer.add_index(list(index))
    remaining = iter(rows)
    while part := list(itertools.islice(remaining, _CALL_ROWS)):
        writer.write_raw_data(part, parallel)
    writer.commit()


def _writer(destination: str, partition_number: object) -> FileWriter:
    if not isinstance(partition_number, int):
        raise SporaxValueError(f"The parameter partition_number must be int, but got {partition_number!r}.")
    writer = FileWriter(destination, partition_number)
    writer.set_page_size(_PAGE_BYTES)
    return writer


def _jpeg(image: np.ndarray[Any, Any]) -> bytes:
    return encode_jpeg(image, _JPEG_QUALITY).tobytes()


class ImageNetToMR:
    """ImageNet's folders of images as MindRecord files with `label`, `image` (the bytes of the file) and `file_name`.

    Args:
        map_file: a text with a folder's name and its label in each line.
        image_dir: where the folders are.
        destination: the MindRecord file.
        partition_number: number of files.

    Raises:
        ParamValueError, SporaxValueError: an argument is not valid.
    """

    def __init__(self, map_file: str, image_dir: str, destination: str, partition_number: int = 1) -> None:
        self.map_file, self.image_dir = check_file_name(map_file), check_file_name(image_dir)
        self._writer = _writer(destination, partition_number)

    def transform(self) -> None:
        """Write the files.

        Raises:
            OSError: the map file cannot be read.
            PathNotExistsError: none of its folders is there.
            MRMOpenError: a file exists already, or cannot be made.
        """
        schema = {"label": {"type": "int32"}, "image": {"type": "bytes"}, "file_name": {"type": "string"}}
        _write(self._writer, schema, "imagenet_schema", ["label", "file_name"], self._rows(), parallel=True)

    def _rows(self) -> Iterator[Row]:
        lines = [line.split() for line in Path(self.map_file).read_text().splitlines() if line.strip()]
        folders = [(Path(self.image_dir) / name, int(label)) for name, label in lines]
        if not any(folder.is_dir() for folder, _ in folders):
            raise PathNotExistsError(f"not valid image dir in {self.image_dir}")
        for folder, label in folders:
            if not folder.is_dir():
                log.warning("%s dir is not exist", folder)
                continue
            for path in sorted(folder.iterdir()):
                if path.name.endswith(("JPEG", "jpg")):
                    yield {"label": label, "image": path.read_bytes(), "file_name": str(path)}
                else:
                    log.warning("%s file is not suffix with JPEG/jpg, skip it.", path)


class CsvToMR:
    """A CSV file with a line of names as MindRecord files; a column holds int64, float64, bool as int32, or strings.

    Args:
        source: the CSV file.
        destination: the MindRecord file.
        columns_list: only these columns; None for all.
        partition_number: number of files.

    Raises:
        ParamValueError, SporaxValueError: an argument is not valid.
    """

    def __init__(
        self, source: str, destination: str, columns_list: list[str] | None = None, partition_number: int = 1
    ) -> None:
        for name, value in (("source", source), ("destination", destination)):
            if not isinstance(value, str):
                raise SporaxValueError(f"The parameter {name} must be str, but got {value!r}.")
        if columns_list and not (isinstance(columns_list, list) and all(isinstance(c, str) for c in columns_list)):
            raise SporaxValueError(f"The parameter columns_list must be list of str. Got {columns_list!r}.")
        self.source, self.columns_list = check_file_name(source), columns_list
        self._writer = _writer(destination, partition_number)

    def transform(self) -> None:
        """Write the files.

        Raises:
            OSError: the CSV file cannot be read.
            SporaxRuntimeError: a column is not in it, or it has none.
            SporaxValueError: its first line has a number, which is no name.
            MRMOpenError: a file exists already, or cannot be made.
        """
        with Path(self.source).open(newline="") as file:
            names, *lines = [line for line in csv.reader(file) if line] or [[]]
        chosen = self._chosen(names)
        columns = {name: _typed([line[names.index(name)] for line in lines]) for name in chosen}
        schema = {name: {"type": kind} for name, (kind, _) in columns.items()}
        rows = (
            dict(zip(chosen, values, strict=True))
            for values in zip(*(values for _, values in columns.values()), strict=True)
        )
        _write(self._writer, schema, "csv_schema", chosen, rows)

    def _chosen(self, names: list[str]) -> list[str]:
        """Names of the columns to write, of those that the file has."""
        missing = [name for name in self.columns_list or () if name not in names]
        if missing:
            raise SporaxRuntimeError(f"The parameter columns_list is illegal, column {missing[0]} does not exist.")
        if not names:
            raise SporaxRuntimeError("Failed to generate schema from csv file.")
        chosen = self.columns_list or names
        digits = [name for name in chosen if name.isdigit()]
        if digits:
            raise SporaxValueError(
                f"The first line content: {digits[0]} of the CSV file is used as a column name and does not allow starting "
                "with a number."
            )
        return chosen


def _typed(texts: list[str]) -> tuple[str, list[Any]]:
    """The narrowest type that all texts of a column have, and its values."""
    parsers: list[tuple[str, Callable[[str], Any]]] = [
        ("int32", ("False", "True").index),
        ("int64", int),
        ("float64", float),
    ]
    for kind, parse in parsers:
        try:
            return kind, [parse(text) for text in texts]
        except ValueError:
            continue
    return "string", texts


class MnistToMR:
    """MNIST's four idx files (gzip) as `…_train.mindrecord` and `…_test.mindrecord` with `label` and `data` (JPEG).

    Args:
        source: the folder.
        destination: how the names of the MindRecord files begin.
        partition_number: number of files of each part.

    Raises:
        ParamValueError, SporaxValueError: an argument is not valid.
    """

    def __init__(self, source: str, destination: str, partition_number: int = 1) -> None:
        self.source = check_file_name(source)
        check_file_name(destination)
        self._writers = {
            stem: _writer(f"{destination}_{part}.mindrecord", partition_number)
            for stem, part in (("train", "train"), ("t10k", "test"))
        }

    def transform(self) -> None:
        """Write the files.

        Raises:
            SporaxRuntimeError: an idx file is missing or damaged.
            MRMOpenError: a file exists already, or cannot be made.
        """
        schema = {"label": {"type": "int64"}, "data": {"type": "bytes"}}
        for stem, writer in self._writers.items():
            images = read_idx("MnistToMR", Path(self.source) / f"{stem}-images-idx3-ubyte.gz", IMAGES_MAGIC)
            labels = read_idx("MnistToMR", Path(self.source) / f"{stem}-labels-idx1-ubyte.gz", LABELS_MAGIC)
            rows = ({"label": int(i), "data": _jpeg(image)} for i, image in zip(labels, images, strict=True))
            _write(writer, schema, "mnist_schema", ["label"], rows)


class _ArraysAlone(pickle.Unpickler):
    """Reads a pickle of plain values and numpy arrays; code of other kinds is refused, since a pickle may name any."""

    def find_class(self, module: str, name: str) -> Any:
        # numpy 2 has the function in another module; files of both name it.
        home = module.replace("numpy.core", "numpy._core")
        if (home, name) in (("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")):
            return super().find_class(home, name)
        raise pickle.UnpicklingError(f"global '{module}.{name}' is forbidden")


class Cifar10ToMR:
    """CIFAR-10's Python files as a MindRecord file of its training images and one (`…_test`) of its test images.

    Rows have `id`, `label` and `data` (JPEG).

    Args:
        source: the folder with data_batch_1 … and test_batch.
        destination: the MindRecord file.

    Raises:
        ParamValueError: an argument is not valid.
        PathNotExistsError: the folder lacks these files.
    """

    _PARTS = ("data_batch_", "test_batch")
    # Fields of the rows, and what the files call them.
    _LABELS = (("label", b"labels"),)

    def __init__(self, source: str, destination: str) -> None:
        self.source, self.destination = check_file_name(source), check_file_name(destination)
        self._files = [
            sorted(path for path in Path(source).iterdir() if path.name.startswith(part)) for part in self._PARTS
        ]
        for part, paths in zip(self._PARTS, self._files, strict=True):
            if not paths:
                raise PathNotExistsError(part)

    def transform(self, fields: list[str] | None = None) -> None:
        """Write the files; `fields` are those of the index, None for all but the image.

        Raises:
            SporaxValueError: `fields` is no list.
            SporaxRuntimeError: a file is not one of CIFAR's.
            MRMOpenError: a file exists already, or cannot be made.
        """
        if fields and not isinstance(fields, list):
            raise SporaxValueError(f"The parameter fields should be None or list, but got {fields!r}.")
        schema = {"id": {"type": "int64"}, **{name: {"type": "int64"} for name, _ in self._LABELS}}
        for ending, name, paths in zip(("", "_test"), ("img_train", "img_test"), self._files, strict=True):
            writer = FileWriter(self.destination + ending)
            _write(writer, {**schema, "data": {"type": "bytes"}}, name, fields or (), self._rows(paths))

    def _rows(self, paths: list[Path]) -> Iterator[Row]:
        number = itertools.count()
        for path in paths:
            try:
                content = _ArraysAlone(io.BytesIO(path.read_bytes()), encoding="bytes").load()
                images = content[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
                labels = [content[key] for _, key in self._LABELS]
            except (pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError, ValueError) as error:
                raise SporaxRuntimeError(
                    f"For '{type(self).__name__}', {str(path)!r} must be a file of the data set, but: {error}."
                ) from error
            for image, *values in zip(images, *labels, strict=True):
                named = zip((name for name, _ in self._LABELS), map(int, values), strict=True)
                yield {"id": next(number), **dict(named), "data": _jpeg(image)}


class Cifar100ToMR(Cifar10ToMR):
    """CIFAR-100's Python files `train` and `test` likewise; rows have `id`, `fine_label`, `coarse_label` and `data` (JPEG)."""

    _PARTS = ("train", "test")
    _LABELS = (("fine_label", b"fine_labels"), ("coarse_label", b"coarse_labels"))
