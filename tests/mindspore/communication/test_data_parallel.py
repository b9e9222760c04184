"""Training on real ranks: equality with one rank, fusion, broadcast, layers that belong to one rank."""

import pytest

from sporax.ir.config import parallel_config
from sporax.runtime.ranks import flat_buffers


def test_two_ranks_train_like_one_with_the_whole_batch(check_in_turn):
    check_in_turn("data_parallel.py equal")


def test_settings_that_come_after_the_training_cell_take_effect(check_in_turn):
    check_in_turn("late.py")


def test_loss_curves_are_those_of_mindspore(check_in_turn):
    check_in_turn("golden_curves.py")


@pytest.mark.full
def test_shared_statistics_and_sparse_gradients(check_in_turn):
    check_in_turn("layers.py")


@pytest.mark.soak
def test_shared_statistics_and_sparse_gradients_of_four_ranks(check_ranks):
    check_ranks("layers.py", 4, seconds=280)


def test_model_hybrid_parallel_and_sums(check_in_turn):
    check_in_turn("data_parallel.py rest")


def test_compiled_steps_hold_the_collectives_that_fusion_requests(check_in_turn):
    check_in_turn("fusion.py")


def test_parameters_dealt_to_ranks_and_checkpoints_of_sharded_arrays(check_in_turn):
    check_in_turn("dealt.py {folder}")


def test_every_way_of_training_begins_with_the_values_of_rank_0(check_in_turn):
    check_in_turn("first_values.py")


def test_offload_changes_no_value(check_in_turn):
    check_in_turn("offload.py")


def test_processes_act_for_a_rank_on_each_of_their_devices(check_ranks, tmp_path):
    check_ranks("ranks_with_devices.py", 2, tmp_path, local_devices=4, seconds=280)


def test_split_positions_are_inclusive():
    assert parallel_config.ids_by_position(6, [2, 4]) == [1024, 1024, 1024, 1025, 1025, 1026]
    assert parallel_config.ids_by_position(2, [7]) == [1024, 1024]


def test_a_gradient_that_fills_a_buffer_opens_the_next():
    assert parallel_config.ids_by_size([4, 4, 4, 4], 8) == [1, 2, 2, 3]
    assert parallel_config.ids_by_size([100, 1], 8) == [2, 2]
    assert parallel_config.ids_by_size([4, 4], 0) == [0, 0]


def test_buckets_keep_dtypes_apart_and_come_in_backward_order():
    assert flat_buffers.buckets([1, 2, 1, 2], ["float32"] * 4) == ((1, 3), (0, 2))
    assert flat_buffers.buckets([0, 0], ["float32"] * 2) == ((1,), (0,))
    assert flat_buffers.buckets([1, 1], ["float32", "float64"]) == ((1,), (0,))


def test_halves_are_summed_in_single_precision():
    assert flat_buffers.travelling_dtype("float16") == "float32"
    assert flat_buffers.travelling_dtype("float64") == "float64"


def test_second_order_matrices_are_averaged(check_in_turn):
    check_in_turn("thor.py")
