"""What steps make: their classes, classes of images behind them, rows that wait, rows of dicts, numbers of epochs."""

import threading

import numpy as np
import PIL.Image
import pytest

import sporax.mindspore.dataset as ds
from sporax.mindspore import Tensor

from .conftest import column, rows


def numbers(count=4, name="x"):
    return ds.GeneratorDataset(list(range(count)), name, shuffle=False)


def generated():
    for number in range(5):
        yield (np.array(number),)


# ------------------------------------------------------------------------------------------------------------- classes


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("MapDataset", lambda d: d.map(lambda x: x)),
        ("BatchDataset", lambda d: d.batch(1)),
        ("PaddedBatchDataset", lambda d: d.padded_batch(1)),
        ("BucketBatchByLengthDataset", lambda d: d.bucket_batch_by_length("x", [1], [1, 1])),
        ("ShuffleDataset", lambda d: d.shuffle(2)),
        ("RepeatDataset", lambda d: d.repeat(2)),
        ("SkipDataset", lambda d: d.skip(1)),
        ("TakeDataset", lambda d: d.take(1)),
        ("RenameDataset", lambda d: d.rename("x", "y")),
        ("ProjectDataset", lambda d: d.project("x")),
        ("FilterDataset", lambda d: d.filter(lambda x: True)),
        ("ConcatDataset", lambda d: d + numbers()),
        ("ZipDataset", lambda d: d.zip(numbers(name="y"))),
        ("SyncWaitDataset", lambda d: d.sync_wait("ready")),
    ],
)
def test_a_step_is_of_mindspores_class_and_knows_what_it_continues(name, make):
    data = numbers()
    step = make(data)
    assert type(step) is getattr(ds, name)
    assert step.children[0] is data and data.children == []


def test_steps_are_made_by_their_classes_too():
    assert column(ds.BatchDataset(numbers(), 2)) == [[0, 1], [2, 3]]
    assert column(ds.MapDataset(numbers(), lambda x: x + 1, "x")) == [1, 2, 3, 4]
    assert ds.BatchDataset(numbers(), 2).batch_size == 2
    assert ds.RepeatDataset(numbers(), 3).count == 3 and numbers().repeat().count == -1
    assert rows(ds.ZipDataset((numbers(1), numbers(1, "y")))) == [[0, 0]]
    assert column(ds.ConcatDataset([numbers(2), numbers(1)])) == [0, 1, 0]


def test_steps_have_their_arguments():
    data = numbers().map([abs, np.negative], ["x"], ["y"], num_parallel_workers=2)
    assert (data.input_columns, data.output_columns, len(data.operations)) == (("x",), ("y",), 2)
    assert numbers().shuffle(3).buffer_size == 3 and numbers().sync_wait("a", 2).num_batch == 2
    with pytest.raises(TypeError, match="For 'MapDataset', missing a required argument: 'operations'"):
        ds.MapDataset(numbers())


def test_a_sampler_reaches_the_steps_behind_it_but_no_iterator_that_was_made():
    data = ds.NumpySlicesDataset(np.arange(6), ["x"], shuffle=False)
    batches = data.repeat(2).batch(4)
    assert batches.get_dataset_size() == 3
    before = batches.create_tuple_iterator(num_epochs=1, output_numpy=True)
    data.use_sampler(ds.SubsetSampler([4, 1]))
    assert (column(batches), batches.get_dataset_size()) == ([[4, 1, 4, 1]], 1)
    assert [row[0].tolist() for row in before] == [[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]]
    whole = (data + data).skip(1)
    whole.children[0].use_sampler(ds.DistributedSampler(2, 1, shuffle=False))
    assert (column(whole), whole.get_dataset_size()) == ([1], 1)


def test_a_part_of_a_source_is_a_source_of_its_kind(animals):
    part = animals.split([1, 1], randomize=False)[1]
    assert type(part) is type(animals) and part.children == [] and part.get_dataset_size() == 1
    values = ds.NumpySlicesDataset([5, 6, 7], shuffle=False).split([1, 2], randomize=False)[1]
    assert [value.item() for value in values[1]] == [7]


@pytest.fixture
def animals(tmp_path):
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        PIL.Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / kind / "0.png")
    return ds.ImageFolderDataset(str(tmp_path))


