"""Random programs of plain JAX, planned for two to eight devices in every mode: no defect, and the numbers of one device.

A program is drawn from the seed and its number alone: lines of text, each of earlier values, and perhaps the gradient of all;
dtypes, a mesh of the user's with constraints and islands, a memory limit, donated state. It is planned for a random profile in a
random mode, and in `ilp`: neither may cost less than the other's proven bound (with `--all-modes` all searches are compared); no
plan may need more than its limit; what runs goes through `planned.verify`. What fails is printed with as few lines as still fail.

Run: python tools/random_programs.py [--seed 0] [--first 0] [--cases 500] [--run 0.5] [--longest 9] [--all-modes] [--x64]
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import random
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("SPORAX_NO_CACHE", "1")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
        "--xla_llvm_disable_expensive_passes=true"
    ).strip()

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

import sporax
from sporax.base.errors import SporaxError, SporaxRuntimeError
from sporax.ir.hardware import load_profile
from sporax.planner import peak_bytes
from sporax.planner.plan_check import check_plan
from sporax.runtime.planned.compiled_plans import device_bytes

MODES = ("dynamic", "ilp", "recursive", "propagation", "repeated_blocks")
BY_FILE = "by file"
PROFILES = ("cpu", "h100", "h200", "tpu-v5p", "tpu-v6e", "ascend910", BY_FILE)
SIZES, WEIGHTS = (8, 16, 4, 2, 6, 1, 3, 0), (8, 4, 3, 1.5, 0.5, 0.5, 0.5, 0.1)
DTYPES, DTYPE_WEIGHTS = ("float32", "bfloat16", "float16", "int32", "float8_e4m3fn", "bool"), (24, 3, 1, 3, 0.5, 0.5)
AXES = {8: (2, 4), 6: (3, 2), 4: (2, 2), 2: (2, 1)}
LIMITS, _LEAST_LIMIT = (0.5, 0.7, 0.9, 1.0), 2048
"""Shares of the peak of the plan without a limit."""


def _expressions(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.strip().replace("\n", "|").split("|") if part)


TEMPLATES = _expressions("""
jnp.tanh({0})|jnp.exp(-jnp.abs({0}))|{0} + 1.5|2 - {0}|{0} * 0.5|jnp.maximum({0}, 0.25)|jnp.clip({0}, -1, 1)
{0} / 3|{0} + {1}|{0} - {1}|{0} * {1}|jnp.maximum({0}, {1})|jnp.where({0} > 0, {1}, 0.5)
jnp.where({0} > {1}, {0}, {1})|{0}.sum()|{0}.sum(0)|{0}.sum(-1, keepdims=True)|{0}.mean(0)|{0}.max(-1)|{0}.min()
{0}.argmax(-1)|{0}.prod(0)|({0} > 0).sum()|jnp.log({0}.sum() ** 2 + 1)|jax.nn.softmax({0}, -1)
jnp.tensordot({0}, {1}, 1)|jnp.tensordot({0}.T, {1}, 1)|{0} @ {0}.T|{0}.T|{0}.reshape(-1)
{0}.reshape({0}.shape[0], -1)|jnp.reshape({0}, -1, order="F")|{0}.reshape(2, -1)|{0}[::-1]|jnp.roll({0}, 1, 0)
jnp.concatenate([{0}, {1}])|jnp.stack([{0}, {1}], -1)|jnp.stack([{0}.sum(), 1.0, {1}.max()])
jnp.pad({0}, 1, constant_values=2)|jnp.cumsum({0}, 0)|jnp.sort({0}, -1)|{0}[1:]|{0}[..., ::2]
lax.dynamic_slice_in_dim({0}, {1}.argmax() + 3, 2, 0)
lax.dynamic_update_slice_in_dim({0}, {0}[:1] * 2, {1}.argmax(), 0)|{0}[{1}.argmax()]
jnp.take({0}, {1}.astype(int), 0, mode="clip")|{0}.at[{1}.astype(int).reshape(-1)[:2]].add(1.0)
jnp.zeros((8, 4)).at[:, 0].set({0}.sum())|{0}.astype(jnp.bfloat16)|{0}.astype(jnp.float32)|jnp.arange(8.0) + {0}
jnp.broadcast_to({0}, (4, *{0}.shape))|jnp.einsum("i...,i...->...", {0}, {1})
lax.scan(lambda c, x: (c + x.sum(), c * 0.5 + x), 1.0, {0})[1]
lax.fori_loop(0, 3, lambda _, c: jnp.tanh(c + {0}.mean()), {1})
lax.cond({0}.sum() > 1, lambda x: x * 2, lambda x: x + 1, {1})|lax.map(lambda x: x * x.sum(), {0})
jnp.var({0}, -1)|lax.top_k({0}, 2)[0]|{0}.astype(jnp.float16)|jax.random.normal(jax.random.key(3), {0}.shape) * {0}
lax.while_loop(lambda c: jnp.abs(c).max() > 0.5, lambda c: c * 0.6, {0})|jnp.repeat({0}, 3, 0)|jnp.tile({0}, 2)
jax.vmap(lambda r: lax.while_loop(lambda c: jnp.abs(c).sum() > 0.3, lambda c: c * 0.7, r))({0})|jnp.median({0}, 0)
jax.vmap(lambda r: lax.cond(r.sum() > 0, lambda r: r * 2, lambda r: r.max() - r, r))({0})|lax.cummax({0}, 0)
lax.scan(lambda c, x: (jnp.sin(c) + x, c * 2), {0}[0], {0}, reverse=True)[1]|lax.cumlogsumexp({0}, 0, reverse=True)
lax.scan(lambda c, x: (c.T + x.mean(), c.sum(0)), {0}, {1})[0]|jax.checkpoint(lambda x: jnp.sin(x) * x.sum())({0})
lax.switch({1}.argmax() % 3, [lambda x: x, lambda x: x * x.sum(), lambda x: -x[::-1]], {0})|jnp.linalg.norm({0}, axis=0)
jax.ops.segment_sum({0}, {0}.reshape({0}.shape[0], -1).argmax(1), 4)|jnp.fft.rfft({0}).real|lax.sort(({0}, {1}))[1]
{0}.at[{1}.astype(int).reshape(-1)[:2]].set(1.0, mode="clip")|jnp.take_along_axis({0}, {0}.argmax(0)[None], 0)
lax.reduce_window({0}, -jnp.inf, lax.max, (2,) * {0}.ndim, (1,) * {0}.ndim, "SAME")|jnp.unique({0}, size=3)
lax.reduce_window({0}, 0.0, lax.add, (3,) * {0}.ndim, (2,) * {0}.ndim, "SAME")|{0}.at[1].multiply({1}.sum())
jax.grad(lambda x: (jnp.tanh(x) * {1}.sum()).sum() ** 2)({0})|lax.associative_scan(lambda a, b: a * 0.5 + b, {0})
jnp.linalg.solve({0} @ {0}.T + 9 * jnp.eye({0}.shape[0]), {0})|jnp.convolve({0}.reshape(-1), {1}.reshape(-1), "same")
jax.vmap(lambda r: {1}.sum(0) * r.mean())({0})|jax.jacfwd(lambda x: x.sum(0) ** 2)({0})|jnp.diag({0}.sum(0))
lax.scan(lambda c, x: (lax.fori_loop(0, 2, lambda i, c: jnp.tanh(c + x.sum() * i), c), c.sum()), {0}[0], {0})
lax.scan(lambda c, x: (lax.cond(x.sum() > 0, lambda c: c * 2 + x, lambda c: c - x, c), c.max()), {0}[0], {0})
lax.scan(lambda c, w: (jnp.tanh(c @ w), c.mean(0)), {0}, jnp.stack([{1}, {1} * 0.5]))
lax.scan(jax.checkpoint(lambda c, w: (c + jax.nn.gelu(c @ w), None)), {0}, jnp.stack([{1}, {1} * 0.5]))[0]
lax.scan(lambda c, x: lax.scan(lambda d, y: (d * 0.5 + y, d.sum()), c, {0}), {0}[0], {0})[1]
lax.scan(lambda c, i: (c + {0}[i % {0}.shape[0]], {1}[..., i % {1}.shape[-1]]), {0}[0] * 0, jnp.arange(3))
lax.scan(lambda c, x: (c.at[0].set(x.sum()), lax.dynamic_index_in_dim(c, 1, 0)), {0}, {1}, unroll=2)
lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 0.5 + c[2].sum(0), -c[2]), (0, {0}.sum(0), {0}))[1:]
lax.fori_loop(0, {0}.shape[0], lambda i, c: lax.dynamic_update_index_in_dim(c, {0}[i] * i, i, 0), {0})
lax.fori_loop(0, ({0}.argmax() % 4).astype(int), lambda i, c: jnp.cos(c) + i, {1})
lax.associative_scan(jnp.maximum, {0}, axis={0}.ndim - 1, reverse=True)|lax.map(lambda x: (x.sum(), x), {0}, batch_size=2)
lax.cond({1}.max() > 0, lambda x: (x.sum(0), x), lambda x: (x.max(0), x[::-1]), {0})
lax.cond({1}.any(), lambda x: lax.fori_loop(0, 2, lambda _, c: c * x.mean(), x), lambda x: x, {0})
jax.checkpoint(lambda x: jnp.tanh(x @ x.T) @ x, policy=jax.checkpoint_policies.dots_saveable)({0})
jax.checkpoint(lambda x: jnp.sin(x @ x.T) @ x, policy=jax.checkpoint_policies.nothing_saveable)({0})
jax.checkpoint(lambda x: jnp.sin(named(jnp.cos(x), "q")) * x.sum(), policy=saves("q"))({0})
clipped({0})|clipped({0} * {1}.sum())|squared({0})|jax.value_and_grad(lambda x: clipped(x * {1}.mean()).sum())({0})
lax.ragged_dot({0}, jnp.stack([{1}, {1} * 2]), jnp.array([1, {0}.shape[0] - 1]))
lax.ragged_dot({0}, jnp.stack([{1}] * 3), jnp.bincount({0}.argmax(1) % 3, length=3).astype(jnp.int32))
lax.top_k({0}, 1)|lax.top_k({0}.T, 2)[1]|jnp.argsort({0}, 0, descending=True)|lax.sort(({0}, {1}), num_keys=2, dimension=0)
lax.sort({0}, dimension=0, is_stable=False)|jnp.lexsort(({0}, {1}))|jnp.partition({0}, 1, 0)[1]|lax.approx_max_k({0}, 2)[0]
lax.dynamic_slice({0}, [{1}.argmax() - 9] * {0}.ndim, [max(1, n // 2) for n in {0}.shape])
lax.dynamic_slice({0}, [{1}.argmax() + 99] + [0] * ({0}.ndim - 1), {0}.shape)
lax.dynamic_update_slice({0}, {0}[..., :1] + 1, [0] * ({0}.ndim - 1) + [{1}.argmax() * 2])
lax.dynamic_update_slice({0}, {1}[:2], [{1}.argmax() - 1] + [1] * ({0}.ndim - 1))|lax.dynamic_slice_in_dim({0}, -3, 2, 0)
{0}.at[whole({1})].get(mode="fill", fill_value=7)|{0}.at[whole({1}) * 5].get(mode="clip")|{0}.at[:, whole({1})[0]].get()
{0}.at[whole({1}).reshape(-1)].min(0.25, mode="drop")|{0}.at[whole({1}) * 3].max({1}.sum())|{0}.at[-1].add({1}.mean())
{0}.at[jnp.array([0, -1])].multiply(2, unique_indices=True)|{0}.at[..., whole({1}).reshape(-1)].set(0.5, mode="drop")
{0}.at[jnp.arange(2), jnp.array([1, 0])].add({1}.sum())|{0}[whole({1}).reshape(-1), 0]|{0}[jnp.array([0, 1, 1])]
jax.vmap(lambda r, i: r[i])({0}, whole({1}))|jax.vmap(lambda r, i: r.at[i].add(1))({0}, whole({1}))|{0}[whole({1})[..., None]]
jnp.take_along_axis({0}, jnp.argsort({0}, -1), -1)|jnp.where({0} > 0)[0][:2] * 0 + 1|jnp.nonzero({0} > 0, size=3)[0]
({0} * 4).astype(jnp.int32)|whole({0}) // 3|whole({0}) % 3 - 1|whole({0}) << 2|~whole({0}) & whole({1})|whole({0}) ^ 5
({0} * 40).astype(jnp.int8) * jnp.int8(3)|lax.population_count(whole({0}))|({0} * 9).astype(jnp.uint8) - jnp.uint8(3)
lax.dot(whole({0}).astype(jnp.int8), whole({1}).astype(jnp.int8), preferred_element_type=jnp.int32)
jnp.logical_or({0} > 0, {1} > 1)
({0} > 0).any(0)|({0} > -1).all(-1)|whole({0}).sum(0)|whole({0}).max(0)|lax.reduce_or(whole({0}), (0,))|({0} > {1}).argmax(0)
lax.reduce_and(whole({0}), (0,))|lax.reduce_xor(whole({0}), ({0}.ndim - 1,))|whole({0}).mean(0)|-whole({0}).prod()
{0}.astype(jnp.float8_e4m3fn).astype(jnp.float32)|{0}.astype(jnp.float8_e5m2)
lax.dot({0}.astype(jnp.float8_e4m3fn), {1}.astype(jnp.float8_e4m3fn), preferred_element_type=jnp.float32)
lax.dot({0}.astype(jnp.bfloat16), {1}.astype(jnp.bfloat16), preferred_element_type=jnp.float32)|{0}.astype(jnp.bfloat16).sum(0)
{0}[:0]|jnp.concatenate([{0}[:0], {0}])|{0}[:0].sum(0) + {1}|jnp.zeros((0, 4)) @ jnp.ones((4, 3))|{0}[..., :0].reshape(0, 3)
{0}[None]|jnp.squeeze({0}[:1], 0)|{0}[:1] + {0}|{0}[..., None] * {1}|jnp.expand_dims({0}, (0, 2)).sum(1)|{0}[None, :1] + {1}
lax.fori_loop(0, 3, lambda i, c: c * 0.5 + i, 1.0) * {0}|{0} * jnp.int32(2)|{0}.sum().astype(int) + 1|jnp.full_like({0}, 3)
jnp.asarray(2.0) * whole({0})|lax.cond({0}.sum() > 0, lambda: 1.0, lambda: 2.0)|1 / ({0}.size + 1) - {0}|jnp.float16(2) * {0}
jnp.linalg.cholesky({0} @ {0}.T + 9 * jnp.eye({0}.shape[0]))|jnp.linalg.inv({0} @ {0}.T + 9 * jnp.eye({0}.shape[0]))
jax.scipy.linalg.solve_triangular(jnp.tril({0} @ {0}.T) + 9 * jnp.eye({0}.shape[0]), {0}, lower=True)
jnp.linalg.det({0} @ {0}.T)
jnp.divmod({0}, 0.75)|jnp.modf({0})|jnp.frexp({0})|jnp.split({0}, 2)|jnp.split({0}, 2, -1)[1]|jnp.array_split({0}, 3)[2]
jnp.searchsorted(jnp.sort({0}.reshape(-1)), {1})|jnp.interp({0}, jnp.arange(4.0), jnp.arange(4.0) ** 2)|jnp.histogram({0}, 4)[0]
jnp.bincount(jnp.abs(whole({0})).reshape(-1), length=4)|jnp.tril({0})|jnp.triu({0}, 1)|jnp.trace({0})|jnp.kron({0}, {0}[:1])
jnp.percentile({0}, 30, 0)|jnp.rot90({0})|jnp.flip({0})|jnp.outer({0}, {1})|jnp.einsum("ij,kj->ik", {0}, {1})|{0} @ {1}
jnp.einsum("bij,bkj->bik", {0}, {1})|jnp.einsum("ij,ij->", {0}, {1})|jnp.moveaxis({0}, 0, -1)|{0}.std(0)|jnp.diff({0}, axis=0)
lax.conv_general_dilated({0}[None, :, :, None], {0}[:3, :3, None, None], (1, 1), "SAME", dimension_numbers=image)
lax.conv_general_dilated({0}.reshape(2, 4, -1), {1}.reshape(-1)[:8].reshape(4, 1, 2), (2,), [(1, 1)], feature_group_count=4)
lax.conv_general_dilated({0}[None], {1}[:2, :1, None] + jnp.zeros((2, {0}.shape[0], 2)), (1,), "VALID", (2,), (2,))
lax.conv_transpose({0}[None, :, :, None], {0}[:2, :2, None, None], (2, 2), "SAME", dimension_numbers=image)
lax.reduce_precision({0}, 5, 10)|lax.bitcast_convert_type({0}, jnp.int32)|lax.clamp(-0.5, {0}, 0.5)
lax.reduce({0}, 0.0, lax.add, (0,))
lax.reduce({0}, 1.0, lax.mul, ({0}.ndim - 1,))|lax.argmin({0}, 0, jnp.int32)|lax.cumprod({0}, 0)|lax.cummin({0}, {0}.ndim - 1)
lax.reduce({0}, -1.0, lambda a, b: jnp.maximum(a, b), (0,))|lax.pad({0}, 1.0, [(1, 0, 1)] * {0}.ndim)
lax.pad({0}, 0.0, [(-1, 2, 0)] * {0}.ndim)
jax.random.permutation(jax.random.key(1), {0})|jax.random.categorical(jax.random.key(2), {0})
jax.random.split(jax.random.key(0), 8)
jax.random.bernoulli(jax.random.fold_in(jax.random.key(2), whole({0}.sum())), 0.6, {1}.shape) * {1}|jax.random.PRNGKey(3)
jax.nn.one_hot(whole({0}), 4)
jax.nn.dot_product_attention({0}[None, :, None], {0}[None, :, None], {0}[None, :, None], is_causal=True)
jax.image.resize({0}, [n * 2 for n in {0}.shape], "linear")|jnp.fft.fft({0}, axis=0).imag|jax.scipy.special.logsumexp({0}, 0)
jax.scipy.special.erf({0})|jax.nn.log_softmax({0}, 0)|jax.nn.relu({0})|jax.nn.standardize({0})|lax.stop_gradient({0}) * {1}
lax.optimization_barrier(({0}, {1}))[0]|jax.jit(lambda x, y: x @ y)({0}, {1})|jax.jit(lambda x: (x.sum(), x * 2))({0})
jax.jvp(lambda x: jnp.sin(x).sum(0), ({0},), (jnp.ones_like({0}),))[1]|jax.linearize(jnp.tanh, {0})[1]({0})
jax.vmap(jax.grad(lambda r: (r ** 2).sum() * {1}.sum()))({0})|jax.vmap(lambda r: jnp.sort(r), 1, 1)({0})
jax.hessian(lambda s: s ** 3)({0}.sum())
jax.vmap(lambda r: lax.dynamic_slice_in_dim(r, r.argmax(), 2))({0})
jax.vmap(lambda r: lax.scan(lambda c, x: (c + x, c), 0.0, r)[1])({0})
lax.platform_dependent({0}, cpu=lambda x: x * 2, default=lambda x: x * 3)|({0} + 1j).real|jnp.abs({0} * 1j)|jnp.exp(1j * {0})
jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct({0}.shape, {0}.dtype), {0}, vmap_method="sequential")
jnp.nan_to_num({0} / 0)
jnp.where({0} > 9, jnp.nan, {0}).max(0)|jnp.stack([{0}.max(), jnp.inf])|jnp.cumsum({0}[::-1], -1)
lax.cumsum({0}, 0, reverse=True)
jax.ops.segment_max({0}, {0}.reshape({0}.shape[0], -1).argmax(1), 4)|{0}.sum((0, -1))|{0}.mean(keepdims=True)|{0} ** 2
{0} ** {1}
jax.ops.segment_sum({0}, whole({1}).reshape(-1)[:{0}.shape[0]], 3)|jnp.vander({0}.reshape(-1)[:4])
jnp.polyval({0}.reshape(-1)[:3], {1})
jnp.swapaxes({0}, 0, -1).reshape({0}.shape)|{0}.reshape(-1, 2).sum(1)|{0}.reshape(-1, 4).T|{0}.ravel()[1:-1]
jnp.hstack([{0}, {1}])
""")
"""Expressions of one or two earlier values; those that JAX refuses for their shapes are drawn again."""
SHARDED = _expressions("""
lax.with_sharding_constraint({0}, on("a"))|lax.with_sharding_constraint({0}, on(None, "b"))
lax.with_sharding_constraint({0}, on())
lax.with_sharding_constraint({0}, on(("a", "b")))|lax.with_sharding_constraint({0}, on(P.UNCONSTRAINED, "a"))
lax.with_sharding_constraint({0} @ {1}, on("b", "a"))|lax.with_sharding_constraint(({0}, {1}), on("a"))
lax.scan(lambda c, x: (lax.with_sharding_constraint(c + x, on("b")), c.sum()), {0}[0], {0})
jax.checkpoint(lambda x: jnp.sin(lax.with_sharding_constraint(x, on("a"))) * x.sum())({0})
lax.cond({0}.sum() > 0, lambda x: lax.with_sharding_constraint(x * 2, on("a")), lambda x: x, {0})
jax.shard_map(lambda x: x * lax.psum(x.sum(), "a"), mesh=mesh, in_specs=P("a"), out_specs=P("a"))({0})
jax.shard_map(lambda x: lax.pmax(x.max(0), ("a", "b")), mesh=mesh, in_specs=P(("a", "b")), out_specs=P())({0})
jax.shard_map(lambda x, y: lax.psum(x @ y, "b"), mesh=mesh, in_specs=(P("a", "b"), P("b")), out_specs=P("a"))({0}, {1})
jax.shard_map(lambda x: lax.all_gather(x, "a", tiled=True) * 2, mesh=mesh, in_specs=P("a"), out_specs=P(), check_vma=False)({0})
jax.shard_map(lambda x: lax.ppermute(x, "a", [(0, 1), (1, 0)]), mesh=mesh, in_specs=P("a"), out_specs=P("a"))({0})
jax.shard_map(lambda x: x + lax.axis_index("b"), mesh=mesh, in_specs=P(None, "b"), out_specs=P(None, "b"))({0})
jax.shard_map(lambda x: x - mean(x, "a"), mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={{"a"}})({0})
lax.scan(lambda c, x: (jax.shard_map(jnp.sin, mesh=mesh, in_specs=P("a"), out_specs=P("a"))(c) + x, c), {0}[0], {0})
""")
"""On a mesh with the axes `a` and `b`: constraints, and islands."""
EXPLICIT = _expressions("""
jax.reshard({0}, P("a"))|jax.reshard({0}, P(None, "b"))|jax.reshard({0}, P())|jax.reshard({0}, P("b", "a"))
jnp.einsum("ij,jk->ik", {0}, {1}, out_sharding=P("a"))|jnp.sin(jax.reshard({0}, P("b")))
""")
"""Where the axes of that mesh are explicit."""


@jax.custom_vjp
def clipped(x: Any) -> Any:
    """Itself, with a gradient of at most 0.5."""
    return x * 1.0


clipped.defvjp(lambda x: (x * 1.0, x.sum()), lambda total, g: (jnp.clip(g, -0.5, 0.5) + 0 * total.astype(g.dtype),))


@jax.custom_jvp
def squared(x: Any) -> Any:
    """Squares."""
    return x * x


squared.defjvp(lambda x, dx: (squared(x[0]), 2 * x[0] * dx[0]))


def mean(x: Any, axis: str) -> Any:
    """In float32: XLA for CPUs dies of one in bfloat16 over some axes of a mesh."""
    return lax.pmean(x.astype(jnp.float32), axis)


def whole(x: Any) -> Any:
    """Integers near to values, some of them negative or beyond a dimension."""
    return jnp.floor(jnp.nan_to_num(x.astype(jnp.float32) * 2)).clip(-99, 99).astype(jnp.int32)


def mesh_of(devices: int, kind: AxisType) -> Mesh:
    """The user's mesh."""
    return jax.make_mesh(AXES[devices], ("a", "b"), axis_types=(kind, kind), devices=jax.devices()[:devices])


def by_file() -> str:
    """A profile of the user's, in a file: the links of one, the rates of another."""
    global _FILE
    if not _FILE:
        path = Path(tempfile.mkdtemp()) / "mine.json"
        atexit.register(lambda: (path.unlink(), path.parent.rmdir()))
        values = load_profile("a100").to_json()
        values = json.loads(values) if isinstance(values, str) else values
        path.write_text(json.dumps({**values, "name": "mine", "memory_bytes": 8 << 30, "merged_bytes": {}}))
        _FILE = str(path)
    return _FILE


_FILE = ""


@dataclass(frozen=True, slots=True)
class Program:
    """A function as text, and how it is planned.

    Attributes:
        inputs: shapes.
        lines: expressions, which call the values before them `v0`, `v1`, …
        outputs: numbers of values.
        is_gradient: gradients of the sum of all outputs are results, too.
        fixed: slices of the first dimension of each input; 1 leaves it to the search.
        mode, profile: of the search.
        devices: how many.
        dtypes: of the inputs; float32 where there are none.
        mesh: "named": the devices are a mesh with names, which constraints and islands use; "context": it is the mesh around
            the call; "explicit": its axes are, and arguments are on it; "" for a number.
        memory: share of the peak without a limit that is the limit; 0 for the hardware's memory.
        donated: the first argument is carried by the first result.
    """

    inputs: tuple[tuple[int, ...], ...]
    lines: tuple[str, ...]
    outputs: tuple[int, ...]
    is_gradient: bool
    fixed: tuple[int, ...]
    mode: str
    profile: str
    devices: int = 8
    dtypes: tuple[str, ...] = ()
    mesh: str = ""
    memory: float = 0.0
    donated: bool = False

    def __str__(self) -> str:
        first, used = len(self.inputs), self._used()
        body = [f"    v{first + n} = {line}" for n, line in enumerate(self.lines) if first + n in used]
        results = ", ".join(f"v{number}" for number in self.outputs)
        text = "\n".join([f"def f({', '.join(f'v{n}' for n in range(first))}):", *body, f"    return ({results},)"])
        how = f"{self.mode}, {self.profile}, {self.devices} devices, gradient {self.is_gradient}"
        more = f"x64 {jax.config.jax_enable_x64}, {self.dtypes}, mesh {self.mesh!r}, memory {self.memory}, donated {self.donated}"
        return f"# {self.inputs}, fixed {self.fixed}, {how}, {more}\n{text}"

    def _used(self) -> set[int]:
        used, first = set(self.outputs), len(self.inputs)
        for number in reversed(range(first, first + len(self.lines))):
            if number in used:
                used |= {other for other in range(number) if f"v{other}" in _words(self.lines[number - first])}
        return used

    def function(self) -> Any:
        """The function itself."""
        saves = jax.checkpoint_policies.save_only_these_names
        names: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": lax, "P": P, "named": checkpoint_name, "saves": saves}
        names |= {
            "clipped": clipped,
            "squared": squared,
            "whole": whole,
            "mean": mean,
            "image": ("NHWC", "HWIO", "NHWC"),
        }
        if self.mesh:
            mesh = self.user_mesh()
            bare = self.mesh != "named"
            names |= {"mesh": mesh, "on": P if bare else lambda *spec: NamedSharding(mesh, P(*spec))}
        exec(str(self), names)
        f = names["f"]
        if not self.is_gradient:
            return f

        def loss(*args: Any) -> Any:
            floats = (leaf for leaf in jax.tree.leaves(f(*args)) if jnp.issubdtype(leaf.dtype, jnp.floating))
            return sum(jnp.sum(value.astype(jnp.float32)) for value in floats)

        def with_gradients(*args: Any) -> Any:
            places = tuple(n for n, value in enumerate(args) if jnp.issubdtype(value.dtype, jnp.floating))
            return f(*args), jax.grad(loss, places)(*args)

        return with_gradients

    def user_mesh(self) -> Mesh:
        """The mesh with names."""
        return mesh_of(self.devices, AxisType.Explicit if self.mesh == "explicit" else AxisType.Auto)

    def arguments(self) -> list[Any]:
        """Values for the inputs."""
        draws = np.random.default_rng(0)
        values = [jnp.asarray(draws.normal(size=shape), jnp.float32) for shape in self.inputs]
        dtypes = self.dtypes or ("float32",) * len(values)
        values = [(x * 4 if dtype == "int32" else x).astype(dtype) for x, dtype in zip(values, dtypes, strict=True)]
        if self.mesh != "explicit":
            return values
        mesh, rows = self.user_mesh(), AXES[self.devices][0]
        specs = [P("a") if shape[0] % rows == 0 and shape[0] else P() for shape in self.inputs]
        return [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(values, specs, strict=True)]

    def options(self) -> dict[str, Any]:
        """How it is planned, but for the mode and the limit."""
        counts = enumerate(self.fixed)
        fixed = {n: (count, *[1] * (len(self.inputs[n]) - 1)) for n, count in counts if count > 1 and not self.mesh}
        return {
            "fixed": fixed,
            "hardware": by_file() if self.profile == BY_FILE else self.profile,
            "devices": None
            if self.mesh in ("context", "explicit")
            else self.user_mesh()
            if self.mesh
            else self.devices,
            "donate_argnums": 0 if self.donated else (),
        }

    @contextmanager
    def around(self) -> Iterator[None]:
        """Inside, the mesh of the context is the user's, where it is."""
        if self.mesh in ("context", "explicit"):
            with jax.set_mesh(self.user_mesh()):
                yield
        else:
            yield


def _words(line: str) -> set[str]:
    return set("".join(letter if letter.isalnum() else " " for letter in line).split())


def drawn(seed: int, number: int, longest: int) -> Program:
    """The program of this number."""
    draw = random.Random(f"{seed} {number}")
    inputs = tuple(tuple(draw.choices(SIZES, WEIGHTS, k=draw.choice((1, 2, 2, 3)))) for _ in range(draw.randint(1, 3)))
    devices = draw.choice((8, 8, 4, 6, 2))
    fixed = tuple(devices if shape[0] % devices == 0 and shape[0] and draw.random() < 0.5 else 1 for shape in inputs)
    program = Program(inputs, (), (0,), False, fixed, draw.choice(MODES), draw.choice(PROFILES), devices)
    mesh = draw.choices(("", "named", "context", "explicit"), (8, 3, 2, 2))[0]
    memory = draw.choice(LIMITS) if draw.random() < 0.3 else 0.0
    dtypes = tuple(draw.choices(DTYPES, DTYPE_WEIGHTS, k=len(inputs)))
    program = replace(program, dtypes=dtypes, mesh=mesh, memory=memory, donated=draw.random() < 0.3)
    extra = {"": (), "explicit": (*EXPLICIT, *SHARDED)}.get(mesh, SHARDED)
    for _ in range(draw.randint(2, longest)):
        count = len(inputs) + len(program.lines)
        # Later values are drawn more often, so that programs are deep.
        picks = [f"v{max(draw.randrange(count), draw.randrange(count))}" for _ in range(2)]
        templates = extra if extra and draw.random() < 0.3 else TEMPLATES
        line = draw.choice(templates).format(*picks)
        longer = replace(program, lines=(*program.lines, line), outputs=(count,))
        if (found := _results(longer)) is None:
            continue
        program = longer
        if isinstance(found[0], list | tuple):
            # Each of several results may be read by its own.
            program = replace(longer, lines=(*longer.lines, f"v{count}[{draw.randrange(len(found[0]))}]"))
            program = program if _results(replace(program, outputs=(count + 1,))) is not None else longer
    count = len(inputs) + len(program.lines)
    outputs = tuple(sorted({count - 1, *draw.sample(range(count), min(count, 2))}))
    with_gradient = replace(program, outputs=outputs, is_gradient=True)
    plain = replace(program, outputs=outputs)
    return with_gradient if draw.random() < 0.4 and _results(with_gradient) is not None else plain


def _results(program: Program) -> Any:
    """Shapes of the results; None where JAX refuses the program, or they are large."""
    try:
        with program.around():
            found = jax.eval_shape(program.function(), *program.arguments())
    except Exception:  # JAX refuses such shapes or types
        return None
    return found if all(shape.size < 1 << 14 for shape in jax.tree.leaves(found)) else None


def contradiction(searches: Mapping[str, Any]) -> str:
    """Which search costs less than what another one has proven to be the least; "" for none."""
    best = min(searches, key=lambda mode: searches[mode].cost_seconds)
    cost = searches[best].cost_seconds
    for mode, search in searches.items():
        if search.bound_seconds is not None and cost < search.bound_seconds * (1 - 1e-6):
            return f"contradiction: {mode} says that {search.bound_seconds} is the least, {best} has {cost}"
    return ""


def broken(planned: Any, limit: int, program: Program, args: list[Any]) -> str:
    """By how much a limit is broken, as predicted, on CPUs by the compiled program; "" where it is not."""
    if program.profile != "cpu":
        peak = peak_bytes(planned.result)
        return f"limit: {peak} bytes are predicted under a limit of {limit}" if peak > limit else ""
    placed = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)
        for x, where in zip(args, planned.in_shardings, strict=True)
    ]
    compiled = device_bytes(planned.jitted((0,) if program.donated else ()).lower(*placed).compile())
    return f"limit: the compiled program needs {compiled} bytes under a limit of {limit}" if compiled > limit else ""


