"""MindSpore's protobuf files of strategies and groups: what is written is read again."""

import pytest

from sporax.base.errors import SporaxValueError
from sporax.mindspore.context._strategy_files import protobuf as files

CONTENT = {
    "current_stage": 1,
    "parallel_strategy_item": {"MatMul_fc.weight": {"parallel_strategy": [[2, 4], [4, 1]], "stage": 1}},
    "parallel_layout_item": {
        "fc.weight": {
            "dev_matrix": [2, 4],
            "tensor_map": [1, -1],
            "field": 0,
            "opt_weight_shard_step": 0,
            "opt_weight_shard_size": -1,
        }
    },
}


def test_strategies_and_layouts_are_read_again():
    assert files.decode(files.encode(CONTENT)) == CONTENT


def test_groups_are_read_again():
    groups = {"2-0-4": [0, 4], "2-1-5": [1, 5]}
    assert files.decode_groups(files.encode_groups(groups, [0, 2])) == (groups, [0, 2])


@pytest.mark.parametrize("size", range(1, len(files.encode(CONTENT))))
def test_a_file_that_is_truncated_is_refused_or_shorter(size):
    try:
        shorter = files.decode(files.encode(CONTENT)[:size])
    except SporaxValueError:
        return
    assert shorter != CONTENT