def test_classes_are_known_behind_every_step(animals):
    classes = {"cat": 0, "dog": 1}
    for data in (
        *(animals.repeat(2), animals.repeat(2).batch(2), animals + animals, animals.map(lambda x: x, "label")),
        animals.split([1, 1])[0],
    ):
        assert data.get_class_indexing() == classes
        assert data.num_classes() == 2
    assert ds.zip((numbers(), animals)).get_class_indexing() == {}  # of the first
    assert ds.zip((numbers(), animals)).num_classes() == 2  # of the last
    assert ds.zip((animals, numbers())).num_classes() is None
    padded = ds.PaddedDataset([{"image": np.zeros(1, np.uint8), "label": np.array(1, np.int32)}])
    assert [(animals + padded).num_classes(), (padded + animals).num_classes()] == [2, 2]


# ------------------------------------------------------------------------------------------------------------- workers


def test_workers_of_filters_and_generators_keep_the_order():
    even = numbers(10).filter(lambda x: x % 2 == 0, num_parallel_workers=3)
    assert column(even, epochs=2) == [[0, 2, 4, 6, 8]] * 2
    assert column(ds.GeneratorDataset(generated, "x", num_parallel_workers=2)) == [0, 1, 2, 3, 4]
    assert column(ds.GeneratorDataset(generated, "x", num_samples=3, num_parallel_workers=2)) == [0, 1, 2]


# -------------------------------------------------------------------------------------------------------------- epochs


def logged(log):
    def per_batch(values, info):
        log.append((info.get_epoch_num(), info.get_batch_num()))
        return (values,)

    return per_batch


def test_the_epoch_of_a_batch_does_not_count_repeats():
    log = []
    data = numbers(4).batch(2, per_batch_map=logged(log)).repeat(2)
    column(data, epochs=2)
    assert log == [(0, 0), (0, 1), (0, 0), (0, 1), (1, 0), (1, 1), (1, 0), (1, 1)]
    log.clear()
    column(numbers(4).repeat(2).batch(2, per_batch_map=logged(log)), epochs=2)
    assert log == [(epoch, batch) for epoch in (0, 1) for batch in range(4)]
    sizes = []
    data = numbers(6).batch(lambda info: sizes.append((info.get_epoch_num(), info.get_batch_num())) or 2).repeat(2)
    assert len(rows(data)) == 6
    assert {epoch for epoch, _ in sizes} == {0}


# --------------------------------------------------------------------------------------------------------------- dicts


def test_dicts_are_values_of_columns():
    source = [({"x": np.array([i]), "y": f"s{i}"}, i) for i in range(2)]
    data = ds.GeneratorDataset(source, ["d", "i"], shuffle=False)
    values = [row["d"] for row in data.create_dict_iterator(num_epochs=1, output_numpy=True)]
    assert [(value["x"].tolist(), str(value["y"])) for value in values] == [([0], "s0"), ([1], "s1")]
    assert data.output_types() == [np.dtype(object), np.dtype(np.int64)]
    tensors = next(iter(data.create_tuple_iterator(num_epochs=1)))[0]
    assert tensors["x"].asnumpy().tolist() == [0] and isinstance(tensors["y"], np.ndarray)


def test_dicts_go_through_functions_and_batches():
    data = ds.GeneratorDataset([({"x": i},) for i in range(4)], "d", shuffle=False)
    wider = data.map(lambda d: {**d, "z": d["x"] * 2}, "d")
    read = [row[0] for row in wider.create_tuple_iterator(num_epochs=1, output_numpy=True)]
    assert [(int(d["x"]), int(d["z"])) for d in read] == [(0, 0), (1, 2), (2, 4), (3, 6)]
    batches = [row[0] for row in wider.batch(2).create_tuple_iterator(num_epochs=1, output_numpy=True)]
    assert [(d["x"].tolist(), d["z"].tolist()) for d in batches] == [([0, 1], [0, 2]), ([2, 3], [4, 6])]
    assert column(data.map(lambda d: np.array(d["x"]), "d").batch(4)) == [[0, 1, 2, 3]]
    gathered = data.batch(2, per_batch_map=lambda d, info: (np.array([item["x"] for item in d]),))
    assert column(gathered) == [[0, 1], [2, 3]]


def test_dicts_of_a_batch_have_the_same_keys():
    data = ds.GeneratorDataset([({"x": 1},), ({"y": 1},)], "d", shuffle=False).batch(2)
    with pytest.raises(
        RuntimeError, match=r"all dicts of column 'd' must have the same keys, but got \[\['x'\], \['y'\]\]"
    ):
        rows(data)


