import inspect
import json
import sys
from pathlib import Path

import numpy as np
import optax
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxKeyError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Parameter, Tensor, nn
from sporax.mindspore.nn.optim import _helpers, opt_init_args_register

GOLDEN = Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))

import optimizer_recipes as recipes  # noqa: E402  (found through the line above)

RECORDED = json.loads((GOLDEN / "optimizers.json").read_text())["parameters"]
RELATIVE_ERROR = 1e-5


def test_every_recipe_is_recorded():
    assert RECORDED.keys() == recipes.RECIPES.keys()


@pytest.mark.parametrize("name", recipes.RECIPES)
@pytest.mark.sampled(24)
def test_ten_steps_are_those_of_mindspore(name):
    for mine, theirs, parameter in zip(recipes.run(ms, name), RECORDED[name], recipes.SHAPES, strict=True):
        error = np.linalg.norm(np.subtract(mine, theirs)) / np.linalg.norm(theirs)
        assert error <= RELATIVE_ERROR, f"{parameter}: {error:.1e}"


def weights(*values):
    return [Parameter(Tensor(value), name=f"w{index}") for index, value in enumerate(values)]


def steps(optimizer, count=3):
    """Gradients of a bowl around zero, as numpy saw them."""
    history = []
    for _ in range(count):
        grads = [weight.asnumpy() for weight in optimizer.parameters]
        optimizer(tuple(map(Tensor, grads)))
        history.append(grads)
    return history


def test_lamb_follows_its_paper():
    (weight,) = params = weights([3.0, -4.0])
    history = steps(nn.Lamb(params, 0.1, weight_decay=0.01))
    w, m, v = np.array([3.0, -4.0]), 0.0, 0.0
    for step, (gradient,) in enumerate(history, 1):
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        direction = (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6) + 0.01 * w
        w = w - 0.1 * np.linalg.norm(w) / np.linalg.norm(direction) * direction
    np.testing.assert_allclose(weight.asnumpy(), w, rtol=1e-5)


@pytest.mark.parametrize("clip", [False, True])
def test_lars_scales_gradients_and_passes_biases(clip):
    params = [*weights([3.0, -4.0]), Parameter(Tensor([1.0]), name="bias")]
    inner = nn.SGD(params, 0.5, weight_decay=0.1, loss_scale=2.0)
    history = steps(nn.LARS(inner, coefficient=0.3, use_clip=clip), 2)
    w, bias = np.array([3.0, -4.0]), 1.0
    for gradient, bias_gradient in history:
        gradient = gradient / 2
        norm = np.linalg.norm(w)
        trust = 0.3 * norm / (np.linalg.norm(gradient) + 0.1 * norm + 1e-5)
        trust = min(trust / 0.5, 1.0) if clip else trust
        w, bias = w - 0.5 * trust * (gradient + 0.1 * w), bias - 0.5 * bias_gradient / 2
    np.testing.assert_allclose(params[0].asnumpy(), w, rtol=1e-5)
    np.testing.assert_allclose(params[1].asnumpy(), bias, rtol=1e-5)
    with pytest.raises(SporaxTypeError, match="must be an Optimizer"):
        nn.LARS(3)


def test_l1_of_ftrl_makes_small_weights_zero():
    (weight,) = params = weights([0.001, -2.0])
    steps(nn.FTRL(params, learning_rate=0.1, l1=0.05), 1)
    values = weight.asnumpy()
    assert values[0] == 0
    n, g = 0.1 + 4.0, -2.0
    z = g - (n**0.5 - 0.1**0.5) / 0.1 * g
    np.testing.assert_allclose(values[1], (np.sign(z) * 0.05 - z) / (n**0.5 / 0.1), rtol=1e-5)


def test_momentum_looks_ahead_with_nesterov():
    (weight,) = params = weights([1.0])
    (first,), (second,) = steps(nn.Momentum(params, 0.1, 0.9, use_nesterov=True), 2)
    w = 1.0 - 0.1 * (first + 0.9 * first)
    np.testing.assert_allclose(weight.asnumpy(), w - 0.1 * (second + 0.9 * (0.9 * first + second)), rtol=1e-6)


