"""Attention as one operator: what is recognized, what is not, and what costs and memory make of it."""

import jax
import jax.numpy as jnp
import pytest
from msgspec import structs

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.lowering.ingest.ingest import ingest
from sporax.planner.cost import Roofline, cost_of, kernel_seconds, link_costs
from sporax.planner.memory.peak import backend_of, memory_of
from sporax.planner.search.space.plan_assembly import replicated_plan

ONE = DeviceMatrix((2,))
H100 = load_profile("h100")
HEADS, DEPTH = 4, 8


def qkv(length, heads=HEADS):
    return [jax.ShapeDtypeStruct((1, length, heads, DEPTH), jnp.bfloat16)] * 3


def written_out(q, k, v, causal=False):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * 0.3
    if causal:
        place = jnp.arange(q.shape[1])
        scores = jnp.where(place[:, None] >= place[None], scores, -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(v.dtype), v)


def library(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def grouped(q, k, v):
    return jax.nn.dot_product_attention(q, k[:, :, :2], v[:, :, :2], is_causal=True)


def causal(q, k, v):
    return written_out(q, k, v, causal=True)


def again(q, k, v):
    return jax.checkpoint(causal)(q, k, v)


def graph_of(attention, length=64, gradient=True):
    def loss(q, k, v):
        return attention(q, k, v).astype(jnp.float32).sum()

    function = jax.grad(loss, argnums=(0, 1, 2)) if gradient else attention
    return ingest(jax.make_jaxpr(function)(*qkv(length))).graph


def in_loops(attention):
    """Bodies of a loop over micro batches forward, which saves no scores, and of the one backward."""

    def loss(*arrays):
        one = jax.checkpoint(lambda total, _: (total + attention(*arrays).astype(jnp.float32).sum(), None))
        return jax.lax.scan(one, 0.0, None, length=2)[0]

    whole = ingest(jax.make_jaxpr(jax.grad(loss, argnums=(0, 1, 2)))(*qkv(64))).graph
    return [body for operator in whole.operators for body in operator.bodies]


def dots(graph):
    return [operator for operator in graph.operators if operator.name == "dot_general"]


def products(graph):
    return [operator.operation.fused for operator in dots(graph)]


@pytest.mark.parametrize(
    ("attention", "share"), [(written_out, 1.0), (causal, 0.5), (library, 0.5), (grouped, 0.5), (again, 0.5)]
)
def test_products_with_a_softmax_between_them_are_attention(attention, share):
    forward = list(products(graph_of(attention, gradient=False)))
    assert [fused.share for fused in forward] == [share] * 2
    for graph in (graph_of(attention), *in_loops(attention)):
        assert None not in products(graph)
        late = [entry.operation.fused.share for entry in dots(graph) if entry.backward]
        # Five products of the backward kernel, whatever the program saves of the forward pass.
        assert sum(late) == pytest.approx(5 * share if late else 0.0)


def classifier(x, w):
    return -jax.nn.log_softmax(x @ w)[:, 0].mean()


def scores_returned(q, k, v):
    scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
    return jnp.einsum("bhqk,bkhd->bqhd", scores, v), scores


def test_a_loss_over_a_vocabulary_and_scores_that_are_results_are_none():
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((16, 8), (8, 32))]
    assert products(ingest(jax.make_jaxpr(jax.grad(classifier, argnums=(0, 1)))(*specs)).graph) == [None] * 3
    assert products(ingest(jax.make_jaxpr(scores_returned)(*qkv(16))).graph) == [None] * 2


def model(profile):
    return Roofline(profile, link_costs(profile, ONE))


def peak(profile, attention, length):
    graph = graph_of(attention, length)
    return memory_of(graph, replicated_plan(graph, ONE), backend_of(profile.compiler)).peak_bytes


@pytest.mark.parametrize("attention", [causal, library, again])
def test_memory_grows_with_the_length_where_scores_are_not_written(attention):
    assert peak(H100, attention, 512) == pytest.approx(2 * peak(H100, attention, 256), rel=0.05)
    written = structs.replace(H100, attention={})
    assert peak(written, attention, 512) > 3.5 * peak(written, attention, 256)
    assert peak(load_profile("cpu"), attention, 512) > 3.5 * peak(load_profile("cpu"), attention, 256)


def test_kernels_are_costed_by_their_own_rate():
    profile = structs.replace(H100, launch_seconds=0.0)
    graph = graph_of(causal, 8192)
    plan = replicated_plan(graph, ONE)
    products_forward = 4 * HEADS * 8192**2 * DEPTH / 2
    expected = 3.5 * products_forward / profile.attention_flops_per_second()
    costed = cost_of(graph, plan, model(profile))
    scores = [s for o, s in zip(graph.operators, costed.operator_seconds, strict=True) if o.operation.fused]
    assert sum(scores) == pytest.approx(expected)
    assert kernel_seconds(graph, plan, model(profile)) == pytest.approx(expected, rel=0.2)
    written = model(structs.replace(profile, attention={}))
    assert cost_of(graph, plan, written).compute_seconds > 5 * costed.compute_seconds
