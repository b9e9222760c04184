import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.layout import Strategy

SHAPES = ((64, 32), (32, 16))


def test_a_strategy_that_fits():
    strategy = Strategy(((2, 4), (4, 2)))
    strategy.check("MatMul", SHAPES, 16)
    Strategy(((3, 1),)).check("ReLU", ((9, 2),), 6)  # other cuts than powers of 2, on 6 devices
    assert {strategy: 1}[Strategy(((2, 4), (4, 2)))] == 1
    assert str(strategy) == "((2, 4), (4, 2))"


@pytest.mark.parametrize(
    ("cuts", "words"),
    [
        (((2, 4),), "each of the 2 tensors"),
        (((2, 4), (4,)), "tensor 1 must have 2 numbers"),
        (((2, 0), (1, 1)), ">= 1, but got 0"),
        (((2, -1), (1, 1)), ">= 1, but got -1"),
        (((2, 3), (1, 1)), "power of 2 on 16 devices, but got 3"),
        (((2, 4), (4, 32)), "dimension 1 of tensor 1 has size 16"),
        (((8, 4), (4, 1)), "divide the 16 devices"),
    ],
)
def test_a_strategy_that_does_not(cuts, words):
    with pytest.raises(SporaxRuntimeError, match=f"For 'MatMul'.*{words}"):
        Strategy(cuts).check("MatMul", SHAPES, 16)
