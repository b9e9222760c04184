"""Reading and writing at computed places."""

from types import SimpleNamespace

import pytest
from planner_graphs import mesh_of, operation, placement

from sporax.ir.operation import Operation, TensorSpec
from sporax.planner.rules import FactorKind, local_operation, placements, rule_for

READ_ROWS = SimpleNamespace(
    start_index_map=(0,),
    collapsed_slice_dims=(0,),
    offset_dims=(1,),
    operand_batching_dims=(),
    start_indices_batching_dims=(),
)
WRITE_ROWS = SimpleNamespace(
    scatter_indices_batching_dims=(),
    operand_batching_dims=(),
    update_window_dims=(1,),
    inserted_window_dims=(0,),
    scatter_dims_to_operand_dims=(0,),
)


def lookup(mode="CLIP", fill=None, dtype="float32"):
    specs = TensorSpec((32, 8), dtype), TensorSpec((4, 1), "int32")
    params = {"dimension_numbers": READ_ROWS, "slice_sizes": (1, 8), "mode": mode, "fill_value": fill}
    return Operation("gather", specs, (TensorSpec((4, 8), dtype),), params)


def update(name):
    return operation(name, [(32, 8), (4, 1), (4, 8)], [(32, 8)], dimension_numbers=WRITE_ROWS)


def assigned(rule, size, *axes):
    """The assignment of axes to the factor of this size."""
    (number,) = (number for number, factor in enumerate(rule.factors) if factor.size == size)
    return tuple(axes if place == number else () for place in range(len(rule.factors)))


def test_a_lookup_in_sharded_rows_gives_partial_sums():
    rule = rule_for(lookup())
    assert str(rule).startswith("c d, a b -> a d (map a=4, blocked b=1, reduce c=32 sum, map d=8,")
    operands, results = placements(rule, assigned(rule, 32, 0))
    assert operands == (placement("0 -"), placement("- -"))
    assert results == (placement("- - +0"),)


def test_a_lookup_in_sharded_columns_reads_shorter_rows():
    rule = rule_for(lookup())
    local = local_operation(lookup(), rule, assigned(rule, 8, 0), mesh_of(2))
    assert local.params["slice_sizes"] == (1, 4)


@pytest.mark.parametrize(("mode", "fill", "passes"), [
    ("CLIP", None, True),
    ("GatherScatterMode.FILL_OR_DROP", 0, True),
    ("GatherScatterMode.FILL_OR_DROP", None, True),  # NaN, which stays NaN
    ("GatherScatterMode.FILL_OR_DROP", 7, False),  # every device would add its 7
])  # fmt: skip
def test_partial_tables_pass_unless_a_filling_would_be_counted_several_times(mode, fill, passes):
    kinds = {factor.kind for factor in rule_for(lookup(mode, fill)).factors}
    assert (FactorKind.PARTIAL in kinds) == passes


def test_booleans_are_looked_up_by_or():
    assert "reduce c=32 or" in str(rule_for(lookup(dtype="bool")))


@pytest.mark.parametrize(
    ("name", "indices"),
    [
        ("scatter-add", "reduce a=4 sum"),
        ("scatter-max", "reduce a=4 max"),
        ("scatter-mul", "reduce a=4 prod"),
        ("scatter", "blocked a=4"),
    ],
)
def test_updates_combine_as_the_primitive_does(name, indices):
    """Plain scatter overwrites: which of two updates is the last one must be decided on every device."""
    rule = rule_for(update(name))
    assert str(rule).startswith(f"c d, a b, a d -> c d ({indices}, blocked b=1, map c=32, map d=8")
    assert rule.recipe == "scatter"


@pytest.mark.parametrize(
    ("name", "passes"),
    [("scatter-add", ["sum"]), ("scatter-min", ["min"]), ("scatter-mul", []), ("scatter", ["sum", "max", "min"])],
)
def test_partial_operand_and_updates_pass_together(name, passes):
    factors = [factor for factor in rule_for(update(name)).factors if factor.kind is FactorKind.PARTIAL]
    assert [factor.reduction for factor in factors] == passes
    assert {factor.operands for factor in factors} <= {(0, 2)}


def test_windows_that_span_a_dimension_may_be_sharded_there():
    whole = operation("dynamic_slice", [(8, 6), (), ()], [(4, 6)], slice_sizes=(4, 6))
    rule = rule_for(whole)
    assert str(rule).startswith("a c, ,  -> b c (blocked a=8, blocked b=4, map c=6,")
    assert local_operation(whole, rule, assigned(rule, 6, 0), mesh_of(2)).params["slice_sizes"] == (4, 3)
    written = rule_for(operation("dynamic_update_slice", [(8, 6), (4, 6), (), ()], [(8, 6)]))
    assert str(written).startswith("a c, b c, ,  -> a c (blocked a=8, blocked b=4, map c=6, partial (0, 1) sum")
