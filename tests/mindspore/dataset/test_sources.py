"""Sources: which files are found, what their columns are, and what corrupt files and bad sources say."""

import gzip
import json
import struct

import numpy as np
import pytest

import sporax.mindspore.dataset as ds

from .conftest import column, rows, write_mnist


def labels(dataset):
    return [row[1] for row in rows(dataset)]


# -- memory ----------------------------------------------------------------------------------------------------------


def test_numpy_slices_columns():
    assert ds.NumpySlicesDataset({"a": [1, 2], "b": [3, 4]}).get_col_names() == ["a", "b"]
    assert ds.NumpySlicesDataset({"a": [1, 2]}, ["z"]).get_col_names() == ["z"]
    assert ds.NumpySlicesDataset(([1, 2], [3, 4])).get_col_names() == ["column_0", "column_1"]
    assert rows(ds.NumpySlicesDataset([[1, 2], [3, 4]], shuffle=False)) == [[[1, 2]], [[3, 4]]]
    assert column(ds.NumpySlicesDataset([[1], [2, 3]], shuffle=False)) == [[1], [2, 3]]


def test_rows_are_copies_of_the_users_array():
    data = np.arange(4)
    for value in ds.NumpySlicesDataset(data, "x").create_tuple_iterator(num_epochs=1, output_numpy=True):
        value[0][...] = 9
    assert data.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (ValueError, (([1, 2], [3, 4, 5]),)),
        (TypeError, (5,)),
        (ValueError, (([1, 2], [3, 4]), ["a"])),
        (ValueError, ([1, 2], ["a", "b"])),
        (ValueError, ([],)),
        (ValueError, (np.zeros((0, 3)),)),
        (TypeError, ([object()],)),
    ],
)
def test_numpy_slices_errors(error, arguments):
    with pytest.raises(error):
        ds.NumpySlicesDataset(*arguments)


class Store:
    def __getitem__(self, index):
        return np.int32(index), np.float32(index) * 2

    def __len__(self):
        return 6


class Countdown:
    def __iter__(self):
        yield from (np.array(i) for i in (3, 2, 1))


def mixed():
    yield 0, "a", 1.5, True, [1, 2], b"xx"


def test_generator_sources():
    assert column(ds.GeneratorDataset(Store(), ["x", "y"], shuffle=False)) == list(range(6))
    assert sorted(column(ds.GeneratorDataset(Store(), ["x", "y"]))) == list(range(6))
    assert ds.GeneratorDataset(Store(), ["x", "y"]).is_shuffled()
    assert column(ds.GeneratorDataset(Store(), ["x", "y"], num_samples=3, shuffle=False)) == [0, 1, 2]
    assert column(ds.GeneratorDataset(Store(), ["x", "y"], shuffle=False, num_shards=4, shard_id=3)) == [3, 1]
    assert column(ds.GeneratorDataset(Countdown(), "x"), epochs=2) == [[3, 2, 1]] * 2
    assert column(ds.GeneratorDataset(lambda: iter(range(4)), "x", num_samples=2)) == [0, 1]
    assert ds.GeneratorDataset(lambda: iter(range(4)), "x").get_dataset_size() == 4
    assert rows(ds.GeneratorDataset([(1, 2), (3, 4)], ["x", "y"], shuffle=False)) == [[1, 2], [3, 4]]


def test_a_generator_object_can_be_read_again():
    data = ds.GeneratorDataset((i for i in range(3)), "x")
    assert len(data) == 3
    assert column(data, epochs=2) == [[0, 1, 2]] * 2


def test_generator_types():
    data = ds.GeneratorDataset(mixed, list("abcdef"))
    kinds = [dtype.kind for dtype in data.output_types()]
    assert kinds == ["i", "U", "f", "b", "i", "S"]
    assert rows(ds.GeneratorDataset(Store(), ["x", "y"], [np.int32, "float32"], shuffle=False))[1] == [1, 2.0]
    with pytest.raises(RuntimeError, match="column 'x' must be float32"):
        rows(ds.GeneratorDataset(Store(), ["x", "y"], [np.float32, np.float32]))


