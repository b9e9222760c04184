"""The steps of a pipeline: columns, sizes, order and errors, as MindSpore 2.10 has them (except random numbers)."""

import numpy as np
import pytest

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import transforms

from .conftest import column, rows


def numbers(n=6, **arguments):
    arguments.setdefault("shuffle", False)
    return ds.NumpySlicesDataset((np.arange(n), np.arange(n) * 10.0), column_names=["x", "y"], **arguments)


def triples():
    a = np.arange(3)
    return ds.NumpySlicesDataset((a, a * 2, a * 3), column_names=["x", "y", "z"], shuffle=False)


def ragged():
    def generate():
        for i in range(4):
            yield (np.arange(i + 1),)

    return ds.GeneratorDataset(generate, ["x"])


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda d: d.batch(4), 2),
        (lambda d: d.batch(4, drop_remainder=True), 1),
        (lambda d: d.repeat(3), 18),
        (lambda d: d.repeat(3).batch(4), 5),
        (lambda d: d.batch(4).repeat(3), 6),
        (lambda d: d.take(3), 3),
        (lambda d: d.take(30), 6),
        (lambda d: d.take(-1), 6),
        (lambda d: d.skip(4), 2),
        (lambda d: d.skip(70), 0),
        (lambda d: d.skip(2).take(2).shuffle(2).batch(2), 1),
        (lambda d: d.take(5).skip(2).repeat(2).batch(3), 2),
        (lambda d: d + d, 12),
        (lambda d: d.filter(lambda x: x % 2 == 0, "x"), 3),
        (lambda d: ds.zip((d.take(2), d.project("x").rename("x", "p"))), 2),
        (lambda d: d.batch(lambda info: info.get_batch_num() + 1), 3),
        (lambda d: d.map(lambda x: x, "x").shuffle(3), 6),
    ],
)
def test_sizes_are_known_and_true(make, size):
    data = make(numbers())
    assert data.get_dataset_size() == len(data) == size
    assert len(rows(data)) == size


def test_order_of_repeat_and_batch():
    assert column(numbers().repeat(2).batch(4)) == [[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]]
    assert column(numbers().batch(4).repeat(2)) == [[0, 1, 2, 3], [4, 5], [0, 1, 2, 3], [4, 5]]
    assert column(numbers().batch(lambda info: info.get_batch_num() + 1)) == [[0], [1, 2], [3, 4, 5]]


def test_names_of_batches_need_a_function():
    assert numbers().batch(4, output_columns=["a", "b", "c"]).column_names == numbers().column_names
    with pytest.raises(ValueError, match="input_columns can be specified only when per_batch_map is set"):
        numbers().batch(4, input_columns=["x"], output_columns=["a"])


def test_endless_repeat_counts_one_pass_and_never_ends():
    data = numbers().repeat()
    assert data.get_dataset_size() == 6
    assert data.get_repeat_count() == -1
    assert column(data.take(8)) == [0, 1, 2, 3, 4, 5, 0, 1]
    assert column(data.batch(4).take(3))[2] == [2, 3, 4, 5]
    assert len(column(data.shuffle(3).take(20))) == 20


def test_batch_and_repeat_counts():
    assert numbers().get_batch_size() == 1
    assert numbers().batch(2).map(lambda x: x, "x").get_batch_size() == 2
    assert numbers().batch(2).batch(3).get_batch_size() == 3
    assert numbers().repeat(3).batch(2).get_repeat_count() == 3


def test_map_places_its_columns():
    def names(*arguments, **keywords):
        return triples().map(*arguments, **keywords).get_col_names()

    assert names(lambda x, z: (x, z, x), ["x", "z"], ["p", "q", "r"]) == ["p", "q", "r", "y"]
    assert names(lambda z: z, "z", "p") == ["x", "y", "p"]
    assert names(lambda x, z: x, ["x", "z"], ["p"]) == ["p", "y"]
    assert names(lambda y: (y, y), ["y"], ["y", "p"]) == ["y", "p", "x", "z"]
    assert rows(triples().map(lambda x: x + 100).take(1)) == [[100, 0, 0]]


