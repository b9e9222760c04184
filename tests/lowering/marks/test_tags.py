"""Wishes about memory in name stacks: what is written is read, and the innermost one counts."""

import pytest

from sporax.lowering.marks import tags
from sporax.lowering.marks.tags import KEEP, RecomputeTag, innermost_tag, new_tag

SETTINGS = ["output_recompute", "parallel_optimizer_comm_recompute", "recompute_slice_activation", "mp_comm_recompute"]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_survives_the_name_stack_of_a_derivative(name):
    tag = new_tag(**{name: name != "mp_comm_recompute"})
    assert innermost_tag(f"Step/transpose(jvp(net))/{tag.scope}/fc") == tag


def test_each_call_has_a_number_of_its_own():
    assert new_tag().number < new_tag().number


def test_of_several_tags_the_innermost_one_counts():
    outer, inner = new_tag(), RecomputeTag(0, keep=True)
    assert innermost_tag(f"{outer.scope}/net/{inner.scope}/op").keep
    assert innermost_tag(f"{KEEP.scope}/net/{outer.scope}/op") == outer
    assert innermost_tag("net/recompute/op") is None


def test_paths_end_where_the_tag_was_set_and_contain_no_tags():
    stack = "Step/jvp(net)/recompute-12-mo/fc/MatMul"
    assert tags.path_of_tag(stack) == "Step/jvp(net)/recompute-12-mo/fc"
    assert tags.path_of_tag("transpose(jvp(recompute-3-m))/fc") == "transpose(jvp(recompute-3-m))/fc"
    assert tags.without_tags(["net", "recompute-12-mo", "offload-3-1", "fc", "recompute-"]) == [
        "net",
        "fc",
        "recompute-",
    ]


def test_a_wish_for_host_memory_survives_a_derivative():
    assert tags.is_offloaded("Step/jvp(net)/offload-3-1/fc") and tags.is_offloaded("jvp(offload-12-0)")
    assert not tags.is_offloaded("Step/offload-/fc") and not tags.is_offloaded("Step/offload-main/fc")
