"""`Cell.state_dict` and `load_state_dict`."""

from collections import OrderedDict

import numpy as np
import pytest

import sporax as ms
from sporax import Parameter, Tensor, mint, nn


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
        self.norm = nn.BatchNorm1d(1)
        self.register_buffer("places", Tensor([1.0, 2.0]))
        self.register_buffer("cache", Tensor([3.0]), persistent=False)
        self.own = Parameter(Tensor([1.0]), name="another_name")

    def construct(self, x):
        return self.dense(x) * self.own


KEYS = [
    "own", "places", "dense.weight", "dense.bias", "norm.moving_mean", "norm.moving_variance", "norm.gamma", "norm.beta",
]  # fmt: skip


def test_values_by_path():
    net = Net()
    values = net.state_dict()
    assert type(values) is OrderedDict
    assert sorted(values) == sorted(KEYS)
    assert list(values)[:4] == KEYS[:4]
    assert values["own"] is net.own
    assert sorted(net.state_dict(prefix="a.")) == sorted(f"a.{key}" for key in KEYS)
    there = {"x": 1}
    assert net.state_dict(destination=there) is there and len(there) == len(KEYS) + 1


def test_compiled_steps_see_loaded_values():
    ms.set_context(mode=ms.GRAPH_MODE)
    net, x = Net(), Tensor([[1.0, 2.0]])
    assert float(net(x)[0, 0]) == 3
    left = net.load_state_dict(
        {"own": Tensor([5], ms.int32), "places": Tensor([7.0, 8.0]), "z": Tensor([1.0])}, strict=False
    )
    assert left.unexpected_keys == ["z"] and set(left.missing_keys) == set(KEYS) - {"own", "places"}
    assert float(net(x)[0, 0]) == 15
    np.testing.assert_array_equal(net.places.asnumpy(), [7, 8])
    assert net.own.dtype == ms.float32
    assert repr(net.load_state_dict(Net().state_dict())) == "<All keys matched successfully>"
    assert float(net(x)[0, 0]) == 3


@pytest.mark.parametrize(
    ("values", "strict", "kind", "words"),
    [
        ([1], True, TypeError, "must be a dict"),
        ({"own": Tensor([1.0])}, True, RuntimeError, "missing: \\['places'"),
        ({"z": Tensor([1.0])}, True, RuntimeError, "unexpected: \\['z'\\]"),
        ({"own": Tensor([1.0, 2.0])}, False, RuntimeError, "'own' must have shape \\(1,\\), but has \\(2,\\)"),
        ({"own": np.ones(1)}, False, RuntimeError, "'own' must be a Tensor, but is ndarray"),
    ],
)
def test_what_does_not_fit_is_refused(values, strict, kind, words):
    with pytest.raises(kind, match=f"For 'load_state_dict'.*{words}"):
        Net().load_state_dict(values, strict)


def test_cells_by_path():
    net = nn.SequentialCell(Net(), Net())
    assert net.get_sub_cell("1.dense") is net[1].dense
    assert net.get_sub_cell("") is net
    with pytest.raises(AttributeError, match="'1.q' is not the path of a Cell"):
        net.get_sub_cell("1.q")


def test_notes_of_an_optimizer():
    net = Net()
    optimizer = mint.optim.AdamW(net.trainable_params(), 0.1)
    assert optimizer.state == {}
    optimizer.state[net.own]["seen"] = 3
    assert optimizer.state[net.own] == {"seen": 3}
