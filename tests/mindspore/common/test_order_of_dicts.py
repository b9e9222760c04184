"""Dicts keep the order of their keys where a function is compiled, recomputed, sharded or cast: JAX sorts them."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops


def tensor(value):
    return Tensor(np.array([value], np.float32))


class Named(nn.Cell):
    """Gives its keyword arguments, and a dict with them in their order."""

    def construct(self, x, entries, **named):
        return {name: value * x for name, value in {**entries, **named}.items()}


@pytest.fixture(params=["graph", "pynative"])
def mode(request):
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)


@pytest.mark.parametrize("how", ["plain", "jit", "recomputed", "cast", "inner"])
def test_entries_and_keyword_arguments_come_in_the_order_of_the_call(mode, how):
    cell = Named()
    if how == "recomputed":
        cell.recompute()
    elif how == "cast":
        cell.to_float(ms.float16)
    call = {"jit": ms.jit(lambda *args, **named: cell(*args, **named)), "inner": nn.SequentialCell([])}.get(how, cell)
    if how == "inner":

        class Outer(nn.Cell):
            def __init__(self):
                super().__init__()
                self.cell = cell

            def construct(self, x, entries, **named):
                return self.cell(x, entries, **named)

        call = Outer()
    found = call(tensor(2.0), {"z": tensor(1.0), "b": tensor(2.0)}, y=tensor(3.0), a=tensor(4.0))
    assert list(found) == ["z", "b", "y", "a"]
    assert [value.asnumpy().item() for value in found.values()] == [2.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize(
    "wrap", [lambda f: f, lambda f: type("Net", (nn.Cell,), {"construct": lambda self, x, y, z: f(x, y, z)})()]
)
def test_gradients_of_keyword_arguments_come_in_the_order_of_the_call(mode, wrap):
    function = wrap(lambda x, y, z: (x * y * z).sum())
    x, y, z = tensor(1.0), tensor(10.0), tensor(100.0)
    by_all = ops.GradOperation(get_all=True)(function)
    assert [g.asnumpy().item() for g in by_all(x, z=z, y=y)] == [1000.0, 10.0, 100.0]
    assert [g.asnumpy().item() for g in by_all(z=z, y=y, x=x)] == [10.0, 100.0, 1000.0]
    assert [g.asnumpy().item() for g in ms.grad(function, (0, 1, 2))(x, z=z, y=y)] == [1000.0, 10.0, 100.0]


def test_another_order_of_the_same_names_is_another_program():
    ms.set_context(mode=ms.GRAPH_MODE)
    cell = Named()
    for names in ("za", "az", "za"):
        assert list(cell(tensor(1.0), {}, **{name: tensor(1.0) for name in names})) == list(names)
