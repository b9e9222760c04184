"""MindDataset: files that MindSpore wrote, shards, shuffling by file, padding, and what is refused."""

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sporax.mindspore import dataset as ds
from sporax.mindspore.mindrecord import FileWriter

GOLDEN = Path(__file__).parent / "golden_mindrecord.zip"


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """The folder with the files that MindSpore wrote, and the rows that it read from them."""
    folder = tmp_path_factory.mktemp("theirs")
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(folder)
    return folder, json.loads((folder / "rows.json").read_text())


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Seven rows in three files: 2, 2 and 3."""
    path = str(tmp_path_factory.mktemp("ours") / "rows.mindrecord")
    writer = FileWriter(path, 3)
    writer.set_header_size(1 << 14)
    writer.add_schema({"label": {"type": "int32"}, "ids": {"type": "int64", "shape": [-1]}, "data": {"type": "bytes"}})
    writer.write_raw_data([{"label": i, "ids": np.arange(i), "data": bytes([i, 0])} for i in range(7)])
    writer.commit()
    return path


def labels(*arguments, **options):
    return [int(row["label"]) for row in ds.MindDataset(*arguments, **options).create_dict_iterator(output_numpy=True)]


@pytest.mark.parametrize("name", ["one", "three", "scalars", "blob", "integers", "few"])
def test_reads_what_mindspore_wrote(theirs, name):
    folder, rows = theirs
    first = folder / f"{name}.mindrecord"
    data = ds.MindDataset(str(first if first.exists() else first.with_name(f"{first.name}0")), shuffle=False)
    read = list(data.create_dict_iterator(num_epochs=1, output_numpy=True))
    assert len(read) == len(rows[name]) == data.get_dataset_size()
    for row, expected in zip(read, rows[name], strict=True):
        assert list(row) == sorted(expected)
        for key, value in row.items():
            if key == "bytes":
                assert (value.dtype.kind, value.shape) == ("S", (1,)) and value.tobytes().hex() == expected[key]
            elif key == "string":
                assert str(value) == expected[key]
            else:
                assert np.array_equal(value, np.array(expected[key]).astype(value.dtype))


def test_one_file_stands_for_all_a_list_for_itself(ours):
    assert labels(f"{ours}1", shuffle=False) == list(range(7))
    assert labels([f"{ours}2", f"{ours}0"], shuffle=False) == [4, 5, 6, 0, 1]


def test_shards_and_padding(ours):
    shares = [labels(f"{ours}0", shuffle=False, num_shards=3, shard_id=rank) for rank in range(3)]
    assert shares == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]
    sample = {"label": -1, "ids": np.array([9], np.int64)}
    padded = [
        labels(f"{ours}0", ["label", "ids"], None, False, 4, rank, padded_sample=sample, num_padded=1)
        for rank in range(4)
    ]
    assert padded == [[0, 4], [1, 5], [2, 6], [3, -1]]


def test_shuffling_by_file_keeps_files_together(ours):
    runs = [[0, 1], [2, 3], [4, 5, 6]]
    for seed in range(4):
        ds.config.set_seed(seed)
        order = labels(f"{ours}0", shuffle=ds.Shuffle.FILES)
        assert sorted(order) == list(range(7)) and all("".join(map(str, r)) in "".join(map(str, order)) for r in runs)
        inside = labels(f"{ours}0", shuffle=ds.Shuffle.INFILE)
        for mode, expected in ((ds.Shuffle.FILES, order), (ds.Shuffle.INFILE, inside)):
            assert labels(f"{ours}0", sampler=ds.RandomSampler(shuffle=mode)) == expected
            shares = [labels(f"{ours}0", sampler=ds.DistributedSampler(2, rank, mode, offset=0)) for rank in (0, 1)]
            assert shares == [expected[::2], expected[1::2]]
        assert [sorted(inside[:2]), sorted(inside[2:4]), sorted(inside[4:])] == runs
    assert sorted(labels(f"{ours}0")) == list(range(7))


def test_files_are_shuffled_where_there_are_files():
    for make in (ds.RandomSampler, lambda shuffle: ds.DistributedSampler(2, 0, shuffle)):
        with pytest.raises(RuntimeError, match="The shuffle mode: files is not supported with current dataset."):
            ds.NumpySlicesDataset([1, 2], sampler=make(shuffle=ds.Shuffle.FILES))


def test_samplers_choose_rows_of_mindrecord_files(ours):
    picked = ds.MindDataset(f"{ours}0", ["label"], sampler=ds.SubsetSampler([5, 1]))
    assert [int(picked[i][0]) for i in range(2)] == [5, 1]
    assert labels(f"{ours}0", sampler=ds.SubsetSampler([5, 1])) == [5, 1]
    assert labels(f"{ours}0", num_samples=3, shuffle=False) == [0, 1, 2]
    assert labels(f"{ours}0", sampler=ds.PKSampler(1, class_column="label")) == list(range(7))


def test_pipelines_and_other_processes(ours):
    batches = list(
        ds.MindDataset(f"{ours}0", ["label"], shuffle=False).batch(4).create_tuple_iterator(output_numpy=True)
    )
    assert [batch[0].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6]]
    table = pickle.loads(pickle.dumps(ds.MindDataset(f"{ours}0", shuffle=False)._store()))
    assert table.gather(np.array([6]))["data"][0].tobytes() == bytes([6, 0])


def test_what_is_refused(ours, tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        ds.MindDataset(str(tmp_path / "nothing"))
    with pytest.raises(RuntimeError, match="Invalid data, column name: labels does not exist"):
        ds.MindDataset(f"{ours}0", ["labels"])
    with pytest.raises(RuntimeError, match="divisible by 'num_shards', but got 9 and 4"):
        ds.MindDataset(f"{ours}0", ["label"], None, False, 4, 0, padded_sample={"label": 1}, num_padded=2)
    with pytest.raises(RuntimeError, match="padded_sample is specified and requires columns_list as well"):
        ds.MindDataset(f"{ours}0", padded_sample={"label": 1}, num_padded=2)
    with pytest.raises(RuntimeError, match="padded_sample cannot match columns_list.\nFor 'MindDataset', got 'label'"):
        ds.MindDataset(f"{ours}0", ["label"], padded_sample={"ids": 1}, num_padded=2)
    with pytest.raises(ValueError, match="num_samples"):
        ds.MindDataset(f"{ours}0", shuffle=ds.Shuffle.FILES, num_samples=2)
    with pytest.raises(RuntimeError, match="sampler"):
        ds.MindDataset(f"{ours}0", shuffle=True, sampler=ds.SequentialSampler())
    (tmp_path / "no").write_bytes(b"x" * 100)
    with pytest.raises(RuntimeError, match="cannot be read as a MindRecord file"):
        ds.MindDataset(str(tmp_path / "no"))
    with pytest.raises(ValueError, match="'Shuffle.FILES' or 'Shuffle.INFILE' and 'num_samples' cannot be specified"):
        ds.MindDataset(f"{ours}0", num_samples=1, shuffle=ds.Shuffle.INFILE)
    with pytest.warns(UserWarning, match="Shuffle.INFILE shuffles nothing, as in MindSpore"):
        lines = ds.TextFileDataset(str(tmp_path / "no"), shuffle=ds.Shuffle.INFILE)
    assert [str(row["text"]) for row in lines.create_dict_iterator(output_numpy=True)] == ["x" * 100]
    with pytest.raises(ValueError, match="class_column"):
        ds.FakeImageDataset(2, sampler=ds.PKSampler(1, class_column="kind"))


def test_a_number_too_large_for_its_type_is_named(tmp_path):
    path = str(tmp_path / "large.mindrecord")
    writer = FileWriter(path)
    writer.add_schema({"label": {"type": "int32"}})
    writer.write_raw_data([{"label": 2**40}])
    writer.commit()
    with pytest.raises(RuntimeError, match="field 'label' of row 0 .* must be int32"):
        list(ds.MindDataset(path))