def test_map_chains_operations_over_columns():
    assert column(numbers().map([lambda x: (x, x + 1), lambda a, b: a + b], "x")) == [1, 3, 5, 7, 9, 11]
    assert rows(numbers().map([lambda x, y: x, lambda x: (x, x)], ["x", "y"]))[5] == [5, 5]
    assert rows(numbers().map(transforms.Duplicate(), "x", ["a", "b"]))[1] == [1, 1, 10.0]


@pytest.mark.parametrize("value", [1.5, 3, [1.5, 2], "a", True])
def test_functions_may_return_python_values(value):
    data = numbers(2).map(lambda x: value, "x")
    assert column(data) == [value, value]
    dtype = np.asarray(value).dtype
    assert data.output_types()[0] == (np.dtype("U") if isinstance(value, str) else dtype)


def test_map_on_batches_and_ragged_rows():
    assert column(numbers().batch(4).map(lambda x: x.sum(), "x")) == [6, 9]
    assert column(ragged().map(lambda x: x * 2, "x"))[3] == [0, 2, 4, 6]
    assert column(ragged().batch(1))[2] == [[0, 1, 2]]


def test_block_and_row_paths_agree():
    cast = transforms.TypeCast(np.float32)
    batched = numbers().map(cast, "x").batch(3)
    single = numbers().map([lambda x: x, cast], "x").batch(3)
    assert rows(batched) == rows(single)
    assert batched.output_types()[0] == np.float32


def test_project_rename_zip_concat():
    assert rows(triples().project(["z", "x"]))[2] == [6, 2]
    assert triples().rename(["z", "x"], ["a", "b"]).get_col_names() == ["b", "y", "a"]
    wide = ds.zip((numbers(), triples().rename(["x", "y"], ["p", "q"])))
    assert wide.get_col_names() == ["x", "y", "p", "q", "z"]
    assert rows(wide)[2] == [2, 20.0, 2, 4, 6]
    assert column(numbers().take(1) + numbers().take(2)) == [0, 0, 1]
    assert column(numbers(3).concat([ragged().map(lambda x: (x.size, 0.0), "x", ["x", "y"])])) == [0, 1, 2, 1, 2, 3, 4]
    assert column(numbers().take(2).concat([numbers().take(1), numbers().skip(5)]).batch(3)) == [[0, 1, 0], [5]]


def test_filter_and_flat_map():
    assert column(numbers().filter(lambda x, y: x > 3)) == [4, 5]
    assert column(numbers().filter(lambda x: 5, "x")) == [0, 1, 2, 3, 4, 5]
    assert column(numbers().filter(lambda x: x % 2, "x").batch(2)) == [[1, 3], [5]]
    lengths = ds.NumpySlicesDataset([2, 3], ["n"], shuffle=False)
    assert column(lengths.flat_map(lambda n: ds.NumpySlicesDataset(np.arange(n), "z", shuffle=False))) == [
        0,
        1,
        0,
        1,
        2,
    ]


def test_per_batch_map():
    data = numbers().batch(4, per_batch_map=lambda x, info: (x, [info.get_batch_num()] * len(x)), input_columns="x",
                           output_columns=["p", "q"])  # fmt: skip
    assert data.get_col_names() == ["p", "q", "y"]
    assert rows(data)[1] == [[4, 5], [1, 1], [40.0, 50.0]]
    # A dict or a scalar is the batch itself; for one column a dict needs no tuple.
    for result in ({"a": [1, 2]}, ({"a": [1, 2]},)):
        data = numbers(4).batch(2, per_batch_map=lambda x, info, result=result: result, input_columns="x")
        assert [row["x"] for row in data.create_dict_iterator(output_numpy=True)] == [{"a": [1, 2]}] * 2
    data = numbers(4).batch(2, per_batch_map=lambda x, info: (np.array(10),), input_columns="x")
    assert [row["x"].tolist() for row in data.create_dict_iterator(output_numpy=True)] == [10, 10]
    epochs = numbers(2).batch(2, per_batch_map=lambda x, y, info: ([i + info.get_epoch_num() for i in x], y))
    assert column(epochs, epochs=2) == [[[0, 1]], [[1, 2]]]
    with pytest.raises(RuntimeError, match="should be 2 , but got: 1"):
        rows(numbers().batch(2, per_batch_map=lambda x, y, info: (x,)))