def failure(program: Program, runs: bool, all_modes: bool = False) -> str:
    """What is wrong with a program; "" for nothing."""
    args, fn, options = program.arguments(), program.function(), program.options()
    limits: dict[str, Any] = {}
    try:
        with program.around():
            planned = sporax.plan(fn, *args, mode=program.mode, **options)
            check_plan(planned.graph, planned.plan)
            str(planned.summary())
            if runs:
                planned.verify(*args)
            if program.memory and peak_bytes(planned.result) > _LEAST_LIMIT:
                limits["memory"] = int(peak_bytes(planned.result) * program.memory)
                with suppress(SporaxRuntimeError):  # too little for any plan
                    planned = sporax.plan(fn, *args, mode=program.mode, **options, **limits)
                    if problem := broken(planned, limits["memory"], program, args):
                        return problem
                    check_plan(planned.graph, planned.plan)
                    if runs:
                        planned.verify(*args)
            searches = {}
            for mode in MODES if all_modes else {program.mode, "ilp"}:
                with suppress(SporaxRuntimeError):
                    searches[mode] = sporax.plan(fn, *args, mode=mode, **options, **limits).search
            if searches and (problem := contradiction(searches)):
                return problem
    except SporaxError as error:
        if "For 'with_sharding_constraint', the layout" in str(error) and "must be divisible" in str(error):
            return ""  # fair: plans have even slices
        kind = "numbers" if str(error).startswith("For 'verify'") else type(error).__name__
        return f"{kind}: {error}"
    except Exception:
        return traceback.format_exc(limit=-3) if _runs_alone(program) else ""
    return ""