def test_a_schema_says_names_and_types():
    schema = ds.Schema()
    schema.add_column("x", "int32", [])
    schema.add_column("y", "float32", [])
    assert rows(ds.GeneratorDataset(Store(), schema=schema, shuffle=False))[1] == [1, 2.0]
    words = ds.Schema()
    words.add_column("word", "string")
    assert column(ds.GeneratorDataset(lambda: iter(["a", "bcd"]), schema=words)) == ["a", "bcd"]
    with pytest.raises(RuntimeError, match="column 'word' must be"):
        column(ds.GeneratorDataset(lambda: iter([1]), schema=words))
    with pytest.raises(ValueError, match="'schema' excludes 'column_names' and 'column_types'"):
        ds.GeneratorDataset(Store(), ["x"], schema=schema)
    with pytest.raises(ValueError, match="schema should be a path to schema file or a schema object."):
        ds.GeneratorDataset(Store(), schema=3)


def failing():
    yield 1
    raise KeyError("lost")


class WithoutLength:
    def __getitem__(self, index):
        return index


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ValueError, lambda g: g(Store())),
        (ValueError, lambda g: g(Store(), [])),
        (TypeError, lambda g: g(Store(), [1])),
        (ValueError, lambda g: g(Store(), ["x", "x"])),
        (RuntimeError, lambda g: g(WithoutLength(), ["x"])),
        (ValueError, lambda g: g(mixed, ["x"], num_shards=2, shard_id=0)),
        (ValueError, lambda g: g(mixed, ["x"], sampler=ds.SequentialSampler())),
        (ValueError, lambda g: g(mixed, ["x"], num_parallel_workers=0)),
        (ValueError, lambda g: g(mixed, ["x"], batch_sampler=[[0]])),
        (ValueError, lambda g: g(Store(), ["x", "y"], sampler=ds.PKSampler(2))),
        (ValueError, lambda g: g(Store(), ["x", "y"], [np.int32])),
        (TypeError, lambda g: g(5, ["x"])),
        (RuntimeError, lambda g: rows(g(Store(), ["x"]))),
        (RuntimeError, lambda g: rows(g(Store(), ["x", "y", "z"]))),
        (RuntimeError, lambda g: rows(g(lambda: iter([object()]), ["x"]))),
        (RuntimeError, lambda g: g(mixed, ["x"]).add_sampler(ds.SequentialSampler())),
    ],
)
def test_generator_errors(error, make):
    with pytest.raises(error):
        make(ds.GeneratorDataset)


def test_a_failing_source_is_named():
    with pytest.raises(RuntimeError, match="failed at row 1 with KeyError"):
        rows(ds.GeneratorDataset(failing, "x"))


# -- MNIST -----------------------------------------------------------------------------------------------------------


def test_mnist_files_are_read_by_usage(tmp_path):
    images, train = write_mnist(tmp_path, 16)
    _, test = write_mnist(tmp_path, 8, "t10k", seed=1)
    folder = str(tmp_path)
    assert labels(ds.MnistDataset(folder, "train", shuffle=False)) == train.tolist()
    assert labels(ds.MnistDataset(folder, "test", shuffle=False)) == test.tolist()
    assert labels(ds.MnistDataset(folder, shuffle=False)) == [*test.tolist(), *train.tolist()]
    data = ds.MnistDataset(folder, "train", shuffle=False)
    assert data.output_types() == [np.uint8, np.uint32]
    assert data.output_shapes() == [[28, 28, 1], []]
    assert data.get_dataset_size() == 16
    assert rows(data)[3][0] == images[3][..., None].tolist()
    assert ds.MnistDataset(folder).is_shuffled()
    picked = labels(ds.MnistDataset(folder, "train", sampler=ds.PKSampler(1)))
    assert picked == sorted(set(train.tolist()))
    assert set(labels(ds.MnistDataset(folder, "train", sampler=ds.PKSampler(2, shuffle=True)))) == set(picked)


def test_mnist_files_are_found_by_part_of_their_name(tmp_path):
    _, train = write_mnist(tmp_path, 4)
    for path in list(tmp_path.iterdir()):
        path.rename(tmp_path / f"my-{path.name}.x")
    assert labels(ds.FashionMnistDataset(str(tmp_path), "train", shuffle=False)) == train.tolist()
    write_mnist(tmp_path / "train", 4)
    with pytest.raises(RuntimeError, match="0 and 0"):
        labels(ds.MnistDataset(str(tmp_path), "test"))


def test_compressed_mnist(tmp_path):
    _, train = write_mnist(tmp_path, 4)
    for path in list(tmp_path.iterdir()):
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert labels(ds.MnistDataset(str(tmp_path), shuffle=False)) == train.tolist()
    for path in list(tmp_path.iterdir()):
        if path.suffix != ".gz":
            path.unlink()
    assert labels(ds.MnistDataset(str(tmp_path), shuffle=False)) == train.tolist()


