"""How input data is sharded by `dataset_strategy`."""

import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout
from sporax.mindspore.context._nested import check_input_shardings, check_inputs
from sporax.runtime.session import SESSION

GRID = DeviceMatrix((2, 4))


@pytest.mark.parametrize("strategy", [((8, 1), (8,)), ((1, 1), (1,)), ((8, 1), (1,)), ((1, 4), (4,)), ((1, 2), (1,))])
def test_shardings_along_one_dimension_with_one_number_of_slices_are_accepted(strategy):
    assert check_input_shardings(strategy, [(16, 8), (16,)], 8) is None


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (((8, 1),), "each of the 2 inputs, but got 1"),
        (((8, 1), (8,), (8,)), "each of the 2 inputs, but got 3"),
        (((8,), (8,)), "must have 2 numbers"),
        (((3, 1), (3,)), "power of 2"),
        (((16, 1), (16,)), "divide the 8 devices"),
        (((1, 8), (4,)), "one number of slices, but got 4 and 8"),
        (((4, 4), (8,)), "divide the 8 devices"),
        (((1, 1), (8,)), r"most dimensions \(2\) must be sharded if any is, but only inputs \[1\]"),
        (((8, 1), (1, 8)), "must have 1 numbers"),
    ],
)
def test_strategies_that_data_cannot_have_are_refused(strategy, words):
    with pytest.raises(SporaxRuntimeError, match=f"For 'dataset_strategy'.*{words}"):
        check_input_shardings(strategy, [(16, 8), (16,)], 8)


@pytest.mark.parametrize("strategy", [((2, 4), (8,)), ((2, 4), (1,)), ((4, 2), (2,)), ((2, 2), (4,))])
def test_shardings_along_several_dimensions_are_accepted_as_layouts_are(strategy):
    assert check_input_shardings(strategy, [(16, 8), (16,)], 8) is None


def test_layouts_may_shard_several_dimensions():
    layouts = (Layout(GRID, ((0,), (1,))), Layout(GRID, ((0,),)))
    assert check_input_shardings(layouts, [(16, 8), (16,)], 8) is None
    with pytest.raises(SporaxRuntimeError, match="each of the 1 inputs, but got 2"):
        check_input_shardings(layouts, [(16, 8)], 8)


def test_the_session_checks_the_inputs_of_steps():
    assert check_inputs in SESSION.input_checks
    config = ParallelConfig(dataset_strategy=((8, 1), (1, 8)))
    with pytest.raises(SporaxRuntimeError, match="For 'dataset_strategy'.*must have 1 numbers"):
        SESSION.check_inputs(config, [(16, 8), (16,)], 8)


@pytest.mark.parametrize("setting", ["full_batch", "data_parallel"])
def test_settings_without_entries_suit_all_inputs(setting):
    check_inputs(ParallelConfig(dataset_strategy=setting), [(7, 3), ()], 8)
