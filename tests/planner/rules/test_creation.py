"""Tensors that every rank makes by itself."""

import pytest
from planner_graphs import mesh_of, operation

from sporax.ir.operation import Operation, TensorSpec
from sporax.planner.rules import local_operation, rule_for

MESH = mesh_of(2)


def bits(key, shape=(2, 16)):
    params = {"shape": shape[1:], "bit_width": 32}
    return Operation("random_bits", (TensorSpec(shape[:1], key, 8),), (TensorSpec(shape, "uint32"),), params)


@pytest.mark.parametrize(("name", "recipe"), [("iota", "iota"), ("empty", "plain")])
def test_every_dimension_may_be_sharded_and_slices_have_their_own_shape(name, recipe):
    whole = operation(name, [], [(4, 8)], shape=(4, 8), dimension=0)
    rule = rule_for(whole)
    assert str(rule) == " -> a b (map a=4, map b=8)"
    assert rule.recipe == recipe
    assert local_operation(whole, rule, ((), (0,)), MESH).params == {"shape": (4, 4), "dimension": 0}


def test_counters_of_random_numbers_are_two_words():
    rule = rule_for(operation("iota_2x32_shape", [], [(4, 8), (4, 8)], shape=(4, 8)))
    assert str(rule) == " -> a b, a b (map a=4, map b=8)"
    assert rule.recipe == "iota_2x32"


def test_threefry_bits_are_a_function_of_key_and_place():
    whole = bits("key<fry>")
    rule = rule_for(whole)
    assert str(rule) == "a -> a b (map a=2, map b=16)"
    local = local_operation(whole, rule, ((), (0,)), MESH)
    assert (local.params["shape"], local.results[0].shape) == ((8,), (2, 8))
    assert local.params["bit_width"] == 32


def test_bits_of_other_generators_cannot_be_sharded():
    rule = rule_for(bits("key<rbg>"))
    assert rule.opaque == "bits of the generator 'key<rbg>' depend on the whole shape"
    assert rule.factors == ()