def test_adagrad_with_fixed_slots_keeps_them():
    (weight,) = params = weights([1.0])
    optimizer = nn.Adagrad(params, 0.25, 0.1, update_slots=False)
    ((first,), (second,)) = steps(optimizer, 2)
    np.testing.assert_allclose(weight.asnumpy(), 1.0 - 0.1 * (first + second) / 0.5, rtol=1e-6)
    assert optimizer.accum[0].asnumpy() == 0.25


def test_gradients_are_centralized_where_the_second_dimension_is_a_multiple_of_16():
    wide = Parameter(Tensor(np.zeros((2, 16), np.float32)), name="wide")
    narrow = Parameter(Tensor(np.zeros((2, 3), np.float32)), name="narrow")
    optimizer = nn.SGD([{"params": [wide, narrow], "grad_centralization": True}], 1.0)
    gradient = np.random.default_rng(0).normal(size=(2, 16)).astype(np.float32)
    optimizer((Tensor(gradient), Tensor(gradient[:, :3])))
    np.testing.assert_allclose(wide.asnumpy(), gradient.mean(1, keepdims=True) - gradient, atol=1e-6)
    np.testing.assert_allclose(narrow.asnumpy(), -gradient[:, :3], atol=1e-6)


@pytest.mark.parametrize("make", [nn.LazyAdam, lambda params, rate: nn.Adam(params, rate, use_lazy=True)])
def test_lazy_rows_stay_where_no_row_was_looked_up(make):
    net = nn.EmbeddingLookup(4, 2, "ones", "DEVICE")
    dense = Parameter(Tensor(np.ones((4, 2), np.float32)), name="dense")
    optimizer = make([net.embedding_table, dense], 0.1)
    one_row = np.zeros((4, 2), np.float32)
    one_row[1] = 1
    for gradient in (np.ones((4, 2), np.float32), one_row):
        optimizer((Tensor(gradient), Tensor(gradient)))
    table = net.embedding_table.asnumpy()
    np.testing.assert_allclose(table[0], 0.9, rtol=1e-5)
    assert (table[1] < 0.85).all()
    assert (dense.asnumpy()[0] < 0.85).all()  # a dense Parameter moves on by its momentum


def test_optax_transformation_trains_like_optax_itself(mode):
    transformation = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1))
    params = weights([3.0, -4.0], [1.0])
    optimizer = nn.OptaxOptimizer(params, transformation)
    values = {parameter.name: parameter.asnumpy() for parameter in params}
    memory = transformation.init(values)
    for _ in range(4):
        optimizer(tuple(Tensor(values[name]) for name in ("w0", "w1")))
        updates, memory = transformation.update(values, memory, values)
        values = optax.apply_updates(values, updates)
    for parameter in params:
        np.testing.assert_allclose(parameter.asnumpy(), values[parameter.name], rtol=1e-5)
    names = [parameter.name for parameter in optimizer.get_parameters()]
    assert len(names) == len(set(names))
    assert sum(name.startswith("optax.") and name.endswith("mu.w0") for name in names) == 1


def test_optax_takes_a_rate_and_refuses_other_things():
    (weight,) = params = weights([1.0])
    nn.OptaxOptimizer(params, optax.sgd(1.0), learning_rate=[0.5, 0.25])((Tensor([1.0]),))
    assert weight.asnumpy() == 0.5
    with pytest.raises(SporaxTypeError, match=r"must be an optax\.GradientTransformation"):
        nn.OptaxOptimizer(params, 3)


