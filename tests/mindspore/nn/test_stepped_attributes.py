"""Tensors that a compiled step assigns to attributes: as Python and MindSpore's PYNATIVE_MODE have it, in every mode.

MindSpore's GRAPH_MODE keeps the value of the first step for good; expected values are those of the wheel's PYNATIVE_MODE.
"""

import copy

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.runtime.state import frames

MODES = [ms.GRAPH_MODE, ms.PYNATIVE_MODE]


def full(value, rows=1):
    return Tensor(np.full((rows, 2), value, np.float32))


@pytest.fixture(params=MODES, ids=["graph", "pynative"])
def mode(request):
    ms.set_context(mode=request.param)
    yield request.param
    ms.set_context(mode=ms.PYNATIVE_MODE)


class Keeps(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(2, 2, weight_init="ones", bias_init="zeros")
        self.last = None

    def construct(self, x):
        self.last = self.dense(x)
        return self.last * 2


def test_the_attribute_has_the_value_of_the_last_step(mode):
    net, seen = Keeps(), []
    for value, rows in ((1, 2), (2, 2), (3, 1), (4, 2)):
        net(full(value, rows))
        seen.append(net.last)
    # What was read before does not change.
    assert [(tensor.shape, float(tensor[0, 0])) for tensor in seen] == [
        ((2, 2), 2),
        ((2, 2), 4),
        ((1, 2), 6),
        ((2, 2), 8),
    ]
    assert not any(isinstance(tensor, ms.Parameter) for tensor in seen)
    assert [parameter.name for parameter in net.get_parameters()] == ["dense.weight", "dense.bias"]
    if mode == ms.GRAPH_MODE:
        assert len(net.program.compilations) == 2  # one for each shape
    other = copy.deepcopy(net)
    other(full(5))
    assert float(net.last[0, 0]) == 8
    assert float(other.last[0, 0]) == 10


class Remembers(nn.Cell):
    def __init__(self):
        super().__init__()
        self.state = None

    def construct(self, x):
        if self.state is None:
            self.state = ops.ones_like(x)
        self.state = self.state * 2 + x
        return self.state


def test_a_step_reads_what_the_one_before_assigned(mode):
    net = Remembers()
    assert [float(net(full(value))[0, 0]) for value in (1, 2, 3, 4)] == [3, 8, 19, 42]
    net.state = None
    assert float(net(full(5))[0, 0]) == 7
    net.state = full(100)
    assert float(net(full(1))[0, 0]) == 201
    assert float(net.state[0, 0]) == 201
    del net.state
    assert not hasattr(net, "state")
    net.state = None
    assert float(net(full(1))[0, 0]) == 3
    net.state = nn.ReLU()
    net.state = None
    assert net.state is None


class Scales(nn.Cell):
    def __init__(self):
        super().__init__()
        self.scale = 1

    def construct(self, x):
        y = x * self.scale
        if self.training:
            self.scale = x.sum()
        return y


def test_numbers_in_between(mode):
    net = Scales()
    net.set_train()
    assert [float(net(full(1))[0, 0]) for _ in range(3)] == [1, 2, 2]
    net.set_train(False)
    for scale in (2, 3, 4, 4.5):
        net.scale = scale
        assert float(net(full(1))[0, 0]) == scale
    net.set_train()
    net(full(1))
    del net.scale
    with pytest.raises(AttributeError):
        net(full(1))
    # A step that assigns first has it again.
    other = Keeps()
    for value in (1, 2):
        other(full(value))
        assert float(other.last[0, 0]) == 2 * value
        del other.last
        assert not hasattr(other, "last")


class Cache(nn.Cell):
    def __init__(self):
        super().__init__()
        self.rows = None

    def construct(self, x, position):
        if self.rows is None:
            self.rows = ops.zeros((3, 2))
        self.rows[position] = x
        self.rows[position][0] += 5
        return self.rows.sum()


def test_parts_are_written_to(mode):
    net = Cache()
    row = Tensor(np.array([1, 2], np.float32))
    assert [float(net(row, Tensor(position, ms.int32))) for position in range(3)] == [8, 16, 24]
    before = net.rows
    net.rows[1] = 0
    assert net.rows.asnumpy().tolist() == [[6, 2], [0, 0], [6, 2]]
    # What was read before an assignment is another Tensor.
    net.rows = net.rows + 1
    before[0] = 9
    assert net.rows.asnumpy().tolist() == [[7, 3], [1, 1], [7, 3]]


class Loops(nn.Cell):
    def __init__(self):
        super().__init__()
        self.last = full(0)

    def construct(self, x, count):
        while count > 0:
            x = x + 1
            self.last = x
            count = count - 1
        for _ in range(2):
            self.last = self.last * 2
        if x.sum() > 8:
            self.last = -x
        return x, self.last


def test_loops_and_branches(mode):
    net = Loops()
    for value, count, expected in ((1, 0, 0), (1, 2, 12), (1, 4, -5), (1, 0, -20)):
        _, last = net(full(value), Tensor(count))
        assert float(last[0, 0]) == expected
        assert float(net.last[0, 0]) == expected


class Auxiliary(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(4, 8, weight_init="ones", bias_init="zeros")
        self.last = None
        self.mean = Tensor(np.zeros(8, np.float32))

    def construct(self, x):
        for _ in range(2):
            self.last = self.dense(x)
        self.mean = ops.stop_gradient(self.mean * 0.9 + self.last.mean(0) * 0.1)
        return self.last


class Total(nn.Cell):
    def __init__(self):
        super().__init__()
        self.body = Auxiliary()

    def construct(self, x):
        return (self.body(x) * self.body.last).mean() + self.body.mean.sum()


def _trained(shard=None):
    net = Total()
    if shard is not None:
        net.body.dense.matmul.shard(shard)
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.01, 0.9))
    seen = []
    for value in (1, 2, 3):
        loss = step(Tensor(np.arange(32, dtype=np.float32).reshape(8, 4) / 10 * value))
        seen.append([float(loss), float(net.body.last.sum()), float(net.body.mean.sum())])
    return seen


