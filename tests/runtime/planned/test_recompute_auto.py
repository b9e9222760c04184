"""``recompute="auto"`` below the facade: limits in tags, predictions for one device, and what is not offered."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings
from sporax.lowering.passes.pass_order import AUTO
from sporax.lowering.passes.recompute.recompute import PlanFacts
from sporax.lowering.rewriter import flat
from sporax.runtime.planned.recompute_auto import chooser_for_one_device, chosen_for_plan, peak_of_one_device

ROWS, WIDTH, BLOCKS = 512, 8, 4
WEIGHT = SimpleNamespace(name="w")


def step(written, read, data):
    """Four numbered blocks whose activations are much larger than their weight."""
    (weight,), (x,) = written, data

    def loss(weight):
        hidden = x
        for number in range(BLOCKS):
            with jax.named_scope(f"net.blocks.{number}"):
                hidden = jnp.sin(jnp.cos(jnp.tanh(hidden @ weight)))
        return hidden.sum()

    return [weight - jax.grad(loss)(weight)], [loss(weight)]


def program():
    return flat(
        jax.make_jaxpr(lambda w, x: step([w], [], [x]))(
            *(jnp.ones(shape, jnp.float32) for shape in ((WIDTH, WIDTH), (ROWS, WIDTH)))
        )
    )


def predicted():
    weight = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)
    data = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
    return peak_of_one_device(step, [WEIGHT], [], [[weight], []], [data], frozenset())


def test_the_prediction_counts_arguments_and_what_the_backward_pass_reads():
    activation = ROWS * WIDTH * 4
    assert activation * (1 + BLOCKS) < predicted() < activation * (1 + 6 * BLOCKS)


@pytest.mark.parametrize(("share", "chosen"), [(2.0, False), (0.85, True)])
def test_on_one_device_as_much_is_computed_again_as_the_limit_requires(share, chosen):
    tags = frozenset({AUTO, f"recompute within {int(predicted() * share)}"})
    choice = chooser_for_one_device([WEIGHT], [], tags)(program())
    assert bool(choice.tags) is chosen
    assert set(choice.paths.values()) <= {f"net.blocks.{number}" for number in range(BLOCKS)}


def test_a_limit_below_what_any_choice_needs_is_an_error():
    tags = frozenset({AUTO, f"recompute within {ROWS * WIDTH * 4}"})
    with pytest.raises(
        SporaxRuntimeError, match=r"^For 'recompute', what is kept must fit the .* of a device, but the least"
    ):
        chooser_for_one_device([WEIGHT], [], tags)(program())


def test_stages_choose_nothing():
    settings = PlanSettings(ParallelConfig(device_num=8, pipeline_stages=2))
    with pytest.raises(
        SporaxNotImplementedError,
        match=r"^For 'set_auto_parallel_context', recompute='auto' is not offered with 'pipeline_stages' above 1, but got 2\.",
    ):
        chosen_for_plan(program(), frozenset({AUTO}), PlanFacts(), lambda closed: None, settings)