def test_state_is_named_after_the_parameters():
    net = nn.Dense(2, 2)

    def names(optimizer):
        return [parameter.name for parameter in optimizer.get_parameters()]

    own = ["weight", "bias"]
    assert names(nn.Momentum(net.trainable_params(), 0.1, 0.9)) == [
        "global_step", "learning_rate", *own, "momentum", "moments.weight", "moments.bias",
    ]  # fmt: skip
    assert names(nn.SGD(net.trainable_params(), [0.1, 0.2]))[-1] == "learning_rate"
    assert names(nn.AdaFactor(net.trainable_params()))[4:] == [
        f"{slot}{joint}{name}"
        for slot, joint in (("exp_avg", "."), ("exp_avg_sq", "_"), ("exp_avg_sq_col", "_"), ("exp_avg_sq_row", "_"))
        for name in own
    ] + ["afactor_step"]


class SkipsTheConstructor(nn.AdamWeightDecay):
    """State in float32 of Parameters in float16, as public packages make it."""

    def __init__(self, params, learning_rate):
        super(nn.AdamWeightDecay, self).__init__(learning_rate, params, 0.1)
        self.beta1, self.beta2, self.eps = (Tensor(np.array([x], np.float32)) for x in (0.9, 0.999, 1e-6))
        self.moments1, self.moments2 = (self.state(name) for name in ("adam_m", "adam_v"))

    def state(self, name):
        return ms.ParameterTuple(
            Parameter(Tensor(np.zeros(p.shape, np.float32)), name=f"{name}.{p.name}") for p in self.parameters
        )


class ReplacesTheState(SkipsTheConstructor):
    def __init__(self, params, learning_rate):
        nn.AdamWeightDecay.__init__(self, params, learning_rate, weight_decay=0.1)
        self.moments1, self.moments2 = (self.state(name) for name in ("adam_m", "adam_v"))


@pytest.mark.parametrize("kind", [SkipsTheConstructor, ReplacesTheState])
def test_derived_classes_may_make_the_state_themselves(kind):
    start, slopes = np.array([1.0, -2.0], np.float16), np.array([[0.5, 0.25], [3e-5, -1.0]], np.float16)
    half, single = Parameter(Tensor(start), name="w"), Parameter(Tensor(start.astype(np.float32)), name="w")
    optimizer, expected = kind([half], 0.5), nn.AdamWeightDecay([single], 0.5, weight_decay=0.1)
    for slope in slopes:
        optimizer((Tensor(slope),))
        expected((Tensor(slope.astype(np.float32)),))
    assert half.dtype == ms.float16
    # The square of the small slope is zero in float16.
    for mine, other in zip(
        (*optimizer.moments1, *optimizer.moments2), (*expected.moments1, *expected.moments2), strict=True
    ):
        np.testing.assert_allclose(mine.asnumpy(), other.asnumpy(), rtol=1e-6)
    np.testing.assert_allclose(half.asnumpy(), single.asnumpy(), rtol=2e-3)
    names = ["global_step", "learning_rate", "w", "adam_m.w", "adam_v.w"]
    assert [parameter.name for parameter in optimizer.get_parameters()] == names


def test_registered_arguments_of_an_optimizer_are_not_in_its_signature():
    class Own(nn.SGD):
        @opt_init_args_register
        def __init__(self, params, learning_rate, clip=False):
            super().__init__(params, learning_rate)

    assert list(inspect.signature(Own.__init__).parameters) == ["self", "args", "kwargs"]
    assert Own(weights([1.0]), 0.5).init_args == {"clip": False}


@pytest.mark.parametrize("kind", [nn.Lamb, nn.AdamWeightDecay, nn.LazyAdam, nn.Momentum, nn.Adadelta])
def test_every_optimizer_notes_what_it_was_made_with(kind):
    given = {"momentum": 0.9} if kind is nn.Momentum else {}
    noted = kind(weights([1.0]), 0.5, **given).init_args
    parameters = list(inspect.signature(kind).parameters)
    assert list(noted) == [name for name in parameters if name not in ("params", "learning_rate")]


