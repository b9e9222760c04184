"""Models and optimizers of flax.nnx in `sporax.plan`: they are split, carried and updated in place."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import sporax
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.ir.graph import Role

nnx = pytest.importorskip("flax.nnx", reason="flax is not installed: pip install flax")

X = jnp.asarray(np.random.default_rng(0).normal(size=(16, 64)), jnp.float32)


class Perceptron(nnx.Module):
    def __init__(self, rngs, width=128):
        self.up = nnx.Linear(64, width, rngs=rngs)
        self.down = nnx.Linear(width, 64, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.relu(self.up(x)))


def train_step(model, optimizer, x, scale=1.0):
    loss, gradients = nnx.value_and_grad(lambda model: ((model(x) - x) ** 2).mean() * scale)(model)
    optimizer.update(model, gradients)
    return loss


def made():
    model = Perceptron(nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)


def planned_for(*args, **options):
    return sporax.plan(train_step, *args, devices={"data": 2, "model": 4}, hardware="h100", **options)


def test_objects_are_updated_as_nnx_jit_updates_them():
    model, optimizer = made()
    alone, its_optimizer = made()
    planned = planned_for(model, optimizer, X, fixed={"[0]['up']['kernel']": P(None, "model"), 2: P("data")})
    step, reference = planned.function(), nnx.jit(train_step)
    for _ in range(3):
        loss, expected = step(model, optimizer, X), reference(alone, its_optimizer, X)
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(model.up.kernel[...], alone.up.kernel[...], rtol=1e-4, atol=1e-6)
    assert int(optimizer.step[...]) == 3
    assert model.up.kernel[...].sharding.is_equivalent_to(planned.in_shardings[0]["up"]["kernel"].get_value(), 2)
    assert isinstance(planned.out_shardings, jax.sharding.NamedSharding)


def test_they_are_carried_and_the_state_of_the_optimizer_is_counted_apart():
    planned = planned_for(*made(), X)
    roles = [argument.role for argument in planned.graph.inputs]
    assert roles.count(Role.PARAMETER) == 4
    assert roles.count(Role.STATE) == 10  # two moments of four Parameters, their count, and the step
    assert roles.count(Role.DATA) == 1
    assert len(planned.graph.aliases) == 14


def test_shapes_are_enough_and_states_are_arguments_too():
    shapes = nnx.eval_shape(made)
    planned = planned_for(*shapes, jax.ShapeDtypeStruct(X.shape, X.dtype))
    model, optimizer = made()
    new, state, loss = planned.function()(nnx.state(model), nnx.state(optimizer), X)
    nnx.update(model, new)
    nnx.update(optimizer, state)
    expected = nnx.jit(train_step)(*made(), X)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_objects_and_keywords():
    model, optimizer = made()
    planned = planned_for(model, optimizer, X, kwargs={"scale": 2.0}, out_shardings=P())
    alone = nnx.jit(train_step)(*made(), X, 2.0)
    np.testing.assert_allclose(planned.function()(model, optimizer, X, scale=2.0), alone, rtol=1e-5)


def test_what_cannot_be_is_refused():
    model, optimizer = made()
    with pytest.raises(SporaxValueError, match=r"variables of their own, but args\[0\] and args\[1\] share one"):
        planned_for(model, model, X)
    with pytest.raises(SporaxValueError, match="'carry' must be left out where arguments are objects of flax.nnx"):
        planned_for(model, optimizer, X, carry={0: 0})
    planned = planned_for(model, optimizer, X)
    other = Perceptron(nnx.Rngs(0), 256)
    with pytest.raises(SporaxTypeError, match=r"args\[0\] must hold objects made as those"):
        planned.function()(other, optimizer, X)

    def grows(model, x):
        model.more = nnx.Param(x.sum())
        return x

    with pytest.raises(SporaxValueError, match=r"of args\[0\], but it changes what the objects are made of"):
        sporax.plan(grows, model, X, devices=8, hardware="h100")
