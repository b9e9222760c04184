"""Which rows a pass reads: sharding laws, and the samplers against what MindSpore 2.10 gives."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset._random import Pass

from .conftest import column


def numbers(**arguments):
    return ds.NumpySlicesDataset(np.arange(10), column_names=["x"], **arguments)


def shard(n, num_shards, shard_id, run, **arguments):
    return ds.DistributedSampler(num_shards, shard_id, **arguments).order(n, run).tolist()


SIZES = st.integers(1, 60)
SHARDS = st.integers(1, 12)
RUNS = st.builds(lambda seed, index: Pass(seed, seed, index), st.integers(0, 2**32 - 1), st.integers(0, 5))


@given(SIZES, SHARDS, RUNS, st.booleans())
def test_shards_cover_all_rows_equally_and_wrap_to_the_beginning(n, num_shards, run, shuffle):
    shares = [shard(n, num_shards, r, run, shuffle=shuffle) for r in range(num_shards)]
    share = -(-n // num_shards)
    assert {len(rows) for rows in shares} == {share}
    whole = [shares[i % num_shards][i // num_shards] for i in range(share * num_shards)]
    assert sorted(whole[:n]) == list(range(n))
    assert whole == [whole[i % n] for i in range(len(whole))]
    if not shuffle:
        assert whole[:n] == list(range(n))


@given(SIZES, SHARDS, RUNS, st.booleans(), st.data())
def test_shards_with_an_offset_partition_the_rows(n, num_shards, run, shuffle, data):
    offset = data.draw(st.integers(0, num_shards - 1))
    shares = [shard(n, num_shards, r, run, shuffle=shuffle, offset=offset) for r in range(num_shards)]
    assert sorted(row for rows in shares for row in rows) == list(range(n))
    if not shuffle:
        assert all((row + offset) % num_shards == r for r, rows in enumerate(shares) for row in rows)


@given(SIZES, RUNS)
def test_the_permutation_is_redrawn_each_pass_and_shared_by_all_ranks(n, run):
    first = [shard(n, 2, r, run) for r in (0, 1)]
    assert first == [shard(n, 2, r, Pass(run.seed ^ 1, run.shared_seed, run.index)) for r in (0, 1)]
    later = [shard(n, 2, 0, run.at(k)) for k in range(run.index + 1, run.index + 9)]
    assert n < 6 or any(order != first[0] for order in later)


def test_documented_shards():
    assert [column(numbers(num_shards=4, shard_id=r, shuffle=False)) for r in range(4)] == [
        [0, 4, 8],
        [1, 5, 9],
        [2, 6, 0],
        [3, 7, 1],
    ]
    three = [shard(3, 8, r, Pass(0, 0), shuffle=False) for r in (3, 4)]
    assert three == [[0], [1]]
    offset = [numbers(sampler=ds.DistributedSampler(4, r, shuffle=False, offset=1)) for r in range(4)]
    assert [column(part) for part in offset] == [[3, 7], [0, 4, 8], [1, 5, 9], [2, 6]]
    assert [part.get_dataset_size() for part in offset] == [2, 3, 3, 2]
    capped = [numbers(num_shards=4, shard_id=r, shuffle=False, num_samples=2) for r in range(4)]
    assert [column(part) for part in capped] == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_shards_agree_without_a_seed_even_if_one_rank_reads_more():
    parts = [numbers(num_shards=2, shard_id=r) for r in (0, 1)]
    column(parts[0])
    assert sorted(column(parts[0]) + column(parts[1])) == list(range(10))


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (ds.SequentialSampler(3), [3, 4, 5, 6, 7, 8, 9]),
        (ds.SequentialSampler(3, 2), [3, 4]),
        (ds.SequentialSampler(3, 20), [3, 4, 5, 6, 7, 8, 9]),
        (ds.SubsetSampler([3, 1, 1, 2]), [3, 1, 1, 2]),
        (ds.SubsetSampler([3, 1, 1, 2], 2), [3, 1]),
        (ds.SubsetSampler(5), [5]),
        ([4, 2], [4, 2]),
        (iter([4, 2]), [4, 2]),
        (range(9, 5, -2), [9, 7]),
    ],
)
def test_fixed_samplers(sampler, expected):
    data = numbers(sampler=sampler)
    assert column(data) == expected
    assert column(data) == expected
    assert data.get_dataset_size() == len(expected)


def test_random_samplers_follow_their_contract():
    whole = [
        column(numbers(sampler=ds.RandomSampler()), epochs=2),
        column(numbers(sampler=ds.RandomSampler()), epochs=2),
    ]
    assert whole[0] == whole[1]
    assert sorted(whole[0][0]) == sorted(whole[0][1]) == list(range(10))
    assert whole[0][0] != whole[0][1]
    assert len(column(numbers(sampler=ds.RandomSampler(replacement=True, num_samples=4)))) == 4
    assert len(column(numbers(sampler=ds.RandomSampler(replacement=True, num_samples=14)))) == 10
    assert sorted(column(numbers(sampler=ds.SubsetRandomSampler([3, 1, 5])))) == [1, 3, 5]
    assert set(column(numbers(sampler=ds.WeightedRandomSampler([0, 0, 1.0, 3, 0])))) <= {2, 3}
    unique = column(numbers(sampler=ds.WeightedRandomSampler([0, 0, 1.0, 3, 0], 3, replacement=False)))
    assert set(unique[:2]) == {2, 3}
    assert len(set(unique)) == 3


def test_weights_are_respected():
    sampler = ds.WeightedRandomSampler([1, 3] + [0] * 4000)
    order = sampler.order(4002, Pass(1, 1))
    assert 0.7 < (order == 1).mean() < 0.8


def test_own_sampler_knows_the_size_and_is_reset():
    class Backwards(ds.Sampler):
        resets = 0

        def reset(self):
            self.resets += 1

        def __iter__(self):
            yield from range(self.dataset_size - 1, -1, -1)

    sampler = Backwards(3)
    data = numbers(sampler=sampler)
    assert data.get_dataset_size() == 3
    assert column(data, epochs=2) == [[9, 8, 7]] * 2
    assert sampler.resets == 1  # between two passes
    assert column(data) == [9, 8, 7]
    assert sampler.resets == 2


def test_children_are_sampled_from():
    parent = ds.SequentialSampler(2, 6)
    parent.add_child(ds.SequentialSampler(1))
    assert column(numbers(sampler=parent)) == [3, 4, 5, 6, 7, 8]
    data = numbers(shuffle=False)
    data.add_sampler(ds.DistributedSampler(2, 1, shuffle=False))
    assert column(data) == [1, 3, 5, 7, 9]
    assert data.is_sharded()
    data.use_sampler(ds.SequentialSampler(8))
    assert column(data) == [8, 9]
    assert parent.get_num_samples() == 6
    with pytest.raises(RuntimeError, match="already has a child"):
        parent.add_child(ds.SequentialSampler())


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (ValueError, {"num_shards": 4, "shard_id": 4}),
        (ValueError, {"num_shards": 4, "shard_id": -1}),
        (ValueError, {"num_shards": 0, "shard_id": 0}),
        (RuntimeError, {"num_shards": 4}),
        (RuntimeError, {"shard_id": 1}),
        (TypeError, {"num_shards": "4", "shard_id": 1}),
        (TypeError, {"num_shards": 4.0, "shard_id": 1}),
        (TypeError, {"num_shards": True, "shard_id": 0}),
        (RuntimeError, {"num_shards": 4, "shard_id": 1, "sampler": ds.SequentialSampler()}),
        (RuntimeError, {"num_samples": 3, "sampler": ds.SequentialSampler()}),
        (RuntimeError, {"shuffle": False, "sampler": ds.SequentialSampler()}),
        (TypeError, {"shuffle": "x"}),
        (TypeError, {"num_samples": 1.5}),
        (ValueError, {"num_samples": -1}),
        (TypeError, {"sampler": 5}),
        (ValueError, {"num_parallel_workers": 0}),
    ],
)
def test_argument_errors(error, arguments):
    with pytest.raises(error):
        numbers(**arguments)


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (TypeError, lambda: ds.SequentialSampler("a")),
        (ValueError, lambda: ds.SequentialSampler(num_samples=-1)),
        (TypeError, lambda: ds.RandomSampler("a")),
        (TypeError, lambda: ds.DistributedSampler(4, 1, shuffle="d")),
        (ValueError, lambda: ds.DistributedSampler(4, 1, num_samples=-1)),
        (RuntimeError, lambda: ds.DistributedSampler(4, 1, offset=5)),
        (TypeError, lambda: ds.DistributedSampler(None, None)),
        (TypeError, lambda: ds.SubsetSampler(["a"])),
        (TypeError, lambda: ds.SubsetSampler("ab")),
        (TypeError, lambda: ds.WeightedRandomSampler("abc")),
        (NotImplementedError, lambda: ds.PKSampler(2, 3)),
        (RuntimeError, lambda: column(numbers(sampler=ds.SequentialSampler(30)))),
        (RuntimeError, lambda: column(numbers(sampler=ds.SubsetSampler([3, 11])))),
        (RuntimeError, lambda: column(numbers(sampler=ds.SubsetSampler([3, -1])))),
        (RuntimeError, lambda: column(numbers(sampler=ds.WeightedRandomSampler([0.0] * 10)))),
        (RuntimeError, lambda: column(numbers(sampler=ds.WeightedRandomSampler([1] * 20)))),
        (RuntimeError, lambda: column(numbers(sampler=ds.PKSampler(2)))),
    ],
)
def test_sampler_errors(error, make):
    with pytest.raises(error):
        make()


def test_messages_state_both_values():
    with pytest.raises(ValueError, match="shard_id should be less than num_shards.\nFor 'NumpySlicesDataset', got 4."):
        numbers(num_shards=4, shard_id=4)


def test_an_object_with_elements_and_a_length_is_a_sampler():
    class Rows:
        def __getitem__(self, number):
            return 9 - number

        def __len__(self):
            return 4

    data = ds.NumpySlicesDataset(np.arange(10), column_names=["x"], sampler=Rows())
    for _ in range(2):
        assert column(data) == [9, 8, 7, 6]


def test_a_sampler_is_reset_between_repeats_and_not_before():
    class Counting(ds.Sampler):
        turn = 0

        def __iter__(self):
            return iter([self.turn] * 2)

        def reset(self):
            self.turn += 1

    repeated = ds.NumpySlicesDataset(list(range(10)), ["x"], sampler=Counting()).repeat(3)
    assert column(repeated) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("length", [3, 5, 9])
@pytest.mark.parametrize("kind", ["own", "num_samples", "object"])
def test_a_sampler_yields_as_many_rows_as_it_says_or_is_refused(kind, length):
    class Own(ds.Sampler):
        def __iter__(self):
            yield from range(5)

    class Sized(Own if kind == "own" else object):
        def __iter__(self):
            yield from range(5)

        def __len__(self):
            return length

    data = ds.NumpySlicesDataset(list(range(10)), ["x"], sampler=Own(length) if kind == "num_samples" else Sized())
    assert data.get_dataset_size() == length
    if length > 5:
        with pytest.raises(RuntimeError, match="data read from generator 5 is different from generator.len 9"):
            next(data.create_tuple_iterator(num_epochs=1))
    else:
        assert [int(row[0]) for row in data.create_tuple_iterator(num_epochs=1)] == [*range(length)]
