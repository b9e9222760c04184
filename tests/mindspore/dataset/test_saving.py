"""`Dataset.save`: MindRecord files with MindSpore's schema, which give the rows back."""

import numpy as np
import pytest

from sporax.mindspore import dataset as ds
from sporax.mindspore.mindrecord import FileReader

ROWS = 5
COLUMNS = {
    # column: (value of row i, what MindSpore 2.10 stores)
    "flag": (lambda i: np.array(i % 2 == 0), {"type": "int32"}),
    "int8": (lambda i: np.array(i, np.int8), {"type": "int32"}),
    "uint16": (lambda i: np.array([i, i], np.uint16), {"type": "int32", "shape": [-1]}),
    "uint32": (lambda i: np.array([i], np.uint32), {"type": "int64", "shape": [-1]}),
    "int64": (lambda i: np.array([[i, i]], np.int64), {"type": "int64", "shape": [-1, 2]}),
    "float16": (lambda i: np.array([i, 1], np.float16), {"type": "float32", "shape": [-1]}),
    "float32": (lambda i: np.array(i / 2, np.float32), {"type": "float32"}),
    "float64": (lambda i: np.array([i / 3], np.float64), {"type": "float64", "shape": [-1]}),
    "text": (lambda i: np.array(f"x{i}"), {"type": "string"}),
    "raw": (lambda i: np.array(b"q%d" % i), {"type": "bytes"}),
    "ragged": (lambda i: np.arange(i + 1, dtype=np.uint8), {"type": "int32", "shape": [-1]}),
}


def dataset(*columns):
    rows = [tuple(COLUMNS[name][0](i) for name in columns) for i in range(ROWS)]
    return ds.GeneratorDataset(rows, list(columns), shuffle=False)


def test_the_schema_is_mindspores(tmp_path):
    path = str(tmp_path / "all.mindrecord")
    dataset(*COLUMNS).save(path)
    reader = FileReader(path)
    assert reader.schema() == {name: stored for name, (_, stored) in COLUMNS.items()}
    reader.close()


@pytest.mark.parametrize("num_files", [1, 3])
def test_rows_are_read_back(tmp_path, num_files):
    path = str(tmp_path / "all.mindrecord")
    dataset(*COLUMNS).save(path, num_files)
    files = path if num_files == 1 else [f"{path}{number}" for number in range(num_files)]
    assert sorted(file.name for file in tmp_path.glob("*[!b]")) == sorted(
        str(file).rpartition("/")[2] for file in ([files] if num_files == 1 else files)
    )
    rows = ds.MindDataset(files, list(COLUMNS), shuffle=False).create_dict_iterator(output_numpy=True)
    by_number = {int(row["int8"]): row for row in rows}
    assert set(by_number) == set(range(ROWS))
    for i, row in by_number.items():
        for name, (make, _) in COLUMNS.items():
            value = np.asarray(row[name])
            if name != "raw":
                np.testing.assert_array_equal(value.reshape(make(i).shape), make(i), err_msg=name)
            else:
                assert value.tobytes() == make(i).item()


def test_steps_are_saved_as_they_come(tmp_path):
    path = str(tmp_path / "batched.mindrecord")
    dataset("int64", "float16").batch(2, drop_remainder=True).repeat(2).save(path)
    back = ds.MindDataset(path, shuffle=False)
    assert back.get_dataset_size() == 4
    assert next(back.create_dict_iterator(output_numpy=True))["int64"].shape == (2, 1, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"num_files": 0}, ValueError, "num_files should between 0 and 1000."),
        ({"num_files": 1001}, ValueError, "num_files should between 0 and 1000."),
        ({"file_type": "tfrecord"}, ValueError, "tfrecord dataset format is not supported."),
        ({"file_name": ""}, ValueError, "File path is not allowed None or empty!"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, arguments, error, words):
    with pytest.raises(error, match=words):
        dataset("int8").save(**{"file_name": str(tmp_path / "a.mindrecord"), **arguments})
    assert not list(tmp_path.iterdir())


def test_files_that_exist_and_columns_that_cannot_be_stored_are_refused(tmp_path):
    path = str(tmp_path / "a.mindrecord")
    dataset("int8").save(path)
    with pytest.raises(RuntimeError, match=r"a\.mindrecord"):
        dataset("int8").save(path)
    words = ds.GeneratorDataset([(np.array(["a", "b"]),)], ["words"], shuffle=False)
    with pytest.raises(ValueError, match="column 'words' must hold numbers, or one string or bytes per row"):
        words.save(str(tmp_path / "b.mindrecord"))
    empty = dataset("int8").filter(lambda value: False, ["int8"])
    with pytest.raises(RuntimeError, match="the dataset must have rows, but has none"):
        empty.save(str(tmp_path / "c.mindrecord"))


def test_methods_of_the_c_runtime_say_that_they_are_not_offered():
    with pytest.raises(AttributeError, match="the method 'send' is not offered"):
        dataset("int8").send(0, 1)