def test_any_image_size(tmp_path):
    header = struct.pack(">4I", 2051, 2, 3, 5)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(header + bytes(30))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, 2) + bytes(2))
    assert ds.MnistDataset(str(tmp_path)).output_shapes() == [[3, 5, 1], []]


def truncate(folder):
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:2000])


def change_magic(folder):
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(struct.pack(">I", 9) + path.read_bytes()[4:])


def cut_header(folder):
    (folder / "train-labels-idx1-ubyte").write_bytes(b"\0\0")


def other_labels(folder):
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, 9) + bytes(9))


def no_labels(folder):
    (folder / "train-labels-idx1-ubyte").unlink()


def broken_gzip(folder):
    for path in list(folder.iterdir()):
        path.rename(folder / f"{path.name}.gz")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (truncate, "ends in record 2 at offset 2000"),
        (change_magic, "must be 2051, but got 9"),
        (cut_header, "8 header bytes, but has 2"),
        (other_labels, "4 images and 9 labels"),
        (no_labels, "1 and 0"),
        (broken_gzip, "cannot be read"),
    ],
)
def test_corrupt_mnist_files(tmp_path, damage, text):
    write_mnist(tmp_path, 4)
    damage(tmp_path)
    with pytest.raises(RuntimeError, match=text):
        labels(ds.MnistDataset(str(tmp_path)))


def test_mnist_argument_errors(tmp_path):
    with pytest.raises(ValueError, match="usage"):
        ds.MnistDataset(str(tmp_path), "valid")
    with pytest.raises(TypeError):
        ds.MnistDataset(str(tmp_path), 3)
    with pytest.raises(ValueError, match="does not exist"):
        ds.MnistDataset(str(tmp_path / "none"))
    with pytest.raises(TypeError):
        ds.MnistDataset(3)


# -- CIFAR and folders -----------------------------------------------------------------------------------------------


def cifar_records(count, num_labels, seed=0):
    records = np.random.default_rng(seed).integers(0, 256, (count, num_labels + 3072), np.uint8)
    records[:, :num_labels] %= 10
    return records


def test_cifar10(tmp_path):
    parts = [cifar_records(3, 1, seed) for seed in range(3)]
    for name, part in zip(("data_batch_1", "data_batch_2", "test_batch"), parts, strict=True):
        (tmp_path / f"{name}.bin").write_bytes(part.tobytes())
    data = ds.Cifar10Dataset(str(tmp_path), shuffle=False)
    assert labels(data) == np.concatenate(parts)[:, 0].tolist()
    assert labels(ds.Cifar10Dataset(str(tmp_path), "test", shuffle=False)) == parts[2][:, 0].tolist()
    assert data.output_types() == [np.uint8, np.uint32]
    assert data.output_shapes() == [[32, 32, 3], []]
    pixel = rows(data)[0][0][0][1]
    assert pixel == parts[0][0][[2, 1026, 2050]].tolist()
    assert len(rows(ds.Cifar10Dataset(str(tmp_path), sampler=ds.PKSampler(1)))) == len(set(labels(data)))


def test_cifar100(tmp_path):
    parts = [cifar_records(3, 2, seed) for seed in range(2)]
    for name, part in zip(("test", "train"), parts, strict=True):
        (tmp_path / f"{name}.bin").write_bytes(part.tobytes())
    data = ds.Cifar100Dataset(str(tmp_path), shuffle=False)
    assert data.get_col_names() == ["image", "coarse_label", "fine_label"]
    assert [row[1:] for row in rows(data)] == np.concatenate(parts)[:, :2].tolist()
    # By the coarse labels.
    picked = rows(ds.Cifar100Dataset(str(tmp_path), sampler=ds.PKSampler(1)))
    assert [row[1] for row in picked] == sorted(set(np.concatenate(parts)[:, 0].tolist()))


def test_corrupt_cifar_files(tmp_path):
    with pytest.raises(RuntimeError, match="there are none"):
        rows(ds.Cifar10Dataset(str(tmp_path)))
    (tmp_path / "data_batch_1.bin").write_bytes(cifar_records(3, 1).tobytes()[:-5])
    with pytest.raises(RuntimeError, match="record 2 at offset 6146 has 3068"):
        rows(ds.Cifar10Dataset(str(tmp_path)))


@pytest.fixture
def image_folder(tmp_path):
    for name in ("dog", "cat", "ant"):
        (tmp_path / name).mkdir()
        for i in range(2):
            (tmp_path / name / f"{i}.bin").write_bytes(bytes([len(name) + i] * 3))
    (tmp_path / "cat" / "z.txt").write_bytes(b"zz")
    return tmp_path


