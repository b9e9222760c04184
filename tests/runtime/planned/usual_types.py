"""A program as most users of JAX write it, with the types that JAX has by itself: its floats and integers have 32 bits.

    python usual_types.py MODE ...

Every other test runs with 64 bits, which importing the facade requests. Each mode prints a line.
"""

import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

import sporax

AXES = {"data": 4, "model": 2}
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-2, 100), eps=1e-2))


def loss(params, tokens, key):
    def layer(x, weights):
        w, key = weights
        hidden = lax.with_sharding_constraint(jax.nn.gelu(x @ w["up"].astype(x.dtype)), P("data", "model"))
        stays = jax.random.bernoulli(key, 0.9, x.shape)
        return x + stays * (hidden @ w["down"].astype(x.dtype)) / 0.9, jnp.argmax(x, -1)

    x = params["words"].astype(jnp.bfloat16)[tokens[:, 0]]
    keys = jax.random.split(key, len(params["layers"]["up"]))
    x, best = lax.scan(jax.checkpoint(layer), x, (params["layers"], keys))
    logits = (x @ params["words"].T.astype(x.dtype)).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1]).mean(), best


def halvings(x):
    """How often a value is halved until it is small, which a loop with a condition counts."""
    return lax.while_loop(lambda c: c[1] > 1e-3, lambda c: (c[0] + 1, c[1] / 2), (0, x))


def step(state, tokens, key):
    (value, best), gradients = jax.value_and_grad(loss, has_aux=True)(state["params"], tokens, key)
    updates, moments = OPTIMIZER.update(gradients, state["moments"], state["params"])
    seen = state["seen"].at[tokens[:, 0]].add(1)
    state = {
        "params": optax.apply_updates(state["params"], updates), "moments": moments, "step": state["step"] + 1, "seen": seen
    }  # fmt: skip
    return state, {
        "loss": value,
        "halvings": halvings(value),
        "best": best.max(),
        "rate": 1e-2,
        "key": jax.random.fold_in(key, 1),
    }


def arguments():
    keys = jax.random.split(jax.random.key(0), 4)
    layers = {
        "up": jax.random.normal(keys[0], (3, 16, 32)) * 0.2,
        "down": jax.random.normal(keys[1], (3, 32, 16)) * 0.2,
    }
    params = {"words": jax.random.normal(keys[2], (24, 16)) * 0.3, "layers": layers}
    state = {"params": params, "moments": OPTIMIZER.init(params), "step": 0, "seen": jnp.zeros(24, int)}
    return state, np.random.default_rng(0).integers(0, 24, (32, 2)), keys[3]


def check(mode):
    """Plan, run and question the step."""
    args = arguments()
    planned = sporax.plan(step, *args, devices=AXES, mode=mode, in_shardings=(None, P("data"), None), carry={0: 0})
    run, alone = planned.function(), jax.jit(step)
    found, expected = (args[0], None), (args[0], None)
    mesh = jax.make_mesh(tuple(AXES.values()), tuple(AXES), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    for _ in range(2):
        found = run(found[0], *args[1:])
        with jax.set_mesh(mesh):
            expected = alone(expected[0], *args[1:])
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        types = [(leaf.shape, leaf.dtype, jax.typeof(leaf).weak_type) for leaf in (one, other)]
        assert types[0] == types[1], types
        assert jnp.issubdtype(one.dtype, jax.dtypes.prng_key) or one.dtype.itemsize <= 4, one.dtype
    found[1].pop("key"), expected[1].pop("key")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-3), found, expected)
    assert planned.verify(*args, steps=2).steps == 2
    assert "peak memory" in str(planned.summary())
    assert str(planned.explain("dot_general"))
    assert run.jitted._cache_size() == 1
    print(f"{mode}: step {found[0]['step']}, float{found[1]['loss'].dtype.itemsize * 8}")


if __name__ == "__main__":
    warnings.simplefilter("error")
    assert not jax.config.jax_enable_x64
    for mode in sys.argv[1:]:
        check(mode)
