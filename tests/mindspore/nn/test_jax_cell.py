"""Functions written in JAX, as Cells: plain ones here, Flax's and Equinox's where those are installed."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, nn

DRAW = np.random.default_rng(0)
WEIGHTS = {
    "first": {"matrix": DRAW.normal(size=(4, 8)).astype(np.float32), "shift": np.zeros(8, np.float32)},
    "second": [DRAW.normal(size=(8, 3)).astype(np.float32)],
    "count": np.int32(3) * np.ones((), np.int32),
    "name": "perceptron",
}
INPUTS = DRAW.normal(size=(12, 4)).astype(np.float32)
LABELS = np.arange(12) % 3


def perceptron(weights, x):
    hidden = jnp.tanh(x @ weights["first"]["matrix"] + weights["first"]["shift"])
    return hidden @ weights["second"][0]


def step_cell(net, optimizer):
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer).set_train()


def test_arrays_become_parameters():
    net = nn.JaxCell(perceptron, WEIGHTS)
    assert [(parameter.name, parameter.shape) for parameter in net.get_parameters()] == [
        *(("count", ()), ("first.matrix", (4, 8)), ("first.shift", (8,)), ("second.0", (8, 3)))
    ]
    assert [parameter.name for parameter in net.trainable_params()] == ["first.matrix", "first.shift", "second.0"]
    frozen = nn.JaxCell(perceptron, WEIGHTS, trainable=lambda name: not name.startswith("first"))
    assert [parameter.name for parameter in frozen.trainable_params()] == ["second.0"]
    whole = nn.SequentialCell(net, nn.ReLU())
    assert [parameter.name for parameter in whole.trainable_params()] == [
        "0.first.matrix",
        "0.first.shift",
        "0.second.0",
    ]
    assert [parameter.name for parameter in nn.JaxCell(lambda w, x: w * x, np.ones(2)).get_parameters()] == ["weights"]


def test_it_trains_as_jax_does(mode):
    net = nn.JaxCell(perceptron, WEIGHTS)
    step = step_cell(net, nn.SGD(net.trainable_params(), 0.5))
    losses = [step(Tensor(INPUTS), Tensor(LABELS)).item() for _ in range(5)]

    floats = {key: WEIGHTS[key] for key in ("first", "second")}
    transformation = optax.sgd(0.5)
    memory = transformation.init(floats)

    def loss(weights):
        log_probs = jax.nn.log_softmax(perceptron(weights, INPUTS))
        return -jnp.mean(jnp.take_along_axis(log_probs, LABELS[:, None], 1))

    for mine in losses:
        value, grads = jax.value_and_grad(loss)(floats)
        assert mine == pytest.approx(float(value), rel=1e-5)
        updates, memory = transformation.update(grads, memory)
        floats = optax.apply_updates(floats, updates)
    np.testing.assert_allclose(net.trainable_params()[0].asnumpy(), floats["first"]["matrix"], rtol=1e-5)


def test_outputs_keep_their_structure_and_inputs_may_be_constants(mode):
    net = nn.JaxCell(lambda w, x, power, scale=1.0: {"a": (w * x**power * scale,)}, np.ones(2, np.float32))
    assert net(Tensor([2.0, 3.0]), 2)["a"][0].tolist() == [4, 9]
    assert net(Tensor([2.0, 3.0]), 2, scale=0.5)["a"][0].tolist() == [2, 4.5]
    gradient = ms.grad(lambda x: net(x, 3)["a"][0])(Tensor([1.0, 2.0]))
    assert gradient.tolist() == [3, 12]


def test_updates_are_written(mode):
    def count(weights, x):
        return x * weights["scale"], {
            "steps": weights["steps"] + 1,
            "mean": {"x": 0.5 * weights["mean"]["x"] + x.mean()},
        }

    start = {"scale": np.float32([2.0]), "steps": np.zeros((), np.int32), "mean": {"x": np.zeros((), np.float32)}}
    net = nn.JaxCell(count, start, trainable=lambda name: name == "scale", has_updates=True)
    assert net(Tensor([1.0, 3.0])).tolist() == [2, 6]
    ms.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(Tensor([1.0, 3.0]))
    values = {item.name: item.asnumpy().tolist() for item in net.get_parameters()}
    assert values == {"scale": [2.0], "steps": 2, "mean.x": 3.0}
    with pytest.raises(SporaxValueError, match="'other'"):
        nn.JaxCell(lambda w, x: (x, {"other": x}), start, has_updates=True)(Tensor([1.0]))


def test_keys_and_the_training_mode(mode):
    def noisy(weights, x, key, training):
        return x + weights * jax.random.normal(key, x.shape) if training else x

    net = nn.JaxCell(noisy, np.ones(1, np.float32), with_key=True, with_training=True)
    ones = Tensor(np.ones(4, np.float32))
    assert net(ones).tolist() == [1, 1, 1, 1]
    net.set_train()
    ms.set_seed(3)
    first, second = net(ones).tolist(), net(ones).tolist()
    ms.set_seed(3)
    assert net(ones).tolist() == first != second


def test_checkpoints_and_copies(tmp_path):
    net = nn.JaxCell(perceptron, WEIGHTS)
    ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
    other = nn.JaxCell(perceptron, jax.tree.map(lambda leaf: leaf if isinstance(leaf, str) else 0 * leaf, WEIGHTS))
    assert not other(Tensor(INPUTS)).asnumpy().any()
    ms.load_checkpoint(str(tmp_path / "net.ckpt"), other)
    expected = perceptron(WEIGHTS, INPUTS)
    np.testing.assert_allclose(other(Tensor(INPUTS)).asnumpy(), expected, rtol=1e-5)
    twin = copy.deepcopy(net)
    net.trainable_params()[2].set_data(Tensor(np.zeros((8, 3), np.float32)))
    np.testing.assert_allclose(twin(Tensor(INPUTS)).asnumpy(), expected, rtol=1e-5)


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(SporaxTypeError, match="must be callable"):
        nn.JaxCell(3, WEIGHTS)
    with pytest.raises(SporaxTypeError, match="at least one array"):
        nn.JaxCell(perceptron, {"name": "empty"})
    with pytest.raises(SporaxTypeError, match="hashable"):
        nn.JaxCell(lambda w, x: w, WEIGHTS)({1, 2})


def test_a_flax_module(mode):
    linen = pytest.importorskip("flax.linen")

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x, training):
            x = linen.Dense(8)(x)
            x = linen.BatchNorm(use_running_average=not training)(x)
            x = linen.Dropout(0.1, deterministic=not training)(linen.relu(x))
            return linen.Dense(3)(x)

    model = Net()
    variables = model.init(jax.random.key(0), INPUTS, False)

    def apply(variables, x, key, training):
        return model.apply(variables, x, training, rngs={"dropout": key}, mutable=["batch_stats"])

    net = nn.JaxCell(
        apply,
        variables,
        trainable=lambda name: name.startswith("params."),
        has_updates=True,
        with_key=True,
        with_training=True,
    )
    np.testing.assert_allclose(
        net(Tensor(INPUTS)).asnumpy(), model.apply(variables, INPUTS, False), rtol=1e-5, atol=1e-6
    )
    step = step_cell(net, nn.Adam(net.trainable_params(), 0.05))
    losses = [step(Tensor(INPUTS), Tensor(LABELS)).item() for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    means = next(entry for entry in net.get_parameters() if entry.name == "batch_stats.BatchNorm_0.mean")
    assert means.asnumpy().any()


def test_an_equinox_module(mode):
    eqx = pytest.importorskip("equinox")
    model = eqx.nn.MLP(4, 3, 8, 1, key=jax.random.key(0))
    net = nn.JaxCell(lambda model, x: jax.vmap(model)(x), model)
    assert [entry.name for entry in net.trainable_params()] == [
        f"layers.{layer}.{name}" for layer in (0, 1) for name in ("weight", "bias")
    ]
    np.testing.assert_allclose(net(Tensor(INPUTS)).asnumpy(), jax.vmap(model)(INPUTS), rtol=1e-5, atol=1e-6)
    step = step_cell(net, nn.Adam(net.trainable_params(), 0.05))
    losses = [step(Tensor(INPUTS), Tensor(LABELS)).item() for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
