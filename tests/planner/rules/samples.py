"""Small uses of every primitive that has a rule: functions and arguments whose jaxpr contains it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.lax import linalg

from sporax.lowering.execute.part_lookup import fill_spare_rows_p, part_lookup, part_lookup_p, part_update_p

_random = np.random.default_rng(7)


def words(text):
    return text.split()


def floats(*shape, low=0.1, high=0.9):
    return jnp.asarray(_random.uniform(low, high, shape), jnp.float32)


def ints(*shape, low=0, high=9, dtype=jnp.int32):
    return jnp.asarray(_random.integers(low, high, shape), dtype)


def bools(*shape):
    return jnp.asarray(_random.integers(0, 2, shape), bool)


def keys(*shape):
    return jax.random.split(jax.random.key(3), shape or ())


X, Y, Z = floats(4, 6), floats(4, 6), floats(4, 6)
N, J = ints(4, 6), ints(4, 6, low=1)
B, C = bools(4, 6), bools(4, 6)

UNARY = words(
    """abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf erf_inv erfc exp
    exp2 expm1 floor is_finite lgamma log log1p logistic neg round rsqrt sign sin sinh sqrt square tan tanh
    stop_gradient"""
)
BINARY = words(
    """add atan2 div eq ge gt igamma igamma_grad_a igammac le lt max min mul ne nextafter pow rem sub zeta complex
    polygamma"""
)
BITWISE = {"and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor}
SHIFTS = ["shift_left", "shift_right_arithmetic", "shift_right_logical"]


def _arguments(name):
    return X + 1 if name == "acosh" else X


NEWER = [
    name for name in ("log2", "one_minus_square") if hasattr(lax, name)
]  # some of the supported versions have them

NOT_IN_PROGRAMS = ("mulhi",)
"""XLA of JAX 0.10.2 cannot compile them inside of `shard_map` on CPUs, also without Sporax."""

SAMPLES = {name: [(getattr(lax, name), _arguments(name))] for name in (*UNARY, *NEWER)}
SAMPLES |= {"polynomial": [(lambda x: lax.polynomial(x, (1.0, 0.5, 2.0)), X)]} if hasattr(lax, "polynomial") else {}
SAMPLES |= {name: [(getattr(lax, name), X, Y)] for name in BINARY}
SAMPLES |= {name: [(function, N, J), (function, B, C)] for name, function in BITWISE.items()}
SAMPLES |= {name: [(getattr(lax, name), N, J % 3)] for name in SHIFTS}
SAMPLES["add"] += [(lambda x: x + 2.0, X), (lax.add, N, J)]
SAMPLES["mul"] += [(lambda x: 3.0 * x, X), (lax.mul, N, J)]
SAMPLES["max"] += [(lambda x: lax.max(np.float32(0.0), x), X)]
SAMPLES["div"] += [(lax.div, N, J)]


def bind(name, *args, **params):
    """A primitive without a public function, called directly."""
    return functools.partial(primitive(name).bind, *args, **params)


@functools.cache
def primitive(name):
    import gc

    from jax.extend import core

    return next(item for item in gc.get_objects() if isinstance(item, core.Primitive) and item.name == name)


COMPLEX = lax.complex(X, Y)
SAMPLES |= {
    "add_any": [(lambda x: jax.grad(lambda y: (jnp.sin(y) * jnp.cos(y)).sum())(x), X)],
    "clamp": [(lambda x: lax.clamp(np.float32(0.3), x, np.float32(0.6)), X), (lax.clamp, X * 0.5, Y, X)],
    "clz": [(lax.clz, N)],
    "conj": [(lambda x: primitive("conj").bind(x, input_dtype=np.dtype("complex64")), COMPLEX)],
    "real": [(lax.real, COMPLEX)],
    "imag": [(lax.imag, COMPLEX)],
    "convert_element_type": [
        (lambda x: x.astype(jnp.bfloat16), X),
        (lambda x: x.astype(jnp.float32), N.astype(jnp.bfloat16)),
        (lambda x: x.astype(jnp.float32), N),
    ],
    "copy": [(jnp.array, X)],
    "eq_to": [(lambda x, y: primitive("eq_to").bind(x, y), X, Y)],
    "le_to": [(lambda x, y: primitive("le_to").bind(x, y), X, Y)],
    "lt_to": [(lambda x, y: primitive("lt_to").bind(x, y), X, Y)],
    "integer_pow": [(lambda x: lax.integer_pow(x, 3), X)],
    "mulhi": [(lambda x, y: primitive("mulhi").bind(x, y), N.astype(jnp.uint32), J.astype(jnp.uint32))],
    "name": [(lambda x: checkpoint_name(x, "here"), X)],
    "not": [(lax.bitwise_not, N)],
    "optimization_barrier": [(lambda x, y: lax.optimization_barrier((x, y)), X, floats(6))],
    "population_count": [(lax.population_count, N)],
    "reduce_precision": [(lambda x: lax.reduce_precision(x, 5, 10), X)],
    "regularized_incomplete_beta": [(lax.betainc, X, Y, Z)],
    "select_n": [(lax.select_n, B, X, Y), (lambda x, y: lax.select_n(jnp.array(True), x, y), X, Y)],
    "threefry2x32": [(lambda k, x, y: primitive("threefry2x32").bind(k, k, x, y), *[N.astype(jnp.uint32)] * 3)],
    # dimensions
    "bitcast_convert_type": [
        (lambda x: lax.bitcast_convert_type(x, jnp.int32), X),
        (lambda x: lax.bitcast_convert_type(x, jnp.uint8), X),
        (lambda x: lax.bitcast_convert_type(x, jnp.uint32), ints(4, 6, 4, dtype=jnp.uint8)),
    ],
    "broadcast_in_dim": [
        (lambda x: lax.broadcast_in_dim(x, (2, 4, 6, 2), (1, 2)), X),
        (lambda x: lax.broadcast_in_dim(x, (4, 6), (0, 1)), floats(4, 1)),
        (lambda: jnp.full((4, 6), 2.0, jnp.float32),),
    ],
    "squeeze": [(lambda x: lax.squeeze(x, (1,)), floats(4, 1, 6))],
    "transpose": [(lambda x: lax.transpose(x, (2, 0, 1)), floats(4, 6, 2))],
    "reshape": [
        (lambda x: lax.reshape(x, (24,)), X),
        (lambda x: lax.reshape(x, (4, 2, 3)), X),
        (lambda x: lax.reshape(x, (8, 3)), X),
        (lambda x: lax.reshape(x, (6, 4)), X),
        (lambda x: lax.reshape(x, (4, 12, 1)), floats(2, 1, 4, 6)),
    ],
    "split": [(lambda x: lax.split(x, (2, 4), axis=1), X)],
    "stack": [(lambda x, y: primitive("stack").bind(x, y, axis=1), X, Y)],
    "unstack": [(lambda x: primitive("unstack").bind(x, axis=1), X)],
    "tile": [(lambda x: lax.tile(x, (2, 1)), X), (lambda x: lax.tile(x, (4, 3)), floats(1, 2))],
    "concatenate": [(lambda x, y: lax.concatenate([x, y], 1), X, floats(4, 2))],
    "pad": [(lambda x: lax.pad(x, jnp.float32(0), ((0, 0, 0), (1, 2, 1))), X)],
    "slice": [
        (lambda x: lax.slice(x, (0, 1), (4, 5)), X),
        (lambda x: lax.slice(x, (0, 1), (4, 6), (1, 2)), floats(4, 8)[:, :6]),
        (lambda x: lax.slice(x, (1, 0), (8, 6), (2, 1)), floats(8, 6)),
    ],
    "rev": [(lambda x: lax.rev(x, (1,)), X)],
    # contraction
    "dot_general": [
        (jnp.matmul, floats(4, 6), floats(6, 4)),
        (lambda x, y: jnp.einsum("bij,bkj->bik", x, y), floats(2, 4, 6), floats(2, 8, 6)),
        (lambda x, y: jnp.einsum("bij,bij->b", x, y), floats(2, 4, 6), floats(2, 4, 6)),
        (lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32), ints(4, 6), ints(6, 4)),
    ],
    "ragged_dot_general": [
        (lax.ragged_dot, floats(8, 6), floats(2, 6, 4), jnp.array([3, 5], jnp.int32)),
        (
            lambda x, y, g: lax.ragged_dot_general(
                x, y, g, lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
            ),
            floats(8, 6),
            floats(8, 4),
            jnp.array([3, 5], jnp.int32),
        ),
    ],
    "conv_general_dilated": [
        (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID"), floats(4, 6, 5, 5), floats(8, 6, 3, 3)),
        (
            lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME", feature_group_count=2),
            floats(2, 8, 5),
            floats(4, 4, 3),
        ),
        (
            lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME", batch_group_count=2),
            floats(8, 4, 5),
            floats(4, 4, 3),
        ),
        (
            lambda x, w: lax.conv_general_dilated(x, w, (2,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")),
            floats(2, 8, 4),
            floats(3, 4, 6),
        ),
    ],
    # reductions
    "reduce_sum": [(lambda x: lax.reduce_sum(x, (1,)), X), (lambda x: lax.reduce_sum(x, (0, 1)), N)],
    "reduce_max": [(lambda x: lax.reduce_max(x, (1,)), X)],
    "reduce_min": [(lambda x: lax.reduce_min(x, (0,)), X)],
    "reduce_prod": [(lambda x: lax.reduce_prod(x, (1,)), X)],
    "reduce_and": [(lambda x: lax.reduce_and(x, (1,)), B), (lambda x: lax.reduce_and(x, (1,)), N)],
    "reduce_or": [(lambda x: lax.reduce_or(x, (1,)), B), (lambda x: lax.reduce_or(x, (1,)), N)],
    "reduce_xor": [(lambda x: lax.reduce_xor(x, (1,)), N)],
    "reduce": [
        (
            lambda x: primitive("reduce").bind(
                x, np.float32(0), computation=lax.add, jaxpr=_scalar(lax.add), dimensions=(1,)
            ),
            X,
        ),
        (lambda x: lax.reduce(x, np.float32(1), lambda a, b: a * b + 0.5 * a, (1,)), X),
    ],
    "argmax": [(lambda x: lax.argmax(x, 1, jnp.int32), X)],
    "argmin": [(lambda x: lax.argmin(x, 0, jnp.int32), X)],
    "cumsum": [(lambda x: lax.cumsum(x, 1), X)],
    "cumprod": [(lambda x: lax.cumprod(x, 0), X)],
    "cummax": [(lambda x: lax.cummax(x, 1, reverse=True), X)],
    "cummin": [(lambda x: lax.cummin(x, 1), X)],
    "cumlogsumexp": [(lambda x: lax.cumlogsumexp(x, 1), X)],
    # order
    "sort": [(lambda x, y: lax.sort((x, y), dimension=1, num_keys=1), X, N)],
    "top_k": [(lambda x: lax.top_k(x, 2), X)],
    "approx_top_k": [(lambda x: lax.approx_max_k(x, 2), X)],
}


def _scalar(function):
    return jax.make_jaxpr(function)(jnp.float32(0), jnp.float32(0))


# -------------------------------------------------------------------------------------------------------------- windows


def pool(function, padding, window=(1, 2), strides=(1, 2), initial=0.0):
    return lambda x: lax.reduce_window(x, np.float32(initial), function, window, strides, padding)


def pool_gradient(window, strides):
    def loss(x):
        return (lax.reduce_window(x, np.float32(-np.inf), lax.max, window, strides, "VALID") ** 2).sum()

    return jax.grad(loss)


SAMPLES |= {
    "reduce_window_sum": [
        (pool(lax.add, "VALID"), floats(4, 8)),
        (pool(lax.add, "SAME", (1, 3), (1, 1)), floats(4, 8)),
    ],
    "reduce_window_max": [
        (pool(lax.max, "VALID", initial=-np.inf), floats(4, 8)),
        (pool(lax.max, "SAME", (1, 3), (1, 2), initial=-np.inf), -floats(4, 8)),
    ],
    "reduce_window_min": [(pool(lax.min, "VALID", (1, 1), (1, 2), initial=np.inf), floats(4, 8))],
    "reduce_window": [(pool(lambda a, b: a * b + a, "VALID"), floats(4, 8))],
    "select_and_scatter_add": [(pool_gradient((1, 2), (1, 2)), floats(4, 8))],
    "select_and_gather_add": [
        (lambda x: jax.jvp(pool(lax.max, "VALID", initial=-np.inf), (x,), (x,))[1], floats(4, 8))
    ],
}

# ------------------------------------------------------------------------------------------------------------- indexing

TABLE, IDS = floats(8, 4), ints(4, 2, high=8)
FAR = jnp.array([[0, -3], [9, 7], [3, 8], [100, 2]], jnp.int32)
HUGE = jnp.array([3, 2**31 + 1, 2**32 - 1, 7], jnp.uint32)


def gather(mode, **options):
    return lambda table, ids: table.at[ids].get(mode=mode, wrap_negative_indices=False, **options)


def scatter(method, mode="drop"):
    return lambda table, ids, updates: getattr(table.at[ids], method)(updates, mode=mode, wrap_negative_indices=False)


SAMPLES |= {
    "gather": [
        (gather("promise_in_bounds"), TABLE, IDS),
        (gather("clip"), TABLE, FAR),
        (gather("fill"), TABLE, FAR),
        (gather("fill"), ints(8, 4), FAR),
        (gather("fill", fill_value=0), TABLE, FAR),
        (gather("promise_in_bounds"), bools(8, 4), IDS),
        (lambda table, i, j: table.at[i, j].get(mode="clip"), TABLE, ints(6, high=8), ints(6, high=4)),
        (lambda table, ids: jnp.take_along_axis(table, ids, 1, mode="clip"), TABLE, ints(8, 2, high=4)),
        (lambda table, i: lax.dynamic_slice_in_dim(table, i, 3, 0) * 0 + table[jnp.array([i, 2])][:1], TABLE, 2),
    ],
    "scatter-add": [
        (scatter("add"), TABLE, IDS, floats(4, 2, 4)),
        (scatter("add"), TABLE, FAR, floats(4, 2, 4)),
        (scatter("add", "clip"), TABLE, FAR, floats(4, 2, 4)),
        (lambda t, i, j, u: t.at[i, j].add(u), TABLE, ints(6, high=8), ints(6, high=4), floats(6)),
        (lambda t, ids: jax.grad(lambda t: (jnp.take_along_axis(t, ids, 1) ** 2).sum())(t), TABLE, ints(8, 2, high=4)),
    ],
    "scatter": [
        (scatter("set"), TABLE, jnp.array([5, 1]), floats(2, 4)),
        (scatter("set"), TABLE, FAR, floats(4, 2, 4)),
    ],
    "scatter-mul": [(scatter("mul"), TABLE, IDS, floats(4, 2, 4))],
    "scatter-min": [(scatter("min"), TABLE, IDS, floats(4, 2, 4))],
    "scatter-max": [(scatter("max"), TABLE, IDS, floats(4, 2, 4))],
    "scatter-sub": [(scatter("subtract"), TABLE, IDS, floats(4, 2, 4))],
    "dynamic_slice": [(lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 6)), X, 1)],
    "dynamic_update_slice": [(lambda x, y, i: lax.dynamic_update_slice(x, y, (i, 0)), X, floats(2, 6), 1)],
}

PARTS = {"rows": (3, 1), "offsets": (0, 3)}  # a table in two blocks of three rows
FIELDS = jnp.array([[0, 2, 3, 4], [1, 9, 3, -1]], jnp.int32)

SAMPLES |= {
    "part_lookup": [
        (lambda table, ids: part_lookup(table, ids, (3, 1), (0, 3)), floats(6, 4), FIELDS),
        (lambda table, ids: part_lookup_p.bind(table, ids, rows=(2, 1), offsets=(0, 2)), floats(3, 4), FIELDS),
    ],
    "part_update": [
        (lambda values, ids: part_update_p.bind(values, ids, **PARTS, num_rows=6), floats(2, 4, 4), FIELDS),
        (lambda values, ids: part_update_p.bind(values, ids, **PARTS, num_rows=4), floats(2, 4, 4), FIELDS),
    ],
    "fill_spare_rows": [(lambda x: fill_spare_rows_p.bind(x, rows=(3, 1), dim=1, value=7), floats(4, 6))],
}

# ------------------------------------------------------------------------------------------------------- linear algebra

SQUARE = floats(4, 3, 3)
DEFINITE = SQUARE @ SQUARE.mT + 3 * jnp.eye(3, dtype=jnp.float32)
BANDS = [floats(4, 5, low=1.0, high=2.0) for _ in range(3)]

SAMPLES |= {
    "cholesky": [(lambda a: linalg.cholesky(a), DEFINITE)],
    "cholesky_update": [(lambda a, w: linalg.cholesky_update(a, w), jnp.triu(DEFINITE[0]), floats(3))],
    "eig": [(lambda a: linalg.eig(a), DEFINITE)],
    "eigh": [(lambda a: linalg.eigh(a), DEFINITE)],
    "geqp3": [(lambda a: primitive("geqp3").bind(a, jnp.zeros((4, 3), jnp.int32), use_magma=None), SQUARE)],
    "geqrf": [(lambda a: primitive("geqrf").bind(a), SQUARE)],
    "hessenberg": [(lambda a: linalg.hessenberg(a), SQUARE)],
    "householder_product": [(linalg.householder_product, SQUARE, floats(4, 3))],
    "lu": [(lambda a: linalg.lu(a), SQUARE)],
    "lu_pivots_to_permutation": [(lambda p: linalg.lu_pivots_to_permutation(p, 5), ints(4, 3, high=3))],
    "ormqr": [
        (lambda a, t, c: primitive("ormqr").bind(a, t, c, left=True, transpose=False), SQUARE, floats(4, 3), SQUARE)
    ],
    "qr": [(lambda a: linalg.qr(a), SQUARE)],
    "schur": [(lambda a: linalg.schur(a), SQUARE)],
    "svd": [(lambda a: linalg.svd(a), floats(4, 3, 2))],
    "symmetric_product": [(lambda a, c: linalg.symmetric_product(a, c, symmetrize_output=True), SQUARE, DEFINITE)],
    "triangular_solve": [
        (lambda a, b: linalg.triangular_solve(a, b, left_side=True, lower=True), DEFINITE, floats(4, 3, 6)),
        (lambda a, b: linalg.triangular_solve(a, b, left_side=False, lower=True), DEFINITE, floats(4, 6, 3)),
    ],
    "tridiagonal": [(lambda a: linalg.tridiagonal(a), DEFINITE)],
    "tridiagonal_solve": [(lambda b: linalg.tridiagonal_solve(BANDS[0], BANDS[1] + 3, BANDS[2], b), floats(4, 5, 6))],
    "fft": [(lambda x: lax.fft(x, "FFT", (5,)), lax.complex(floats(4, 5), floats(4, 5)))],
}

# --------------------------------------------------------------------------------------------------------------- random


def raw(*shape):
    return ints(*shape, 2, dtype=jnp.uint32)


SAMPLES |= {
    "iota": [(lambda: lax.broadcasted_iota(jnp.int32, (4, 6), 1),), (lambda: lax.iota(jnp.float32, 8),)],
    "iota_2x32_shape": [(lambda: primitive("iota_2x32_shape").bind(shape=(4, 6)),)],
    "random_bits": [
        (lambda k: jax.random.bits(k, (4, 6), jnp.uint32), jax.random.key(1)),
        (lambda k: jax.random.bits(k, (4, 6), jnp.uint8), jax.random.key(1)),
        (lambda k: jax.vmap(lambda key: jax.random.bits(key, (6,), jnp.uint16))(k), keys(4)),
    ],
    "random_wrap": [(jax.random.wrap_key_data, raw(4))],
    "random_unwrap": [(lambda k: primitive("random_unwrap").bind(k), keys(4))],
    "random_clone": [(jax.random.clone, keys(4))],
    "random_fold_in": [(lambda k, n: jax.vmap(jax.random.fold_in)(k, n), keys(4), ints(4, dtype=jnp.uint32))],
    "random_seed": [(lambda s: jax.vmap(jax.random.key)(s), ints(4))],
    "random_split": [(lambda k: jax.vmap(lambda key: jax.random.split(key, 3))(k), keys(4))],
    "random_gamma": [(lambda k, a: jax.vmap(lambda key, b: jax.random.gamma(key, b))(k, a), keys(4), floats(4))],
}

# ------------------------------------------------------------------------------------- what rules were once wrong about

SHORT = ints(4, 6, low=100, high=127, dtype=jnp.int8)
OUTSIDE = [(lambda x, i: lax.dynamic_slice(x, (i,), (8,)), floats(16), start) for start in (-20, 99)]

for name, samples in {
    "reshape": [
        (lambda x: lax.reshape(x, (6, 4), (1, 0)), X),
        (lambda x: lax.reshape(x, (2, 24), (2, 0, 1)), floats(4, 6, 2)),
    ],
    "dynamic_slice": OUTSIDE,
    "dynamic_update_slice": [(lambda x, y, i: lax.dynamic_update_slice(x, y, (i, 0)), X, floats(2, 6), 99)],
    "iota": [(lambda: lax.iota(jnp.bfloat16, 1030),), (lambda: lax.iota(jnp.int8, 1030),)],
    "convert_element_type": [
        (lambda x: x.astype(jnp.float16), X.astype(jnp.bfloat16)),
        (lambda x: x.astype(jnp.int32), SHORT),
    ],
    "dot_general": [
        (lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32), SHORT, SHORT.T),
        (lambda x, y: lax.dot(x, y, precision="highest"), X, Y.T),
        (lax.dot, B, C.T),
    ],
    "reduce_max": [(lambda x: lax.reduce_max(x, (0, 1)), COMPLEX)],
    "reduce_min": [(lambda x: lax.reduce_min(x, (1,)), COMPLEX)],
    "scatter": [
        (lambda t, i: t.at[i].apply(jnp.sin), TABLE, jnp.array([5, 1])),
        (scatter("set", "clip"), TABLE, IDS, floats(4, 2, 4)),
    ],
    "gather": [(gather("fill", fill_value=3), ints(8, 4, dtype=jnp.uint8), FAR)],
    "scatter-add": [
        (
            lambda t, i, u: lax.scatter_add(
                t, i[:, None], u, lax.ScatterDimensionNumbers((1,), (0,), (0,)), mode="clip"
            ),
            TABLE,
            HUGE,
            floats(4, 4),
        )
    ],
    "fft": [(lambda x: lax.fft(x, "RFFT", (6,)), X), (lambda x: lax.fft(x, "IRFFT", (6,)), COMPLEX[:, :4])],
    "random_split": [(jax.vmap(jax.random.split), jax.random.split(jax.random.key(0, impl="unsafe_rbg"), 4))],
}.items():
    SAMPLES[name] += samples
