"""Batch samplers, lengths of samplers, and single rows of a source."""

import numpy as np
import pytest

import sporax.mindspore.dataset as ds

from .conftest import column, rows


class Pairs:
    def __getitem__(self, index):
        return index, np.array([index])

    def __len__(self):
        return 4


class Alternating:
    """Batches in another order every second time."""

    def __init__(self):
        self.num_passes = 0

    def __iter__(self):
        self.num_passes += 1
        return iter([[0, 1], [2]] if self.num_passes % 2 else [[2, 1], [0]])

    def __len__(self):
        return 2


def paired(**options):
    return ds.GeneratorDataset(Pairs(), ["a", "b"], **options)


def test_a_batch_sampler_names_the_rows_of_each_batch():
    data = paired(batch_sampler=[[0, 1], [3, 2]])
    assert rows(data) == [[[0, 1], [[0], [1]]], [[3, 2], [[3], [2]]]]
    assert rows(data.map(lambda a: a * 2, "a"))[1][0] == [6, 4]
    assert (data.get_dataset_size(), data.get_batch_size()) == (2, -1)
    assert column(data.batch(2)) == [[[0, 1], [3, 2]]] and data.batch(2).get_batch_size() == 2


def test_batches_may_differ_in_size_and_from_epoch_to_epoch():
    sampler = Alternating()
    data = ds.GeneratorDataset([0, 10, 20], "a", batch_sampler=sampler)
    assert data.get_dataset_size() == 2 and sampler.num_passes == 0
    assert column(data, epochs=2) == [[[0, 10], [20]], [[20, 10], [0]]]


def test_a_function_may_make_the_batches():
    seen = []

    def joined(first, second):
        seen.append((len(first), [value.tolist() for value in second]))
        return np.array([sum(map(int, first))]), np.concatenate(second)

    data = paired(batch_sampler=[[0, 1], [3]], collate_fn=joined)
    assert rows(data) == [[[1], [0, 1]], [[3], [3]]]
    assert seen == [(2, [[0], [1]]), (1, [[3]])]


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (ValueError, {"batch_sampler": [[0]], "sampler": [1]}),
        (ValueError, {"batch_sampler": [[0]], "shuffle": True}),
        (ValueError, {"batch_sampler": [[0]], "num_shards": 2, "shard_id": 0}),
        (ValueError, {"batch_sampler": [[0]], "num_samples": 2}),
        (TypeError, {"batch_sampler": 3}),
        (TypeError, {"batch_sampler": [[0]], "collate_fn": 3}),
        (ValueError, {"collate_fn": lambda a, b: (a, b)}),
        (RuntimeError, {"batch_sampler": [1, 2]}),
        (RuntimeError, {"batch_sampler": [[0]], "collate_fn": lambda a, b: a}),
        (RuntimeError, {"batch_sampler": [[0]], "collate_fn": lambda a: a}),
    ],
)
def test_arguments_of_batch_samplers_are_checked(error, options):
    with pytest.raises(error, match="For 'GeneratorDataset'"):
        rows(paired(**options))


class Long(ds.Sampler):
    def __iter__(self):
        yield from [2, 0]

    def __len__(self):
        return 3


def test_the_length_of_a_sampler_is_believed():
    assert ds.NumpySlicesDataset([5, 6, 7], "a", sampler=Long()).get_dataset_size() == 3
    with pytest.raises(RuntimeError, match="data read from generator 2 is different from generator.len 3"):
        column(ds.NumpySlicesDataset([5, 6, 7], "a", sampler=Long()))


def test_single_rows_come_in_the_samplers_order():
    data = ds.GeneratorDataset([10, 20, 30], "a", shuffle=False)
    assert data[1] == 20
    assert ds.GeneratorDataset([10, 20, 30], "a", sampler=[2, 0])[0] == 30
    assert ds.NumpySlicesDataset({"a": [1, 2], "b": [3, 4]}, shuffle=False)[1] == (2, 4)
    for index in (-1, 5):
        with pytest.raises(RuntimeError, match=rf"the index must be in \[0, 3\), but got {index}"):
            data[index]
    with pytest.raises(TypeError):
        data["a"]
    with pytest.raises(RuntimeError, match="must have random access"):
        ds.GeneratorDataset((number for number in range(3)), "a")[0]