def test_padded_batch():
    assert column(ragged().padded_batch(2, pad_info={"x": ([5], -1)}))[0] == [[0, -1, -1, -1, -1], [0, 1, -1, -1, -1]]
    assert column(ragged().padded_batch(2, pad_info={"x": ([None], -1)}))[1] == [[0, 1, 2, -1], [0, 1, 2, 3]]
    assert column(ragged().padded_batch(2, pad_info={})) == [[[0, 0], [0, 1]], [[0, 1, 2, 0], [0, 1, 2, 3]]]
    assert column(ragged().padded_batch(2, pad_info={"x": ([2], -1)}))[1] == [[0, 1], [0, 1]]
    with pytest.raises(RuntimeError, match="shape"):
        rows(ragged().padded_batch(2))
    with pytest.raises(RuntimeError, match="does not exist"):
        ragged().padded_batch(2, pad_info={"z": ([2], -1)})


def test_bucket_batch_by_length():
    pads = {"x": ([None], 0)}

    def buckets(*arguments, **keywords):
        return column(ragged().bucket_batch_by_length(["x"], *arguments, **keywords))

    assert buckets([2, 4], [2, 1, 1]) == [[[0, 1]], [[0, 1, 2]], [[0, 1, 2, 3]], [[0]]]
    assert buckets([3], [2, 2], pad_info=pads) == [[[0, 0], [0, 1]], [[0, 1, 2, 0], [0, 1, 2, 3]]]
    assert buckets([4, 6], [2, 2, 2], pad_info=pads, pad_to_bucket_boundary=True)[0] == [[0, 0, 0], [0, 1, 0]]
    assert buckets([3], [2, 2], lambda x: len(x) * 2, pads, drop_remainder=True) == [[[0, 1, 0], [0, 1, 2]]]
    with pytest.raises(RuntimeError, match="last boundary 4"):
        buckets([3, 4], [2, 2, 2], pad_info=pads, pad_to_bucket_boundary=True)
    for edges, sizes in (([3], [2]), ([3, 2], [2, 2, 2]), ([0, 2], [2, 2, 2]), ([], [2])):
        with pytest.raises(ValueError):
            buckets(edges, sizes)


def test_splits_are_disjoint_and_stay_the_same():
    whole = ds.NumpySlicesDataset(np.arange(10), "x", shuffle=False)
    assert [column(part) for part in whole.split([3, 7], randomize=False)] == [[0, 1, 2], [3, 4, 5, 6, 7, 8, 9]]
    for data in (whole, whole.map(lambda x: x, "x"), ds.GeneratorDataset(lambda: iter(range(10)), "x")):
        first, second = data.split([0.3, 0.7])
        assert column(first, epochs=2) == [column(first)] * 2
        assert sorted(column(first) + column(second)) == list(range(10))
        assert column(first) != [0, 1, 2]
    assert [len(part) for part in whole.split([0.33, 0.33, 0.34])] == [4, 3, 3]
    assert [len(part) for part in whole.take(9).split([0.5, 0.5])] == [5, 4]
    part = whole.split([6, 4])[0]
    part.use_sampler(ds.DistributedSampler(2, 0, shuffle=False))
    assert len(column(part)) == 3
    with pytest.warns(UserWarning, match="shuffled"):
        whole.shuffle(4).split([5, 5])


