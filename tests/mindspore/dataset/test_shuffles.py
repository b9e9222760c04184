"""Orders of rows for a seed, as MindSpore 2.10 gives them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import _shuffles
from sporax.mindspore.mindrecord import FileWriter

ROWS = np.arange(9)


def passes(data: Any, count: int = 3) -> list[list[int]]:
    iterator = data.create_dict_iterator(num_epochs=count, output_numpy=True)
    return [[int(next(iter(row.values()))) for row in iterator] for _ in range(count)]


def of_memory(**options: Any) -> Any:
    return ds.NumpySlicesDataset(ROWS, ["x"], **options)


MEMORY: list[tuple[int, Callable[[], Any], list[list[int]]]] = [
    (1, of_memory, [[1, 0, 6, 3, 8, 4, 2, 7, 5], [4, 2, 6, 8, 5, 3, 1, 7, 0], [8, 1, 4, 6, 3, 2, 0, 5, 7]]),
    (77, of_memory, [[4, 1, 7, 5, 3, 6, 0, 8, 2], [0, 4, 3, 5, 8, 2, 7, 6, 1], [3, 5, 2, 6, 0, 7, 1, 4, 8]]),
    (1, lambda: of_memory(num_samples=4), [[3, 8, 6, 8], [3, 1, 0, 8], [4, 0, 6, 7]]),
    (
        77,
        lambda: of_memory(sampler=ds.SubsetRandomSampler([8, 1, 4, 2, 7])),
        [[7, 1, 4, 8, 2], [2, 1, 4, 7, 8], [8, 1, 4, 2, 7]],
    ),
    (1, lambda: of_memory(num_shards=2, shard_id=0), [[5, 2, 8, 0, 1], [4, 5, 3, 1, 7], [4, 5, 2, 0, 6]]),
    (1, lambda: of_memory(num_shards=2, shard_id=1), [[6, 4, 3, 7, 5], [0, 2, 6, 8, 4], [8, 7, 3, 1, 4]]),
    (
        1,
        lambda: of_memory(shuffle=False).shuffle(4),
        [[0, 2, 4, 5, 3, 1, 6, 8, 7], [0, 3, 5, 1, 7, 4, 8, 6, 2], [3, 0, 5, 6, 4, 8, 2, 7, 1]],
    ),
    (
        77,
        lambda: of_memory(shuffle=False).shuffle(20),
        [[2, 5, 3, 7, 8, 1, 6, 0, 4], [5, 7, 6, 1, 8, 3, 2, 4, 0], [2, 5, 0, 4, 7, 6, 1, 3, 8]],
    ),
    (1, lambda: of_memory(shuffle=False).shuffle(2), [[0, 1, 2, 3, 4, 6, 5, 8, 7], [0, 1, 3, 4, 5, 2, 7, 8, 6]]),
    (
        77,
        lambda: ds.NumpySlicesDataset(np.arange(5), ["x"]).repeat(2),
        [[4, 1, 2, 0, 3, 2, 4, 3, 0, 1], [3, 0, 1, 4, 2, 1, 0, 4, 2, 3]],
    ),
]


@pytest.mark.parametrize(("seed", "make", "expected"), MEMORY)
def test_rows_of_memory(seed: int, make: Callable[[], Any], expected: list[list[int]]) -> None:
    ds.config.set_seed(seed)
    assert passes(make(), len(expected)) == expected
    assert passes(make(), 1) == expected[:1]


def test_a_flow_has_the_order_of_a_table() -> None:
    ds.config.set_seed(1)
    flow = ds.GeneratorDataset(lambda: ((np.array(row),) for row in range(9)), ["x"]).shuffle(4)
    assert passes(flow, 1) == [[0, 2, 4, 5, 3, 1, 6, 8, 7]]


@pytest.mark.parametrize(("count", "expected"), [(70001, [85519603772678, 85725391547936]), (60000, [53884698137684])])
def test_many_rows(count: int, expected: list[int]) -> None:
    """The standard library takes one number for two rows up to 65535 of them, and one for each beyond."""
    found = [_shuffles.shuffled(count, 1, index) for index in range(len(expected))]
    assert [int(((np.arange(count) + 1) * order).sum()) for order in found] == expected
    assert (np.sort(found[0]) == np.arange(count)).all()


def test_the_engine_of_64_bits_is_the_standards() -> None:
    """[rand.predef]: the 10000th number of a default engine is 9981545732273789042."""
    assert next(_shuffles.mt19937_64(5489, 9999)) == 9981545732273789042
    numbers, skipped = _shuffles.mt19937_64(7), _shuffles.mt19937_64(7, 311)
    assert [next(numbers) for _ in range(320)][311:] == [next(skipped) for _ in range(9)]


def test_an_earlier_pass_after_a_later_one() -> None:
    later, earlier = _shuffles.shuffled(30, 5, 3).tolist(), _shuffles.shuffled(30, 5, 1).tolist()
    _shuffles._latest.clear()
    assert [_shuffles.shuffled(30, 5, index).tolist() for index in range(4)][1::2] == [earlier, later]


MIND: list[tuple[dict[str, Any], list[list[int]]]] = [
    ({}, [[9, 3, 1, 8, 2, 0, 4, 10, 5, 6, 7], [5, 0, 2, 10, 4, 6, 3, 9, 1, 8, 7], [3, 8, 10, 7, 2, 4, 1, 6, 9, 5, 0]]),
    ({"num_shards": 2, "shard_id": 0}, [[9, 1, 2, 4, 5, 7], [8, 4, 6, 1, 2, 10], [6, 3, 2, 8, 7, 1]]),
    ({"num_shards": 2, "shard_id": 1}, [[3, 8, 0, 10, 6, 9], [5, 7, 9, 0, 3, 8], [9, 10, 4, 5, 0, 6]]),
    (
        {"shuffle": ds.Shuffle.FILES},
        [[7, 8, 9, 10, 0, 1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2], [10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]],
    ),
    (
        {"shuffle": ds.Shuffle.INFILE},
        [[2, 0, 1, 5, 3, 4, 6, 9, 7, 8, 10], [1, 2, 0, 6, 4, 5, 3, 10, 8, 9, 7], [0, 1, 2, 4, 5, 3, 6, 8, 9, 7, 10]],
    ),
    (
        {"shuffle": ds.Shuffle.FILES, "num_shards": 2, "shard_id": 1},
        [[8, 10, 1, 3, 5, 7], [8, 10, 1, 3, 5, 7], [8, 10, 1, 3, 5, 7]],
    ),
    (
        {"shuffle": ds.Shuffle.INFILE, "num_shards": 2, "shard_id": 1},
        [[0, 5, 4, 9, 8, 2], [0, 6, 3, 10, 7, 2], [0, 4, 6, 8, 10, 2]],
    ),
]


@pytest.mark.parametrize(("options", "expected"), MIND)
def test_rows_of_mindrecord_files(options: dict[str, Any], expected: list[list[int]], tmp_path: Path) -> None:
    """Three files, of 3, 4 and 4 rows."""
    writer = FileWriter(str(tmp_path / "a.mindrecord"), 3)
    writer.add_schema({"id": {"type": "int32"}}, "rows")
    writer.write_raw_data([{"id": row} for row in range(11)])
    writer.commit()
    ds.config.set_seed(1)
    assert passes(ds.MindDataset([str(tmp_path / f"a.mindrecord{n}") for n in range(3)], **options)) == expected


TEXT: list[tuple[dict[str, Any], list[list[int]]]] = [
    (
        {},
        [
            [2, 3, 21, 22, 1, 23, 20, 25, 14, 11, 24, 13, 12, 10, 0],
            [22, 20, 10, 14, 11, 0, 23, 2, 13, 25, 1, 3, 24, 12, 21],
        ],
    ),
    ({"num_shards": 2, "shard_id": 1}, [[3, 22, 24, 25, 23, 20, 21, 10], [0, 24, 22, 14, 20, 21, 25, 23]]),
    (
        {"shuffle": ds.Shuffle.FILES, "num_shards": 2, "shard_id": 1},
        [[3, 20, 21, 22, 23, 24, 25, 10], [14, 20, 21, 22, 23, 24, 25, 0]],
    ),
]


@pytest.mark.parametrize(("options", "expected"), TEXT)
def test_lines_of_files(options: dict[str, Any], expected: list[list[int]], tmp_path: Path) -> None:
    for number in range(3):
        lines = [f"{10 * number + line}\n" for line in range(4 + number)]
        (tmp_path / f"{number}.txt").write_text("".join(lines))
    ds.config.set_seed(77)
    files = [str(tmp_path / f"{number}.txt") for number in range(3)]
    assert passes(ds.TextFileDataset(files, num_parallel_workers=1, **options), 2) == expected


SPLITS: list[tuple[int, Callable[[], Any], list[int], list[list[int]]]] = [
    (53, lambda: ds.NumpySlicesDataset(np.arange(5), ["x"], shuffle=False), [4, 1], [[0, 1, 3, 4], [2]]),
    (7, lambda: of_memory(sampler=ds.RandomSampler()), [5, 4], [[2, 3, 1, 7, 6], [8, 4, 0, 5]]),
]


@pytest.mark.parametrize(("seed", "make", "sizes", "expected"), SPLITS)
def test_parts_of_a_split(seed: int, make: Callable[[], Any], sizes: list[int], expected: list[list[int]]) -> None:
    ds.config.set_seed(seed)
    for part, rows in zip(make().split(sizes), expected, strict=True):
        assert passes(part) == [rows] * 3


def test_a_share_of_a_part() -> None:
    ds.config.set_seed(7)
    part = of_memory(shuffle=False).split([5, 4])[0]
    part.use_sampler(ds.DistributedSampler(2, 1))
    assert passes(part, 1) == [[0, 3, 8]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["a1 a3 a2 b1 b0 b0 c0 c2 c0", "a1 a0 a0 b1 b1 b1 c1 c1 c1", "a2 a0 a2 b1 b0 b0 c1 c1 c2"]),
        ({"shuffle": True}, ["b1 b1 b1 a0 a0 a1 c2 c0 c0", "b0 b0 b0 a3 a2 a3 c1 c1 c1", "b1 b0 b1 a3 a1 a0 c1 c1 c2"]),
    ],
)
def test_rows_of_every_class(options: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    # A class with fewer rows than requested gives as many as the others: batches of P classes and K rows stay whole.
    for kind, count in (("a", 4), ("b", 2), ("c", 3)):
        (tmp_path / kind).mkdir()
        for i in range(count):
            (tmp_path / kind / f"{i}.jpg").write_bytes(f"{kind}{i}".encode())
    ds.config.set_seed(1)
    data = ds.ImageFolderDataset(str(tmp_path), sampler=ds.PKSampler(3, **options))
    assert data.get_dataset_size() == 9
    iterator = data.create_dict_iterator(num_epochs=3, output_numpy=True)
    assert [" ".join(row["image"].tobytes().decode() for row in iterator) for _ in range(3)] == expected


WEIGHTED: list[tuple[int, list[float], dict[str, Any], list[int]]] = [
    (1, [1, 2, 3, 4, 5], {}, [4, 4, 1, 4, 2]),
    (9, [0.1, 0.0, 5, 0.5, 0.5], {}, [2, 2, 0, 2, 0]),
    (1, [1, 1, 0, 3], {"num_samples": 4}, [3, 3, 0, 3]),
    (9, [0.1, 0.2, 5, 0.5, 0.5], {"num_samples": 3, "replacement": False}, [2, 4, 3]),
    (1, [1, 0, 0, 3, 2], {"replacement": False}, [4, 3, 0, 1, 2]),
]


@pytest.mark.parametrize(("seed", "weights", "options", "expected"), WEIGHTED)
def test_weighted_rows(seed: int, weights: list[float], options: dict[str, Any], expected: list[int]) -> None:
    ds.config.set_seed(seed)
    sampler = ds.WeightedRandomSampler(weights, **options)
    # With a seed of the user's, MindSpore draws the same rows in every pass.
    assert passes(ds.NumpySlicesDataset(np.arange(5), ["x"], sampler=sampler)) == [expected] * 3