def test_a_derived_class_without_init_notes_what_it_was_made_with_and_hands_it_to_servers(monkeypatch):
    handed = []
    monkeypatch.setattr(_helpers, "served", handed.append)

    class Plain(nn.Momentum):
        pass

    class Further(Plain):
        pass

    class Mixin:
        def __init__(self, params, learning_rate, momentum):
            super().__init__(params, learning_rate, momentum)

    class Mixed(Mixin, nn.Momentum):
        pass

    class Own(Plain):
        def __init__(self, params, clip):
            super().__init__(params, 0.5, 0.9)

    expected = nn.Momentum(weights([1.0]), 0.5, 0.9)
    for kind in (Plain, Further):
        made = kind(weights([1.0]), 0.5, 0.9)
        assert made.init_args == expected.init_args
        assert handed[-1] is made
    assert Mixed(weights([1.0]), 0.5, 0.9).init_args == {"momentum": 0.9}
    own = Own(weights([1.0]), 3)
    assert own.init_args == {"clip": 3}
    assert [made for made in handed if made is own] == [own]


@pytest.mark.parametrize(
    ("kind", "rates", "primitive", "settings"),
    [
        (nn.ProximalAdagrad, {"l1": 0.01, "l2": 0.1}, "ApplyProximalAdagrad", (0.5, 0.01, 0.1, ...)),
        (nn.RMSProp, {"decay": 0.7, "momentum": 0.3}, "ApplyRMSProp", (0.5, ..., 0.7, 0.3, 1e-10)),
        (nn.FTRL, {"l1": 0.01, "l2": 0.1}, "ApplyFtrl", (..., 0.5, 0.01, 0.1, -0.5)),
    ],
)
def test_operators_move_a_parameter_as_the_optimizers_do(kind, rates, primitive, settings):
    slope = Tensor(np.array([0.5, -1.0, 2e-3], np.float32))
    (mine,) = weights([1.0, -2.0, 0.5])
    optimizer = kind([mine], learning_rate=0.5, **rates)
    (other,) = weights([1.0, -2.0, 0.5])
    state = [Parameter(getattr(optimizer, slot)[0].value(), name=slot) for slot in optimizer.slots]
    for _ in range(3):
        optimizer((slope,))
        getattr(ms.ops, primitive)()(other, *state, *(slope if part is ... else part for part in settings))
    np.testing.assert_allclose(mine.asnumpy(), other.asnumpy(), rtol=1e-6)
    for slot, held in zip(optimizer.slots, state, strict=True):
        np.testing.assert_allclose(getattr(optimizer, slot)[0].asnumpy(), held.asnumpy(), rtol=1e-6)


def test_rates_and_decays_can_be_read():
    first, second = weights([1.0], [1.0])
    optimizer = nn.SGD([{"params": [first], "lr": 0.5, "weight_decay": 0.1}, {"params": [second]}], 0.1)
    assert [rate.asnumpy().item() for rate in optimizer.get_lr()] == pytest.approx([0.5, 0.1])
    assert [decay.asnumpy().item() for decay in optimizer.get_weight_decay()] == pytest.approx([0.1, 0.0])
    assert optimizer.get_lr_parameter(second) is optimizer.learning_rate[1]
    assert optimizer.get_lr_parameter([first])[0].name == "learning_rate_group_0"
    with pytest.raises(SporaxTypeError, match="not one of its parameters"):
        optimizer.get_lr_parameter(Parameter(Tensor([1.0]), name="other"))


