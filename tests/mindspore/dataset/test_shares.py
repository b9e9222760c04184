"""One process that acts for eight ranks reads what eight processes would read, rank after rank in each batch."""

import numpy as np
import pytest

import sporax.mindspore as ms
import sporax.mindspore.dataset as ds
from sporax.mindspore import communication

RANKS = 8


@pytest.fixture
def ranks(monkeypatch):
    for name in ("MS_ROLE", "RANK_TABLE_FILE", "RANK_SIZE", "RANK_ID", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    communication.init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel")
    yield
    ms.reset_auto_parallel_context()
    communication.release()


def numbers(shuffle, size=35, **shard):
    return ds.NumpySlicesDataset(np.arange(size), shuffle=shuffle, **shard)


def of_sampler(size=35, **shard):
    return ds.NumpySlicesDataset(np.arange(size), sampler=ds.DistributedSampler(**shard, num_samples=4))


class OwnSampler:
    """As in public programs: a permutation by a seed of its own, wrapped to equal shares."""

    def __init__(self, size, num_replicas, rank, draw):
        self.size, self.num_replicas, self.rank, self.draw = size, num_replicas, rank, draw
        self.num_samples, self.epoch, self.left = -(-size // num_replicas), 0, list(range(size))

    def __iter__(self):
        self.epoch += 1
        indices = list(self.draw(self))
        indices += indices[: self.num_samples * self.num_replicas - self.size]
        return iter(indices[self.rank :: self.num_replicas])

    def __len__(self):
        return self.num_samples


class DerivedSampler(ds.Sampler):
    def __init__(self, num_shards, shard_id):
        super().__init__()
        self._group_size, self._rank_id, self.epoch = num_shards, shard_id, 0

    def reset(self):
        self.epoch += 1

    def __iter__(self):
        yield from (
            np.random.RandomState(self.epoch)
            .permutation(self.dataset_size // 8 * 8)[self._rank_id :: self._group_size]
            .tolist()
        )


def rotated(sampler):
    """Changes a list in place."""
    sampler.left.append(sampler.left.pop(0))
    return sampler.left


def by_own_sampler(draw, num_shards, shard_id):
    return ds.GeneratorDataset(list(range(35)), ["x"], sampler=OwnSampler(35, num_shards, shard_id, draw)).batch(2)


def read(data, epochs=2):
    np.random.seed(3)  # every process of a job begins with the script's seed
    rows = data.create_tuple_iterator(num_epochs=epochs, output_numpy=True)
    return [[row[0] for row in rows] for _ in range(epochs)]


PIPELINES = {
    "in order": lambda **shard: numbers(False, **shard).batch(2),
    "shuffled": lambda **shard: numbers(True, **shard).batch(2),
    "remainder": lambda **shard: numbers(True, **shard).batch(3, drop_remainder=True),
    "behind": lambda **shard: numbers(True, **shard).skip(1).shuffle(3).batch(2).map(lambda x: x * 2).repeat(2).take(3),
    "sampler": lambda **shard: of_sampler(**shard).batch(2),
    "own sampler": lambda **shard: by_own_sampler(
        lambda own: np.random.RandomState(own.epoch).permutation(own.size), **shard
    ),
    "own sampler, drawn": lambda **shard: by_own_sampler(lambda own: np.random.permutation(own.size), **shard),
    "own sampler, in place": lambda **shard: by_own_sampler(rotated, **shard),
    "derived sampler": lambda **shard: ds.NumpySlicesDataset(np.arange(35), sampler=DerivedSampler(**shard)).batch(2),
    "filtered": lambda **shard: numbers(True, 64, **shard).filter(lambda x: x >= 0).batch(4),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_batches_hold_those_of_all_ranks(ranks, name):
    size, rank = communication.get_group_size(), communication.get_rank()
    data = PIPELINES[name](num_shards=size, shard_id=rank)
    actual, num_batches = read(data), data.get_dataset_size()
    communication.release()  # each shard by itself
    shares = [PIPELINES[name](num_shards=RANKS, shard_id=number) for number in range(RANKS)]
    expected = [
        [np.concatenate(batches) for batches in zip(*epoch, strict=True)]
        for epoch in zip(*map(read, shares), strict=True)
    ]
    assert num_batches == shares[0].get_dataset_size() == len(actual[0])
    communication.init()
    for epoch, wanted in zip(actual, expected, strict=True):
        for batch, one in zip(epoch, wanted, strict=True):
            np.testing.assert_array_equal(batch, one)


def test_every_sample_is_read_once_an_epoch(ranks):
    size, rank = communication.get_group_size(), communication.get_rank()
    for data in (
        numbers(True, 64, num_shards=size, shard_id=rank),
        numbers(True, 64, num_shards=size, shard_id=rank).batch(4),
    ):
        for epoch in read(data):
            assert sorted(np.concatenate([np.atleast_1d(row) for row in epoch])) == list(range(64))


def test_other_shards_are_shares_of_their_own(ranks):
    assert read(numbers(False, num_shards=4, shard_id=0).batch(2), 1)[0][0].tolist() == [0, 4]
    assert read(numbers(False, num_shards=8, shard_id=3).batch(2), 1)[0][0].tolist() == [3, 11]


def test_text_files_and_their_shares(ranks, tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(map(str, range(20))))
    for shuffle in (False, True):
        data = ds.TextFileDataset(str(tmp_path / "lines.txt"), shuffle=shuffle, num_shards=8, shard_id=0).batch(3)
        (epoch,) = read(data, 1)
        assert len(epoch) == data.get_dataset_size() == 1
        assert sorted(set(map(int, epoch[0]))) == list(range(20))
        # Eight shares of three rows, the last of which begin again.
        assert len(epoch[0]) == 24


def test_shares_of_unequal_length_are_an_error(ranks):
    data = numbers(False, 64, num_shards=8, shard_id=0).filter(lambda x: x % 8 == 0 or x > 20).batch(2)
    with pytest.raises(RuntimeError, match="equally many"):
        read(data, 1)


def test_a_size_before_the_parallel_mode_counts_all_rows_and_a_line_says_so(ranks, capsys):
    ms.reset_auto_parallel_context()
    data = numbers(False, 32, num_shards=8, shard_id=0)
    assert data.get_dataset_size() == 32
    assert "the rows of all 8 ranks are counted" in capsys.readouterr().err
    assert data.get_dataset_size() == 32
    ms.set_auto_parallel_context(parallel_mode="data_parallel")
    assert data.get_dataset_size() == 4
    assert capsys.readouterr().err == ""


class Chosen:
    """Rows that were chosen for a rank beforehand."""

    def __init__(self, indices):
        self.indices = indices

    def __iter__(self):
        return iter(self.indices)


def test_rows_that_were_chosen_for_one_rank_are_warned_of(ranks):
    data = ds.GeneratorDataset(list(range(35)), ["x"], sampler=Chosen(range(35)[::8]))
    with pytest.warns(UserWarning, match="For 'Chosen', 5 of 35 rows are read, as by one rank, but .* for 8 ranks"):
        assert len(read(data, 1)[0]) == 5
