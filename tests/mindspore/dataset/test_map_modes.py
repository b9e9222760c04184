"""Debug mode, and rows that fail: what happens was recorded with MindSpore 2.10."""

import threading

import numpy as np
import pytest

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import config, debug, transforms, vision
from sporax.mindspore.dataset.config import ErrorSamplesMode

from .conftest import column, rows


class Seen(debug.DebugHook):
    """Keeps what it is shown."""

    log: list = []

    def compute(self, *args):
        self.log.append((self.prev_op_name, self.is_first_op, [np.asarray(value).tolist() for value in args[0]]))


def add_one(x):
    return x + 1


def failing(bad, count=6):
    """Rows 0, 10, 20, …, of which those numbered in `bad` fail."""

    def times_ten(x):
        if int(x) in bad:
            raise ValueError(f"bad {x}")
        return x * 10

    return ds.NumpySlicesDataset(np.arange(count), ["a"], shuffle=False).map(times_ten, "a")


@pytest.fixture
def seen():
    Seen.log = []
    return Seen.log


def numbers(count=2):
    return ds.NumpySlicesDataset(np.arange(count), ["a"], shuffle=False)


@pytest.mark.filterwarnings("ignore:For 'set_debug_mode'")
def test_hooks_see_what_operations_take_and_give(seen):
    config.set_debug_mode(True, [Seen()])
    assert rows(numbers().map([add_one, transforms.Fill(7)], "a").batch(2)) == [[[7, 7]]]
    assert seen == [
        ("add_one", True, [0]),
        ("add_one", False, [1]),
        ("Fill", False, [7]),
        ("add_one", True, [1]),
        ("add_one", False, [2]),
        ("Fill", False, [7]),
    ]


