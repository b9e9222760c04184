from collections import deque

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, amp, nn, ops
from sporax.runtime.session import SESSION


class Spy(nn.Cell):
    """Notes the dtype of what passes."""

    def __init__(self):
        super().__init__()
        self.seen = deque()  # of lists the network has a copy while it is compiled

    def construct(self, x):
        self.seen.append(str(x.dtype))
        return x


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, weight_init="normal")
        self.after_conv = Spy()
        self.norm = nn.BatchNorm2d(2)
        self.after_norm = Spy()
        self.matmul = ops.MatMul()

    def construct(self, x):
        x = self.after_norm(self.norm(self.after_conv(self.conv(x))))
        x = ops.reshape(x, (x.shape[0], -1))
        return self.matmul(x, ops.transpose(x, (1, 0)))


X = Tensor(np.random.default_rng(0).normal(size=(3, 1, 4, 4)).astype(np.float32))


def dtypes_of(net):
    result = net(X)
    return net.after_conv.seen[-1], net.after_norm.seen[-1], str(result.dtype)


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16])
@pytest.mark.parametrize(
    ("level", "after_conv", "after_norm"), [("O0", 0, 0), ("O1", 0, 0), ("O2", 1, 1), ("O3", 1, 1)]
)
def test_levels_say_where_half_precision_is(mode, level, after_conv, after_norm, dtype):
    net = Net()
    exact = net(X).asnumpy()
    assert amp.auto_mixed_precision(net, level, dtype) is net
    kinds = ("Float32", str(dtype))
    assert dtypes_of(net) == (kinds[after_conv], kinds[after_norm], "Float32")
    assert all(parameter.dtype == ms.float32 for parameter in net.get_parameters())
    np.testing.assert_allclose(net(X).asnumpy(), exact, rtol=0.1, atol=0.1)
    changed = not np.array_equal(net(X).asnumpy(), exact)
    assert changed == (level != "O0")


def test_black_listed_cells_compute_in_float32():
    net = amp.auto_mixed_precision(Net(), "O2")
    inside = []
    net.norm.register_forward_hook(lambda cell, inputs, output: inside.append((inputs[0].dtype, output.dtype)))
    net(X)
    assert inside == [(ms.float32, ms.float32)]


def test_white_list_lowers_primitives_too():
    net = amp.custom_mixed_precision(Net(), white_list=[ops.MatMul])
    assert dtypes_of(net) == ("Float32", "Float32", "Float32")
    assert repr(net.matmul).startswith("Prim[MatMul]")
    assert net.matmul.transpose_a is False


def test_own_black_list():
    net = amp.custom_mixed_precision(Net(), black_list=[nn.Conv2d], dtype=ms.bfloat16)
    assert dtypes_of(net) == ("BFloat16", "BFloat16", "Float32")


def test_lists_are_copies():
    amp.get_black_list().clear()
    assert nn.LayerNorm in amp.get_black_list()
    assert nn.Dense in amp.get_white_list()


def test_wrong_settings_are_refused():
    with pytest.raises(SporaxTypeError, match="must be a Cell"):
        amp.auto_mixed_precision(3, "O1")
    with pytest.raises(SporaxValueError, match="'amp_level'"):
        amp.auto_mixed_precision(Net(), "O4")
    with pytest.raises(SporaxValueError, match="'dtype'"):
        amp.auto_mixed_precision(Net(), "O2", ms.float32)
    with pytest.raises(SporaxTypeError, match="a Cell or a function"):
        amp.auto_mixed_precision(3, "auto")
    with pytest.raises(SporaxValueError, match="either"):
        amp.custom_mixed_precision(Net())
    with pytest.raises(SporaxTypeError, match="subclasses of Cell"):
        amp.custom_mixed_precision(Net(), black_list=[ops.MatMul])


@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3"])
def test_training_lowers_the_loss(mode, level):
    ms.set_seed(0)
    net = nn.SequentialCell(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dense(64, 3))
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    manager = amp.DynamicLossScaleManager(2**10, 2, 50) if level == "O2" else None
    step = amp.build_train_network(net, optimizer, nn.CrossEntropyLoss(), level, loss_scale_manager=manager)
    assert isinstance(step, nn.TrainOneStepWithLossScaleCell) == (level == "O2")
    labels = Tensor([0, 1, 2], ms.int32)
    losses = [
        np.ravel((loss[0] if isinstance(loss := step(X, labels), tuple) else loss).asnumpy())[0] for _ in range(6)
    ]
    assert losses[-1] < 0.6 * losses[0]


def test_level_o2_scales_the_loss_by_itself():
    net = nn.Dense(2, 1)
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    assert isinstance(amp.build_train_network(net, optimizer, level="O2"), nn.TrainOneStepWithLossScaleCell)
    fixed = amp.FixedLossScaleManager(8, drop_overflow_update=False)
    step = amp.build_train_network(net, optimizer, nn.MSELoss(), level="O2", loss_scale_manager=fixed)
    assert type(step) is nn.TrainOneStepCell
    assert step.sens == 8


