"""`Cell.state_dict` and `load_state_dict`."""

from collections import OrderedDict

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, mint, nn


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


class _Counting(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor([1.0, 2.0]), name="w")
        self.count = 3

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, state):
        self.count = state["count"]


class _Both(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a, self.b = _Counting(), nn.Dense(1, 1)


def test_extra_state_is_part_of_the_state():
    net, other = _Both(), _Both()
    net.a.count = 5
    state = net.state_dict(prefix="x.")
    assert list(state) == ["x.a.w", "x.a._extra_state", "x.b.weight", "x.b.bias"]
    other.load_state_dict(net.state_dict())
    assert other.a.count == 5
    with pytest.raises(RuntimeError, match="missing: .*a._extra_state"):
        other.load_state_dict({key: value for key, value in net.state_dict().items() if "extra" not in key})
    with pytest.raises(RuntimeError, match="For 'Dense', 'get_extra_state' must be defined"):
        net.b.get_extra_state()


def test_hooks_see_the_state_that_is_collected():
    net, seen = _Both(), []
    handle = net.a.register_state_dict_pre_hook(lambda cell, prefix, keep: seen.append((type(cell), prefix, keep)))
    net.register_state_dict_pre_hook(lambda cell, prefix, keep: seen.append((type(cell), prefix, keep)))
    for cell in (net.a, net):
        cell.register_state_dict_post_hook(lambda cell, state, prefix, _: seen.append((type(cell), prefix, len(state))))
    net.register_state_dict_post_hook(lambda cell, state, prefix, _: state.pop("x.b.bias"))
    assert "x.b.bias" not in net.state_dict(prefix="x.")
    # The order of the wheel: a Cell's own come around those of its children.
    assert seen == [(_Both, "x.", False), (_Counting, "x.a.", False), (_Counting, "x.a.", 2), (_Both, "x.", 4)]
    handle.remove()
    handle.remove()
    seen.clear()
    net.state_dict(prefix="x.")
    assert len(seen) == 3
    with pytest.raises(TypeError, match="the hook must be a function, but got int"):
        net.register_state_dict_pre_hook(3)


def test_hooks_see_the_state_that_is_loaded():
    net, seen = _Both(), []
    state = dict(net.state_dict())
    state["old.w"] = state.pop("a.w") + 1

    def rename(cell, state, prefix, metadata, strict, missing, unexpected, errors):
        seen.append((type(cell), prefix, strict))
        state["a.w"] = state.pop("old.w")

    def forgive(cell, keys):
        seen.append((type(cell), list(keys.missing_keys)))
        keys.missing_keys.clear()

    net.register_load_state_dict_pre_hook(rename)
    for cell in (net.a, net):
        cell.register_load_state_dict_post_hook(forgive)
    del state["b.bias"]
    keys = net.load_state_dict(state)
    assert repr(keys) == "<All keys matched successfully>"
    assert seen == [(_Both, "", True), (_Counting, ["b.bias"]), (_Both, [])]
    assert net.a.w.asnumpy().tolist() == [2, 3]
    assert "old.w" in state  # hooks work on a copy


def test_hooks_may_find_what_is_wrong():
    net = _Both()
    net.a.register_load_state_dict_pre_hook(lambda *given: given[-1].append("a is broken"))
    with pytest.raises(RuntimeError, match="a is broken"):
        net.load_state_dict(net.state_dict())