@pytest.mark.filterwarnings("ignore:For 'set_debug_mode'")
def test_the_default_hook_prints_dtype_and_shape(capsys):
    config.set_debug_mode(True)
    list(ds.FakeImageDataset(1, (4, 4, 3), 2).map([vision.Resize((2, 2)), vision.ToPIL()], "image"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "[Dataset debugger] Print the [INPUT] of the operation [Resize].",
        "Column 0. The dtype is [uint8]. The shape is [(4, 4, 3)].",
        "[Dataset debugger] Print the [OUTPUT] of the operation [Resize].",
        "Column 0. The dtype is [uint8]. The shape is [(2, 2, 3)].",
    ]
    assert lines[4:] == [
        "[Dataset debugger] Print the [OUTPUT] of the operation [ToPIL].",
        "Column 0. The type is [<class 'PIL.Image.Image'>]. The shape is [(2, 2)].",
    ]


@pytest.mark.filterwarnings("ignore:For 'set_debug_mode'")
@pytest.mark.parametrize("flow", [False, True])
def test_debug_mode_works_in_the_users_thread_when_a_row_is_requested(flow):
    threads = []

    def note(x):
        threads.append(threading.current_thread())
        return x

    source = ds.GeneratorDataset(lambda: iter(range(3)), ["a"]) if flow else numbers(3)
    config.set_debug_mode(True, [Seen()])
    iterator = iter(source.map(note, "a", num_parallel_workers=2).map(note, "a", num_parallel_workers=2))
    next(iterator)
    assert threads == [threading.main_thread()] * 2


@pytest.mark.filterwarnings("ignore:For 'set_debug_mode'")
def test_debug_mode_fixes_the_seed_and_ignores_the_mode_of_error_samples():
    config.set_debug_mode(True, [Seen()])
    assert config.get_seed() == 1
    shuffled = numbers(8).shuffle(8)
    assert column(shuffled) == column(shuffled)
    config.set_error_samples_mode(ErrorSamplesMode.SKIP)
    with pytest.raises(RuntimeError, match="bad 1"):
        rows(failing({1}))


@pytest.mark.filterwarnings("ignore:For 'set_debug_mode'")
def test_random_operations_draw_the_same_with_hooks():
    config.set_seed(3)
    pipeline = ds.FakeImageDataset(4, (8, 8, 3), 2, shuffle=False).map(
        [vision.RandomCrop(4), vision.RandomHorizontalFlip()],
        "image",
        num_parallel_workers=1,  # as debug mode
    )
    without = rows(pipeline)
    config.set_debug_mode(True, [Seen()])
    assert rows(pipeline) == without


def test_a_hook_of_the_programs_own_looks_between_operations(seen):
    assert column(numbers().map([add_one, Seen()], "a")) == [1, 2]
    assert seen == [(None, None, [1]), (None, None, [2])]


def test_print_data_hook(capsys):
    debug.PrintDataHook()(np.array([1, 2]))
    assert capsys.readouterr().out == "Column 0. The data is [[1 2]].\n"


def test_wrong_arguments_of_set_debug_mode():
    for arguments in ((1,), (True, 1), (True, [1])):
        with pytest.raises(TypeError, match="For 'set_debug_mode'"):
            config.set_debug_mode(*arguments)
    with pytest.raises(TypeError, match="For 'set_error_samples_mode'"):
        config.set_error_samples_mode(1)


@pytest.mark.filterwarnings("ignore:For 'map', a row was left out")
@pytest.mark.parametrize("workers", [1, 3])
def test_rows_that_fail_are_left_out(workers):
    config.set_error_samples_mode(ErrorSamplesMode.SKIP)
    config.set_num_parallel_workers(workers)
    assert column(failing({1, 4})) == [0, 20, 30, 50]
    assert column(failing({1, 4}).batch(4)) == [[0, 20, 30, 50]]
    assert column(failing({1}, 4).repeat(2)) == [0, 20, 30] * 2
    assert column(failing(range(6))) == []
    assert failing({1, 4}).get_dataset_size() == 6


@pytest.mark.filterwarnings("ignore:For 'map', a row was replaced")
def test_rows_that_fail_are_replaced_at_the_end_of_the_epoch():
    config.set_error_samples_mode(ErrorSamplesMode.REPLACE)
    assert column(failing({1, 4})) == [0, 20, 30, 50, 0, 20]
    assert column(failing({1, 4}).batch(4)) == [[0, 20, 30, 50], [0, 20]]
    assert column(failing({0, 3}).map(add_one, "a")) == [11, 21, 41, 51, 11, 21]
    assert column(failing(range(30, 70), 70))[30:] == [10 * (i % 16) for i in range(40)]
    # Of every second row the 16th good one is number 30; from there on what fails is replaced at once, by what stands by longest.
    at_once = [0, 320, 20, 340, 40, 360, 60, 380]
    rest = [*range(80, 301, 20), 320, 340, 360, 380]
    assert column(failing(range(1, 40, 2), 40)) == [*range(0, 301, 20), *at_once, *rest]
    with pytest.raises(RuntimeError, match="All data is garbage and cannot be replaced"):
        rows(failing(range(6)))


@pytest.mark.filterwarnings("ignore:For 'map', a row was")
def test_transforms_that_fail_count_as_well():
    labels = numbers(6).map(transforms.OneHot(4), "a")
    config.set_error_samples_mode(ErrorSamplesMode.SKIP)
    assert [row.index(1) for row in column(labels)] == [0, 1, 2, 3]
    config.set_error_samples_mode(ErrorSamplesMode.REPLACE)
    assert [row.index(1) for row in column(labels)] == [0, 1, 2, 3, 0, 1]


def test_a_row_that_is_left_out_warns_where_it_came_from():
    config.set_error_samples_mode(ErrorSamplesMode.SKIP)
    with pytest.warns(UserWarning, match="left out.*bad 1"):
        rows(failing({1}))


def test_only_map_passes_over_errors():
    config.set_error_samples_mode(ErrorSamplesMode.SKIP)

    def refuse(x):
        raise ValueError("no")

    with pytest.raises(RuntimeError, match="no"):
        rows(numbers().filter(refuse, "a"))