def test_settings_override_the_level():
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    amp.build_train_network(net, optimizer, level="O2", cast_model_type=ms.float32, loss_scale_manager=None)
    assert dtypes_of(net)[0] == "Float32"
    amp.build_train_network(net, optimizer, level="O0", cast_model_type=ms.float16, keep_batchnorm_fp32=True)
    assert dtypes_of(net)[0] == "Float16"
    with pytest.raises(SporaxValueError, match="but got 'speed'"):
        amp.build_train_network(net, optimizer, speed=1)
    with pytest.raises(SporaxTypeError, match="must be an Optimizer"):
        amp.build_train_network(net, 3)
    with pytest.raises(SporaxNotImplementedError, match="boost_level"):
        amp.build_train_network(net, optimizer, boost_level="O1")


def test_functional_training_with_a_scaler(mode):
    net = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    scaler = amp.DynamicLossScaler(1024, 2, 2)
    grad_fn = ms.value_and_grad(lambda x: scaler.scale(ops.reduce_mean(ops.square(net(x)))), None, optimizer.parameters)

    @ms.jit
    def step(x):
        loss, grads = grad_fn(x)
        grads = scaler.unscale(grads)
        finite = amp.all_finite(grads)
        scaler.adjust(finite)
        ops.cond(finite, lambda: (optimizer(grads), 0)[1], lambda: 0)
        return scaler.unscale(loss)

    step(Tensor([[1.0, 1.0]]))
    moved = net.weight.asnumpy()
    assert (moved < 1).all()
    step(Tensor([[np.inf, 1.0]]))
    np.testing.assert_array_equal(net.weight.asnumpy(), moved)
    assert scaler.scale_value.asnumpy() == 512


def test_managers_remember_the_scale():
    manager = amp.DynamicLossScaleManager(16, 2, 2)
    for overflow in (False, False, True):
        manager.update_loss_scale(overflow)
    assert manager.get_loss_scale() == 16
    assert manager.get_drop_overflow_update()
    assert amp.FixedLossScaleManager(4).get_update_cell().get_loss_scale() == 4
    with pytest.raises(SporaxValueError):
        amp.FixedLossScaleManager(0.5)
    with pytest.raises(SporaxValueError):
        amp.DynamicLossScaleManager(scale_window=0)


class Own(nn.Cell):
    """A weight that the user's own code reads, and a counter that it writes."""

    def __init__(self):
        super().__init__()
        self.weight = ms.Parameter(Tensor(np.eye(4, dtype=np.float32)), name="weight")
        self.calls = ms.Parameter(Tensor(0.0, ms.float32), name="calls", requires_grad=False)
        self.product, self.seen = ops.MatMul(), Spy()

    def construct(self, x):
        ops.assign_add(self.calls, Tensor(1.0, ms.float32))
        return self.seen(self.product(x, self.weight))


@pytest.mark.parametrize("level", ["to_float", "O2", "O3"])
def test_weights_are_read_in_half_precision_by_own_cells_too(mode, level):
    net = Own().to_float(ms.float16) if level == "to_float" else amp.auto_mixed_precision(Own(), level)
    x, own = (
        Tensor(np.ones((2, 4), np.float32)),
        next(cell for _, cell in net.cells_and_names() if isinstance(cell, Own)),
    )
    gradient = ms.grad(lambda x: net(x).sum(), None, own.trainable_params())(x)[0]
    assert own.seen.seen[-1] == "Float16"
    assert own.weight.dtype == gradient.dtype == own.calls.dtype == ms.float32
    np.testing.assert_array_equal(gradient.asnumpy(), np.full((4, 4), 2.0))
    assert (isinstance(own.weight, ms.Parameter), float(own.calls)) == (True, 1.0)


@pytest.mark.parametrize("how", ["to_float", "O2", "auto"])
def test_float16_on_a_cpu_is_reported_once(monkeypatch, recwarn, how):
    monkeypatch.setattr(SESSION, "reported_float16", False)
    net = nn.Dense(4, 2)
    net = net.to_float(ms.float16) if how == "to_float" else amp.auto_mixed_precision(net, how)
    with pytest.warns(UserWarning, match="float16 makes steps slower on a CPU"):
        net(Tensor(np.ones((2, 4), np.float32)))
    net(Tensor(np.ones((2, 4), np.float32)))
    assert not recwarn.list


def test_bfloat16_on_a_cpu_is_not_reported(monkeypatch, recwarn):
    monkeypatch.setattr(SESSION, "reported_float16", False)
    nn.Dense(4, 2).to_float(ms.bfloat16)(Tensor(np.ones((2, 4), np.float32)))
    assert not recwarn.list
