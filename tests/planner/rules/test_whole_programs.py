"""Every primitive as `sporax.plan` runs it, next to one device: many equations in one program, since compiling takes the time.

Equations come from `samples.py`, so that a primitive without a row fails (`test_rules.py`). Their operands arrive in every way in which
a rule can be wrong: free, sharded along each dimension, as partial sums and maxima in each place, as literals in each place, of other
types and sizes, with special values, and with every parameter away from its default.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import example, is_key
from jax import lax
from jax.extend.core import Literal
from jax.sharding import PartitionSpec
from samples import NOT_IN_PROGRAMS, SAMPLES

import sporax
from sporax.planner.rules import TABLE
from sporax.planner.rules.elementwise import ALL_TOGETHER, ONE_OPERAND
from sporax.planner.rules.reduction import CUMULATIVE, REDUCTION

SLOW_TO_COMPILE = (
    "igamma",
    "igammac",
    "igamma_grad_a",
    "random_gamma",
    "regularized_incomplete_beta",
    "polygamma",
    "zeta",
)
NAMES = [name for name in SAMPLES if name not in (*SLOW_TO_COMPILE, *NOT_IN_PROGRAMS)]
CHUNKS = 5
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40, 0.0, 1.0, -3e38], np.float32)
LINEAR = {*ALL_TOGETHER, *ONE_OPERAND, *REDUCTION, *CUMULATIVE, "mul", "div", "select_n"} - {"cumlogsumexp"}
RESIZED = ("concatenate", "dot_general", "pad", "rev", "transpose")
"""Primitives of other families than 1, 4 and 7 whose parameters do not repeat the size of a dimension."""
OTHER_VALUES = {
    "aggregate_to_topk": False, "alpha": 2.0, "axis": 0, "base_dilation": (1, 2), "beta": 1.0, "compute_schur_vectors": False,
    "compute_left_eigenvectors": False, "compute_right_eigenvectors": False, "compute_uv": False, "conjugate_a": True,
    "dimension": 0, "exponent_bits": 4, "full_matrices": False, "index_dtype": np.dtype("uint32"), "is_max_k": False,
    "is_stable": False, "k": 1, "left": False, "log_space": True, "lower": False, "mantissa_bits": 3, "num_keys": 2,
    "permutation_size": 6, "pivoting": True, "precision": (lax.Precision.HIGHEST,) * 2, "recall_target": 0.5,
    "reduction_input_size_override": 100, "reverse": True, "rounding_method": lax.RoundingMethod.TO_NEAREST_EVEN,
    "sort_eigenvalues": False, "symmetrize_output": False, "transpose": True, "transpose_a": True, "unit_diagonal": True,
    "window_dilation": (1, 2), "y": -2,
}  # fmt: skip
"""A second value of parameters that no two samples of a primitive disagree about."""
ONE_VALUE = {
    **dict.fromkeys(
        "accuracy algorithm implementation use_magma".split(), "chooses among implementations of one function"
    ),
    **dict.fromkeys("indices_are_sorted unique_indices".split(), "a promise, which samples do not keep"),
    **dict.fromkeys("out_sharding sharding".split(), "belongs to a mesh around the program"),
    **dict.fromkeys(
        "input_dtype new_dtype dtype weak_type out_dtype".split(), "repeats the type of an operand or of the result"
    ),
    **dict.fromkeys(
        "computation consts jaxpr update_consts update_jaxpr".split(), "is the primitive's name, or is in samples"
    ),
    **dict.fromkeys(
        "enable_eigvec_derivs name impl rows value dim num_rows offsets".split(),
        "other values are the same to the rule",
    ),
    **dict.fromkeys(
        "group_offset select_callable subset_by_index sort_eig_vals perturb_singular".split(), "not implemented on CPUs"
    ),
    **dict.fromkeys(
        "dimension_numbers permutation padding_config sizes slice_sizes dimensions axes shape".split(), "names shapes"
    ),
    **dict.fromkeys(
        "ragged_dot_dimension_numbers window_dimensions window_strides padding reps".split(), "names shapes"
    ),
    **dict.fromkeys("reduction_dimension strides limit_indices start_indices".split(), "names shapes"),
    **dict.fromkeys(
        "lhs_dilation rhs_dilation select_prim left_side fft_type fft_lengths".split(),
        "differs between samples elsewhere",
    ),
    **dict.fromkeys(
        "batch_group_count feature_group_count preferred_element_type".split(), "differs between samples elsewhere"
    ),
    **dict.fromkeys("mode fill_value".split(), "differs between samples of gather and scatter-add"),
}
"""Parameters that need no second value for every primitive, and why."""


class Case(NamedTuple):
    """An equation, and how its operands arrive: as they are, or as the `reduction` of what devices have in the places `parts`."""

    name: str
    eqn: object
    operands: tuple
    literals: dict
    parts: tuple = ()
    reduction: str = ""

    def bound(self, args):
        combine = {"sum": jnp.sum, "max": jnp.max}.get(self.reduction)
        operands = [
            self.literals[n] if n in self.literals else combine(x, 0, dtype=x.dtype) if n in self.parts and self.reduction == "sum"
            else combine(x, 0) if n in self.parts else x
            for n, x in enumerate(args)
        ]  # fmt: skip
        results = self.eqn.primitive.bind(*operands, **self.eqn.params)
        return list(results) if self.eqn.primitive.multiple_results else [results]

    def args(self):
        return [
            _parts(x, self.reduction) if n in self.parts else 0 if n in self.literals else x
            for n, x in enumerate(self.operands)
        ]

    def along(self, dim):
        """Where arguments are sharded: parts along the parts, others along a dimension, or as the search likes."""
        return [
            PartitionSpec("x") if n in self.parts else _spec(np.shape(x), dim) if n not in self.literals else None
            for n, x in enumerate(self.operands)
        ]


def _spec(shape, dim):
    if dim is None:
        return None
    return PartitionSpec(*[None] * dim, "x") if len(shape) > dim and shape[dim] % 2 == 0 else PartitionSpec()


def _parts(x, reduction):
    x, random = np.asarray(x), np.random.default_rng(0)
    if reduction == "sum":
        noise = random.integers(-4, 5, x.shape).astype(x.dtype)
        return np.stack([(x - noise).astype(x.dtype), noise])
    return np.stack([np.where(random.integers(0, 2, x.shape), x, x - 1).astype(x.dtype), x])


def kind(x):
    x = x if hasattr(x, "dtype") else np.asarray(x)
    return "k" if is_key(x) else "f" if jnp.issubdtype(x.dtype, jnp.floating) else np.dtype(x.dtype).kind


@functools.cache
def cases(chunk):
    made = []
    for name in NAMES[chunk::CHUNKS]:
        for number, sample in enumerate(SAMPLES[name]):
            eqn, operands = (one := example(name, *sample)).eqn, one.operands
            literals = {n: operands[n] for n, var in enumerate(eqn.invars) if isinstance(var, Literal)}
            made.append(Case(f"{name} {number}", eqn, operands, literals))
    return tuple(made)


def as_parts(case, reduction):
    allowed = "iufc" if reduction == "sum" else "iuf"
    able = [n for n, x in enumerate(case.operands) if kind(x) in allowed and n not in case.literals]
    for parts in {*((n,) for n in able), tuple(able)}:
        if parts:
            yield case._replace(parts=parts, reduction=reduction)


def with_literals(case):
    """Scalars as literals; elementwise primitives of scalars with a literal in each place, next to partial sums."""
    scalars = {n: x for n, x in enumerate(case.operands) if not np.ndim(x) and kind(x) != "k"}
    if scalars.keys() - case.literals.keys() and len(scalars) < len(case.operands):
        yield case._replace(literals={n: np.asarray(x)[()] for n, x in scalars.items()})
    if not TABLE[case.eqn.primitive.name].family.startswith("1 ") or "k" in map(kind, case.operands):
        return
    small = tuple(jnp.asarray(np.asarray(x).reshape(-1)[0]) for x in case.operands)
    for place in range(len(small)) if len(small) > 1 else ():
        literals = {place: np.asarray(small[place])[()]}
        parts = tuple(n for n, x in enumerate(small) if n != place and kind(x) in "iufc")
        yield case._replace(operands=small, literals=literals, parts=parts, reduction="sum" if parts else "")


def special(case):
    if TABLE[case.eqn.primitive.name].family[0] in "12467" and "f" in map(kind, case.operands):
        operands = (np.resize(SPECIAL, np.shape(x)).astype(x.dtype) if kind(x) == "f" else x for x in case.operands)
        yield case._replace(operands=tuple(operands))


def resized(case):
    """No rows, and one row."""
    name = case.eqn.primitive.name
    if (name in RESIZED or TABLE[name].family[:2] in ("1 ", "4 ", "7 ")) and "k" not in map(kind, case.operands):
        for count in (0, 1):
            yield case._replace(operands=tuple(x[:count] if np.ndim(x) else x for x in case.operands))


def retyped(case):
    if case.eqn.primitive.name in LINEAR and "f" in map(kind, case.operands):
        for dtype in ("bfloat16", "int8", "uint8", "complex64"):
            operands = (jnp.asarray(x * 9).astype(dtype) if kind(x) == "f" else x for x in case.operands)
            retyped = case._replace(operands=tuple(operands), literals={})
            if TABLE[case.eqn.primitive.name].family.startswith("1 "):
                yield from as_parts(retyped, "sum")
            else:
                yield retyped


def with_parameters(case):
    for name in OTHER_VALUES.keys() & case.eqn.params.keys():
        params = {**case.eqn.params, name: OTHER_VALUES[name]}
        yield case._replace(name=f"{case.name} {name}", eqn=case.eqn.replace(params=params))


def can_run(case):
    try:
        jax.eval_shape(case.bound, case.args())
    except Exception:  # a type, a size or a parameter that the primitive does not take
        return False
    return True


WAYS = {
    "free": (lambda case: [case], None, "dynamic"),
    "along 0": (lambda case: [case], 0, "dynamic"),
    "along 1": (lambda case: [case], 1, "dynamic"),
    "sums": (lambda case: as_parts(case, "sum"), None, "propagation"),
    "maxima": (lambda case: as_parts(case, "max"), None, "propagation"),
    "literals": (with_literals, None, "dynamic"),
    "special": (special, 0, "propagation"),
    "sizes": (resized, 1, "propagation"),
    "types": (retyped, 0, "propagation"),
    "parameters": (with_parameters, 0, "propagation"),
}
"""How operands arrive, along which dimension arguments and results are sharded, and the mode: propagation lets all parts pass."""


@pytest.mark.sampled(20)
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("way", WAYS)
def test_every_primitive_equals_one_device(way, chunk):
    if way == "sizes" and jax.__version_info__ >= (0, 11):
        pytest.skip("the compiler of JAX 0.11.2 ends the process when it compiles programs with empty arrays")
    vary, dim, mode = WAYS[way]
    chosen = [new for case in cases(chunk) for new in vary(case)]
    chosen = [case for case in chosen if way in ("free", "along 0", "along 1") or can_run(case)]
    args = tuple(case.args() for case in chosen)

    def program(*args):
        return [case.bound(own) for case, own in zip(chosen, args, strict=True)]

    shardings = tuple(case.along(dim) for case in chosen)
    ends = [[_spec(result.shape, dim) for result in results] for results in jax.eval_shape(program, *args)]
    planned = sporax.plan(
        program,
        *args,
        devices={"x": 2},
        in_shardings=shardings,
        out_shardings=ends if dim is not None else None,
        mode=mode,
    )
    found = planned.function()(*jax.device_put(args, planned.in_shardings))
    expected = jax.jit(program)(*args)
    wrong = [case.name for case, *both in zip(chosen, found, expected, strict=True) if not all(map(same, *both))]
    assert not wrong, f"{way}: {wrong}"


def same(ours, theirs):
    assert ours.dtype == theirs.dtype
    if is_key(ours):
        ours, theirs = map(jax.random.key_data, (ours, theirs))
    if not jnp.issubdtype(ours.dtype, jnp.inexact):
        return np.array_equal(ours, theirs)
    tolerance = 4e-2 if ours.dtype.itemsize == 2 else 2e-4
    wide = np.complex64 if jnp.iscomplexobj(ours) else np.float32
    return np.allclose(
        np.asarray(ours).astype(wide), np.asarray(theirs).astype(wide), tolerance, tolerance, equal_nan=True
    )


def test_every_parameter_has_a_second_value():
    """A parameter of a newer JAX, or of a new primitive, needs a line in `OTHER_VALUES`, a sample, or a reason."""
    values = {}
    for case in (case for chunk in range(CHUNKS) for case in cases(chunk)):
        for name, value in case.eqn.params.items():
            values.setdefault((case.eqn.primitive.name, name), set()).add(str(value))
    once = {key[1] for key, seen in values.items() if len(seen) == 1}
    assert sorted(once - OTHER_VALUES.keys() - ONE_VALUE.keys()) == []