def test_bad_groups_and_gradients_are_refused():
    first, second = weights([1.0], [1.0])
    with pytest.raises(SporaxKeyError, match="rate"):
        nn.SGD([{"params": [first], "rate": 0.1}])
    with pytest.raises(SporaxRuntimeError, match="'w0' is there twice"):
        nn.SGD([{"params": [first]}, {"params": [first]}])
    with pytest.raises(SporaxValueError, match="'order_params'"):
        nn.SGD([{"params": [first, second]}, {"order_params": [first]}])
    with pytest.raises(SporaxValueError, match="must not be empty"):
        nn.SGD([])
    with pytest.raises(SporaxTypeError, match="either Parameters or dicts"):
        nn.SGD([first, {"params": [second]}])
    optimizer = nn.SGD([first, second])
    with pytest.raises(SporaxRuntimeError, match=r"one gradient per parameter \(2\), but got 1"):
        optimizer((Tensor([1.0]),))
    with pytest.raises(SporaxValueError, match="gradient of 'w1'"):
        optimizer((Tensor([1.0]), Tensor([1.0, 2.0])))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda p: nn.Adam(p, beta1=1), SporaxTypeError),
        (lambda p: nn.Adam(p, beta1=1.5), SporaxValueError),
        (lambda p: nn.Adam(p, use_offload=True, use_lazy=True), SporaxValueError),
        (lambda p: nn.Adam(p, use_offload=True, use_amsgrad=True), SporaxValueError),
        (lambda p: nn.Adam(p, use_offload=1), SporaxTypeError),
        (lambda p: nn.Adam(p, use_amsgrad=True, use_lazy=True), SporaxValueError),
        (lambda p: nn.Adam(p, fast=True), SporaxTypeError),
        (lambda p: nn.SGD(p, -0.1), SporaxValueError),
        (lambda p: nn.SGD(p, "0.1"), SporaxValueError),
        (lambda p: nn.SGD(p, nesterov=True), SporaxValueError),
        (lambda p: nn.Momentum(p, 0.1, 1), SporaxTypeError),
        (lambda p: nn.SGD(p, loss_scale=0), SporaxValueError),
        (lambda p: nn.SGD(p, weight_decay=-1.0), SporaxValueError),
        (lambda p: nn.FTRL(p, learning_rate=[0.1, 0.2]), SporaxValueError),
        (lambda p: nn.Rprop(p, etas=(0.5, 0.9)), SporaxValueError),
        (lambda p: nn.Rprop(p, step_sizes=(1.0, 0.1)), SporaxValueError),
        (lambda p: nn.AdaFactor(p, 0.1), SporaxValueError),
        (lambda p: nn.AdaFactor(p, relative_step=False), SporaxValueError),
        (lambda p: nn.RMSProp(p, epsilon=0.0), SporaxValueError),
        (lambda p: nn.ASGD(p, lambd=1), SporaxTypeError),
    ],
)
def test_bad_settings_are_refused(make, error):
    with pytest.raises(error):
        make(weights([1.0]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.piecewise_constant_lr([2, 1], [0.1, 0.2]),
        lambda: nn.cosine_decay_lr(0.2, 0.1, 4, 2, 1),
        lambda: nn.exponential_decay_lr(0.1, 0.0, 4, 2, 1),
        lambda: nn.CosineDecayLR(0.2, 0.1, 3),
        lambda: nn.WarmUpLR(0.1, 0),
        lambda: nn.warmup_lr(0.1, 4, 2, -1),
    ],
)
def test_bad_rates_are_refused(make):
    with pytest.raises(SporaxValueError):
        make()


def test_rates_of_groups_have_one_length_as_soon_as_one_varies():
    weights = [Parameter(Tensor(np.ones(2, np.float32)), name=name) for name in "ab"]
    groups = [{"params": weights[:1], "lr": 0.8}, {"params": weights[1:]}]
    optimizer = nn.Momentum(groups, (0.1, 0.2, 0.3), 0.9)
    rates = [optimizer.get_lr_parameter(weight) for weight in weights]
    assert [rate.name for rate in rates] == ["learning_rate_group_0", "learning_rate"]
    np.testing.assert_allclose([rate.asnumpy() for rate in rates], [[0.8] * 3, [0.1, 0.2, 0.3]], rtol=1e-6)
    groups[0]["lr"] = (0.1, 0.2)
    with pytest.raises(ValueError, match=r"learning rates of groups must have the same size, but got \[2, 3\]"):
        nn.Momentum(groups, (0.1, 0.2, 0.3), 0.9)
    groups[0]["lr"] = np.array(1)
    with pytest.raises(TypeError, match="must be a number, and no array of no dimension"):
        nn.Momentum(groups, 0.3, 0.9)
