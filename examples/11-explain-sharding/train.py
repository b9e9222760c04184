"""A training step of plain JAX with one constraint too many: `sporax explain-sharding` finds it, and compiles what is better.

sporax explain-sharding --devices 8 --hardware h100 examples/11-explain-sharding/train.py:step params x
"""

import jax
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


def loss(params, x):
    hidden = jax.nn.gelu(x @ params["up"])
    hidden = jax.lax.with_sharding_constraint(hidden, NamedSharding(mesh, P("data", None)))
    return ((hidden @ params["down"]) ** 2).mean()


@jax.jit
def step(params, x):
    return jax.tree.map(lambda w, g: w - 0.1 * g, params, jax.grad(loss)(params, x))


def array(shape, *spec):
    return jax.ShapeDtypeStruct(shape, "bfloat16", sharding=NamedSharding(mesh, P(*spec)))


params = {"up": array((4096, 16384), None, "model"), "down": array((16384, 4096), "model", None)}
x = array((16384, 4096), "data", None)

if __name__ == "__main__":
    import sporax

    print(sporax.explain_resharding(step, params, x, hardware="h100"))
