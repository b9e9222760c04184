"""Steps of optimizers as operators; values of MindSpore are in `cases/updates.cases`."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops

GRADIENT = np.array([[0.3, -0.2], [0.5, 0.1]], np.float32)
START = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)


def parameter(value=START, name="p"):
    return Parameter(Tensor(value), name=name)


def zeros(count):
    return [parameter(np.zeros_like(START), f"s{at}") for at in range(count)]


def by_optimizer(make):
    weight = parameter()
    optimizer = make([weight])
    for _ in range(3):
        optimizer((Tensor(GRADIENT),))
    return weight.asnumpy()


@pytest.mark.parametrize("graph", [False, True])
def test_a_compiled_step_writes_parameters(graph):
    """Three steps in one's own step function are those of the optimizer."""
    weight, velocity = parameter(), *zeros(1)
    update = ops.ApplyMomentum(use_nesterov=True)

    def step(gradient, rate):
        return update(weight, velocity, rate, gradient, 0.9)

    run = ms.jit(step) if graph else step
    for _ in range(3):
        result = run(Tensor(GRADIENT), Tensor(0.1, ms.float32))
    expected = by_optimizer(lambda weights: nn.Momentum(weights, 0.1, 0.9, use_nesterov=True))
    np.testing.assert_allclose(weight.asnumpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(result.asnumpy(), weight.asnumpy())


def test_what_the_wheel_cannot_run_is_what_the_optimizers_do():
    weight, (m, v) = parameter(), zeros(2)
    for number in (1, 2, 3):
        ops.Adam(use_nesterov=True)(weight, m, v, 0.9**number, 0.999**number, 0.1, 0.9, 0.999, 1e-8, Tensor(GRADIENT))
    expected = by_optimizer(lambda weights: nn.Adam(weights, 0.1, use_nesterov=True))
    np.testing.assert_allclose(weight.asnumpy(), expected, rtol=1e-4)

    weight, (accum,) = parameter(), zeros(1)
    for _ in range(2):
        ops.ApplyKerasMomentum(False, True)(weight, accum, 0.1, Tensor(GRADIENT), 0.9)
    np.testing.assert_allclose(accum.asnumpy(), -0.1 * (1 + 0.9) * GRADIENT, rtol=1e-6)

    size, slope = np.sum(START**2), np.sum(GRADIENT**2)
    adapted = ops.LARSUpdate(1e-5, 0.02)(Tensor(START), Tensor(GRADIENT), Tensor(size), Tensor(slope), 0.1, 0.5)
    trust = 0.02 * size**0.5 / (slope**0.5 + 0.1 * size**0.5 + 1e-5)
    np.testing.assert_allclose(adapted.asnumpy(), trust * (GRADIENT + 0.1 * START), rtol=1e-5)


SPARSE = {
    "ProximalAdagrad": (ops.SparseApplyProximalAdagrad(), ops.ApplyProximalAdagrad(), 2, (0.1, 0.2, 0.3), ()),
    "Adadelta": (ops.SparseApplyAdadelta(1e-3), ops.ApplyAdadelta(), 3, (0.1, 0.9), (1e-3,)),
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_steps_move_their_rows_as_dense_ones_do(name):
    sparse, dense, count, settings, last = SPARSE[name]
    rows, others = [0, 1], [2]
    table = np.abs(np.random.default_rng(0).normal(size=(count, 3, 2))).astype(np.float32) + 0.5
    whole = [parameter(value, f"w{at}") for at, value in enumerate(table)]
    part = [parameter(value[rows], f"r{at}") for at, value in enumerate(table)]
    sparse(*whole, *settings, Tensor(GRADIENT), Tensor(rows, ms.int32))
    dense(*part, *settings, *last, Tensor(GRADIENT))
    for value, moved, before in zip(whole, part, table, strict=True):
        np.testing.assert_allclose(value.asnumpy()[rows], moved.asnumpy(), rtol=1e-6)
        np.testing.assert_array_equal(value.asnumpy()[others], before[others])


def test_arguments_that_do_not_fit_are_refused():
    weight, (state,) = parameter(), zeros(1)
    with pytest.raises(ValueError, match=r"'gradient' must have shape \(2, 2\), but got \(2,\)"):
        ops.ApplyMomentum()(weight, state, 0.1, Tensor([1.0, 2.0]), 0.9)
    with pytest.raises(TypeError, match="'variable' must be a Parameter or a Tensor, but got float"):
        ops.ApplyMomentum()(1.0, state, 0.1, Tensor(GRADIENT), 0.9)
    with pytest.raises(ValueError, match=r"'grad' must have shape \(1, 2\)"):
        ops.SparseApplyAdagradV2(0.1, 1e-3)(weight, state, Tensor(GRADIENT), Tensor([0], ms.int32))
    with pytest.raises(ValueError, match="'nesterov' needs 'dampening' 0"):
        ops.SGD(0.1, nesterov=True)(weight, Tensor(GRADIENT), 0.1, state, 0.9, state)


def test_momentum_with_decay_and_scale():
    variable, accumulation = (Parameter(Tensor([value]), name=str(value)) for value in (2.0, 1.0))
    result = ops.FusedWeightScaleApplyMomentum()(
        Tensor(0.5), Tensor(0.25), variable, accumulation, 0.1, Tensor([3.0]), Tensor(0.9)
    )
    # 0.9 * 1 + (3 + 0.5 * 2) * 0.25 = 1.9
    np.testing.assert_allclose(
        [accumulation.asnumpy()[0], variable.asnumpy()[0], result.asnumpy()[0]], [1.9, 1.81, 1.81]
    )


def test_adam_on_a_parameter_in_half_precision():
    # Golden values of the wheel.
    states = [Parameter(Tensor([value], dtype), name=name) for name, value, dtype in (
        ("var", 2.0, ms.float16), ("m", 1.0, ms.float32), ("v", 1.0, ms.float32),
    )]  # fmt: skip
    update = ops.FusedCastAdamWeightDecay()
    for norm, golden in ((1.0, [1.883, 1.2, 1.0799999]), (4.0, [1.77, 1.155, 1.0748249])):
        update(*states, 0.1, 0.9, 0.99, 1e-8, 0.01, Tensor([3.0], ms.float16), norm)
        np.testing.assert_allclose([state.asnumpy()[0] for state in states], golden, rtol=5e-4)
    assert states[0].dtype == ms.float16
