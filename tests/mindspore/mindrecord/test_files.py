"""FileWriter, FileReader and MindPage: what is written is read, also after appending; mistakes are named."""

import logging
import pathlib

import numpy as np
import pytest

from sporax.mindspore import mindrecord
from sporax.mindspore.mindrecord import FileReader, FileWriter, MindPage, _schema

LABELS = {"label": {"type": "int32"}}


def write(path, schema, *calls, shards=1, index=None, **options):
    writer = FileWriter(str(path), shards, overwrite=True)
    writer.set_header_size(1 << 14)
    writer.set_page_size(1 << 15)
    writer.add_schema(schema, "rows")
    if index:
        writer.add_index(index)
    for rows in calls:
        writer.write_raw_data(rows, **options)
    writer.commit()
    return str(path) + ("0" if shards > 1 else "")


def read(path, **options):
    reader = FileReader(path, **options)
    rows = list(reader.get_next())
    assert reader.len() == len(rows)
    reader.close()
    return rows


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_take_as_many_bytes_as_they_need(dtype):
    info = np.iinfo(dtype)
    edges = [0, 127, 128, -128, -129, 32767, 32768, -32768, -32769, info.max, info.min, 5, 6]
    for count in range(len(edges) + 1):
        values = np.array(edges[:count], dtype)
        packed = _schema.pack(values)
        assert np.array_equal(_schema.unpack(packed, values.dtype), values)
    assert _schema.pack(np.array([1, 300])) == b"\0\0\0\x02\x10\x01\x2c\x01"
    with pytest.raises(ValueError, match="must have"):
        _schema.unpack(packed[:-1], values.dtype)


def test_rows_come_back_over_many_pages(tmp_path):
    schema = {"label": {"type": "int64"}, "name": {"type": "string"}, "data": {"type": "bytes"}}
    rows = [{"label": i, "name": f"n{i}", "data": bytes([i]) * 9000} for i in range(20)]
    path = write(tmp_path / "pages", schema, rows[:7], rows[7:])
    assert read(path) == rows
    assert read(path, columns=["name"]) == [{"name": f"n{i}"} for i in range(20)]
    assert FileReader(path).schema() == schema


def test_a_call_is_spread_over_the_files_in_runs(tmp_path):
    rows = [{"label": i} for i in range(7)]
    first = write(tmp_path / "spread", LABELS, rows, shards=3)
    parts = [[row["label"] for row in read([first[:-1] + str(i)])] for i in range(3)]
    assert parts == [[0, 1], [2, 3], [4, 5, 6]]
    first = write(tmp_path / "turns", LABELS, rows[:3], rows[3:5], rows[5:], shards=3, parallel_writer=True)
    assert [row["label"] for row in read([first])] == [0, 1, 2]


def test_rows_are_appended_behind_those_of_a_file(tmp_path):
    path = write(tmp_path / "grows", LABELS | {"data": {"type": "bytes"}}, [{"label": 1, "data": b"q"}])
    writer = FileWriter.open_for_append(path)
    writer.write_raw_data([{"label": 2, "data": b"z" * 32000}, {"label": 3, "data": b"r" * 9000}])
    writer.commit()
    assert [(row["label"], len(row["data"])) for row in read(path)] == [(1, 1), (2, 32000), (3, 9000)]


def test_rows_that_do_not_fit_are_left_out_with_a_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        path = write(tmp_path / "fits", LABELS, [{"label": "x"}, {"label": 2}, {"other": 1}, {"label": np.int64(4)}])
    assert read(path) == [{"label": 2}]
    schema = {"ids": {"type": "int32", "shape": [2]}}
    good = np.arange(2, dtype=np.int32)
    path = write(
        tmp_path / "arrays", schema, [{"ids": good}, {"ids": np.arange(3, dtype=np.int32)}, {"ids": good * 1.0}]
    )
    assert [row["ids"].tolist() for row in read(path)] == [[0, 1]]


def test_pages_of_a_category(tmp_path):
    rows = [{"label": i % 2, "name": f"n{i}"} for i in range(5)]
    pages = MindPage(write(tmp_path / "kinds", LABELS | {"name": {"type": "string"}}, rows, index=["label"]))
    assert pages.candidate_fields == ["label"]
    pages.category_field = "label"
    expected = '{"categories":[{"count":3,"id":0,"name":"0"},{"count":2,"id":1,"name":"1"}],"key":"label_0"}'
    assert pages.read_category_info() == expected
    assert [row["name"] for row in pages.read_at_page_by_name("0", 0, 2)] == ["n0", "n2"]
    assert [row["name"] for row in pages.read_at_page_by_id(1, 1, 1)] == ["n3"]
    with pytest.raises(mindrecord.MRMDefineCategoryError):
        pages.category_field = "name"
    with pytest.raises(RuntimeError, match=r"Invalid data, category_id: 2 must be in the range \[0, 2\]."):
        pages.read_at_page_by_id(2, 0, 1)
    with pytest.raises(RuntimeError, match="category_name: seven could not found."):
        pages.read_at_page_by_name("seven", 0, 1)
    for page, num_row in (("0", 1), (-1, 1), (0, "1"), (0, 0)):
        with pytest.raises(mindrecord.ParamValueError, match="should be int and greater than"):
            pages.read_at_page_by_id(0, page, num_row)


@pytest.mark.parametrize(
    ("error", "schema"),
    [
        (mindrecord.MRMInvalidSchemaError, {"label": {"type": "int8"}}),
        (mindrecord.MRMInvalidSchemaError, {"la-bel": {"type": "int32"}}),
        (mindrecord.MRMInvalidSchemaError, {}),
        (mindrecord.MRMInvalidSchemaError, {"label": {"type": "string", "shape": [2]}}),
    ],
)
def test_schemas_that_are_refused(tmp_path, error, schema):
    with pytest.raises(error):
        FileWriter(str(tmp_path / "x")).add_schema(schema)


