"""Random numbers of transforms: MindSpore's for a seed, counted by rows, and a row's own behind them."""

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
from draw_cases import CASES, sums_of

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import transforms, vision
from sporax.mindspore.dataset._random import Draws, Engines, RowKey

GOLDEN = json.loads(Path(__file__).with_name("golden_draws.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_of_the_wheel(case):
    assert sums_of(case, ds, vision, transforms) == GOLDEN[case]


@pytest.mark.parametrize(("workers", "rows"), [(1, 5), (2, 5), (2, 4), (3, 7)])
def test_workers_take_turns_and_count_on_over_passes(workers, rows):
    taken = [0] * workers
    turns = itertools.cycle(range(workers))
    for index in range(4):
        engines = Engines(10, workers, index, rows)
        for row, worker in zip(range(rows), turns, strict=False):
            assert engines.place(row) == (10 + worker, taken[worker])
            taken[worker] += 1
            if row == rows - 1:
                next(turns)  # the end of the pass


def test_rows_draw_the_same_in_any_order_and_go_on_with_numbers_of_their_own():
    key = RowKey((1, 2), Engines(3))
    numbers = {row: list(itertools.islice(Draws(key, row, 4), 9)) for row in (0, 5000, 3, 200, 1, 0)}
    engine = np.random.MT19937()
    engine.state = np.random.RandomState(3).get_state(legacy=False)
    words = engine.random_raw(20004).tolist()
    for row, found in numbers.items():
        assert found[:4] == words[4 * row : 4 * row + 4]
        assert found == list(itertools.islice(Draws(key, row, 4), 9))
    assert len({tuple(found[4:]) for found in numbers.values()}) == len(numbers)


def test_without_a_seed_operations_draw_independently():
    zeros = ds.NumpySlicesDataset(np.zeros(64), "x", shuffle=False)
    adds = [transforms.RandomApply([transforms.Fill(number)], 0.5) for number in (1, 2)]
    for seed, most in ((None, 3), (5, 2)):
        if seed is not None:
            ds.config.set_seed(seed)  # then all draw the same, as in MindSpore
        assert len({float(row[0]) for row in zeros.map(adds)}) == most


def test_a_seed_is_also_that_of_functions_of_the_user():
    ds.config.set_seed(11)
    first = np.random.random()
    ds.config.set_seed(11)
    assert np.random.random() == first == np.random.RandomState(11).random_sample()


def _noise(value):
    return value + random.random() + np.random.random()


def test_functions_in_worker_processes_draw_the_same_with_a_seed():
    ds.config.set_seed(11)
    zeros = ds.NumpySlicesDataset(np.zeros(6), "x", shuffle=False)
    noisy = zeros.map(_noise, num_parallel_workers=2, python_multiprocessing=True)
    first, second = (
        [float(row[0]) for row in noisy.create_tuple_iterator(num_epochs=1, output_numpy=True)] for _ in range(2)
    )
    assert first == second and len(set(first)) == 6


def test_rows_do_not_depend_on_the_machine(monkeypatch, tmp_path):
    # Ranks on machines with other numbers of cores read the same rows, and transform them likewise.
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("".join(f"{number}-{line}\n" for line in range(5)))
    files = sorted(map(str, tmp_path.glob("*.txt")))
    found = []
    for cores in (1, 2, 64):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        ds.config.set_seed(3)
        images = ds.NumpySlicesDataset(np.arange(20 * 48, dtype=np.uint8).reshape(20, 4, 4, 3), "x", shuffle=False)
        flipped = [row[0].asnumpy().tolist() for row in images.map(vision.RandomHorizontalFlip())]
        texts = [str(row[0]) for row in ds.TextFileDataset(files, shuffle=False)]
        found.append((ds.config.get_num_parallel_workers(), flipped, texts))
    assert found[0][0] == 8
    assert found[1:] == found[:1] * 2
