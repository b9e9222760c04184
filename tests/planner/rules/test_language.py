"""Statements, registered rules, and what follows from a rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxValueError
from sporax.ir.placement import Placement
from sporax.planner.rules import (
    Behaviour,
    Kind,
    Operation,
    Statement,
    TensorSpec,
    Window,
    assignments,
    entry_for,
    is_legal,
    local_bytes,
    local_flops,
    local_operation,
    nothing_cut,
    placements,
    problem,
    propagate,
    register,
    rule_for,
    unregister,
)

MESH = DeviceMatrix((2, 4))


def operation(name, operands, results, **params):
    return Operation(name, tuple(map(TensorSpec, operands)), tuple(map(TensorSpec, results)), params)


def matmul(m=8, k=16, n=32):
    numbers = (((1,), (0,)), ((), ()))
    return operation("dot_general", [(m, k), (k, n)], [(m, n)], dimension_numbers=numbers)


# ------------------------------------------------------------------------------------------------------- statements


@pytest.mark.parametrize(
    ("text", "operands", "results", "kinds"),
    [
        ("bij, bjk -> bik", [(2, 4, 6), (2, 6, 8)], [(2, 4, 8)], "map map reduce map"),
        ("b i j, b j k -> b i k", [(2, 4, 6), (2, 6, 8)], [(2, 4, 8)], "map map reduce map"),
        ("... n, n -> ... n", [(2, 4, 6), (6,)], [(2, 4, 6)], "map map map"),
        ("(g c) x, -> g x", [(8, 3), ()], [(2, 3)], "map map reduce"),
        ("b 1 -> b", [(4, 7)], [(4,)], "map"),
        ("-> b", [], [(4,)], "map"),
    ],
)
def test_statement(text, operands, results, kinds):
    rule = Statement.parse(text).rule(operation("f", operands, results))
    assert sorted(factor.kind.value for factor in rule.factors) == sorted(kinds.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b i, b", "must have the form"),
        ("b i -> b *", r"single letters, .*'b \*'"),
        ("b i -> b, i", "must name every tensor, but it has 2 of them where the operation has 1"),
        ("b i j -> b", "must name every dimension, but a tensor of shape \\(4, 6\\) has 2"),
        ("b b -> b", "index b .* must have one size, but got 4 and 6"),
        ("(b i) 1 -> 1", "sizes of all indices must follow"),
    ],
)
def test_bad_statement(text, message):
    with pytest.raises(SporaxValueError, match=message):
        Statement.parse(text).rule(operation("f", [(4, 6)], [(4,)]))


def test_bad_names():
    statement, op = Statement.parse("b i -> b"), operation("f", [(4, 6)], [(4,)])
    with pytest.raises(SporaxValueError, match="must name indices .* but got \\['x'\\]"):
        statement.rule(op, blocked="x")
    with pytest.raises(SporaxValueError, match="'i': 'mean'"):
        statement.rule(op, reduce={"i": "mean"})
    with pytest.raises(SporaxValueError, match="'b': 'max'"):
        statement.rule(op, reduce={"b": "max"})


# ------------------------------------------------------------------------------------------------------- registration


@pytest.fixture
def clean():
    yield
    unregister("my_op")
    unregister("ffi_call:my_kernel")


@pytest.mark.usefixtures("clean")
def test_register():
    op = operation("my_op", [(4, 6), (6,)], [(4,)])
    assert rule_for(op).opaque
    register("my_op", "b i, i -> b", linear=[(0,), (1,)])
    rule = rule_for(op)
    assert not rule.opaque
    assert [factor.kind for factor in rule.factors].count(Kind.PARTIAL) == 2
    assert entry_for("my_op").behaviour is Behaviour.RULE


@pytest.mark.usefixtures("clean")
def test_register_a_target_of_a_custom_call():
    op = operation("ffi_call:my_kernel", [(4, 6)], [(4, 6)])
    assert "foreign code" in rule_for(op).opaque
    register("ffi_call:my_kernel", "b i -> b i", blocked="i")
    assert not rule_for(op).opaque
    assert rule_for(operation("ffi_call:other", [(4, 6)], [(4, 6)])).opaque


@pytest.mark.usefixtures("clean")
def test_register_a_function():
    register("my_op", lambda op: rule_for(matmul()))
    assert len(rule_for(operation("my_op", [(8, 16), (16, 32)], [(8, 32)])).factors) == 5
    with pytest.raises(SporaxValueError, match="must be left out when the rule of 'my_op' is a function"):
        register("my_op", rule_for, blocked="k")


def test_unknown_primitives_are_reported():
    rule = rule_for(operation("never_heard_of", [(4, 6)], [(4,)]))
    assert "'never_heard_of' is not sharded: it is unknown" in rule.opaque
    assert list(assignments(rule, MESH)) == [()]


# ------------------------------------------------------------------------------------------------------ what follows


def test_megatron():
    """Columns of the first weight, rows of the second: the result of the second product is a sum of parts."""
    rule = rule_for(matmul())
    m, k, n, *_ = range(5)
    first = nothing_cut(rule)[:n] + ((0, 1),) + ((), ())
    assert placements(rule, first)[1] == (Placement(((), (0, 1))),)
    second = ((), (0, 1), (), (), ())
    operands, results = placements(rule, second)
    assert operands == (Placement(((), (0, 1))), Placement(((0, 1), ())))
    assert results == (Placement(((), ()), (0, 1)),)
    assert (m, k) == (0, 1)


def test_flops_and_bytes():
    op, rule = matmul(), rule_for(matmul())
    cut = ((0,), (1,), (), (), ())
    assert local_flops(rule, nothing_cut(rule), MESH) == 2 * 8 * 16 * 32
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


def test_a_minor_factor_needs_the_major_ones_cut():
    op = operation("reshape", [(2, 12)], [(24,)], new_sizes=(24,))
    rule = rule_for(op)
    assert not is_legal(rule, ((), (1,), (), (), ()), MESH)
    assert is_legal(rule, ((0,), (1,), (), (), ()), MESH)


def test_mixed_reductions_are_refused():
    op = operation("reduce_max", [(4, 8)], [(4,)], axes=(1,))
    kinds = [(factor.kind, factor.reduction) for factor in rule_for(op).factors]
    assert (Kind.PARTIAL, "max") in kinds
    assert (Kind.PARTIAL, "sum") not in kinds


def test_propagation_through_a_product():
    rule = rule_for(matmul())
    rows, columns = Placement(((0,), ())), Placement(((), (1,)))
    found = placements(rule, propagate(rule, MESH, [rows, columns]))
    assert found[1] == (Placement(((0,), (1,))),)
    backward = placements(rule, propagate(rule, MESH, [None, None], [Placement(((0,), (1,)))]))
    assert backward[0] == (rows, columns)


def test_propagation_keeps_what_comes_first():
    rule = rule_for(matmul())
    found = propagate(rule, MESH, [Placement(((), (0,))), Placement(((1,), ()))])
    assert placements(rule, found)[0] == (Placement(((), (0,))), Placement(((0,), ())))


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


def test_narrowing_does_not_pass_parts():
    def convert(source, target):
        op = Operation(
            "convert_element_type", (TensorSpec((4,), source[0], source[1]),), (TensorSpec((4,), target[0], target[1]),)
        )
        return any(factor.kind is Kind.PARTIAL for factor in rule_for(op).factors)

    assert convert(("bfloat16", 2), ("float32", 4))
    assert not convert(("float32", 4), ("bfloat16", 2))
    assert not convert(("float32", 4), ("int32", 4))


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 3), max_size=2),
)
def test_reshape_factors(sizes, cuts):
    """Both sides have factors that multiply to their dimensions (checked when the rule is made), shared from the left."""
    merged = list(sizes)
    for cut in cuts:
        if cut + 1 < len(merged):
            merged[cut : cut + 2] = [merged[cut] * merged[cut + 1]]
    rule = rule_for(operation("reshape", [tuple(sizes)], [tuple(merged)], new_sizes=tuple(merged)))
    assert all(factor.kind is not Kind.BLOCKED for factor in rule.factors), "joining dimensions blocks nothing"


def test_windows():
    same = Window(size=16, num_outputs=16, extent=3, pad_low=1)
    assert (same.border(4).left, same.border(4).right) == (1, 1)
    assert same.border(3) is None
    apart = Window(size=16, num_outputs=8, extent=2, stride=2)
    assert (apart.border(4).left, apart.border(4).right) == (0, 0)
    valid = Window(size=16, num_outputs=14, extent=3)
    assert valid.border(2) is None
    assert Window(16, 16, 3, pad_low=1, exchanges=False).border(4) is None