def _runs_alone(program: Program) -> bool:
    """Whether JAX itself can run it: CPUs have no product of some half precisions."""
    try:
        with program.around():
            jax.block_until_ready(jax.jit(program.function())(*program.arguments()))
    except Exception:  # whatever JAX says
        return False
    return True


def smallest(program: Program, problem: str, runs: bool) -> Program:
    """The first value alone that fails in the same way, without a gradient where that fails, too."""
    kind = problem.split(":")[0]
    plain = [replace(program, is_gradient=False)] if program.is_gradient else []
    for candidate in (*plain, program):
        for number in range(len(program.inputs), len(program.inputs) + len(program.lines)):
            alone = replace(candidate, outputs=(number,))
            if _results(alone) is not None and failure(alone, runs).split(":")[0] == kind:
                return alone
    return program


def main(words: list[str] | None = None) -> int:
    """Run the programs and print what was found; 1 where something was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other programs (0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first program (0)")
    parser.add_argument("--cases", type=int, default=500, help="how many (500)")
    parser.add_argument("--run", type=float, default=0.5, help="share that is run on the devices and verified (0.5)")
    parser.add_argument("--longest", type=int, default=9, help="most lines of a program (9)")
    parser.add_argument("--all-modes", action="store_true", help="compare the costs and bounds of all searches")
    parser.add_argument("--x64", action="store_true", help="with jax_enable_x64")
    arguments = parser.parse_args(words)
    jax.config.update("jax_enable_x64", arguments.x64)
    counts: Counter[str] = Counter()
    warnings.simplefilter("ignore")
    for number in range(arguments.first, arguments.first + arguments.cases):
        program = drawn(arguments.seed, number, arguments.longest)
        runs = random.Random(f"run {arguments.seed} {number}").random() < arguments.run
        found = failure(program, runs, arguments.all_modes)
        counts["run" if runs else "planned"] += 1
        if found:
            counts["failed"] += 1
            print(f"==== program {number}\n{found}\n---- the smallest:\n{smallest(program, found, runs)}", flush=True)
    print(dict(counts))
    return int(bool(counts["failed"]))


if __name__ == "__main__":
    sys.exit(main())