@pytest.mark.parametrize(
    ("error", "sizes"),
    [(RuntimeError, [2, 5]), (ValueError, [0.5, 0.6]), (RuntimeError, [0.01, 0.99]), (ValueError, []), (TypeError, 3),
     (ValueError, [0, 6])],
)  # fmt: skip
def test_split_errors(error, sizes):
    with pytest.raises(error):
        numbers().split(sizes)


def test_splitting_a_shard_is_refused():
    with pytest.raises(RuntimeError, match="sharded"):
        numbers(num_shards=2, shard_id=0).split([1, 2])


def test_shapes_and_types():
    assert numbers().batch(4).output_shapes() == [[4], [4]]
    assert numbers().output_types() == [np.dtype(np.int64), np.dtype(np.float64)]
    assert ragged().output_shapes() == [[1]]
    assert ragged().output_shapes(estimate=True) == [[None]]


def test_one_dataset_may_begin_several_pipelines():
    base = numbers()
    assert column(base.take(1)) == [0]
    assert column(base.skip(5)) == [5]
    assert column(ds.zip((base, base.rename(["x", "y"], ["p", "q"])))) == list(range(6))


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ValueError, lambda d: d.repeat(0)),
        (ValueError, lambda d: d.repeat(-2)),
        (TypeError, lambda d: d.repeat("a")),
        (ValueError, lambda d: d.batch(0)),
        (TypeError, lambda d: d.batch("2")),
        (TypeError, lambda d: d.batch(2.0)),
        (TypeError, lambda d: d.batch(2, foo=1)),
        (TypeError, lambda d: d.batch(2, drop_remainder=1)),
        (UserWarning, lambda d: d.map(lambda x: x, "x", max_rowsize=3)),
        (ValueError, lambda d: d.shuffle(1)),
        (TypeError, lambda d: d.shuffle("s")),
        (ValueError, lambda d: d.take(0)),
        (ValueError, lambda d: d.take(-2)),
        (ValueError, lambda d: d.skip(-1)),
        (RuntimeError, lambda d: d.project("zz")),
        (ValueError, lambda d: d.project([])),
        (TypeError, lambda d: d.project(3)),
        (ValueError, lambda d: d.project(["y", "y"])),
        (RuntimeError, lambda d: d.rename("zz", "y")),
        (RuntimeError, lambda d: d.rename("x", "y")),
        (ValueError, lambda d: d.rename(["x", "y"], ["z"])),
        (RuntimeError, lambda d: d.map(lambda x: x, "zz")),
        (ValueError, lambda d: d.map(3, "x")),
        (ValueError, lambda d: d.map(transforms.Duplicate, "x")),
        (ValueError, lambda d: d.map([], "x")),
        (TypeError, lambda d: d.map(lambda x: x, 3)),
        (ValueError, lambda d: d.map(lambda x: x, ["x", "x"])),
        (TypeError, lambda d: d.map(lambda x: x, "x", python_multiprocessing=3)),
        (ValueError, lambda d: d.map(lambda x: x, "x", num_parallel_workers=0)),
        (TypeError, lambda d: d.filter(3)),
        (TypeError, lambda d: d.flat_map(lambda x, y: 3)),
        (TypeError, lambda d: d.apply(3)),
        (TypeError, lambda d: d.apply(lambda x: 3)),
        (TypeError, lambda d: d + 3),
        (RuntimeError, lambda d: next(iter(d + d.project("x")))),
        (RuntimeError, lambda d: d.zip(d)),
        (TypeError, lambda d: ds.zip((d, 3))),
        (TypeError, lambda d: ds.zip(3)),
        (ValueError, lambda d: ds.zip(())),
    ],
)
def test_argument_errors(error, make):
    with pytest.raises(error):
        make(numbers())