# As the wheel's PYNATIVE_MODE has it: gradients go through what was assigned.
TRAINED = [[56.8400, 396.8, 4.96], [207.92038, 766.77631, 14.048704], [331.1293, 963.1715, 24.683477]]


def test_gradients_go_through_what_was_assigned(mode):
    np.testing.assert_allclose(_trained(), TRAINED, rtol=1e-5)


def test_on_eight_devices():
    with_mode = {"parallel_mode": "semi_auto_parallel", "device_num": 8, "dataset_strategy": "full_batch"}
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(**with_mode)
    np.testing.assert_allclose(_trained(((2, 1), (4, 1))), TRAINED, rtol=1e-5)
    ms.reset_auto_parallel_context()
    ms.set_context(mode=ms.PYNATIVE_MODE)


def test_an_attribute_of_the_class_is_refused():
    class Shared(nn.Cell):
        last = None

        def construct(self, x):
            self.last = x
            return x

    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(TypeError, match="'Shared', attribute 'last' of the class cannot take a Tensor"):
        Shared()(full(1))
    ms.set_context(mode=ms.PYNATIVE_MODE)


class Recurrent(nn.Cell):
    def __init__(self):
        super().__init__()
        self.state = full(0), full(1)

    def construct(self, x):
        hidden, carry = self.state
        hidden = hidden * 0.5 + x
        self.state = hidden, carry + hidden
        return self.state[0] + self.state[1]


def test_a_pair_of_tensors_is_the_state_of_the_next_step(mode):
    net = Recurrent()
    assert [float(net(full(value))[0, 0]) for value in range(4)] == [1, 3, 7, 13]
    assert [float(tensor[0, 0]) for tensor in net.state] == [4.25, 8.75]
    net.state = full(4), full(2)
    assert float(net(full(1))[0, 0]) == 8
    if mode == ms.GRAPH_MODE:
        assert len(net.program.compilations) == 1


class Named(nn.Cell):
    def __init__(self):
        super().__init__()
        self.found = None

    def construct(self, x, deep=True):
        before = x if self.found is None else self.found[1]["x"]
        rows = 1 if self.found is None else self.found[0]
        self.found = rows, {"x": x, "rest": [x * 2, None] if deep else [], "pad": np.ones(2)}
        return before


def test_tuples_of_other_values(mode):
    net = Named()
    assert [float(net(full(value))[0, 0]) for value in (1, 2, 3)] == [1, 1, 2]
    assert float(net(full(4), False)[0, 0]) == 3
    assert net.found[1]["rest"] == []
    net(full(5))
    rows, found = net.found
    assert (rows, float(found["rest"][0][0, 0]), found["rest"][1]) == (1, 10, None)


class Scratch(nn.Cell):
    def __init__(self):
        super().__init__()
        self.features, self.named = [], {"x": full(1)}

    def construct(self, x):
        self.features = [x * 2]
        self.features.append(x * 3)
        self.named = {"x": self.named["x"] * x}
        return sum(self.features) * self.named["x"]


class History(nn.Cell):
    def __init__(self):
        super().__init__()
        self.history = []

    def construct(self, x):
        self.history.append(x * 2)
        return self.history[-1]


def test_lists_and_dicts_end_with_the_step_and_a_warning_says_so():
    ms.set_context(mode=ms.GRAPH_MODE)
    frames._warn_of_loss.cache_clear()
    net = Scratch()
    with pytest.warns(UserWarning, match="For 'Scratch', the (list 'features'|dict 'named') gets tensors") as warned:
        assert [float(net(full(value))[0, 0]) for value in (1, 2, 3)] == [5, 20, 45]
    assert len(warned) == 2
    history = History()
    with pytest.warns(UserWarning, match="For 'History', the list 'history' gets tensors in a compiled step"):
        assert [float(history(full(value))[0, 0]) for value in (1, 2)] == [2, 4]
    assert history.history == []
    assert net.features == []
    assert float(net.named["x"][0, 0]) == 1
    ms.set_context(mode=ms.PYNATIVE_MODE)


class Within(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = full(3)
        self.pair = (self.weight, self.weight * 2)

    def construct(self, x):
        return x * self.weight + self.pair[1]


class Makes(nn.Cell):
    def construct(self, x):
        return Within()(x)


def test_a_cell_that_is_made_in_a_step_has_tensors(mode):
    assert [float(Makes()(full(value))[0, 0]) for value in (1, 2)] == [9, 12]
