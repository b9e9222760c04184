"""Which parameters share a buffer."""

import pytest
from planner_graphs import GraphBuilder

from sporax.ir.config.parallel_config import BYTES_PER_MEGABYTE, CommFusion, FusionRule, ParallelConfig
from sporax.ir.graph import MARK
from sporax.ir.marks import GradientMark
from sporax.planner.communication.gradient_fusion import FusionIds, fusion_ids

NAMES = ("a", "b", "c", "d")


def graph(fusion=(1, 1, 1, 1), megabytes=1):
    """A step that ends with the gradients of four parameters of the same size."""
    builder = GraphBuilder()
    gradients = [builder.argument(megabytes * BYTES_PER_MEGABYTE // 4) for _ in NAMES]
    shapes = [builder.tensors[tensor].shape for tensor in gradients]
    results = builder.add(MARK, gradients, *shapes, params={"mark": GradientMark(NAMES, tuple(fusion))})
    return builder.graph(*results)


def buffers(ids):
    """Names that share a buffer, in the order of the parameters; those that travel alone by themselves."""
    groups = {}
    for name in NAMES:
        groups.setdefault((ids[name], name if not ids[name] else ""), []).append(name)
    return sorted("".join(group) for group in groups.values())


def test_where_nothing_is_said_the_compiler_decides():
    assert fusion_ids(graph(), ParallelConfig()) == FusionIds()


def test_with_fusion_switched_off_every_parameter_travels_alone():
    ids = fusion_ids(graph(), ParallelConfig(comm_fusion=CommFusion(openstate=False)))
    assert ids.reduced == dict.fromkeys(NAMES, 0)


def test_positions_count_backward_for_gradients_and_forward_for_weights():
    rule = FusionRule("index", (0,), configured=True)
    ids = fusion_ids(graph(), ParallelConfig(comm_fusion=CommFusion(allreduce=rule, allgather=rule)))
    assert buffers(ids.reduced) == ["abc", "d"]  # the gradient of the last parameter is the first one
    assert buffers(ids.gathered) == ["a", "bcd"]
    assert ids.scattered == {}


@pytest.mark.parametrize(("threshold", "expected"), [(3, ["ab", "cd"]), (100, ["abcd"]), (0, ["a", "b", "c", "d"])])
def test_a_full_buffer_opens_the_next_one(threshold, expected):
    """The gradient with which a buffer reaches the threshold is the first one of the next: d and c, then b and a."""
    rule = FusionRule("size", threshold, configured=True)
    ids = fusion_ids(graph(), ParallelConfig(comm_fusion=CommFusion(allreduce=rule)))
    assert buffers(ids.reduced) == expected


def test_parameters_with_another_number_never_share_and_with_none_travel_alone():
    rule = FusionRule("auto", None, configured=True)
    ids = fusion_ids(graph((1, 2, 2, 0)), ParallelConfig(comm_fusion=CommFusion(allreduce=rule)))
    assert buffers(ids.reduced) == ["a", "bc", "d"]
    assert ids.reduced["d"] == 0


def test_older_settings_hold_for_all_reduces_where_the_newer_ones_say_nothing():
    by_position = fusion_ids(graph(), ParallelConfig(all_reduce_fusion_config=(1,)))
    assert buffers(by_position.reduced) == ["ab", "cd"]
    assert by_position.gathered == {}
    by_size = fusion_ids(graph(), ParallelConfig(all_reduce_fusion_sizes=(BYTES_PER_MEGABYTE,)))
    assert buffers(by_size.reduced) == ["abc", "d"]
