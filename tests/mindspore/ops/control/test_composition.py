import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, ops


def test_a_function_chosen_by_type():
    scale = ops.MultitypeFuncGraph("scale")

    @scale.register("Tensor", "Number")
    def _(x, factor):
        return x * factor

    @scale.register("Tuple", "Number")
    def _(xs, factor):
        return tuple(x + factor for x in xs)

    assert scale(Tensor([1.0, 2.0]), 3).tolist() == [3, 6]
    assert scale((1, 2), 3) == (4, 5)
    with pytest.raises(ValueError, match="no implementation"):
        scale("a", 3)


def test_hypermap_and_map_go_through_nested_tuples():
    add = lambda a, b: a + b
    assert ops.HyperMap(add)((1, (2, 3)), (10, (20, 30))) == (11, (22, 33))
    assert ops.HyperMap()(add, [1, 2], [3, 4]) == [4, 6]
    assert ops.Map(add)(((1,), 2), ((3,), 4)) == ((1, 3), 6)
    with pytest.raises(ValueError, match="one length"):
        ops.HyperMap(add)((1,), (1, 2))
    with pytest.raises(TypeError, match="tuples or lists"):
        ops.Map(add)(1, 2)


def test_scaling_gradients_as_scripts_do():
    """The idiom of hand-written training cells."""
    grad_scale = ops.MultitypeFuncGraph("grad_scale")
    grad_scale.register("Tensor", "Tensor")(lambda scale, grad: grad / scale)

    @ms.jit
    def step(x, y):
        grads = ms.grad(lambda x, y: x * y, (0, 1))(x, y)
        return ops.HyperMap()(ops.Partial()(grad_scale, Tensor(2.0)), grads)

    assert [entry.item() for entry in step(Tensor(3.0), Tensor(4.0))] == [2, 1.5]


def test_depend_gives_its_first_argument():
    x, y = Tensor([1.0]), Tensor([2.0])
    assert ops.depend(x, y).tolist() == [1]
    assert ops.Depend()(x, (y, y)).tolist() == [1]
    assert ops.depend(5, y) == 5
    assert ms.jit(ms.grad(lambda x: (ops.depend(x, x * 2) ** 2).sum()))(x).tolist() == [2]


def test_a_parameter_behind_depend_can_be_assigned_to():
    sums = Parameter(Tensor([1.0, 2.0]), name="sums")

    @ms.jit
    def step(x):
        doubled = x * 2
        ready = ops.depend(sums, doubled)
        return ops.depend(doubled, ops.assign(ready, ready * 0.0))

    assert step(Tensor([3.0, 4.0])).asnumpy().tolist() == [6, 8]
    assert sums.asnumpy().tolist() == [0, 0]
