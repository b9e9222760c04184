"""Attributes of layers that others' scripts read, and set strategies on."""

import copy

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn
from sporax.mindspore.nn import _deferred_settings

X = Tensor(np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3))
IMAGE = Tensor(np.ones((1, 2, 2, 2), np.float32))


def test_plain_arguments_of_constructors_are_attributes():
    net = nn.Conv2d(3, 4, 3, bias_init="ones", has_bias=True)
    assert (net.bias_init, nn.GLU(1).axis, nn.LayerNorm((4,)).epsilon) == ("ones", 1, 1e-7)
    assert copy.deepcopy(net).bias_init == "ones"
    assert nn.BiDense(2, 3, 4).bias_init is None and nn.GroupNorm(1, 2, beta_init="ones").beta_init == "ones"
    weights = Tensor(np.ones((4, 3), np.float32))
    dense = nn.Dense(3, 4, weight_init=weights)
    assert not hasattr(dense, "weight_init")  # it would keep the values alive
    assert not any(value is weights for value in dense.__dict__[_deferred_settings.MADE_WITH][1].values())
    for wrong in ("nothing", "_private"):
        with pytest.raises(AttributeError, match=f"The 'Dense' object has no attribute '{wrong}'"):
            getattr(dense, wrong)


class Own(nn.Cell):
    def __init__(self, size):
        super().__init__()


def test_arguments_of_the_users_cells_are_none_of_their_attributes():
    assert not hasattr(Own(3), "size")


def test_parameters_of_tuples_and_members_of_dicts_are_attributes():
    lstm = nn.LSTM(3, 4)
    assert lstm.weight_ih_l0 is lstm.get_parameters().__next__()
    assert nn.CellDict({"first": nn.ReLU()}).first.cls_name == "ReLU"
    assert [loss.average for loss in (nn.L1Loss("sum"), nn.L1Loss("mean"))] == [False, True]


def test_every_operator_of_the_table_can_be_asked_for():
    layer = nn.ReLU()
    for primitive in {kind for table in _deferred_settings._operators().values() for kind in table.values()}:
        assert _deferred_settings._made(primitive).name == primitive
    assert layer.relu.name == "ReLU"


def test_operators_that_take_no_part_say_so_when_something_is_set_on_them():
    optimizer = nn.LazyAdam([Parameter(Tensor([1.0]), name="p")])
    with pytest.warns(UserWarning, match="For 'LazyAdam.sparse_opt', 'primitive_target' has no effect"):
        optimizer.sparse_opt.add_prim_attr("primitive_target", "CPU")
    with pytest.raises(NotImplementedError, match="For 'FusedSparseLazyAdam', the operator of a layer"):
        optimizer.sparse_opt()
    dense = nn.Dense(3, 4)
    assert dense.reshape.shard(((1, 1),)) is dense.reshape  # follows its input anyway
    assert dense.reshape(X, (3, 2)).shape == (3, 2)


@pytest.mark.parametrize(
    ("layer", "name", "x"),
    [
        (nn.CELU(2.0), "celu", X),
        (nn.HShrink(), "hshrink", X),
        (nn.SoftShrink(), "softshrink", X),
        (nn.Softmax2d(), "softmax", IMAGE),
        (nn.OneHot(depth=3), "onehot", Tensor([0, 2])),
        (nn.Pad(((1, 0), (0, 2))), "pad", X),
        (nn.Pad(((1, 0), (0, 2)), "SYMMETRIC"), "pad", X),
        (nn.FastGelu(), "fast_gelu", X),
    ],
)
def test_layers_of_one_operator_compute_by_their_attribute(layer, name, x):
    plain = layer(x).asnumpy()
    getattr(layer, name).recompute()
    np.testing.assert_allclose(ms.jit(layer)(x).asnumpy(), plain, rtol=1e-6)
    setattr(layer, name, type("Marked", (nn.Cell,), {"attrs": {"recompute": True}, "construct": lambda *_: X})())
    np.testing.assert_array_equal(layer(x).asnumpy(), X.asnumpy())
