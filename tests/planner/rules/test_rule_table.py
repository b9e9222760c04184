"""Which primitive has which rule."""

import pytest
from planner_graphs import operation

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.planner.rules import (
    TABLE,
    Behaviour,
    FactorKind,
    assignments,
    entries,
    entry_for,
    register,
    rule_for,
    unregister,
)

MESH = DeviceMatrix((2, 4))


def matmul(m=8, k=16, n=32):
    numbers = (((1,), (0,)), ((), ()))
    return operation("dot_general", [(m, k), (k, n)], [(m, n)], dimension_numbers=numbers)


@pytest.fixture
def clean():
    yield
    unregister("my_op")
    unregister("ffi_call:my_kernel")


@pytest.mark.usefixtures("clean")
def test_a_registered_rule_replaces_the_opaque_one():
    op = operation("my_op", [(4, 6), (6,)], [(4,)])
    assert rule_for(op).opaque
    register("my_op", "b i, i -> b", linear=[(0,), (1,)])
    rule = rule_for(op)
    assert not rule.opaque
    assert [factor.kind for factor in rule.factors].count(FactorKind.PARTIAL) == 2
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
    rule = rule_for(operation("never_seen", [(4, 6)], [(4,)]))
    assert "'never_seen' is not sharded: it is unknown" in rule.opaque
    assert list(assignments(rule, MESH)) == [()]


def test_entries_without_rule_say_why():
    for name, entry in TABLE.items():
        assert (entry.rule is None) == bool(entry.reason), name


def test_equal_operations_get_one_rule():
    assert rule_for(matmul()) is rule_for(matmul())
    assert rule_for(matmul()) is not rule_for(matmul(m=4))


def test_unhashable_parameters_get_a_rule_each_time():
    op = operation("exp", [(4, 6)], [(4, 6)], accuracy=[])
    assert rule_for(op) == rule_for(op)
    assert rule_for(op) is not rule_for(op)


def test_what_a_rule_does_not_know_stays_whole():
    known = operation("exp", [(4, 6)], [(4, 6)], accuracy="high", newest=None)
    assert not rule_for(known).opaque
    rule = rule_for(operation("exp", [(4, 6)], [(4, 6)], newest=3))
    assert rule.opaque == "'exp' is not sharded: newest=3 is unknown to its rule"
    assert not rule.factors
    for name in ("device_put", "loop_enter"):  # the same tensor, whatever they say
        assert rule_for(operation(name, [(4, 6)], [(4, 6)], newest=3)).factors


@pytest.mark.usefixtures("clean")
def test_a_registered_rule_counts_until_it_is_forgotten():
    op = operation("my_op", [(4, 6)], [(4, 6)])
    register("my_op", "a b -> a b")
    assert rule_for(op).factors
    assert "my_op" in dict(entries())
    unregister("my_op")
    assert not rule_for(op).factors
    assert "my_op" not in dict(entries())


def test_each_family_says_what_becomes_of_its_primitives():
    assert entry_for("dot_general").behaviour is Behaviour.RULE
    assert entry_for("sharding_constraint").behaviour is Behaviour.PIN
    assert entry_for("jit").behaviour is Behaviour.INLINE
    assert entry_for("scan").behaviour is Behaviour.CONTROL
    assert entry_for("ffi_call:any").reason == "foreign code, opaque without a registered rule"
    with pytest.raises(TypeError):
        TABLE["mine"] = entry_for("exp")