def test_image_folder(image_folder):
    data = ds.ImageFolderDataset(str(image_folder), shuffle=False)
    assert labels(data) == [0, 0, 1, 1, 1, 2, 2]
    assert data.output_types() == [np.uint8, np.int32]
    assert column(data)[0] == [3, 3, 3]
    assert data.get_class_indexing() == {"ant": 0, "cat": 1, "dog": 2}
    assert data.num_classes() == 3
    assert labels(ds.ImageFolderDataset(str(image_folder), shuffle=False, extensions=[".txt"])) == [1]
    assert labels(ds.ImageFolderDataset(str(image_folder), shuffle=False, class_indexing={})) == labels(data)
    chosen = ds.ImageFolderDataset(str(image_folder), shuffle=False, class_indexing={"dog": 5, "cat": 2})
    assert labels(chosen) == [2, 2, 2, 5, 5]
    assert len(rows(ds.ImageFolderDataset(str(image_folder), sampler=ds.PKSampler(2)))) == 6


def test_image_folder_decodes(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    (tmp_path / "a").mkdir()
    pillow.fromarray(pixels).save(tmp_path / "a" / "x.png")
    data = ds.ImageFolderDataset(str(tmp_path), decode=True)
    assert column(data) == [pixels.tolist()]
    (tmp_path / "a" / "x.png").write_bytes(b"no image")
    with pytest.raises(RuntimeError, match=r"x\.png.*Invalid image"):
        column(data)


def test_image_folder_errors(image_folder, tmp_path):
    with pytest.raises(TypeError):
        ds.ImageFolderDataset(str(image_folder), extensions=3)
    with pytest.raises(TypeError):
        ds.ImageFolderDataset(str(image_folder), class_indexing=[1])
    with pytest.raises(RuntimeError, match="no files"):
        rows(ds.ImageFolderDataset(str(image_folder), class_indexing={"zzz": 1}))
    with pytest.raises(RuntimeError, match="zzz doesn't exist"):
        ds.ImageFolderDataset(str(image_folder), class_indexing={"cat": 0, "zzz": 1}).num_classes()
    (image_folder / "cat" / "inner").mkdir()
    with pytest.raises(RuntimeError, match="is a folder"):
        rows(ds.ImageFolderDataset(str(image_folder)))


# -- text and CSV ----------------------------------------------------------------------------------------------------


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "a.txt").write_text("hello world\n\n line 2 \nlast")
    (tmp_path / "b.txt").write_text("b1\nb2\né\n")
    return tmp_path


ALL_LINES = ["hello world", " line 2 ", "last", "b1", "b2", "é"]


def test_text_files(texts):
    ds.config.set_num_parallel_workers(1)
    pattern = str(texts / "*.txt")
    data = ds.TextFileDataset(pattern, shuffle=False)
    assert column(data) == ALL_LINES
    assert data.get_col_names() == ["text"]
    assert sorted(column(ds.TextFileDataset(pattern))) == sorted(ALL_LINES)
    assert column(ds.TextFileDataset(pattern, shuffle=False, num_samples=2)) == ALL_LINES[:2]
    by_file = [column(ds.TextFileDataset(pattern, shuffle=ds.Shuffle.FILES), epochs=8)][0]
    assert {tuple(epoch) for epoch in by_file} == {tuple(ALL_LINES), tuple(ALL_LINES[3:] + ALL_LINES[:3])}
    shards = [ds.TextFileDataset(pattern, shuffle=False, num_shards=4, shard_id=r) for r in range(4)]
    assert [column(part) for part in shards] == [ALL_LINES[:2], ALL_LINES[2:4], ALL_LINES[4:], ALL_LINES[:2]]
    mixed = [ds.TextFileDataset(pattern, num_shards=2, shard_id=r) for r in range(2)]
    assert sorted(column(mixed[0]) + column(mixed[1])) == sorted(ALL_LINES)


def test_text_file_errors(texts):
    name = str(texts / "a.txt")
    with pytest.raises(ValueError, match="did not match any files"):
        ds.TextFileDataset(str(texts / "none.txt"))
    with pytest.raises(ValueError):
        ds.TextFileDataset([])
    with pytest.raises(TypeError):
        ds.TextFileDataset(name, shuffle="x")
    with pytest.raises(RuntimeError, match="requires"):
        ds.TextFileDataset(name, num_shards=2)
    (texts / "a.txt").write_bytes(b"fine\n\xff\n")
    with pytest.raises(RuntimeError, match="line at offset 5"):
        column(ds.TextFileDataset(name))


