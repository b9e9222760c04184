"""`sporax.plan`: plain JAX functions, planned and run on eight devices."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import sporax
from compiled_programs import compilations
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.ir.graph import Role
from sporax.planner import peak_bytes
from sporax.planner.cost import cost_of
from sporax.runtime.planned.compiled_plans import device_bytes

RNG = np.random.default_rng(0)


def floats(*shape):
    return jnp.asarray(RNG.normal(size=shape) * 0.1, jnp.float32)


def train_step(params, batch):
    def loss(params):
        hidden = jax.nn.gelu(batch["x"] @ params["up"])
        return ((hidden @ params["down"] - batch["y"]) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


PARAMS = {"up": floats(512, 1024), "down": floats(1024, 512)}
BATCH = {"x": floats(64, 512), "y": floats(64, 512)}


@pytest.mark.parametrize("mode", ["dynamic", "ilp", "recursive", "propagation", "repeated_blocks"])
def test_a_planned_step_equals_the_function(mode):
    planned = sporax.plan(train_step, PARAMS, BATCH, devices=8, hardware="h100", mode=mode, carry={0: 0})
    assert planned.in_shardings[0] == planned.out_shardings[0]  # the updated parameters go in again
    step = planned.function(donate=(0,))
    # A copy: arrays that lie on one device may share it with the copy there, and that is given away.
    params, batch = jax.device_put((jax.tree.map(jnp.copy, PARAMS), BATCH), planned.in_shardings)
    alone = PARAMS
    for _ in range(2):
        params, value = step(params, batch)
        alone, expected = train_step(alone, BATCH)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(params["up"], alone["up"], rtol=1e-4, atol=1e-6)


def test_planning_needs_no_devices_and_no_values():
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (PARAMS, BATCH))
    planned = sporax.plan(train_step, *shapes, devices=64, hardware="h200", mode="recursive", carry={0: 0})
    assert planned.plan.mesh.num_devices == 64
    assert planned.search.cost_seconds > 0
    assert "['up']" in str(planned.summary())
    with pytest.raises(SporaxValueError, match="needs the 64 devices of the plan, but this process sees 8"):
        planned.function()


@pytest.mark.parametrize(("mode", "proven"), [("dynamic", True), ("recursive", False)])
def test_summaries_say_how_the_plan_was_found(mode, proven):
    planned = sporax.plan(train_step, PARAMS, BATCH, devices=8, hardware="h100", mode=mode, carry={0: 0})
    report = planned.summary()
    assert report.search is not None
    assert (report.search.method, report.search.optimal) == (mode, proven)
    assert report.search.predicted_seconds == planned.search.cost_seconds
    assert "(this plan is optimal)" in str(report) if proven else "none" in str(report)
    value = json.loads(report.to_json())["search"]
    assert (value["bound_seconds"] is not None) == proven
    assert value["search_seconds"] > 0


def test_plans_answer_questions():
    best, fast = (
        sporax.plan(train_step, PARAMS, BATCH, devices=8, hardware="h100", fixed=fixed, carry={0: 0})
        for fixed in (None, {1: (8, 1)})
    )
    number = next(n for n, item in enumerate(best.graph.operators) if item.name == "dot_general")
    (answers,) = best.explain(f"#{number}", most=4)
    assert len(answers.alternatives) == 4
    assert answers.chosen.assignment == best.plan.operators[number].assignment
    assert "variable" in best.diff(fast)
    assert best.diff(fast.plan) == best.diff(fast)
    assert best.diff(best) == ""
    other = sporax.plan(lambda x: x * 2, BATCH["x"], devices=8, hardware="h100")
    with pytest.raises(SporaxValueError, match="'other' must be a plan of the same step"):
        best.diff(other)


def test_other_plans_are_dearer_and_run():
    planned = sporax.plan(train_step, PARAMS, BATCH, devices=8, hardware="h100", carry={0: 0})
    others = planned.alternatives(2)
    assert len(others) == 2
    costs = [item.search.cost_seconds for item in (planned, *others)]
    assert costs == sorted(costs)
    assert planned.diff(others[0])
    assert others[0].diff(others[1])
    params, batch = jax.device_put((PARAMS, BATCH), others[1].in_shardings)
    _, value = others[1].function()(params, batch)
    np.testing.assert_allclose(value, train_step(PARAMS, BATCH)[1], rtol=1e-5)
    with pytest.raises(SporaxValueError, match="'count' must be at least 1, but got 0"):
        planned.alternatives(0)


def test_arguments_can_be_fixed():
    cut = {"up": (1, 8), "down": (8, 1)}
    planned = sporax.plan(
        train_step, PARAMS, BATCH, devices=8, hardware="h100", fixed={0: cut, 1: (1, 1)}, carry={0: 0}
    )
    places = [item.parts(planned.plan.mesh) for item in planned.plan.inputs]
    assert places == [(8, 1), (1, 8), (1, 1), (1, 1)]  # leaves stand in the order of their names


def test_what_hides_behind_computing_is_not_counted():
    """Whole parameters and cut data: only gradients travel, and with full overlap they cost nothing."""
    settings = {"devices": 8, "hardware": "h100", "fixed": {0: (1, 1), 1: (8, 1)}, "carry": {0: 0}}
    batch = dict.fromkeys(("x", "y"), jax.ShapeDtypeStruct((16384, 512), jnp.float32))
    none, half, full = (sporax.plan(train_step, PARAMS, batch, **settings, overlap=share) for share in (0.0, 0.5, 1.0))
    costs = [item.search.cost_seconds for item in (none, half, full)]
    assert costs[0] > costs[1] > costs[2]
    assert costs[2] >= cost_of(full.graph, full.plan, full.model).compute_seconds * (1 - 1e-9)


def test_a_collective_over_an_axis_that_is_not_there_says_what_to_do():
    with pytest.raises(
        SporaxValueError,
        match=r"^For 'plan', 'fn' must reduce over dimensions, .*jax.vmap\(fn, axis_name='batch', axis_size=1, ",
    ):
        sporax.plan(lambda x: jax.lax.pmean(x.sum(), "batch"), floats(8, 4), devices=8)


@pytest.mark.parametrize("made", [int, jnp.asarray, jnp.int32], ids=["a number", "weak", "strong"])
@pytest.mark.parametrize("is_placed", [False, True])
def test_a_step_is_compiled_once_for_states_of_every_type(made, is_placed):
    """As `flax.training.TrainState` begins at the number 0, and a step returns an array on all devices."""

    def step(state, x):
        slope = jax.grad(lambda w: ((x @ w) ** 2).mean())(state["w"])
        return {"w": state["w"] - 0.1 * slope, "count": state["count"] + 1}, x.shape[0] * 1.0

    state, x = {"w": jnp.eye(4), "count": made(0)}, np.ones((16, 4), np.float32)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), state)
    planned = sporax.plan(step, shapes, x, devices=8, donate_argnums=0)
    args = jax.device_put((state, x), planned.in_shardings) if is_placed else (state, x)
    run, (state, x) = planned.function(), args
    with compilations() as compiled:
        for _ in range(3):
            state, _ = run(state, x)
    assert compiled.names.count("jit(call)") == 1
    assert state["count"] == 3


def _looped(x, n):
    (count, doubled), sums = jax.lax.scan(lambda c, row: ((c[0] + 1, c[1] * 2.0), (c[0], row.sum())), (n, 1.0), x)
    last = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 1.5, c[2] + 1.0), (0, 1.0, x))
    return count, doubled, sums, last, jax.lax.cond(n > 1, lambda: (1.0, n), lambda: (2.0, n + 1))


WEAK = {
    "constants": (lambda x: (1, 2.5, True, 1 + 2j, jnp.sin(1.0), jnp.full(3, 2.0), jnp.arange(3), x.sum()), ()),
    "results that are arguments": (lambda x, n, m: (n, {"more": (m, n + 1)}, m * 2, n * m, x * m, x), (3, 2.5)),
    "strong numbers": (lambda x, n, m: (n, n + 1, m * 2, n * m, x * m), (np.int32(3), np.float32(2.5))),
    "loops and branches": (_looped, (2,)),
    "derivatives": (lambda x, s: (jax.grad(lambda s: (x * s).sum())(s), jax.value_and_grad(jnp.sin)(s)), (2.0,)),
    "other dtypes": (
        lambda x, s: (x.astype("bfloat16") * s, s.astype("bfloat16"), x.argmax(), x > s),
        (jnp.asarray(2.0),),
    ),
}


@pytest.mark.parametrize("has_64_bits", [True, False])
@pytest.mark.parametrize("name", WEAK)
def test_results_have_the_types_that_jax_gives_them(name, has_64_bits):
    """Also under a transformation, and of results that are carried or whose sharding is fixed."""
    function, numbers = WEAK[name]
    with jax.enable_x64(has_64_bits):
        args = floats(16, 8), *numbers
        expected = jax.tree.map(jax.typeof, jax.jit(function)(*args))
        for options in ({}, {"out_shardings": P()}):
            run = sporax.plan(function, *args, devices={"data": 8}, fixed={0: P("data")}, **options).function()
            for results in (run(*args), jax.eval_shape(run, *args)):
                found = [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(results)]
                assert found == [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(expected)]


@pytest.mark.parametrize("has_64_bits", [True, False])
def test_a_strong_argument_that_takes_a_weak_result_is_no_second_program(has_64_bits):
    with jax.enable_x64(has_64_bits):
        args = jnp.arange(3)[2], floats(16, 8)
        planned = sporax.plan(lambda n, x: (jnp.where(x.sum() > n, 1, 2), x), *args, devices=8, carry={0: 0})
        run, (number, x) = planned.function(), args
        with compilations() as compiled:
            for _ in range(3):
                number, _ = run(number, x)
                assert number.weak_type
    assert compiled.names.count("jit(call)") == 1


def test_a_checkpoint_saves_memory_on_cpus_too_and_may_be_part_of_another_program():
    """XLA takes away what keeps the second run apart from the first, unless it is set not to."""

    def planned(wrapped):
        def loss(weights, x):
            for weight in weights:
                x = wrapped(lambda x, w: jnp.tanh(jnp.tanh(x @ w) @ w.T))(x, weight)
            return (x**2).mean()

        return sporax.plan(jax.grad(loss), *structs, devices=8, mode="propagation", fixed={1: (8, 1)})

    def compiled(plan):
        placed = [struct.update(sharding=to) for struct, to in zip(structs, plan.in_shardings, strict=True)]
        return device_bytes(plan.jitted(()).lower(*placed).compile())

    structs = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((6, 16, 32), (4096, 16))]
    again, once = planned(jax.checkpoint), planned(lambda layer: layer)
    assert compiled(again) < 0.7 * compiled(once)
    assert peak_bytes(again.result) == pytest.approx(compiled(again), rel=0.1)
    arguments = jax.device_put((floats(6, 16, 32), floats(4096, 16)), again.in_shardings)
    doubled = jax.jit(lambda *arguments: 2 * again.function()(*arguments))(*arguments)
    np.testing.assert_allclose(doubled, 2 * once.function()(*arguments), rtol=1e-4, atol=1e-7)


def test_memory_is_a_limit():
    free = sporax.plan(train_step, PARAMS, BATCH, devices=8, hardware="h100", mode="ilp", carry={0: 0})
    peak = free.search.statistics["peak_bytes"]
    less = sporax.plan(
        train_step, PARAMS, BATCH, devices=8, hardware="h100", mode="ilp", carry={0: 0}, memory=f"{peak * 0.95 / 1e6}MB"
    )
    assert less.search.statistics["peak_bytes"] <= 0.95 * peak


def test_a_limit_holds_for_the_compiled_function_which_calls_reuse():
    options = {"devices": 8, "hardware": "cpu", "carry": {0: 0}}
    free = sporax.plan(train_step, PARAMS, BATCH, **options)
    limit = free.search.statistics["peak_bytes"]
    near = sporax.plan(train_step, PARAMS, BATCH, **options, memory=limit)
    assert near.search.statistics["predicted_bytes"] <= limit
    assert near.search.statistics["compiled_bytes"] <= limit
    assert "compiled of" in str(near.summary())
    compilations = []

    def listen(event, seconds, **facts):
        compilations.extend([event] if "backend_compile" in event else [])

    params, batch = jax.device_put((jax.tree.map(jnp.copy, PARAMS), BATCH), near.in_shardings)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        _, value = near.function(donate=(0,))(params, batch)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert compilations == []
    np.testing.assert_allclose(value, train_step(PARAMS, BATCH)[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "guess"}, "'mode' must be one of"),
        ({"hardware": "abacus"}, "abacus"),
        ({"fixed": {2: (1,)}}, "must name one of 2 arguments"),
        ({"fixed": {0: {"up": (1, 8)}}}, "a sharding for each of the 2 arrays"),
        ({"fixed": {0: (3, 1)}}, "divi"),
        ({"carry": {5: 0}}, "'carry' must name one of 2 results"),
        ({"carry": {1: 0}}, "structure of argument 0"),
        ({"fixed": {1: (8,)}}, "with a number of slices per dimension, but got"),
        ({"fixed": {1: (True, 1)}}, "a tuple with a number of slices per dimension, but got"),
        ({"overlap": True}, "'overlap' must be between 0 and 1, but got True"),
        ({"memory": "lots", "mode": "ilp"}, "a text like '80GB'"),
        ({"overlap": 1.5}, "'overlap' must be between 0 and 1, but got 1.5"),
        ({"overlap": "all"}, "'overlap' must be between 0 and 1, but got 'all'"),
        ({"devices": True}, "'devices' must be a number of devices"),
        ({"fixed": {0: 8}}, "a tuple with a number of slices per dimension, but got 8"),
        ({"fixed": {1: (2, 2, 2)}}, r"'fixed' must fit args\[1\]\['x'\] of shape .*, but got \(2, 2, 2\)"),
        ({"carry": {0: 0, 1: 0}}, "'carry' must name every argument once at most"),
        (
            {"saved": "{}", "devices": None, "memory": "1GB"},
            "'memory' must be left out together with 'saved', but got '1GB'",
        ),
        ({"saved": "{}", "devices": None}, "there must be a saved plan, but it must have 'version'"),
    ],
)
def test_bad_input_says_what_is_wrong(options, words):
    with pytest.raises(SporaxValueError, match=words):
        sporax.plan(train_step, PARAMS, BATCH, **{"devices": 8, "hardware": "h100", **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hardware": 3}, "a name or the path"),
        ({"fixed": [(1, 8)]}, "'fixed' must be a mapping"),
        ({"carry": [0]}, "'carry' must be a mapping"),
        ({"carry": {0: [1]}}, r"'carry' must name positions of arguments, but got \[1\]"),
        ({"mode": ["dynamic"]}, r"'mode' must be a text, but got \['dynamic'\]"),
    ],
)
def test_wrong_types_are_type_errors(options, words):
    with pytest.raises(SporaxTypeError, match=words):
        sporax.plan(train_step, PARAMS, BATCH, **{"devices": 8, **options})


def test_numbers_and_keys_are_arguments_and_texts_are_not():
    def scaled(key, x, factor):
        return factor * x + jax.random.normal(key, x.shape)

    arguments = (jax.random.key(0), jnp.ones((8, 8)), 2.0)
    planned = sporax.plan(scaled, *arguments)
    np.testing.assert_allclose(planned.function()(*arguments), scaled(*arguments), rtol=1e-6)
    with pytest.raises(SporaxTypeError, match=r"must hold arrays or numbers, but got 'two' at args\[1\]"):
        sporax.plan(jnp.multiply, BATCH["x"], "two")


def test_a_saved_plan_is_taken_as_it_is():
    planned = sporax.plan(train_step, PARAMS, BATCH, devices=8, hardware="h100", fixed={1: (8, 1)}, carry={0: 0})
    again = sporax.plan(train_step, PARAMS, BATCH, hardware="h100", carry={0: 0}, saved=planned.plan.to_json())
    assert again.plan == planned.plan
    assert again.diff(planned) == ""
    assert (again.search.method, again.search.bound_seconds) == ("saved", None)
    assert again.search.cost_seconds == cost_of(planned.graph, planned.plan, planned.model).seconds
    assert again.predicted_seconds == planned.predicted_seconds
    with pytest.raises(SporaxValueError, match="operators as in the graph"):
        sporax.plan(jnp.dot, BATCH["x"], PARAMS["up"], saved=planned.plan.to_json())


@pytest.mark.parametrize("devices", [1, 3, 6])
def test_any_number_of_devices_can_be_planned_for(devices, tmp_path):
    planned = sporax.plan(train_step, PARAMS, BATCH, devices=devices, hardware="h100", carry={0: 0})
    assert f"Plan for {'one device: nothing is sharded' if devices == 1 else f'{devices} devices'}" in str(
        planned.summary()
    )
    assert any(alternative.chosen for item in planned.explain("#0") for alternative in item.alternatives)
    assert bool(planned.alternatives(1)) == (devices == 6)  # 3 divides nothing here
    assert planned.trade_offs(2)
    planned.report(tmp_path / "plan.html")
    assert (tmp_path / "plan.html").read_text(encoding="utf-8").endswith("</html>\n")


def test_what_is_carried_has_the_shape_of_what_it_replaces():
    words = r"'carry' needs a result that is like args\[0\], float32\[64, 512\], but got bfloat16\[64, 512\]"
    with pytest.raises(SporaxValueError, match=words):
        sporax.plan(lambda x: x.astype(jnp.bfloat16), BATCH["x"], devices=8, hardware="h100", carry={0: 0})


def test_a_dict_that_is_returned_alone_is_carried_as_one_result():
    weights = {name: jax.ShapeDtypeStruct((64, 64), "float32") for name in ("down", "up")}
    step = lambda weights, x: {name: weight - (x @ weight).sum() for name, weight in weights.items()}
    planned = sporax.plan(step, weights, BATCH["x"][:, :64], devices=8, hardware="h100", carry={0: 0})
    assert planned.out_shardings == planned.in_shardings[0]
    with pytest.raises(SporaxValueError, match=r"must name one of 1 results and 2 arguments, but got \{1: 0\}"):
        sporax.plan(step, weights, BATCH["x"][:, :64], devices=8, hardware="h100", carry={1: 0})


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (3, "'fn' must be a function, but got 3"),
        (lambda x: {"a": "text"}, r"the results must hold arrays or numbers, but got 'text' at result\['a'\]"),
    ],
    ids=["no-function", "returns-text"],
)
def test_functions_take_and_return_arrays(fn, words):
    with pytest.raises(SporaxTypeError, match=words):
        sporax.plan(fn, BATCH["x"], devices=8, hardware="h100")


def test_what_is_not_fixed_is_left_to_the_search():
    planned = sporax.plan(
        train_step, PARAMS, BATCH, devices=8, hardware="h100", fixed={0: {"up": (1, 8), "down": None}, 1: None}
    )
    free = sporax.plan(train_step, PARAMS, BATCH, devices=8, hardware="h100", fixed={0: None})
    names = [item.name for item in planned.graph.inputs]
    assert planned.plan.inputs[names.index("[0]['up']")].parts(planned.plan.mesh) == (1, 8)
    assert free.search.cost_seconds <= planned.search.cost_seconds


@pytest.mark.parametrize(
    ("question", "error"),
    [
        (lambda planned: planned.alternatives("x"), SporaxTypeError),
        (lambda planned: planned.alternatives(1, seconds=None), SporaxTypeError),
        (lambda planned: planned.alternatives(1, seconds=-1.0), SporaxValueError),
        (lambda planned: planned.alternatives(1, seconds=float("nan")), SporaxValueError),
        (lambda planned: planned.trade_offs(1.5), SporaxTypeError),
        (lambda planned: planned.trade_offs(0), SporaxValueError),
        (lambda planned: planned.report(None), SporaxTypeError),
    ],
    ids=["text", "no-time", "negative-time", "nan-time", "fraction", "none", "no-path"],
)
def test_bad_questions(question, error):
    planned = sporax.plan(lambda x: x @ x.T, BATCH["x"], devices=8, hardware="h100", mode="recursive")
    with pytest.raises(error, match="must be"):
        question(planned)


def test_a_saved_plan_of_other_ranks_is_refused_before_it_runs():
    planned = sporax.plan(train_step, PARAMS, BATCH, devices=8, hardware="h100", mode="recursive")
    value = json.loads(planned.plan.to_json())
    value["mesh"]["ranks"][0] = 99
    again = sporax.plan(train_step, PARAMS, BATCH, hardware="h100", saved=json.dumps(value))
    with pytest.raises(SporaxValueError, match="the ranks of the plan must be below 8, which are here, but got"):
        again.in_shardings  # noqa: B018 - the access is what raises


def all_reduces(planned, *arguments):
    """In the plan and in the compiled program, and the seconds by which merging them is cheaper."""
    text = planned.function().lower(*jax.device_put(arguments, planned.in_shardings)).compile().as_text()
    actual = cost_of(planned.graph, planned.plan, planned.model)
    alone = replace(planned.model, links=replace(planned.model.links, merged=()))
    saved = cost_of(planned.graph, planned.plan, alone).communication_seconds - actual.communication_seconds
    return actual.collectives["all_reduce"][0], text.count(" all-reduce("), saved


def test_the_compiler_merges_all_reduces_that_are_priced_as_one():
    params = {"up": floats(64, 64), "down": floats(64, 64)}
    batch = {"x": floats(4096, 64), "y": floats(4096, 64)}
    whole = {"up": (1, 1), "down": (1, 1)}
    fixed = {0: whole, 1: {"x": (8, 1), "y": (8, 1)}}
    planned = sporax.plan(train_step, params, batch, devices=8, hardware="cpu", fixed=fixed, carry={0: 0})
    count, compiled_count, saved = all_reduces(planned, params, batch)

    assert (count, compiled_count) == (3, 1)  # two gradients and the loss
    links = planned.model.links
    assert saved == pytest.approx(2 * (links.launch_seconds + 6 * links.alpha_seconds), rel=0.01)


def test_all_reduces_that_wait_for_each_other_are_neither_merged_nor_priced_as_one():
    params = [floats(256, 256) for _ in range(5)]
    x = floats(32, 256)

    def chain(params, x):
        for w in params:
            x = jnp.tanh(x @ w)
        return x

    cuts = [*[(1, 8), (8, 1)] * 2, (1, 8)]
    planned = sporax.plan(chain, params, x, devices=8, hardware="cpu", fixed={0: cuts, 1: (1, 1)})
    assert all_reduces(planned, params, x) == (2, 2, 0.0)


def squared(w, x):
    return w - x @ w


@pytest.mark.parametrize(
    ("devices", "shape", "ranks"),
    [
        (lambda: jax.devices()[4:], (2, 2), [4, 5, 6, 7]),
        (
            lambda: jax.sharding.Mesh(np.array(jax.devices())[::-1].reshape(2, 4), ("x", "y")),
            (2, 2, 2),
            [*range(7, -1, -1)],
        ),
        (lambda: jax.sharding.AbstractMesh((4, 3), ("x", "y")), (2, 2, 3), [*range(12)]),
    ],
    ids=["list", "mesh", "abstract-mesh"],
)
def test_devices_may_be_a_list_or_a_mesh(devices, shape, ranks):
    w = floats(16, 16)
    planned = sporax.plan(squared, w, w, devices=devices(), hardware="h100", fixed={1: (4, 1)}, carry={0: 0})
    assert planned.plan.mesh.shape == shape
    assert list(planned.plan.mesh.ranks) == ranks
    if max(ranks) < jax.device_count():
        result = planned.function()(*jax.device_put((w, w), planned.in_shardings))
        assert result.sharding.device_set == {jax.devices()[rank] for rank in ranks}
        np.testing.assert_allclose(result, squared(w, w), rtol=1e-5)


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([], r"'devices' must be a number of devices, 1 or more, but got \[\]"),
        ([0, 1], r"must be different ones of the 8 that `jax.devices\(\)` has, but got 0"),
        (lambda: [jax.devices()[1]] * 2, "but got CpuDevice.*twice"),
        (lambda: [jax.devices()[:2], jax.devices()[:1]], "must be different ones of the 8"),
    ],
    ids=["none", "numbers", "twice", "ragged"],
)
def test_devices_that_are_none_are_refused(devices, words):
    with pytest.raises(SporaxValueError, match=words):
        sporax.plan(squared, PARAMS["up"], PARAMS["up"], devices=devices() if callable(devices) else devices)


def test_the_environment_wins_as_in_training_scripts(monkeypatch):
    monkeypatch.setenv("SPORAX_PLAN_MODE", "recursive_programming")
    monkeypatch.setenv("SPORAX_HARDWARE", "h100")
    planned = sporax.plan(squared, floats(16, 16), floats(16, 16), devices=8, hardware="a100", mode="dynamic")
    assert (planned.search.method, planned.model.profile.name) == ("recursive", "h100")
    monkeypatch.setenv("SPORAX_PLAN_MODE", "semi_auto")
    with pytest.raises(SporaxValueError, match="SPORAX_PLAN_MODE must be left out"):
        sporax.plan(squared, floats(16, 16), floats(16, 16), devices=8)


SECOND_PROCESS = """
import sys
from pathlib import Path
import jax, jax.numpy as jnp
import sporax
def step(params, x):
    loss = lambda p: ((jnp.tanh(x @ p["up"]) @ p["down"]) ** 2).mean()
    value, gradients = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value