@pytest.mark.parametrize(
    ("text", "make"),
    [
        ("ZeroDivisionError", lambda d: d.map(lambda x: 1 // 0, "x")),
        ("NoneType", lambda d: d.map(lambda x: None, "x")),
        ("number of columns returned in .map. operations should match", lambda d: d.map(lambda x: (x, x), "x", "a")),
        ("can only accept one tensor as input", lambda d: d.map(transforms.TypeCast(np.int32), ["x", "y"])),
        ("Cannot batch tensors with different shapes", lambda d: d.map(lambda x: np.zeros(int(x)), "x").batch(2)),
        ("predicate failed", lambda d: d.filter(lambda x: np.array([True, False]), "x")),
        ("'per_batch_map' at batch 0 failed", lambda d: d.batch(2, per_batch_map=lambda x, y: (x, y))),
    ],
)
def test_failures_while_reading_are_runtime_errors(text, make):
    with pytest.raises(RuntimeError, match=text):
        rows(make(numbers()))


def test_concatenated_rows_are_shared_out():
    """As MindSpore shares them: no row twice, also where the parts do not divide evenly."""

    def whole():
        padded = ds.PaddedDataset([{"x": np.array(i)} for i in (100, 101, 102)])
        return ds.NumpySlicesDataset(np.arange(5), "x", shuffle=False) + padded

    def shard(rank):
        data = whole()
        data.use_sampler(ds.DistributedSampler(4, rank, shuffle=False))
        return data

    assert [column(shard(rank)) for rank in range(4)] == [[0, 4], [1, 100], [2, 101], [3, 102]]
    assert [len(shard(0)), shard(0).is_sharded(), whole().is_sharded()] == [2, True, False]
    mixed = whole()
    mixed.use_sampler(ds.RandomSampler())
    assert sorted(column(mixed)) == sorted(column(whole()))
    assert mixed.is_shuffled() and column(mixed) != column(whole())


@pytest.mark.parametrize(
    ("sampler", "error"),
    [
        (ds.SequentialSampler(), TypeError),
        (ds.DistributedSampler(2, 0), ValueError),
        (ds.DistributedSampler(2, 0, shuffle=False, num_samples=1), ValueError),
        (ds.RandomSampler(replacement=True), ValueError),
    ],
)
def test_samplers_that_cannot_share_out_concatenated_rows(sampler, error):
    data = ds.NumpySlicesDataset([1, 2], "x") + ds.NumpySlicesDataset([3], "x")
    with pytest.raises(error, match="For 'use_sampler'"):
        data.use_sampler(sampler)


def test_what_is_not_offered_says_so():
    data = ds.NumpySlicesDataset([1])
    with pytest.raises(AttributeError, match="For 'NumpySlicesDataset', the method 'recv' is not offered"):
        data.recv()
    assert not hasattr(data.batch(1), "recv") and not hasattr(data, "nonsense")
    for module, name in (
        (ds, "OBSMindDataset"),
        (ds.text, "JiebaTokenizer"),
        (ds.transforms, "Plugin"),
        (ds.vision, "Nonsense"),
    ):
        with pytest.raises(AttributeError, match=f"must be one that Sporax offers, but got '{name}'"):
            getattr(module, name)
    with pytest.raises(AttributeError, match="but got 'set_nonsense'"):
        ds.config.set_nonsense(True)


@pytest.mark.parametrize("rows", [3, [3], [], [{"x": 1}, {"y": 1}]])
def test_padded_rows_must_be_rows(rows):
    with pytest.raises((TypeError, ValueError), match="For 'PaddedDataset'"):
        ds.PaddedDataset(rows)


def test_sizes_are_called_for_batches_that_come_only():
    numbers = []

    def size(info):
        numbers.append((info.get_batch_num(), info.get_epoch_num()))
        return 1 + info.get_batch_num()

    data = ds.NumpySlicesDataset([1, 2, 3, 4], "x", shuffle=False).batch(size)
    batches = [row[0].tolist() for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]
    assert batches == [[1], [2, 3], [4]] and numbers == [(0, 0), (1, 0), (2, 0)]
