"""Plan a training step of flax.nnx: the model and the optimizer are objects, and the planned step updates them.

    pip install flax
    sporax run --local_devices 8 examples/09-plan-a-flax-model/plan.py

Plans the step for 64 H100s from shapes alone, and for the devices at hand; trains there, and compares with `nnx.jit`.
"""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import sporax

WIDTH, BATCH = 256, 128


class Perceptron(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return x + self.down(nnx.gelu(self.up(x)))


def train_step(model, optimizer, x, y):
    loss, gradients = nnx.value_and_grad(lambda model: ((model(x) - y) ** 2).mean())(model)
    optimizer.update(model, gradients)
    return loss


def made():
    model = Perceptron(nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)


def main():
    x, y = (jax.random.normal(key, (BATCH, WIDTH)) for key in jax.random.split(jax.random.key(1)))

    shapes = jax.ShapeDtypeStruct((64 * BATCH, WIDTH), jnp.float32)
    big = sporax.plan(train_step, *nnx.eval_shape(made), shapes, shapes, devices=64, hardware="h100")
    print(f"64 H100s, batch {64 * BATCH}: {big.search}")

    model, optimizer = made()
    planned = sporax.plan(train_step, model, optimizer, x, y, in_shardings=(None, None, (jax.device_count(), 1), None))
    planned.show()

    step, reference, others = planned.function(donate=(0, 1)), nnx.jit(train_step), made()
    for _ in range(5):
        loss, expected = step(model, optimizer, x, y), reference(*others, x, y)
    print(f"loss after 5 steps on {jax.device_count()} devices {loss:.6f}, on one {expected:.6f}")


if __name__ == "__main__":
    main()
