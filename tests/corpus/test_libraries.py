"""Steps of linen, nnx, equinox and named axes with their users' shardings: planned with these, and equal to one device.

The libraries belong to the extra `test` alone; where one is missing, its steps are skipped.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import sporax

AXES = {"data": 4, "model": 2}
RULES = (("batch", "data"), ("embed", None), ("mlp", "model"))
X = jnp.asarray(np.random.default_rng(0).normal(size=(8, 16)), "float32")


def descent(loss):
    """A step of gradient descent, with its loss."""

    def step(params, x):
        value, grads = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step


def of_linen(mesh):
    """Logical axes of parameters and activations, named by rules."""
    nn = pytest.importorskip("flax.linen", reason="flax is not installed: pip install flax")

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            up, down = (
                nn.with_logical_partitioning(nn.initializers.lecun_normal(), axes)
                for axes in (("embed", "mlp"), ("mlp", "embed"))
            )
            x = nn.relu(nn.Dense(32, kernel_init=up, name="up")(x))
            x = nn.with_logical_constraint(x, ("batch", "mlp"), rules=RULES, mesh=mesh)
            return nn.Dense(16, kernel_init=down, name="down")(x)

    boxed = Block().init(jax.random.key(0), X)
    where = nn.logical_to_mesh(nn.get_partition_spec(boxed), RULES)
    loss = lambda params, x: ((Block().apply(params, x) - x) ** 2).mean()
    return descent(loss), nn.unbox(boxed), where, lambda tree: tree["params"]["up"]["kernel"]


def of_nnx(mesh):
    """The state of a module, with the specs that its parameters were made with."""
    nnx = pytest.importorskip("flax.nnx", reason="flax is not installed: pip install flax")

    class Block(nnx.Module):
        def __init__(self, rngs):
            up, down = (
                nnx.with_partitioning(nnx.initializers.lecun_normal(), axes)
                for axes in ((None, "model"), ("model", None))
            )
            self.up = nnx.Linear(16, 32, kernel_init=up, rngs=rngs)
            self.down = nnx.Linear(32, 16, kernel_init=down, rngs=rngs)

        def __call__(self, x):
            return self.down(nnx.relu(self.up(x)))

    with jax.set_mesh(mesh):
        graph, state = nnx.split(Block(nnx.Rngs(0)))
    where = nnx.get_partition_spec(state)
    state = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), state)
    loss = lambda state, x: ((nnx.merge(graph, state)(x) - x) ** 2).mean()
    return descent(loss), state, where, lambda tree: tree["up"]["kernel"].get_value()


def of_equinox(mesh):
    """A module whose arrays are partitioned from the rest, with constraints by equinox."""
    eqx = pytest.importorskip("equinox", reason="equinox is not installed: pip install equinox")
    model = eqx.nn.MLP(16, 16, 32, 1, key=jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_array)
    columns = jax.sharding.NamedSharding(mesh, P("data"))

    def loss(arrays, x):
        found = jax.vmap(eqx.combine(arrays, static))(eqx.filter_shard(x, columns))
        return ((found - x) ** 2).mean()

    where = eqx.tree_at(lambda m: m.layers[0].weight, jax.tree.map(lambda _: P(), arrays), P("model", None))
    return descent(loss), arrays, where, lambda tree: tree.layers[0].weight


@jax.tree_util.register_dataclass
@dataclass
class Named:
    """An array with names of its dimensions, as haliax has them; a mapping says along which axes of the mesh they are."""

    array: jax.Array
    axes: tuple[str, ...] = field(metadata={"static": True})

    def dot(self, axis, other):
        """The product over `axis`; other names that both have are of a batch."""
        left = [name for name in dict.fromkeys((*self.axes, *other.axes)) if name != axis]
        letters = {name: chr(97 + number) for number, name in enumerate([*left, axis])}
        terms = ["".join(letters[name] for name in names) for names in (self.axes, other.axes, left)]
        return Named(jnp.einsum(f"{terms[0]},{terms[1]}->{terms[2]}", self.array, other.array), tuple(left))

    def constrained(self, mesh, mapping):
        spec = P(*(mapping.get(name) for name in self.axes))
        return Named(jax.lax.with_sharding_constraint(self.array, jax.sharding.NamedSharding(mesh, spec)), self.axes)


def of_named_axes(mesh):
    """Stacked layers of named arrays in a scan with recomputation; mappings of names place weights and activations."""
    compute, stored = {"batch": "data", "mlp": "model"}, {"embed": "data", "mlp": "model"}
    random = np.random.default_rng(1)
    up, down = (
        Named(jnp.asarray(random.normal(size=shape) * 0.2, "float32"), axes)
        for shape, axes in (((2, 16, 32), ("layers", "embed", "mlp")), ((2, 32, 16), ("layers", "mlp", "embed")))
    )

    @jax.checkpoint
    def layer(x, weights):
        up, down = (Named(weight.array, weight.axes[1:]).constrained(mesh, compute) for weight in weights)
        hidden = x.dot("embed", up).constrained(mesh, compute)
        change = Named(jax.nn.relu(hidden.array), hidden.axes).dot("mlp", down)
        return Named(x.array + change.array, x.axes).constrained(mesh, compute), None

    def loss(weights, x):
        found = jax.lax.scan(layer, Named(x, ("batch", "embed")).constrained(mesh, compute), weights)[0]
        return ((found.array - x) ** 2).mean()

    where = jax.tree.map(
        lambda entry: Named(P(*(stored.get(name) for name in entry.axes)), entry.axes),
        (up, down),
        is_leaf=lambda entry: isinstance(entry, Named),
    )
    return descent(loss), (up, down), where, lambda tree: tree[0].array


@pytest.mark.parametrize(
    ("mode", "hardware"),
    [
        ("dynamic", "cpu"),
        *(pytest.param(*pair, marks=pytest.mark.full) for pair in [("ilp", "h100"), ("recursive", "tpu-v5p")]),
    ],
)
@pytest.mark.parametrize("made", [of_linen, of_nnx, of_equinox, of_named_axes])
def test_steps_with_their_shardings_are_those_of_one_device(made, mode, hardware):
    mesh = jax.make_mesh(tuple(AXES.values()), tuple(AXES), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    with jax.enable_x64(False):
        step, params, where, kernel = made(mesh)
        planned = sporax.plan(
            step, params, X, devices=AXES, hardware=hardware, mode=mode, in_shardings=(where, P("data")), carry={0: 0}
        )
        assert "model" in str(kernel(planned.in_shardings[0]).spec)
        assert planned.in_shardings[1].spec[0] == "data"
        assert planned.verify(params, X)
        assert 0 < planned.summary().headline.seconds < 1
