"""Plan a training step of equinox: `eqx.partition` gives the arrays of a model, `eqx.combine` the model of them.

    pip install equinox
    sporax run --local_devices 8 examples/10-plan-an-equinox-model/plan.py

Plans the step for 64 H100s, and for the devices at hand; trains there, and compares with `eqx.filter_jit`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import sporax

WIDTH, BATCH = 256, 128
OPTIMIZER = optax.adam(1e-3)


def main():
    model = eqx.nn.MLP(WIDTH, WIDTH, 4 * WIDTH, 2, key=jax.random.key(0))
    x, y = (jax.random.normal(key, (BATCH, WIDTH)) for key in jax.random.split(jax.random.key(1)))
    # A module holds functions, too (its activation): a plan is of the arrays.
    arrays, rest = eqx.partition(model, eqx.is_array)

    def train_step(arrays, state, x, y):
        def loss(arrays):
            return ((jax.vmap(eqx.combine(arrays, rest))(x) - y) ** 2).mean()

        value, gradients = jax.value_and_grad(loss)(arrays)
        updates, state = OPTIMIZER.update(gradients, state)
        return eqx.apply_updates(arrays, updates), state, value

    state = OPTIMIZER.init(arrays)
    shapes = jax.ShapeDtypeStruct((64 * BATCH, WIDTH), jnp.float32)
    carry = {0: 0, 1: 1}
    big = sporax.plan(train_step, arrays, state, shapes, shapes, devices=64, hardware="h100", carry=carry)
    print(f"64 H100s, batch {64 * BATCH}: {big.search}")

    planned = sporax.plan(train_step, arrays, state, x, y, fixed={2: (jax.device_count(), 1)}, carry=carry)
    planned.show()

    step, reference = planned.function(), eqx.filter_jit(train_step)
    here, there = jax.device_put((arrays, state, x, y), planned.in_shardings), (arrays, state, x, y)
    for _ in range(5):
        (*after, loss), (*expected, alone) = step(*here), reference(*there)
        here, there = (*after, *here[2:]), (*expected, *there[2:])
    trained = eqx.combine(here[0], rest)
    print(f"loss after 5 steps on {jax.device_count()} devices {loss:.6f}, on one {alone:.6f}")
    print(f"the trained model is a {type(trained).__name__} again: {trained(x[0]).shape}")


if __name__ == "__main__":
    main()