def test_dicts_keep_their_lists_and_functions_get_them_as_they_are():
    source = [({"a": [1, 2], "t": (1,), "i": 3, "m": [{"q": 1.5}]},)] * 2
    seen = []
    data = ds.GeneratorDataset(source, "d", shuffle=False).map(lambda d: seen.append(d) or d, "d")
    (given,) = next(iter(data.create_tuple_iterator(num_epochs=1)))
    assert seen[0] == source[0][0]
    assert [type(item) for item in given["a"]] == [Tensor, Tensor] and type(given["t"]) is tuple
    assert given["m"][0]["q"].asnumpy() == 1.5 and given["i"].shape == ()
    (arrays,) = next(iter(data.create_tuple_iterator(num_epochs=1, output_numpy=True)))
    assert arrays["a"] == [1, 2] and isinstance(arrays["a"][0], np.ndarray)
    several = ds.GeneratorDataset([({"a": [1, 2]},)] * 2, "d").batch(2)
    assert rows(several.map(lambda d: d["a"], "d")) == [[[[1, 2], [1, 2]]]]


def test_padded_batches_of_dicts_and_scalars():
    data = ds.GeneratorDataset([({"x": np.arange(2)}, i) for i in range(4)], ["d", "n"], shuffle=False)
    for pads in ({}, {"n": ([], 0)}):
        padded = [
            (row[0]["x"].tolist(), row[1].tolist())
            for row in data.padded_batch(2, pad_info=pads).create_tuple_iterator(num_epochs=1, output_numpy=True)
        ]
        assert padded == [([[0, 1], [0, 1]], [0, 1]), ([[0, 1], [0, 1]], [2, 3])]
    assert data.output_shapes() == data.output_shapes(estimate=True) == [[0], []]


# ----------------------------------------------------------------------------------------------------------- sync_wait


def test_rows_wait_for_what_came_of_the_batch_before():
    state = {"loss": 0}
    data = numbers(8).sync_wait("loss", callback=state.update).map(lambda x: x + 100 * state["loss"], "x").batch(2)
    read = []
    for number, (batch,) in enumerate(data.repeat(2).create_tuple_iterator(num_epochs=1, output_numpy=True), 1):
        read.append(batch.tolist())
        data.sync_update("loss", data={"loss": number})
    expected = [[0, 1], [102, 103], [204, 205], [306, 307], [400, 401], [502, 503], [604, 605], [706, 707]]
    assert read == expected


def test_several_batches_pass_at_the_start_of_each_epoch():
    state = {"loss": 0}
    data = numbers(8).sync_wait("loss", num_batch=2, callback=state.update)
    data = data.map(lambda x: x + 100 * state["loss"], "x", num_parallel_workers=4).batch(2)
    iterator = data.create_tuple_iterator(num_epochs=2, output_numpy=True)
    for _ in range(2):
        state["loss"] = 0
        read = []
        for number, (batch,) in enumerate(iterator):
            read.append(batch.tolist())
            if number == 1:
                data.sync_update("loss", data={"loss": 1})
        assert read == [[0, 1], [2, 3], [104, 105], [106, 107]]


def test_misuse_of_conditions_is_reported():
    data = numbers().sync_wait("a")
    for error, make in (
        (RuntimeError, lambda: data.sync_wait("a")),
        (RuntimeError, lambda: data.sync_update("b")),
        (RuntimeError, lambda: data.sync_update("a", num_batch=0)),
        (RuntimeError, lambda: numbers().sync_update("a")),
        (RuntimeError, lambda: data.batch(2).shuffle(3)),
        (ValueError, lambda: numbers().sync_wait("a", num_batch=0)),
        (TypeError, lambda: numbers().sync_wait(5)),
        (TypeError, lambda: numbers().sync_wait("a", num_batch="b")),
        (TypeError, lambda: numbers().sync_wait("a", callback=1)),
        (TypeError, lambda: data.sync_update(5)),
    ):
        with pytest.raises(error, match="For 's"):
            make()
    assert data.is_sync() and not numbers().is_sync()


def test_rows_that_are_never_released_pass_with_a_warning():
    ds.config.set_callback_timeout(1)
    with pytest.warns(UserWarning, match="no 'sync_update' of the condition 'a' came for 1 seconds"):
        assert column(numbers(3).sync_wait("a")) == [0, 1, 2]


