"""Every rule, mechanically: cut, run on slices, put together, compare; and every primitive of the installed JAX is known."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from blocks import assert_same, example, needs_neighbours, run_in_blocks, spread
from hypothesis import given, settings, strategies as st
from samples import SAMPLES

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.operation import LIKE
from sporax.lowering.ingest.describe import describe
from sporax.planner.rules import TABLE, Behaviour, assignments, placements, propagate, rule_for
from sporax.planner.rules.elementwise import CASTS

MESHES = (DeviceMatrix((2, 2)), DeviceMatrix((2, 3)))
CASES = [(name, number) for name, samples in SAMPLES.items() for number in range(len(samples))]
SLOW_TO_COMPILE = ("igamma", "igammac", "igamma_grad_a", "random_gamma", "regularized_incomplete_beta")
WITHOUT_SAMPLE = {
    **dict.fromkeys(("philox2x32", "philox4x32", "threefry4x32"), "only hardware generators make it"),
    **dict.fromkeys(("empty", "empty2"), "its values are arbitrary"),
    **dict.fromkeys(CASTS, "lives in shard_map only"),
    **dict.fromkeys(("to_edtype", "from_edtype"), "random_wrap and random_unwrap stand for it"),
    **dict.fromkeys(
        (name for name in TABLE if TABLE[name].family == "13 kernels"), "test_kernels has networks of them"
    ),
    "broadcast_to": "made for dynamic shapes only",
    "select_and_scatter": "JAX has no implementation on CPU",
    "shard_map": "its specs are its only sharding; test_islands runs it",
    "zeros_like": "JAX has no rule to trace it",
}
"""Primitives with a rule that is not run in blocks, and why."""


def runnable(sample, mesh):
    rule = rule_for(describe(sample.eqn))
    for assignment in assignments(rule, mesh, ("sum", "max", "min", "and", "or", "xor")):
        if any(assignment) and not needs_neighbours(rule, assignment) and makes_sense(sample, rule, assignment):
            yield assignment


def makes_sense(sample, rule, assignment):
    """Booleans have no sums, and complex numbers no maxima."""
    where, _ = placements(rule, assignment)
    for x, placement in zip(sample.operands, where, strict=True):
        kind = (
            np.dtype(x.dtype).kind
            if hasattr(x, "dtype") and not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
            else "k"
        )
        if placement.reduction and (kind in "bk" or (kind == "c" and placement.reduction != "sum")):
            return False
        if placement.reduction in ("and", "or", "xor") and kind == "f":
            return False
    return True


@pytest.mark.sampled(70)
@pytest.mark.parametrize(("name", "number"), CASES)
def test_run_in_blocks(name, number):
    sample = example(name, *SAMPLES[name][number])
    whole = sample.whole()
    plain = TABLE[name].family.startswith("1 ")
    few = 1 if name in SLOW_TO_COMPILE else 3
    for mesh, count in ((MESHES[1], few),) if plain else ((MESHES[0], 3), (MESHES[1], 4)):
        for assignment in spread(runnable(sample, mesh), count):
            actual = run_in_blocks(sample, assignment, mesh)
            assert_same(
                actual, whole, f"{name} {sample.eqn.params} {rule_for(describe(sample.eqn))} under {assignment}"
            )


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_run_in_blocks_anywhere(data):
    """Any primitive, any legal assignment of a three-axis mesh."""
    name, number = data.draw(st.sampled_from(CASES))
    sample = example(name, *SAMPLES[name][number])
    mesh = DeviceMatrix((2, 2, 2))
    choices = list(runnable(sample, mesh))
    if choices:
        assignment = data.draw(st.sampled_from(choices))
        seed = data.draw(st.integers(0, 9))
        assert_same(run_in_blocks(sample, assignment, mesh, seed), sample.whole(), f"{name} under {assignment}")


SCAN = """
import gc, importlib, pkgutil
import jax, jax.extend.core.primitives as public
from jax.extend import core
for name in dir(public):
    getattr(public, name)
LEFT_OUT = ("experimental", "tools", "collect_profile")  # trials and the languages of kernels; programs
def load(package):
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_") and module.name not in LEFT_OUT:
            loaded = importlib.import_module(f"{package.__name__}.{module.name}")
            if module.ispkg:
                load(loaded)
load(jax)
print(*sorted({each.name for each in gc.get_objects() if isinstance(each, core.Primitive)}), sep="\\n")
"""


def test_every_primitive_has_an_entry():
    """All primitives of all public modules of the installed JAX; in a process of its own, without those of other tests."""
    names = subprocess.run([sys.executable, "-c", SCAN], capture_output=True, text=True, check=True).stdout.split()
    assert len(names) > 200
    missing = [name for name in names if name not in TABLE]
    assert not missing, f"primitives of JAX {jax.__version__} without a rule or a reason: {missing}"


def test_every_rule_has_a_sample():
    with_rule = {name for name, entry in TABLE.items() if entry.behaviour is Behaviour.RULE}
    elsewhere = {name for name in LIKE if not hasattr(jax.lax, name)}  # of another version of JAX
    missing = sorted(with_rule - set(SAMPLES) - set(WITHOUT_SAMPLE) - elsewhere)
    assert not missing, f"rules that nothing checks: {missing}"
    assert not set(SAMPLES) & set(WITHOUT_SAMPLE)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_placements_determine_the_assignment(name, number):
    """Propagation from all operands and results gives back the assignment that made their placements."""
    sample = example(name, *SAMPLES[name][number])
    rule = rule_for(describe(sample.eqn))
    mesh = MESHES[1]
    for assignment in spread(assignments(rule, mesh), 12):
        operands, results = placements(rule, assignment)
        again = placements(rule, propagate(rule, mesh, operands, results))
        assert [item.complete() for item in again[0]] == [item.complete() for item in operands], rule
        assert [item.dims for item in again[1]] == [item.dims for item in results], rule