params = {"up": jnp.ones((64, 128)), "down": jnp.ones((128, 64))}
x, file = jnp.ones((16, 64)), Path(sys.argv[1])
settings = {"saved": file.read_text()} if file.exists() else {"devices": 8, "fixed": {1: (8, 1)}}
planned = sporax.plan(step, params, x, hardware="h100", carry={0: 0}, **settings)
file.write_text(planned.plan.to_json())
text = planned.function().lower(*jax.device_put((params, x), planned.in_shardings)).compile().as_text()
kinds = ("all-reduce(", "all-gather(", "reduce-scatter(", "all-to-all(", "collective-permute(")
print(planned.search.method, [line.split(", metadata")[0].strip() for line in text.splitlines() if any(f" {k}" in line for k in kinds)])
"""


def test_a_plan_of_one_process_is_the_program_of_another(tmp_path):
    def run(seed):
        env = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu", "PYTHONHASHSEED": seed}
        words = [sys.executable, "-c", SECOND_PROCESS, str(tmp_path / "plan.json")]
        done = subprocess.run(words, env={**os.environ, **env}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split(" ", 1)

    (first, compiled), (second, again) = run("1"), run("2")
    assert (first, second) == ("dynamic", "saved")
    assert "all-gather" in compiled
    assert again == compiled


class Model:
    """Weights that an object holds, as those of flax.nnx."""

    def __init__(self, weight):
        self.weight = weight


jax.tree_util.register_pytree_node(Model, lambda model: ((model.weight,), None), lambda _, leaves: Model(*leaves))


@pytest.mark.parametrize("make", [lambda: Model(floats(8, 8)), lambda: {"weight": floats(8, 8)}])
def test_a_function_that_changes_its_arguments_is_refused(make):
    def train(model, x):
        weight = model["weight"] if isinstance(model, dict) else model.weight
        new = weight - 0.1 * jax.grad(lambda weight: ((x @ weight) ** 2).sum())(weight)
        if isinstance(model, dict):
            model["weight"] = new
        else:
            model.weight = new
        return new.sum()

    with pytest.raises(SporaxValueError, match=r"it changes args\[0\].* in place, and the change would be lost"):
        sporax.plan(train, make(), floats(16, 8), devices=8, hardware="h100")


@pytest.mark.parametrize("returns", ["all", "some"])
def test_what_is_changed_in_place_and_returned_is_not_lost(returns):
    """As with flax.nnx, whose `merge` makes an object that shares the variables of the argument."""

    def train(weights, x):
        for name, weight in weights.items():
            weights[name] = weight - 0.1 * jax.grad(lambda weight: ((x @ weight) ** 2).sum())(weight)
        return (weights if returns == "all" else {"first": weights["first"]}), (x @ weights["first"]).sum()

    weights, x = {"first": floats(8, 8), "second": floats(8, 8)}, floats(16, 8)
    if returns == "some":
        with pytest.raises(SporaxValueError, match=r"it changes args\[0\]\['second'\] in place"):
            sporax.plan(train, weights, x, devices=8, hardware="h100")
        return
    planned = sporax.plan(train, weights, x, devices=8, hardware="h100", carry={0: 0})
    assert [argument.role for argument in planned.step.graph.inputs] == [Role.PARAMETER, Role.PARAMETER, Role.DATA]


def test_a_function_that_adds_to_its_arguments_is_refused():
    def count(cache, x):
        cache["seen"] = x
        return x * 2

    with pytest.raises(SporaxValueError, match="it changes the structure of its arguments in place"):
        sporax.plan(count, {}, floats(16, 8), devices=8, hardware="h100")


@pytest.mark.parametrize("position", [{"static_argnums": 1}, {"static_argnames": "n"}], ids=str)
def test_static_arguments_are_bound_before(position):
    repeated = jax.jit(lambda x, n: jnp.tile(x, n), **position)
    with pytest.raises(SporaxValueError, match=r"static arguments of 'fn' must be bound before.*functools.partial"):
        sporax.plan(repeated, jnp.ones(8), 3, devices=8)
    assert sporax.plan(partial(repeated, n=3), jnp.ones(8), devices=8).function()(jnp.ones(8)).shape == (24,)


def test_a_mutable_reference_is_no_argument():
    with pytest.raises(SporaxTypeError, match=r"got a mutable reference at args\[0\]\['count'\]"):
        sporax.plan(lambda state: state["count"][...], {"count": jax.new_ref(jnp.ones(8))}, devices=8)


@pytest.mark.parametrize(("fn", "fixed"), [
    (lambda x: x.mean() + 1.0, (8, 1)),
    (lambda x: jnp.stack([x.sum(), 1.0, x.max() - 0.5, jnp.where(x[0, 0] > 9, x.sum(), 2.0)]), (8, 1)),
    (lambda x: jax.lax.dynamic_update_slice(jnp.full(4, 3.0), x.sum(0)[:2], (1,)), (8, 1)),
    (lambda x: jax.lax.fori_loop(0, 3, lambda _, c: c + x.sum(), 5.0), (8, 1)),
    (lambda x: jnp.sin(jax.lax.reshape(x, (8, 8), (1, 0))), (8, 1)),
    (lambda x: x.at[3, 1].set(jnp.nan).max(), (8, 1)),
    # Numbers of this type have no zero.
    (lambda x: x.astype(jnp.float8_e8m0fnu)[jnp.array([3, 14])].astype(jnp.float32), (8, 1)),
    (lambda x: jax.lax.convert_element_type(jnp.sort(jax.lax.iota(jnp.bfloat16, 520)), jnp.float32) + x.sum(), (8, 1)),
])  # fmt: skip
def test_results_are_those_of_one_device(fn, fixed):
    x = jnp.arange(64.0).reshape(16, 4) / 64
    planned = sporax.plan(fn, x, fixed={0: fixed})
    np.testing.assert_allclose(planned.function()(jax.device_put(x, planned.in_shardings[0])), fn(x), rtol=1e-5)


@pytest.mark.parametrize("start", [-20, -3, 11, 99])
def test_a_slice_that_begins_outside_is_moved_as_a_whole(start):
    """XLA merges it with the slice of a device, and would add up starts that are not inside."""
    x = jnp.arange(16.0)
    sharding = jax.sharding.PartitionSpec("x")
    planned = sporax.plan(
        lambda x, i: jax.lax.dynamic_slice(x, (i,), (8,)), x, jnp.int32(1), devices={"x": 8}, out_shardings=sharding
    )
    np.testing.assert_array_equal(
        planned.function()(x, jnp.int32(start)), jax.lax.dynamic_slice(x, (jnp.int32(start),), (8,))
    )
