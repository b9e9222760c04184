"""Converters: folders of ImageNet, CSV, MNIST and CIFAR become MindRecord files with the schema, order and names of MindSpore's."""

import gzip
import io
import pickle
import struct

import numpy as np
import pytest
from PIL import Image

from sporax.mindspore import mindrecord
from sporax.mindspore.mindrecord import Cifar10ToMR, Cifar100ToMR, CsvToMR, FileReader, ImageNetToMR, MnistToMR


def rows_of(path):
    reader = FileReader(str(path))
    rows = list(reader.get_next())
    reader.close()
    return rows, reader.schema()


def pixels(content):
    return np.asarray(Image.open(io.BytesIO(content)))


def test_imagenet(tmp_path, caplog):
    for folder in ("n01", "n02"):
        (tmp_path / "images" / folder).mkdir(parents=True)
    (tmp_path / "images/n01/a.JPEG").write_bytes(b"first")
    (tmp_path / "images/n01/notes.txt").write_bytes(b"no image")
    (tmp_path / "images/n02/b.jpg").write_bytes(b"second")
    (tmp_path / "map").write_text("n01 7\nn02 8\nn03 9\n")
    ImageNetToMR(str(tmp_path / "map"), str(tmp_path / "images"), str(tmp_path / "out")).transform()
    rows, schema = rows_of(tmp_path / "out")
    assert [(row["label"], row["image"], row["file_name"][-5:]) for row in rows] == [
        (7, b"first", ".JPEG"),
        (8, b"second", "b.jpg"),
    ]
    assert schema == {"file_name": {"type": "string"}, "image": {"type": "bytes"}, "label": {"type": "int32"}}
    assert "n03 dir is not exist" in caplog.text
    assert "notes.txt file is not suffix with JPEG/jpg" in caplog.text
    ImageNetToMR(str(tmp_path / "map"), str(tmp_path / "images"), str(tmp_path / "two"), 2).transform()
    assert len(rows_of(tmp_path / "two0")[0]) == 2
    (tmp_path / "none").write_text("n05 1\n")
    with pytest.raises(mindrecord.PathNotExistsError, match="not valid image dir"):
        ImageNetToMR(str(tmp_path / "none"), str(tmp_path / "images"), str(tmp_path / "three")).transform()
    with pytest.raises(ValueError, match="The parameter partition_number must be int"):
        ImageNetToMR(str(tmp_path / "map"), str(tmp_path / "images"), str(tmp_path / "four"), None)


def test_csv(tmp_path):
    source = tmp_path / "data.csv"
    source.write_text('Age,Name,Sales,Over18\n31,"Ann, B.",1.5,True\n17,Bob,2,False\n')
    CsvToMR(str(source), str(tmp_path / "out")).transform()
    rows, schema = rows_of(tmp_path / "out")
    assert rows == [
        {"Age": 31, "Name": "Ann, B.", "Over18": 1, "Sales": 1.5},
        {"Age": 17, "Name": "Bob", "Over18": 0, "Sales": 2.0},
    ]
    kinds = {name: field["type"] for name, field in schema.items()}
    assert kinds == {"Age": "int64", "Name": "string", "Over18": "int32", "Sales": "float64"}
    CsvToMR(str(source), str(tmp_path / "some"), ["Sales"]).transform()
    assert rows_of(tmp_path / "some")[0] == [{"Sales": 1.5}, {"Sales": 2.0}]
    with pytest.raises(RuntimeError, match="columns_list is illegal, column sales does not exist"):
        CsvToMR(str(source), str(tmp_path / "x"), ["sales"]).transform()
    with pytest.raises(ValueError, match="columns_list must be list of str"):
        CsvToMR(str(source), str(tmp_path / "x"), ["Sales", 2])
    source.write_text("1,Name\n2,Bob\n")
    with pytest.raises(ValueError, match="The first line content: 1 of the CSV file is used as a column name"):
        CsvToMR(str(source), str(tmp_path / "x")).transform()
    source.write_text("")
    with pytest.raises(RuntimeError, match="Failed to generate schema"):
        CsvToMR(str(source), str(tmp_path / "x")).transform()


def test_mnist(tmp_path):
    images = np.repeat(np.arange(0, 250, 50, dtype=np.uint8), 784).reshape(5, 28, 28)
    for stem, part in (("train", images), ("t10k", images[:2])):
        with gzip.open(tmp_path / f"{stem}-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">4I", 2051, *part.shape) + part.tobytes())
        with gzip.open(tmp_path / f"{stem}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(struct.pack(">2I", 2049, len(part)) + bytes(range(len(part))))
    MnistToMR(str(tmp_path), str(tmp_path / "out")).transform()
    for part, count in (("train", 5), ("test", 2)):
        rows, schema = rows_of(tmp_path / f"out_{part}.mindrecord")
        assert [row["label"] for row in rows] == list(range(count))
        assert all(np.array_equal(pixels(row["data"]), images[i]) for i, row in enumerate(rows))
        assert schema == {"data": {"type": "bytes"}, "label": {"type": "int64"}}


@pytest.mark.parametrize(
    ("kind", "files", "fields"),
    [
        (Cifar10ToMR, ("data_batch_1", "data_batch_2", "test_batch"), ["label"]),
        (Cifar100ToMR, ("train", "test"), ["fine_label", "coarse_label"]),
    ],
)
def test_cifar(tmp_path, kind, files, fields):
    source = tmp_path / "source"
    source.mkdir()
    with pytest.raises(mindrecord.PathNotExistsError, match=files[0].rstrip("1")):
        kind(str(source), str(tmp_path / "out"))
    colors = np.repeat(np.arange(0, 250, 25, dtype=np.uint8), 3072).reshape(10, 3072)
    for i, name in enumerate(files):
        content = {b"data": colors, **{f.encode() + b"s": [i * 10 + n for n in range(10)] for f in fields}}
        (source / name).write_bytes(pickle.dumps(content, protocol=4))
    kind(str(source), str(tmp_path / "out")).transform(fields)
    rows, schema = rows_of(tmp_path / "out")
    assert [row["id"] for row in rows] == list(range(10 * (len(files) - 1)))
    assert [row[fields[-1]] for row in rows] == list(range(10 * (len(files) - 1)))
    assert all(np.array_equal(pixels(row["data"]), np.full((32, 32, 3), row["id"] % 10 * 25)) for row in rows)
    assert set(schema) == {"id", "data", *fields}
    assert len(rows_of(tmp_path / "out_test")[0]) == 10
    with pytest.raises(ValueError, match="fields should be None or list"):
        kind(str(source), str(tmp_path / "again")).transform("label")
    (source / files[0]).write_bytes(pickle.dumps(print))
    with pytest.raises(
        RuntimeError, match=f"{files[0]}' must be a file of the data set, but: global .*print. is forbidden"
    ):
        kind(str(source), str(tmp_path / "more")).transform()