def test_an_iterator_that_is_left_does_not_wait():
    data = numbers(8).sync_wait("a")
    for _ in range(2):
        iterator = data.create_tuple_iterator(num_epochs=1, output_numpy=True)
        assert next(iterator)[0] == 0
        iterator.release()
    assert data.get_dataset_size() == 8


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize(
    ("other", "kinds"),
    [
        (np.ones((2, 3), np.int32), "data types of the two .*: float32 and int32"),
        (np.ones((2, 3, 1), np.float32), "data tensor rank of the two .*: 1 and 2"),
    ],
)
def test_concat_needs_equal_dtypes_and_ranks(in_memory, other, kinds):
    def rows(values):
        data = ds.NumpySlicesDataset(values, ["x"], shuffle=False)
        return data if in_memory else data.filter(lambda x: True)

    values = np.ones((2, 3), np.float32)
    joined = rows(values).concat(rows(np.ones((2, 4), np.float32)))
    assert [len(x) for (x,) in joined.create_tuple_iterator(num_epochs=1, output_numpy=True)] == [3, 3, 4, 4]
    with pytest.raises(RuntimeError, match=kinds):
        list(rows(values).concat(rows(other)).create_tuple_iterator(num_epochs=1))


def test_a_result_of_map_takes_the_place_of_a_column_of_its_name():
    data = ds.NumpySlicesDataset(([1], [4], [7]), ["x", "y", "z"], shuffle=False)
    for inputs, names, row in ((["x"], ["y", "z"], [10, 7]), (["z"], ["x", "y"], [1, 70])):
        mapped = data.map(lambda value: value * 10, inputs, ["y"])
        assert mapped.column_names == names  # as in MindSpore 2.10
        assert [int(value) for value in next(mapped.create_tuple_iterator(output_numpy=True))] == row
    with pytest.raises(RuntimeError, match="'y' exists already"):
        data.map(lambda value: (value, value), ["z"], ["y", "w"])


def test_device_que_reads_batches_and_reports_their_form():
    queue = ds.NumpySlicesDataset(np.arange(10, dtype=np.int32), ["x"]).batch(4).device_que(queue_name="q")
    assert isinstance(queue, ds.TransferDataset)
    assert (queue.queue_name, queue.get_col_names()) == ("q", ["x"])
    with pytest.raises(RuntimeError, match="Calling get_data_info with bad state"):
        queue.get_data_info()
    queue.send(2)
    queue._sender.join()
    assert queue.get_send_info()[0] == 6
    assert queue.get_data_info() == ([np.dtype(np.int32)], [[2]])
    with pytest.raises(RuntimeError, match="TransferDataset is not iterable"):
        queue.create_dict_iterator()


def test_device_que_reads_for_ever_until_it_is_stopped():
    seen = threading.Event()
    rows = ds.GeneratorDataset(lambda: iter(range(3)), ["x"])
    queue = rows.map(lambda x: (seen.set(), x)[1], "x").device_que()
    queue.send()
    assert seen.wait(60)
    queue.release()
    assert not queue._sender.is_alive()


def test_rows_of_flows_are_shared_out_and_shuffled_behind_a_concatenation():
    def flow(first, count):
        return ds.GeneratorDataset(lambda: iter(range(first, first + count)), ["x"])

    both = flow(0, 4) + flow(4, 3)
    for shard in range(2):
        both.use_sampler(ds.DistributedSampler(2, shard, shuffle=False))
        assert (column(both), both.get_dataset_size()) == (list(range(shard, 7, 2)), 4 - shard)
    both.use_sampler(ds.RandomSampler())
    first, second = column(both, epochs=2)
    assert sorted(first) == sorted(second) == list(range(7)) and first != second


def test_strings_and_bytes_are_padded_by_values_longer_than_they_are():
    rows = [(np.array(["a"]), np.array([b"x"])), (np.array(["a", "b"]), np.array([b"x", b"y"]))]
    data = ds.GeneratorDataset(rows, ["text", "bytes"], shuffle=False)
    pads = {"text": (None, "[PAD]"), "bytes": ([3], b"-2")}
    ((text, content),) = data.padded_batch(2, pad_info=pads).create_tuple_iterator(num_epochs=1, output_numpy=True)
    assert text.tolist() == [["a", "[PAD]"], ["a", "b"]]
    assert content.tolist() == [[b"x", b"-2", b"-2"], [b"x", b"y", b"-2"]]
