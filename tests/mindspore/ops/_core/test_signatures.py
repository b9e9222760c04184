"""Signatures of an operator and its forms, which are read when they are first used."""

import inspect

import pytest

from sporax.base.errors import SporaxNotImplementedError
from sporax.base.lazy_members import LazyMembers
from sporax.mindspore import Tensor, ops
from sporax.mindspore.ops._core import check, refusing
from sporax.mindspore.ops._core.operator import OPERATORS, PRIMITIVES, Array, Operator, operator


@pytest.fixture
def fresh():
    """An operator whose forms nobody has used."""

    @operator("NeverUsed(scale)", function="", method="never_used(by=scale)")
    def kernel(input: Array, scale: float = 2.0) -> Array:
        """Times `scale`."""
        return input * scale

    yield kernel, PRIMITIVES["NeverUsed"]
    del OPERATORS["NeverUsed"], PRIMITIVES["NeverUsed"], Tensor.never_used


def test_defining_an_operator_reads_no_signature(fresh):
    kernel, primitive = fresh
    assert not {"__signature__", "operands"} & vars(kernel).keys()
    assert isinstance(vars(primitive)["__init__"], LazyMembers)
    assert isinstance(vars(Tensor)["never_used"], LazyMembers)


def test_the_forms_of_an_operator_have_their_signatures_and_work(fresh):
    kernel, primitive = fresh
    assert list(inspect.signature(kernel).parameters) == ["input", "scale"]
    assert list(inspect.signature(Operator).parameters) == ["name", "kernel"]
    assert list(inspect.signature(primitive).parameters) == ["scale"]
    assert list(inspect.signature(primitive.__call__).parameters) == ["self", "input"]
    assert list(inspect.signature(Tensor.never_used).parameters) == ["self", "by"]
    assert primitive.attribute_names == ("scale",)
    assert primitive.defaults == {"scale": 2.0}
    assert float(Tensor(3.0).never_used(by=4.0)) == float(primitive(4.0)(Tensor(3.0))) == 12


def test_a_class_that_is_derived_before_the_first_use_calls_the_constructor(fresh):
    _, primitive = fresh

    class Tripled(primitive):
        def __init__(self):
            super().__init__(3.0)

        def __call__(self, x):
            return super().__call__(x) + 1

    assert float(Tripled()(Tensor(2.0))) == 7
    assert ops.ReLU()(Tensor(1.0)) == 1


def test_inputs_that_are_not_used_stay_in_the_signature_and_are_refused():
    class Scaled:
        name = "Scaled"

        @refusing("offset axis", check.only, before="factor")
        def __call__(self, x, factor=2):
            return x * factor

    assert list(inspect.signature(Scaled.__call__).parameters) == ["self", "x", "offset", "axis", "factor"]
    assert Scaled()(3) == 6 and Scaled()(3, None, None, 4) == 12
    with pytest.raises(SporaxNotImplementedError, match="For 'Scaled', 'axis' must be None, but got 1: other values"):
        Scaled()(3, axis=1)
    with pytest.raises(TypeError, match=r"Scaled.__call__\(\) missing a required argument: 'x'"):
        Scaled()()
