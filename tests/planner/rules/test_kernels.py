"""Kernels that are written by hand: what of them is sharded, what they cost, and what is warned of."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas
from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

import sporax
from sporax.ir.hardware import load_profile

RNG = np.random.default_rng(0)
LONG = jax.ShapeDtypeStruct((8, 4, 2048, 128), "bfloat16")
PRODUCT = 2 * 8 * 4 * 2048**2 * 128
"""Operations of one product of all queries with all keys."""


def floats(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def scaled(x_ref, w_ref, out_ref):
    out_ref[...] = x_ref[...] * 2 + w_ref[...]


def numbered(x_ref, w_ref, out_ref):
    out_ref[...] = x_ref[...] + pallas.program_id(0) + pallas.program_id(1)


def in_blocks(kernel, x, w):
    return pallas.pallas_call(
        kernel,
        grid=(8, 2),
        in_specs=[pallas.BlockSpec((4, 8), lambda i, j: (i, j)), pallas.BlockSpec((8,), lambda i, j: (j,))],
        out_specs=pallas.BlockSpec((4, 8), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        interpret=True,
        name=kernel.__name__,
    )(x, w)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [(scaled, "is sharded as its grid allows"), (numbered, "is unknown to the planner: every device")],
)
def test_kernels_are_sharded_along_their_grid_unless_they_read_their_place(kernel, words):
    x, w = floats(32, 16), floats(16)

    def step(x, w):
        return jnp.tanh(in_blocks(kernel, x, w))

    with pytest.warns(
        UserWarning, match=rf"The kernel 'pallas_call:{kernel.__name__}' .*{words}.* arithmetic is not counted"
    ) as got:
        planned = sporax.plan(step, x, w, devices=8, fixed={0: (8, 1)})
    assert f"sporax.planner.rules.register('pallas_call:{kernel.__name__}'" in str(got[0].message)
    assert "is not counted" in str(planned.summary())[:900]
    (operands,) = [
        plan.operands
        for operator, plan in zip(planned.graph.operators, planned.plan.operators, strict=True)
        if operator.name.startswith("pallas_call")
    ]
    assert any(operands[0].dims) == (kernel is scaled)
    result = planned.function()(*jax.device_put((x, w), planned.in_shardings))
    np.testing.assert_allclose(result, step(x, w), rtol=1e-6)


def flash(q):
    return flash_attention(q, q, q, causal=True)


def splash(q):
    causal = splash_attention_mask.CausalMask(q.shape[-2:-1] * 2)
    mask = splash_attention_mask.MultiHeadMask([causal] * q.shape[1])
    return jax.vmap(splash_attention_kernel.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1))(q, q, q)


@pytest.mark.parametrize("attention", [flash, splash])
def test_attention_of_tpus_is_sharded_and_counts_half_of_its_products(attention):
    rate = load_profile("tpu-v5p").attention_flops_per_second()

    def seconds(function):
        # JAX's kernel of flash attention cannot be traced with 64-bit indices.
        with warnings.catch_warnings(), jax.enable_x64(False):
            warnings.simplefilter("error")  # these kernels are known
            planned = sporax.plan(function, LONG, devices=8, hardware="tpu-v5p", fixed={0: (8, 1, 1, 1)})
        assert planned.in_shardings[0].spec[0] is not None
        return planned.search.cost_seconds

    forward = seconds(attention)
    assert forward >= 2 * PRODUCT / 2 / 8 / rate
    assert forward < 2 * 2 * PRODUCT / 2 / 8 / rate
    both = seconds(jax.grad(lambda q: attention(q).astype("float32").sum()))
    assert both >= (2 + 7) * PRODUCT / 2 / 8 / rate  # two products forward, four and three in the two kernels backward


def attention_of(implementation):
    def loss(q, k, v, bias):
        out = jax.nn.dot_product_attention(q, k, v, bias=bias, is_causal=True, implementation=implementation)
        return (out**2).sum()

    return jax.grad(loss, argnums=(0, 1, 2, 3))


@pytest.mark.parametrize("slices", [(8, 1, 1, 1), (2, 1, 2, 1)], ids=["batch", "heads"])
@pytest.mark.sampled(1)
def test_attention_of_cudnn_is_planned_without_a_gpu_and_is_that_of_xla(slices):
    args = floats(8, 8, 4, 16), floats(8, 8, 2, 16), floats(8, 8, 2, 16), floats(1, 4, 8, 8)
    planned = sporax.plan(attention_of("cudnn"), *args, devices=8, fixed={0: slices})
    got = planned.function()(*jax.device_put(args, planned.in_shardings))
    expected = attention_of("xla")(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, expected)
    with pytest.raises(RuntimeError, match="cuDNN"):
        attention_of("cudnn")(*args)  # only plans can do without


def test_attention_of_cudnn_under_vmap_and_with_lengths():
    q, lengths = floats(4, 2, 8, 2, 16), jnp.arange(1, 9, dtype="int32").reshape(4, 2)

    def attend(implementation):
        return jax.vmap(
            lambda q, length: jax.nn.dot_product_attention(
                q, q, q, query_seq_lengths=length, key_value_seq_lengths=length, implementation=implementation
            )
        )

    planned = sporax.plan(attend("cudnn"), q, lengths, devices=8)
    got = planned.function()(*jax.device_put((q, lengths), planned.in_shardings))
    np.testing.assert_allclose(got, attend("xla")(q, lengths), rtol=1e-4, atol=1e-5)


def test_attention_of_cudnn_costs_its_products_and_no_scores_in_memory():
    shape = jax.ShapeDtypeStruct((8, 4096, 16, 64), "bfloat16")
    profile = load_profile("h100")

    def planned(implementation):
        return sporax.plan(
            lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True, implementation=implementation),
            shape,
            devices=8,
            hardware="h100",
        )

    fused, written = planned("cudnn"), planned("xla")
    least = 4 * 4096**2 * 16 * 64 / 2 / profile.flops_per_second("bfloat16")
    assert least <= fused.search.cost_seconds < 2 * least
    # What is written as products and a softmax is one kernel there, too.
    assert fused.search.statistics["peak_bytes"] <= written.search.statistics["peak_bytes"] < 16 * 4096**2 * 2


def test_foreign_calls_are_warned_of_on_one_device_too():
    def step(x):
        return jax.ffi.ffi_call("of_the_user", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    with pytest.warns(UserWarning, match=r"The kernel 'ffi_call:of_the_user' .* is not counted"):
        sporax.plan(step, floats(8, 8), devices=1)
