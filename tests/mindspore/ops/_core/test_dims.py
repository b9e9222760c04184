"""What an operator states of its dimensions, where it is defined."""

import jax
import numpy as np
import pytest

import sporax.mindspore as ms
from operator_marks import operator_mark
from sporax.ir.operator_dims import UNSTATED, Dims, OperatorDims
from sporax.mindspore import Tensor, nn
from sporax.mindspore.ops._core.dims import LAST, Written, stated
from sporax.mindspore.ops._core.operator import OPERATORS, PRIMITIVES, Array, operator


@pytest.fixture
def defined():
    """The class of an operator that only this test has."""

    @operator("OnlyHere", function="", dims="row along!")
    def only_here(x: Array) -> Array:
        return jax.numpy.cumsum(x, 1)

    yield PRIMITIVES["OnlyHere"]
    ms.reset_auto_parallel_context()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    del OPERATORS["OnlyHere"], PRIMITIVES["OnlyHere"]


def test_text_names_the_dimensions_of_each_input():
    assert stated("Conv", "n h! w! c, b four!") == OperatorDims(Written((("n", "h!", "w!", "c"), ("b", "four!"))))
    assert stated("Sort", None) is UNSTATED
    assert stated("SmoothL1Loss", None) == OperatorDims(lenient=True)
    assert stated("Sort", LAST) == OperatorDims(LAST)


def test_other_numbers_of_dimensions_are_not_those_that_are_written():
    written = Written((("i", "k"), ("k", "j")))
    assert written(operator_mark("MatMul"), [(4, 2), (2, 8)]) == Dims(written.inputs)
    assert written(operator_mark("MatMul"), [(4, 2), (2,)]) is None


def test_a_new_operator_is_one_place(defined):
    """Nothing but its definition knows the operator, and a plan refuses what that says."""

    class Net(nn.Cell):
        def __init__(self, strategy):
            super().__init__()
            self.only_here = defined().shard((strategy,))

        def construct(self, x):
            return self.only_here(x)

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    x = Tensor(np.ones((8, 8), np.float32))
    assert (Net((8, 1))(x).asnumpy() == np.arange(1, 9)).all()
    with pytest.raises(RuntimeError, match=r"dimension 1 of tensor 0 must stay whole \(1 slice\), but got 8"):
        Net((1, 8))(x)


def test_programs_show_the_name_of_an_operator_and_not_its_dims():
    assert "dims" not in repr(operator_mark("MatMul"))
