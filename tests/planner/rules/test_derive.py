"""What follows from a rule and an assignment."""

import pytest
from planner_graphs import operation

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement
from sporax.planner.rules import (
    FactorKind,
    assignments,
    exchanged_bytes,
    is_legal,
    local_bytes,
    local_flops,
    local_operation,
    placements,
    problem,
    propagate,
    rule_for,
    unsharded,
)

MESH = DeviceMatrix((2, 4))


def matmul(m=8, k=16, n=32):
    numbers = (((1,), (0,)), ((), ()))
    return operation("dot_general", [(m, k), (k, n)], [(m, n)], dimension_numbers=numbers)


def test_megatron_shardings_give_partial_sums():
    """Columns of the first weight, rows of the second: the result of the second product is a sum of parts."""
    rule = rule_for(matmul())
    m, k, n, *_ = range(5)
    first = unsharded(rule)[:n] + ((0, 1),) + ((), ())
    assert placements(rule, first)[1] == (Placement(((), (0, 1))),)
    second = ((), (0, 1), (), (), ())
    operands, results = placements(rule, second)
    assert operands == (Placement(((), (0, 1))), Placement(((0, 1), ())))
    assert results == (Placement(((), ()), (0, 1)),)
    assert (m, k) == (0, 1)


def test_flops_and_bytes():
    op, rule = matmul(), rule_for(matmul())
    cut = ((0,), (1,), (), (), ())
    assert local_flops(rule, unsharded(rule), MESH) == 2 * 8 * 16 * 32
    assert local_flops(rule, cut, MESH) == 2 * 8 * 16 * 32 / 8
    assert local_bytes(op, rule, cut, MESH) == 4 * (4 * 4 + 4 * 32 + 4 * 32)


def test_local_parameters():
    op = operation("broadcast_in_dim", [(8,)], [(4, 8)], shape=(4, 8), broadcast_dimensions=(1,))
    rule = rule_for(op)
    local = local_operation(op, rule, ((0,), (1,), (), (), ()), MESH)
    assert local.params["shape"] == (2, 2)
    assert op.params["shape"] == (4, 8)


def test_problems_say_what_is_wrong():
    rule = rule_for(matmul(m=6))
    assert "size 6) cannot be sharded into 4" in problem(rule, ((1,), (), (), (), ()), MESH)
    assert "one factor at most" in problem(rule, ((0,), (0,), (), (), ()), MESH)
    with pytest.raises(SporaxValueError, match="For 'dot_general', the sharding must be possible, but factor 0"):
        local_operation(matmul(m=6), rule, ((1,), (), (), (), ()), MESH)


def test_a_minor_factor_needs_the_major_ones_sharded():
    op = operation("reshape", [(2, 12)], [(24,)], new_sizes=(24,))
    rule = rule_for(op)
    assert not is_legal(rule, ((), (1,), (), (), ()), MESH)
    assert is_legal(rule, ((0,), (1,), (), (), ()), MESH)


def test_mixed_reductions_are_refused():
    op = operation("reduce_max", [(4, 8)], [(4,)], axes=(1,))
    kinds = [(factor.kind, factor.reduction) for factor in rule_for(op).factors]
    assert (FactorKind.PARTIAL, "max") in kinds
    assert (FactorKind.PARTIAL, "sum") not in kinds


def test_propagation_through_a_product():
    rule = rule_for(matmul())
    rows, columns = Placement(((0,), ())), Placement(((), (1,)))
    pair = placements(rule, propagate(rule, MESH, [rows, columns]))
    assert pair[1] == (Placement(((0,), (1,))),)
    backward = placements(rule, propagate(rule, MESH, [None, None], [Placement(((0,), (1,)))]))
    assert backward[0] == (rows, columns)


def test_propagation_keeps_what_comes_first():
    rule = rule_for(matmul())
    assignment = propagate(rule, MESH, [Placement(((), (0,))), Placement(((1,), ()))])
    assert placements(rule, assignment)[0] == (Placement(((), (0,))), Placement(((0,), ())))


def test_parts_pass_where_the_primitive_is_linear():
    parts = Placement(((), ()), (0,))
    add, exp = operation("add", [(4, 8)] * 2, [(4, 8)]), operation("exp", [(4, 8)], [(4, 8)])
    mul = operation("mul", [(4, 8)] * 2, [(4, 8)])

    def result(op, *operands):
        rule = rule_for(op)
        return placements(rule, propagate(rule, MESH, operands))[1][0]

    whole = Placement.replicated(2)
    assert result(add, parts, parts) == parts
    assert result(add, parts, whole) == whole
    assert result(mul, parts, whole) == parts
    assert result(mul, parts, parts) == whole
    assert result(exp, parts) == whole
    assert result(mul, parts, Placement(((), ()), (1,))) == Placement(((), ()), (0, 1))


def test_borders_and_reversed_slices_are_what_ranks_send():
    window = {"window_dimensions": (3, 1), "window_strides": (1, 1), "padding": ((1, 1), (0, 0))}
    pooled = operation("reduce_window_max", [(16, 8)], [(16, 8)], **window)
    rule = rule_for(pooled)
    assert exchanged_bytes(pooled, rule, ((0,), ()), MESH) == 2 * 8 * 4  # a row from either side
    assert exchanged_bytes(pooled, rule, ((), (0,)), MESH) == 0
    turned = operation("rev", [(16, 8)], [(16, 8)], dimensions=(0,))
    rule = rule_for(turned)
    assert exchanged_bytes(turned, rule, ((0,), *[()] * (len(rule.factors) - 1)), MESH) == 16 * 8 * 4 // 2


def test_all_assignments_are_legal_and_different():
    rule = rule_for(matmul())
    every = list(assignments(rule, MESH))
    assert len(every) == len(set(every)) == 6**2  # per axis: no factor, one of three indices, or either operand partial
    assert all(is_legal(rule, assignment, MESH) for assignment in every)
    assert len(list(assignments(rule, MESH, ()))) == 4**2