def test_csv_columns_have_the_given_types_and_names(tmp_path):
    (tmp_path / "a.csv").write_text('1,2.5,x\n3,4,"y,z"\n5,6,w\n')
    (tmp_path / "h.csv").write_text("p,q\n1,2\n3,4\n")
    typed = ds.CSVDataset(str(tmp_path / "a.csv"), ",", [0, 0.0, ""], ["a", "b", "c"], shuffle=False)
    assert rows(typed) == [[1, 2.5, "x"], [3, 4.0, "y,z"], [5, 6.0, "w"]]
    assert [dtype.kind + str(dtype.itemsize) for dtype in typed.output_types()[:2]] == ["i4", "f4"]
    plain = ds.CSVDataset(str(tmp_path / "h.csv"), shuffle=False)
    assert plain.get_col_names() == ["p", "q"]
    assert rows(plain) == [["1", "2"], ["3", "4"]]
    parts = [ds.CSVDataset(str(tmp_path / "h.csv"), shuffle=False, num_shards=2, shard_id=r) for r in range(2)]
    assert [rows(part) for part in parts] == [[["1", "2"]], [["3", "4"]]]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("1,2\n3\n", "must have 2 fields, but line 2 of .* has 1"),
        ("1,2\nx,4\n", "parse failed at line 2, type does not match: column 'a' must hold int32, but has 'x'"),
        ("", "hold none"),
        ('1,2\n"3,4\n', "failed to parse .* after row 1"),
    ],
)
def test_corrupt_csv_files(tmp_path, content, text):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(RuntimeError, match=text):
        rows(ds.CSVDataset(str(tmp_path / "a.csv"), column_defaults=[0, 0], column_names=["a", "b"]))


def test_csv_argument_errors(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    name = str(tmp_path / "a.csv")
    with pytest.raises(ValueError):
        ds.CSVDataset(name, field_delim=",,")
    with pytest.raises(TypeError):
        ds.CSVDataset(name, column_defaults=["a", [1]])
    with pytest.raises(ValueError):
        ds.CSVDataset(name, column_defaults=["a"])


@pytest.mark.parametrize("as_list", [False, True])
def test_names_of_a_schema_file_are_in_order_and_those_of_a_list_stay(tmp_path, as_list):
    columns = {"z": {"type": "int64", "rank": 0}, "a": {"type": "float32", "rank": 0}}
    written = [{"name": name, **content} for name, content in columns.items()] if as_list else columns
    (tmp_path / "schema.json").write_text(json.dumps({"columns": written}))
    data = ds.RandomDataset(2, str(tmp_path / "schema.json"))
    assert data.get_col_names() == (["z", "a"] if as_list else ["a", "z"])


def test_all_parts_of_texts_come_in_mindspores_order(tmp_path):
    for part in ("train", "test"):
        (tmp_path / f"{part}.csv").write_text(f'"1","t","{part}"\n')
    for part in ("train", "dev"):
        question = {"question": part, "id": "1", "answers": [{"text": "a", "answer_start": 0}]}
        content = {"data": [{"title": "t", "paragraphs": [{"context": part, "qas": [question]}]}]}
        (tmp_path / f"{part}-v1.1.json").write_text(json.dumps(content))

    def parts(make, column):
        return [
            str(row[column]) for row in make(str(tmp_path), "all", shuffle=False).create_tuple_iterator(num_epochs=1)
        ]

    # As MindSpore 2.10 reads them.
    assert parts(ds.AGNewsDataset, 2) == ["test", "train"]
    assert parts(ds.SogouNewsDataset, 2) == ["train", "test"]
    assert parts(ds.SQuADDataset, 0) == ["train", "dev"]


def test_images_of_sbu_are_named_by_all_behind_23_characters_of_the_address(tmp_path):
    (tmp_path / "sbu_images").mkdir()
    (tmp_path / "sbu_images" / "3_12_a.png").write_bytes(b"x")
    stem = "SBU_captioned_photo_dataset"
    (tmp_path / f"{stem}_urls.txt").write_text("http://123456.123456.123/12/a.png\n")
    (tmp_path / f"{stem}_captions.txt").write_text("a dog\n")
    (row,) = ds.SBUDataset(str(tmp_path)).create_dict_iterator(num_epochs=1, output_numpy=True)
    assert str(row["caption"]) == "a dog"
