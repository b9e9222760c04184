"""Warnings of primitives that the planner does not know: at the head of plans and of steps, with what they cost."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir

import sporax
import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.planner.rules import register, unregister
from sporax.report.render.text import plain_text
from sporax.runtime.session import SESSION

SHAPES = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1024, 4096), (4096, 1024), (4096, 1024))]

one_minus_cube_p = Primitive("one_minus_cube")
one_minus_cube_p.def_abstract_eval(lambda x: x)
mlir.register_lowering(one_minus_cube_p, mlir.lower_fun(lambda x: 1 - x**3, multiple_results=False))


@jax.custom_jvp
def activation(x):
    return jnp.tanh(x)


@activation.defjvp
def _(primals, tangents):
    (x,), (rate,) = primals, tangents
    return jnp.tanh(x), rate * one_minus_cube_p.bind(x)


def train_step(up, down, x, act):
    def loss(up, down):
        with jax.named_scope("net"):
            return jnp.mean((act(x @ up) @ down) ** 2)

    return [
        weight - 0.1 * gradient for weight, gradient in zip((up, down), jax.grad(loss, (0, 1))(up, down), strict=True)
    ]


plan = partial(sporax.plan, devices=8, hardware="h100", carry={0: 0, 1: 1})


@pytest.fixture
def unknown():
    yield
    unregister("one_minus_cube")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.reset_auto_parallel_context()


@pytest.mark.usefixtures("unknown")
def test_an_unknown_primitive_is_a_warning_at_the_head_with_its_cost():
    with pytest.warns(UserWarning, match="The primitive 'one_minus_cube' .* is unknown to the planner"):
        planned = plan(partial(train_step, act=activation), *SHAPES)
    (warning,) = planned.summary().warnings
    assert "(1 operator, the first in net)" in warning
    assert "67.1 MB of results on each device" in warning  # 4096 x 4096 floats
    assert "µs a step" in warning
    head, following = plain_text(planned.summary(), 1000).splitlines()[:2]
    assert head.startswith("Plan for 8 devices")
    assert following == f"Warning: {warning}"
    assert json.loads(planned.summary().to_json())["warnings"] == [warning]


@pytest.mark.usefixtures("unknown")
def test_a_page_for_a_browser_has_it_at_its_head(tmp_path):
    with pytest.warns(UserWarning, match="one_minus_cube"):
        plan(partial(train_step, act=activation), *SHAPES).report(tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert 0 < page.index("Warning: The primitive &#x27;one_minus_cube&#x27;") < page.index("<h2>Operators</h2>")


@pytest.mark.usefixtures("unknown")
def test_what_is_registered_warns_no_more_and_costs_less():
    with pytest.warns(UserWarning, match="one_minus_cube"):
        before = plan(partial(train_step, act=activation), *SHAPES).summary()
    register("one_minus_cube", "... n -> ... n")
    after = plan(partial(train_step, act=activation), *SHAPES).summary()
    assert after.warnings == ()
    assert after.search.predicted_seconds < before.search.predicted_seconds


def test_where_plans_are_only_shown_they_alone_say_it(monkeypatch):
    monkeypatch.setattr(SESSION, "plan_only", True)
    assert plan(partial(train_step, act=activation), *SHAPES).summary().warnings


@pytest.mark.parametrize("act", [jnp.tanh, jax.nn.gelu, jax.nn.silu, jnp.arcsin, jnp.log2])
def test_everything_that_common_steps_are_made_of_is_known(act):
    summary = plan(partial(train_step, act=act), *SHAPES).summary()
    assert (summary.warnings, summary.notes) == ((), ())


def test_one_device_has_nothing_to_warn_of():
    assert plan(partial(train_step, act=activation), *SHAPES, devices=1).summary().warnings == ()


@pytest.mark.parametrize(
    ("act", "peak", "seconds"),
    [(jnp.tanh, "46.1 MB", 207e-6), (jax.nn.gelu, "54.5 MB", 263e-6), (jax.nn.silu, "54.5 MB", 216e-6)],
)
def test_every_supported_jax_gets_the_same_plan(act, peak, seconds):
    """Recorded with JAX 0.10; derivatives of tanh are other primitives in 0.11, one kernel less and of the same bytes."""
    planned = plan(partial(train_step, act=act), *SHAPES)
    text = plain_text(planned.summary(), 1000)
    assert f"predicted peak memory         {peak} (variables 8.39 MB" in text
    exchanged = [line.split() for line in text.splitlines() if " per step, " in line]
    assert [(words[0], words[1], words[4]) for words in exchanged] == [
        ("all_gather", "1", "2.1"),
        ("all_reduce", "2", "8.39"),
        ("reduce_scatter", "1", "8.39"),
    ]
    assert planned.search.cost_seconds == pytest.approx(seconds, rel=0.06)


@pytest.mark.usefixtures("unknown")
def test_a_step_of_cells_warns_when_it_is_planned():
    def up(weights, x):
        return activation(x @ weights["up"]).mean()

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="auto_parallel", search_mode="dynamic_programming", device_num=8)
    net = nn.JaxCell(up, {"up": np.ones((16, 32), np.float32)})
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1))
    with pytest.warns(UserWarning, match="The primitive 'one_minus_cube' .* is unknown to the planner"):
        step(Tensor(np.ones((64, 16), np.float32)))
