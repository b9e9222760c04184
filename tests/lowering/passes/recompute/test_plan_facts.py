"""What recomputation reads from a first plan: collectives that are not repeated, and smaller slices."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from sporax.base.errors import SporaxNotImplementedError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import Role
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Placement
from sporax.lowering.ingest.ingest import ingest
from sporax.lowering.marks.tags import new_tag
from sporax.lowering.passes.pass_order import flat_for_plan
from sporax.lowering.passes.recompute.plan_facts import finer, plan_facts
from sporax.planner.propagation.propagate import plan_by_propagation

MESH = DeviceMatrix((2, 2))
ROLES = [(Role.PARAMETER, "w"), (Role.DATA, "x")]
P = Placement


def program(**settings):
    """A product whose contraction is sharded, so its result is a partial sum, and a sine of it."""

    def loss(w, x):
        with jax.named_scope("net"), jax.named_scope(new_tag(**settings).scope):
            return jnp.sin(jnp.sin(x @ w)).sum()

    return flat_for_plan(jax.make_jaxpr(jax.grad(loss))(jnp.ones((4, 8)), jnp.ones((8, 4))))


def plan_of(closed):
    graph = ingest(closed, ROLES).graph
    weight, data = (entry.tensor for entry in graph.inputs[-2:])
    return graph, plan_by_propagation(graph, MESH, {weight: P(((0,), ())), data: P(((1,), (0,)))})


def refused(_):
    raise AssertionError("no plan is needed")


def test_no_plan_is_made_where_no_tag_requests_it():
    closed = program()
    facts = plan_facts(closed, refused, ROLES)
    assert (facts.saved, facts.slices) == ((), {})
    assert facts.weights == {closed.jaxpr.invars[0]: "w"}


def test_results_of_collectives_are_kept_where_they_shall_not_be_repeated():
    closed = program(mp_comm_recompute=False)
    facts = plan_facts(closed, plan_of, ROLES)
    (product,) = (eqn.outvars[0] for eqn in closed.jaxpr.eqns if eqn.primitive.name == "dot_general"
                  and "transpose(" not in str(eqn.source_info.name_stack))  # fmt: skip
    assert facts.saved == {product}  # its partial sums are reduced


def test_collectives_of_tags_that_allow_it_are_repeated():
    def loss(w, x):
        with jax.named_scope(new_tag().scope):
            product = x @ w
        with jax.named_scope(new_tag(mp_comm_recompute=False).scope):
            return jnp.sin(jnp.sin(product)).sum()

    closed = flat_for_plan(jax.make_jaxpr(jax.grad(loss))(jnp.ones((4, 8)), jnp.ones((8, 4))))
    assert plan_facts(closed, plan_of, ROLES).saved == set()


def test_a_plan_of_a_changed_program_is_refused():
    def other(closed):
        graph, plan = plan_of(closed)
        return replace(graph, operators=graph.operators[1:]), plan

    with pytest.raises(
        SporaxNotImplementedError,
        match=r"^For 'Cell\.recompute', 'mp_comm_recompute=False' and 'recompute_slice_activation=True' are not offered in steps",
    ):
        plan_facts(program(mp_comm_recompute=False), other, ROLES)


@pytest.mark.parametrize(
    ("here", "shape", "wanted"),
    [
        (P(((0,), ())), (8, 3), P(((0, 1), ()))),
        (P(((), (0,))), (6, 8), P(((1,), (0,)))),
        (P(((), (0,))), (3, 8), P(((), (0, 1)))),  # the first dimension cannot be divided
        (P(((0,), ())), (2, 3), None),
        (P(((0,), (1,))), (8, 8), None),  # no axis is left
        (P(((), ()), (1,), "sum"), (8, 8), None),
    ],
)
def test_the_finer_placement_shards_along_the_axes_that_repeat_the_value(here, shape, wanted):
    assert finer(here, TensorSpec(shape), MESH) == wanted
