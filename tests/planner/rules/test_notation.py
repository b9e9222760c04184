"""Rules written as text."""

import pytest
from planner_graphs import operation

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.planner.rules import Statement

MESH = DeviceMatrix((2, 4))


def matmul(m=8, k=16, n=32):
    numbers = (((1,), (0,)), ((), ()))
    return operation("dot_general", [(m, k), (k, n)], [(m, n)], dimension_numbers=numbers)


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
def test_a_statement_gives_the_kinds_of_its_factors(text, operands, results, kinds):
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


@pytest.mark.parametrize(("text", "shapes", "rule"), [
    ("i k, k j -> i j", [(4, 6), (6, 2), (4, 2)], "a b, b c -> a c (map a=4, reduce b=6 sum, map c=2)"),
    ("(h d) b -> b h d", [(6, 2), (2, 3, 2)], None),
])  # fmt: skip
def test_names_become_factors(text, shapes, rule):
    applied = Statement.parse(text).rule(operation("f", shapes[:-1], shapes[-1:]))
    if rule is not None:
        assert str(applied) == rule
    for dims, shape in zip((*applied.operands, *applied.results), shapes, strict=True):
        sizes = [[applied.factors[index].size for index in indices] for indices in dims]
        assert [size for parts in sizes for size in parts if len(parts) == 1] == [
            size for size, parts in zip(shape, sizes, strict=True) if len(parts) == 1
        ]


def test_options_say_how_names_combine_block_and_pass_sums():
    statement = Statement.parse("b i, b -> b")
    rule = statement.rule(
        operation("f", [(4, 6), (4,)], [(4,)]), reduce={"i": "max"}, linear=[(0, 1)], flops_per_point=3
    )
    assert str(rule) == "a b, a -> a (map a=4, reduce b=6 max, partial (0, 1) sum)"
    assert rule.flops_per_point == 3
    whole = statement.rule(operation("f", [(4, 6), (4,)], [(4,)]), blocked="i")
    assert str(whole) == "a b, a -> a (map a=4, blocked b=6)"


def test_leading_dimensions_line_up_from_the_right():
    rule = Statement.parse("... n, ... n -> ... n").rule(operation("f", [(2, 4, 6), (4, 6)], [(2, 4, 6)]))
    first, second = rule.operands
    assert first[1:] == second
