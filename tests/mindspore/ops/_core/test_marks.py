"""Marks of operators: each that is read is checked, and others are reported."""

import re
from pathlib import Path

import pytest

import sporax
from sporax.mindspore import ops
from sporax.mindspore.ops._core.marking import MARKS

WRONG = {
    "recompute": ["yes", 1],
    "offload": [-1, "soon", True],
    "primitive_target": ["FPGA", 1, "cpu"],
    "stage": [-1, "first"],
    "place": [-1, "here"],
    "in_strategy": [[(1, 2)], 3],
    "out_strategy": [[(1, 2)], 3],
    "strategy_gen_mode": ["model_parallel", 1],
    "manual_split": None,  # checked with the table, when the step is planned
    "manual_split_with_offset": None,
    "self_define_shard": ["yes", 1],
    "enable_nd_tp": ["yes", 1],
    "forward_reduce_scatter": ["yes", 1],
    "input_names": None,  # checked by `init_prim_io_names`
    "output_names": None,
}


@pytest.mark.parametrize("mark", MARKS)
def test_values_that_a_mark_must_not_have_are_refused(mark):
    for value in WRONG[mark] or ():
        primitive = ops.MatMul()
        with pytest.raises((TypeError, ValueError, RuntimeError), match="^For 'MatMul'"):
            primitive.add_prim_attr(mark, value)
        assert primitive.attrs == {}


def test_marks_that_are_read_are_in_the_table():
    """Names of marks in the planner that are no arguments of operators are those of the table."""
    source = "".join(
        path.read_text() for path in (Path(sporax.__file__).parent / "planner" / "propagation").glob("*.py")
    )
    named = set(re.findall(r'mark\.get\("(\w+)"', source)) - {"follow", "transpose_b"}
    assert named <= set(MARKS)
    assert named


@pytest.mark.parametrize("mark", ["skip_redistribution", "recompute_comm", "primitive_targets"])
def test_marks_that_nothing_reads_are_reported(mark):
    with pytest.warns(UserWarning, match=f"For 'MatMul', the mark '{mark}' has no effect: nothing reads a mark"):
        ops.MatMul().add_prim_attr(mark, True)


def test_rows_are_split_for_lookups_only():
    with pytest.warns(
        UserWarning, match=r"For 'MatMul', the mark 'manual_split' has no effect: only lookups \(EmbeddingLookup"
    ):
        ops.MatMul().add_prim_attr("manual_split", (8, 8))
    ops.Gather().add_prim_attr("manual_split", (8, 8))


def test_arguments_of_the_constructor_are_no_marks():
    with pytest.raises(
        ValueError, match="For 'MatMul', 'transpose_b' is an argument of the constructor, which got False"
    ):
        ops.MatMul().add_prim_attr("transpose_b", True)
    ops.MatMul(transpose_b=True).add_prim_attr("transpose_b", True)


def test_communication_operators_have_no_marks():
    with pytest.warns(UserWarning, match="For 'AllReduce', the mark 'fusion' has no effect: nothing reads"):
        ops.AllReduce().add_prim_attr("fusion", 1)
    for mark, make in (("recompute", lambda op: op.recompute()), ("in_strategy", lambda op: op.shard(((1, 1),)))):
        with pytest.warns(
            UserWarning, match=f"For 'AllReduce', the mark '{mark}' has no effect: communication operators run"
        ):
            make(ops.AllReduce())
