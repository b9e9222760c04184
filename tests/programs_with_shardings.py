"""Programs with shardings as users write them, most of them with one mistake. Each gives a function and its arguments."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

MESH = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
ROW = Mesh(np.array(jax.devices()[:8]), ("data",), axis_types=(AxisType.Auto,))


def on(*spec, mesh=MESH):
    return NamedSharding(mesh, P(*spec))


def struct(shape, *spec, dtype="float32", mesh=MESH):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=on(*spec, mesh=mesh))


def constrained(x, spec, mesh=MESH):
    return x if spec is None else jax.lax.with_sharding_constraint(x, on(*spec, mesh=mesh))


def megatron(between=("data", None)):
    """Two layers by columns and by rows; the constraint between them makes every device have all columns."""

    def loss(params, x):
        hidden = jax.nn.gelu(x @ params["up"])
        hidden = constrained(hidden, between)
        return ((hidden @ params["down"]) ** 2).mean()

    params = {"up": struct((32, 128), None, "model"), "down": struct((128, 32), "model", None)}
    return jax.jit(loss), (params, struct((64, 32), "data", None))


def trained_megatron(between=("data", None)):
    """The same with a gradient step, the parameters donated."""
    loss, args = megatron(between)

    def step(params, x):
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, jax.grad(loss)(params, x))

    shardings = jax.tree.map(lambda struct: struct.sharding, args[0])
    return jax.jit(step, donate_argnums=0, out_shardings=shardings), (args[0], struct((1024, 32), "data", None))


def gathered_batch(spec=("data",)):
    """The batch becomes the inner part of one dimension: no device can keep its rows."""

    def tokens(x, w):
        flat = x.swapaxes(0, 1).reshape(-1, x.shape[-1])
        return jnp.tanh(flat @ w)

    return jax.jit(tokens), (struct((8, 16, 64), *spec, mesh=ROW), struct((64, 8), mesh=ROW))


def layers_by_scan(inside=(None, "data")):
    """Weights of six layers, each sharded over all devices, in a loop; a constraint in it that shards the features."""

    def loss(weights, x):
        def layer(hidden, weight):
            hidden = constrained(hidden, inside, ROW)
            return jnp.tanh(hidden @ weight), None

        return (jax.lax.scan(layer, x, weights)[0] ** 2).mean()

    step = jax.jit(jax.grad(loss), out_shardings=on(None, "data", mesh=ROW))
    return step, (struct((6, 32, 32), None, "data", mesh=ROW), struct((512, 32), "data", mesh=ROW))


def embedding(spec=("data", None)):
    """A table that is sharded by its rows, read by tokens that are sharded by the batch."""

    def rows(table, tokens):
        return table[tokens]

    table, tokens = struct((1024, 64), *spec, mesh=ROW), struct((16, 32), "data", dtype="int32", mesh=ROW)
    return jax.jit(rows, out_shardings=on("data", mesh=ROW)), (table, tokens)


def transposed_constraint(spec=("model", "data")):
    """A constraint with its axes the wrong way round."""

    def product(x, w):
        hidden = jnp.tanh(x @ w)
        hidden = constrained(hidden, spec)
        return hidden * 2.0

    args = struct((64, 32), "data", None), struct((32, 64), None, "model")
    return jax.jit(product, out_shardings=on("data", "model")), args


def data_parallel():
    """The gradient's all-reduce must be."""

    def loss(w, x):
        return ((x @ w) ** 2).mean()

    step = jax.jit(jax.grad(loss), out_shardings=on(mesh=ROW))
    return step, (struct((32, 16), mesh=ROW), struct((64, 32), "data", mesh=ROW))


def rematerialized(first=None):
    """The report of openxla/xla 15207: XLA knows no way from one sharding to the other."""

    def add(a, b, c):
        total = constrained(a + b, first)
        total = jax.lax.with_sharding_constraint(total, on(None, ("data", "model"), None))
        return c + total

    side, last = struct((16, 16, 16), "model", None, "data"), struct((16, 16, 16), None, ("data", "model"), None)
    return jax.jit(add, out_shardings=last.sharding), (side, side, last)


TYPED = Mesh(MESH.devices, MESH.axis_names, axis_types=(AxisType.Explicit,) * 2)


def typed_megatron(between=("data", None)):
    """`megatron` on explicit axes, with a gradient step: a reshard between the layers makes every device have all columns."""

    def loss(params, x):
        hidden = jnp.tanh(x @ params["up"])
        if between is not None:
            hidden = jax.sharding.reshard(hidden, P(*between))
        return (jnp.matmul(hidden, params["down"], out_sharding=P("data", None)) ** 2).mean()

    def step(params, x):
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, jax.grad(loss)(params, x))

    params = {"up": struct((32, 128), None, "model", mesh=TYPED), "down": struct((128, 32), "model", None, mesh=TYPED)}
    return jax.jit(step), (params, struct((2**14, 32), "data", None, mesh=TYPED))


def typed_argument(spec=(None, "data")):
    """An argument by columns, on explicit axes, which is read by rows."""

    def add(x, y):
        return jnp.tanh(x) + jax.sharding.reshard(y, P("data", None))

    args = struct((512, 512), "data", None, mesh=TYPED), struct((512, 512), *spec, mesh=TYPED)
    return jax.jit(add), args


def typed_loop(inside=(None, "data")):
    """A loop on explicit axes, which shards the features of a batch in between."""

    def layer(x, _):
        hidden = jnp.tanh(x)
        hidden = hidden if inside is None else jax.sharding.reshard(hidden, P(*inside))
        return jax.sharding.reshard(hidden * 2, P("data", None)), None

    run = jax.jit(lambda x: jax.lax.scan(layer, x, None, length=3)[0])
    return run, (struct((512, 512), "data", None, mesh=TYPED),)
