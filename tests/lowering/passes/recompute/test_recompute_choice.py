"""What is computed again is chosen by planned outcomes: nothing where it fits, and no more than the limit requires."""

import jax
import jax.numpy as jnp
import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import Role
from sporax.ir.hardware import load_profile
from sporax.ir.placement import Placement
from sporax.lowering.ingest.ingest import ingest
from sporax.lowering.passes.pass_order import flat_for_plan, run_rewrites
from sporax.lowering.passes.recompute.recompute_choice import choose_recomputation
from sporax.planner import PlanRequest, cost_model, make_plan
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU

MESH = DeviceMatrix((1,))
X, W = jnp.ones((256, 8), jnp.float32), jnp.eye(8, dtype=jnp.float32)
CONFIG = ParallelConfig(parallel_mode="semi_auto_parallel")


def program():
    """The gradient of four numbered blocks with large activations."""

    def loss(w):
        x = X
        for number in range(4):
            with jax.named_scope(f"net.blocks.{number}"):
                x = jnp.sin(jnp.cos(jnp.tanh(x @ w)))
        return x.sum()

    return flat_for_plan(jax.make_jaxpr(jax.grad(loss))(W))


def plan_it(closed, is_quick=False):
    graph = ingest(closed, [(Role.PARAMETER, "w")]).graph
    whole = {entry.tensor: Placement(((),) * graph.tensors[entry.tensor].num_dims) for entry in graph.inputs}
    return graph, make_plan(PlanRequest(graph, MESH, PlanSettings(CONFIG), load_profile("cpu"), whole)).plan


def choose(closed, limit, plan=plan_it, **options):
    model = cost_model(PlanSettings(CONFIG), MESH, load_profile("cpu"))
    return choose_recomputation(
        closed,
        None,
        lambda choice: run_rewrites(closed, set(), None, choice)[0],
        plan,
        lambda plan: model,
        limit,
        **options,
    )


def peak(closed, choice=None):
    return memory_of(*plan_it(run_rewrites(closed, set(), None, choice)[0]), XLA_CPU).peak_bytes


def test_nothing_is_computed_again_where_everything_fits():
    choice = choose(program(), 2**40)
    assert dict(choice.chosen.tags) == {}
    assert "recompute='auto': nothing" in choice.notes[0]


def test_the_choice_fits_the_limit():
    closed = program()
    everything = peak(closed)
    limit = int(everything * 0.75)
    choice = choose(closed, limit)
    assert set(choice.chosen.paths.values()) <= {f"net.blocks.{number}" for number in range(4)}
    assert choice.chosen.tags
    assert peak(closed, choice.chosen) <= limit < everything


@pytest.mark.parametrize("layout_is_free", [False, True])
def test_what_has_no_plan_is_the_error_of_planning(layout_is_free):
    def nowhere(closed, is_quick):
        raise SporaxRuntimeError("For 'search', no plan fits.")

    with pytest.raises(SporaxRuntimeError, match=r"^For 'search', no plan fits\.$"):
        choose(program(), 2**40, nowhere, layout_is_free=layout_is_free)


def test_a_search_that_gave_up_is_a_choice_that_does_not_fit():
    def with_much_recomputation(closed, is_quick):
        if is_quick and len(closed.jaxpr.eqns) == len(program().jaxpr.eqns):
            raise SporaxRuntimeError("For 'search', no plan was found soon.")
        return plan_it(closed)

    choice = choose(program(), 2**40, with_much_recomputation, layout_is_free=True)
    assert choice.chosen.tags
    assert any("nothing" in note and "would not fit" in note for note in choice.notes)
