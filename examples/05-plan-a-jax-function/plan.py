"""Cut a training step written in plain JAX: no MindSpore in sight.

    sporax run --local_devices 8 examples/05-plan-a-jax-function/plan.py [--out outputs/05-plan-a-jax-function]

Plans the step for 64 H100s, which need not be there, and for the devices at hand; runs it on these, compares with the step
that is not cut, writes plan.html, and saves the sharded parameters and loads them on one device.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp

import sporax

LAYERS, WIDTH, BATCH = 4, 256, 128
RATE = 0.1


def loss(params, x, y):
    for weight in params:
        x = jax.nn.relu(x @ weight)
    return jnp.mean((x - y) ** 2)


def train_step(params, x, y):
    value, slopes = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda weight, slope: weight - RATE * slope, params, slopes), value


def main():
    parser = argparse.ArgumentParser(description="Plan a training step written in plain JAX.")
    parser.add_argument("--out", type=Path, default=Path("outputs/05-plan-a-jax-function"))
    options = parser.parse_args()
    keys = jax.random.split(jax.random.key(0), LAYERS + 2)
    params = [jax.random.normal(key, (WIDTH, WIDTH), jnp.float32) * (2 / WIDTH) ** 0.5 for key in keys[:LAYERS]]
    x, y = (jax.random.normal(key, (BATCH, WIDTH), jnp.float32) for key in keys[LAYERS:])

    # Shapes are enough to plan. `carry` says that the new parameters take the old ones' place at the next step.
    shapes = jax.tree.map(lambda array: jax.ShapeDtypeStruct((8 * array.shape[0], array.shape[1]), array.dtype), (x, y))
    big = sporax.plan(train_step, params, *shapes, devices=64, hardware="h100", carry={0: 0})
    print(f"64 H100s, batch {8 * BATCH}: {big.search}")

    planned = sporax.plan(train_step, params, x, y, fixed={1: (jax.device_count(), 1)}, carry={0: 0})
    print(planned.summary())
    options.out.mkdir(parents=True, exist_ok=True)
    planned.report(options.out / "plan.html")

    cut, whole = planned.function(), jax.jit(train_step)
    here, there = jax.device_put((params, x, y), planned.in_shardings), (params, x, y)
    for _ in range(5):
        (after, value), (expected, reference) = cut(*here), whole(*there)
        here, there = (after, *here[1:]), (expected, *there[1:])
    print(f"loss after 5 steps on {jax.device_count()} devices {value:.6f}, on one {reference:.6f}")
    # Every process writes its slices; who loads says in `like` which sharding the arrays get.
    sporax.save(options.out / "state", {"params": here[0], "step": 5})
    state = sporax.load(options.out / "state", like={"params": params, "step": 0})
    assert all((one == other).all() for one, other in zip(state["params"], here[0], strict=True))
    print(f"parameters of step {state['step']} saved in slices, and loaded whole: {options.out / 'state'}")
    print(f"the plan as a page: {options.out / 'plan.html'}")
    assert abs(value - reference) <= 1e-5 * abs(reference)


if __name__ == "__main__":
    main()
