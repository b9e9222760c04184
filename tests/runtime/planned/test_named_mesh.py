"""`sporax.plan` as users of JAX call it: names of axes, PartitionSpec, keywords, donation, state of optimizers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

import sporax
from sporax.base.errors import SporaxTypeError, SporaxValueError

NAMED = {"data": 2, "model": 4}
SHAPES = {"up": (64, 128), "down": (128, 64)}
OPTIMIZER = optax.adam(1e-2)


def params():
    rng = np.random.default_rng(0)
    return {name: jnp.asarray(rng.normal(size=shape) * 0.1, jnp.float32) for name, shape in SHAPES.items()}


def loss(params, x, scale=1.0):
    return ((jax.nn.relu(x @ params["up"]) @ params["down"]) ** 2).mean() * scale


def train_step(params, state, x):
    value, gradients = jax.value_and_grad(loss)(params, x)
    updates, state = OPTIMIZER.update(gradients, state)
    return optax.apply_updates(params, updates), state, value


def arguments(rows=16):
    return params(), OPTIMIZER.init(params()), jnp.ones((rows, 64), jnp.float32)


def specs(shardings):
    return jax.tree.map(lambda sharding: sharding.spec, shardings)


FIXED = {0: {"up": P(None, "model"), "down": P("model")}, 2: P("data")}


def test_named_axes_and_partition_specs_come_back_and_run():
    args = arguments()
    planned = sporax.plan(train_step, *args, devices=NAMED, hardware="h100", fixed=FIXED, carry={0: 0, 1: 1})
    assert planned.mesh.axis_names == ("data", "model")
    assert dict(planned.mesh.shape) == NAMED
    first, _, x = specs(planned.in_shardings)
    assert first == {"up": P(None, "model"), "down": P("model", None)}
    assert x == P("data", None)
    placed = jax.device_put(args, planned.in_shardings)
    new, _, value = planned.function()(*placed)
    expected, _, alone = train_step(*args)
    np.testing.assert_allclose(value, alone, rtol=1e-5)
    np.testing.assert_allclose(new["up"], expected["up"], rtol=1e-4, atol=1e-6)
    assert new["up"].sharding.is_equivalent_to(planned.in_shardings[0]["up"], 2)


def test_in_shardings_are_those_of_jit_and_paths_name_arrays():
    settings = {"devices": NAMED, "hardware": "h100", "carry": {0: 0, 1: 1}}
    whole = sporax.plan(train_step, *arguments(), fixed=FIXED, **settings)
    again = sporax.plan(train_step, *arguments(), in_shardings=(FIXED[0], None, FIXED[2]), **settings)
    assert again.plan.inputs == whole.plan.inputs
    by_path = {"[0]['up']": P(None, "model"), "args[0]['down']": P("model"), 2: NamedSharding(whole.mesh, P("data"))}
    assert sporax.plan(train_step, *arguments(), fixed=by_path, **settings).plan.inputs == whole.plan.inputs


def test_an_axis_of_which_a_part_is_used_has_its_parts_on_the_mesh():
    planned = sporax.plan(lambda x: x * 2, jnp.ones((2, 3)), devices={"data": 4, "model": 2}, fixed={0: (2, 1)})
    assert planned.mesh.axis_names == ("data.0", "data.1", "model")
    assert planned.in_shardings[0].spec == P("data.0", None)
    x = jax.device_put(jnp.ones((2, 3)), planned.in_shardings[0])
    np.testing.assert_array_equal(planned.function()(x), 2 * np.ones((2, 3)))


def test_shardings_for_64_devices_are_usable_on_a_laptop():
    args = jax.eval_shape(lambda: arguments(256))
    planned = sporax.plan(
        train_step, *args, devices={"data": 16, "model": 4}, hardware="h100", fixed=FIXED, carry={0: 0, 1: 1}
    )
    assert isinstance(planned.mesh, AbstractMesh)
    assert planned.in_shardings[2].shard_shape((256, 64)) == (16, 64)
    assert planned.out_shardings[0]["up"].spec == P(None, "model")
    unnamed = sporax.plan(train_step, *args, devices=64, hardware="h100", carry={0: 0, 1: 1})
    assert unnamed.in_shardings[2].mesh.size == 64


def test_state_of_optax_has_rows_and_sums_of_its_own():
    planned = sporax.plan(train_step, *arguments(), devices=8, hardware="h100", carry={0: 0, 1: 1})
    totals = planned.summary().totals
    size = sum(int(np.prod(shape)) * 4 for shape in SHAPES.values())
    assert totals.whole_parameter_bytes == size
    assert totals.whole_state_bytes == 2 * size + 4  # two moments and the count
    roles = {row.name: row.role for row in planned.summary().tensors}
    assert {role for name, role in roles.items() if name.startswith("[1]")} == {"state"}
    assert roles["[0]['up']"] == "parameter"


def test_arguments_by_keyword():
    x = jnp.ones((16, 64), jnp.float32)
    planned = sporax.plan(loss, params(), kwargs={"scale": 3.0, "x": x}, devices=NAMED, fixed={"x": P("data")})
    assert planned.in_shardings[2].spec == P("data", None)
    found = planned.function()(params(), x=x, scale=jnp.float32(2))
    np.testing.assert_allclose(found, loss(params(), x, 2.0), rtol=1e-5)
    with pytest.raises(SporaxTypeError, match=r"must be called with the keywords \['scale', 'x'\], but got \['x'\]"):
        planned.function()(params(), x=x)


def test_donated_arguments_are_carried_by_equal_results_and_donated():
    args = arguments()
    planned = sporax.plan(train_step, *args, devices=8, hardware="h100", donate_argnums=(0, 1))
    settings = sporax.plan(train_step, *args, devices=8, hardware="h100", carry={0: 0, 1: 1})
    assert planned.plan.inputs == settings.plan.inputs
    placed = jax.device_put(jax.tree.map(jnp.copy, args), planned.in_shardings)
    planned.function()(*placed)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(placed[0]))
    assert not placed[2].is_deleted()


@pytest.mark.parametrize("donated", [0, [0], -2])
def test_donated_arguments_are_named_as_for_jit(donated):
    args = (jnp.ones((8, 8), jnp.float32), jnp.ones((16, 8), jnp.float32))
    planned = sporax.plan(
        lambda w, x: w - 0.1 * (x.T @ x @ w), *args, devices=8, hardware="h100", donate_argnums=donated
    )
    assert planned.donated == (0,)
    placed = jax.device_put(jax.tree.map(jnp.copy, args), planned.in_shardings)
    planned.function()(*placed)
    assert [argument.is_deleted() for argument in placed] == [True, False]
    placed = jax.device_put(jax.tree.map(jnp.copy, args), planned.in_shardings)
    planned.function(donate=())(*placed)
    assert not any(argument.is_deleted() for argument in placed)


@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize("options", [{"donate_argnums": 0}, {"carry": {0: 0}}], ids=["donated", "carried"])
def test_a_state_that_is_returned_alone_is_one_result(kind, options):
    """It was as many results as it has entries, and none of them was like the argument: nothing was carried, without a word."""

    def step(state, x):
        weights, moments = state
        grads = jax.grad(lambda weights: ((x @ weights) ** 2).mean())(weights)
        moments = 0.9 * moments + grads
        return kind((weights - 0.1 * moments, moments))

    state = kind((jnp.ones((64, 64), jnp.float32), jnp.zeros((64, 64), jnp.float32)))
    x = jnp.ones((16, 64), jnp.float32)
    planned = sporax.plan(step, state, x, devices=NAMED, fixed={1: P("data")}, **options)
    assert dict(planned.graph.aliases) == {0: 0, 1: 1}
    assert planned.in_shardings[0] == planned.out_shardings
    for new, old in zip(planned.function()(state, x), step(state, x), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5)


@pytest.mark.parametrize("donated", ["0", (0.0,), None, (True,)])
def test_what_is_no_position_is_not_donated(donated):
    with pytest.raises(SporaxTypeError, match="'donate_argnums' must be a position of an argument or several, but got"):
        sporax.plan(jnp.dot, jnp.ones((8, 8)), jnp.ones((8, 8)), devices=8, donate_argnums=donated)


def test_show_prints_the_summary(capsys):
    sporax.plan(jnp.dot, jnp.ones((8, 8)), jnp.ones((8, 8)), devices=8).show()
    assert capsys.readouterr().out.startswith("Plan for 8 devices")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fixed": {2: P("dta")}}, r"must name axes of 'devices', \['data', 'model'\].* Did you mean 'data'\?"),
        ({"fixed": {2: P("data", None, "model")}}, r"'fixed' must fit args\[2\] of 2 dimensions"),
        ({"fixed": {"[0]['upp']": P()}}, r"Did you mean '.*up.*'\?"),
        ({"fixed": {2: P("data")}, "devices": 8}, r"'devices' must have names"),
        ({"fixed": {2: P(("data", "model"))}, "rows": 12}, "makes 8 slices of 12"),
        ({"fixed": {2: P("data")}, "in_shardings": (None, None, P())}, "both have argument 2"),
        ({"in_shardings": (P(),)}, "an entry for each of 3 arguments, but got 1"),
        ({"devices": {"data": 0}}, "how many devices are along each axis"),
        ({"donate_argnums": (7,)}, "'donate_argnums' must name some of 3 arguments, but got 7"),
        ({"donate_argnums": -4}, "'donate_argnums' must name some of 3 arguments, but got -4"),
    ],
)
def test_what_does_not_fit_is_named(options, words):
    options = {"devices": NAMED, **options}
    args = arguments(options.pop("rows", 16))
    with pytest.raises(SporaxValueError, match=words):
        sporax.plan(train_step, *args, **options)


def test_what_is_no_array_names_the_way_of_equinox():
    with pytest.raises(SporaxTypeError, match=r"at args\[0\]\['activation'\].*`eqx.partition\(model, eqx.is_array\)`"):
        sporax.plan(lambda model, x: x, {"activation": jnp.tanh}, jnp.ones(8), devices=8)


def test_results_are_where_out_shardings_say():
    args = (params(), jnp.ones((16, 64), jnp.float32))

    def forward(params, x):
        hidden = x @ params["up"]
        return {"hidden": hidden, "out": hidden @ params["down"]}

    wanted = {"hidden": P("model", None), "out": P(None, "data")}
    for mode in ("dynamic", "propagation"):
        planned = sporax.plan(forward, *args, devices=NAMED, hardware="h100", mode=mode, out_shardings=wanted)
        assert specs(planned.out_shardings) == wanted
    placed = jax.device_put(args, planned.in_shardings)
    results = planned.function()(*placed)
    expected = forward(*args)
    for name in wanted:
        assert results[name].sharding.is_equivalent_to(planned.out_shardings[name], 2)
        np.testing.assert_allclose(results[name], expected[name], rtol=1e-4, atol=1e-6)
    one = sporax.plan(forward, *args, devices=NAMED, hardware="h100", out_shardings=P("data"))
    assert set(jax.tree.leaves(specs(one.out_shardings))) == {P("data", None)}
    saved = one.plan.to_json()
    again = sporax.plan(forward, *args, hardware="h100", saved=saved, out_shardings=(8, 1))
    assert again.plan.outputs == one.plan.outputs


def test_a_carried_result_fixes_its_argument():
    args = arguments()
    wanted = ({"up": P(None, "model"), "down": None}, None, None)
    planned = sporax.plan(train_step, *args, devices=NAMED, hardware="h100", carry={0: 0, 1: 1}, out_shardings=wanted)
    assert specs(planned.in_shardings)[0]["up"] == specs(planned.out_shardings)[0]["up"] == P(None, "model")
    with pytest.raises(SporaxValueError, match=r"'out_shardings' must be those of the arguments .* args\[0\]\['up'\]"):
        sporax.plan(
            train_step, *args, devices=NAMED, carry={0: 0, 1: 1}, out_shardings=wanted,
            fixed={"[0]['up']": P("model")},
        )  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"other": P("data")}, r"'out_shardings' must have a sharding .* but got \{'other'"),
        (P("datas"), r"'out_shardings' must name axes of 'devices', .* but got 'datas' for result\[0\]"),
        ((P(None, None, "data"), None), r"'out_shardings' must fit result\[0\]"),
        (("data", None), "'out_shardings' must have a sharding .* but got 'data'"),
        ((P("model"), None), r"'out_shardings' must fit result\[0\] of shape \(6, 6\), but .* makes 4 slices of 6"),
    ],
)
def test_out_shardings_that_do_not_fit_are_refused(wanted, words):
    with pytest.raises(SporaxValueError, match=words):
        sporax.plan(lambda x: (x @ x, x.sum()), jnp.ones((6, 6)), devices=NAMED, out_shardings=wanted)