def test_mistakes_are_named(tmp_path):
    path = write(tmp_path / "there", LABELS, [{"label": 1}])
    existing = FileWriter(path)
    existing.add_schema(LABELS)
    with pytest.raises(mindrecord.MRMOpenError, match="overwrite"):
        existing.write_raw_data([{"label": 1}])
    writer = FileWriter(str(tmp_path / "new"))
    with pytest.raises(RuntimeError, match="add_schema"):
        writer.write_raw_data([{"label": 1}])
    writer.add_schema(LABELS | {"data": {"type": "bytes"}})
    with pytest.raises(mindrecord.MRMAddSchemaError):
        writer.add_schema(LABELS)
    with pytest.raises(mindrecord.MRMDefineIndexError):
        writer.add_index(["data"])
    with pytest.raises(mindrecord.MRMAddIndexError, match="nope"):
        writer.add_index(["nope"])
    with pytest.raises(mindrecord.ParamTypeError):
        writer.write_raw_data({"label": 1})
    with pytest.raises(RuntimeError, match="There is no valid data"):
        writer.write_raw_data([])
    writer.commit()
    with pytest.raises(RuntimeError, match="on flushed MindRecord files"):
        writer.write_raw_data([{"label": 1, "data": b""}])
    for wrong in ("", "x:y", "folder/"):
        with pytest.raises(mindrecord.ParamValueError):
            FileWriter(wrong)
    for wrong, words in (
        ({"shard_num": None}, "Parameter shard_num is None."),
        ({"shard_num": "2"}, "Parameter shard_num's type is not int."),
        ({"shard_num": 1001}, "Parameter shard_num's value: 1001 should between 1 and 1000."),
        ({"overwrite": 1}, "Parameter overwrite's type is not bool."),
    ):
        with pytest.raises(mindrecord.ParamValueError, match="Invalid parameter value. For 'FileWriter', " + words):
            FileWriter(path, **wrong)
    with pytest.raises(mindrecord.MRMGetMetaError, match="Failed to get meta info"):
        FileWriter(str(tmp_path / "without")).add_index(["label"])
    with pytest.raises(RuntimeError, match="power of two"):
        FileWriter(path).set_page_size(3)
    with pytest.raises(mindrecord.MRMOpenError):
        FileReader(str(tmp_path / "nothing"))
    with pytest.raises(RuntimeError, match="column must be one"):
        FileReader(path, columns=["zz"])
    with pytest.raises(NotImplementedError, match="encrypted"):
        mindrecord.set_enc_key("0123456789012345")


def test_a_reader_is_one_stream_that_ends_with_its_file(tmp_path):
    path = write(tmp_path / "stream", LABELS, [{"label": i} for i in range(5)])
    reader = FileReader(path)
    assert next(reader.get_next()) == {"label": 0}
    assert [row["label"] for row in reader.get_next()] == [1, 2, 3, 4]
    assert list(reader.get_next()) == []
    closed = FileReader(path)
    seen = [closed.close() if row["label"] == 2 else row["label"] for row in closed.get_next()]
    assert seen == [0, 1, None]
    assert list(closed.get_next()) == []


def test_errors_of_ones_own_need_no_sentence():
    class Mine(mindrecord.MRMOpenError):
        """An error of a program."""

    assert str(Mine("gone")) == "[Mine]: MindRecord File could not open successfully. gone"
    assert str(mindrecord.MindRecordException("any")) == "[MindRecordException]: any"


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ("0", "is not exists"),
        (
            "1",
            "can not be found. Please check whether the mindrecord file exists and do not rename the mindrecord file.",
        ),
        ("1.db", r"1\.db exists and do not rename the mindrecord file and meta file."),
    ],
)
def test_a_lost_file_of_a_group_is_named(tmp_path, lost, words):
    write(tmp_path / "group", LABELS, [{"label": i} for i in range(4)], shards=2)
    (tmp_path / f"group{lost}").unlink()
    with pytest.raises(mindrecord.MRMOpenError, match=words):
        FileReader(str(tmp_path / "group0"))


@pytest.mark.parametrize(
    ("content", "index", "words"),
    [
        (b"", b"", "the size of mindrecord file: "),
        (b"just for a test", b"", "the size of mindrecord file header is larger than the upper limit."),
        (
            None,
            b"just for a test",
            r"Failed to execute the sql \[ SELECT NAME from SHARD_NAME; \] while verifying meta file",
        ),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path, content, index, words):
    path = pathlib.Path(write(tmp_path / "kind", LABELS, [{"label": 1}]))
    if content is not None:
        path.write_bytes(content)
    path.with_name("kind.db").write_bytes(index)
    with pytest.raises(mindrecord.MRMOpenError, match=words):
        FileReader(str(path))


def test_a_row_larger_than_a_page_and_a_number_that_is_not_finite(tmp_path):
    with pytest.raises(mindrecord.MRMValidateDataError, match="set_page_size"):
        write(tmp_path / "large", {"data": {"type": "bytes"}}, [{"data": bytes(40000)}])
    with pytest.raises(mindrecord.MRMValidateDataError, match="finite"):
        write(tmp_path / "nan", {"x": {"type": "float32"}}, [{"x": float("nan")}])


def test_a_broken_file_is_named(tmp_path):
    path = write(tmp_path / "cut", {"data": {"type": "bytes"}}, [{"data": bytes(30000)}, {"data": bytes(30000)}])
    with open(path, "r+b") as file:
        file.truncate(60000)
    with pytest.raises(mindrecord.MRMUnsupportedSchemaError, match="row 1 of .* truncated"):
        read(path)
