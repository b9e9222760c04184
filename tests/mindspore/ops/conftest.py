"""Fixtures of the operator tests; also makes the modules shared by them, and those of the golden facts, importable."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "golden")]

import jax  # noqa: E402 - after the environment is set
import operator_cases  # noqa: E402  (found through the line above)

from sporax.mindspore import context  # noqa: E402


@pytest.fixture
def numbers():
    """Makes float64 arrays: ``numbers(2, 3, low=-2, high=2, seed=0)``."""

    def make(*shape, low=-2.0, high=2.0, seed=0):
        return operator_cases.numbers(*shape, low=low, high=high, seed=seed)

    return make


@pytest.fixture
def check():
    """Compares values with a reference on arrays, and the gradient with a finite difference."""

    def run(call, reference, *inputs, gradient=True, rtol=operator_cases.FORWARD):
        operator_cases.check(operator_cases.Case(call, reference, inputs, gradient), rtol)

    return run


@pytest.fixture
def eight_devices():
    """Turns to semi-automatic parallelism over eight devices, in graph mode, until the test ends."""

    def turn():
        context.set_context(mode=context.GRAPH_MODE)
        context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)

    yield turn
    context.reset_auto_parallel_context()
    context.set_context(mode=context.PYNATIVE_MODE)


@pytest.fixture(autouse=True, scope="module")
def _quick_programs():
    """Hundreds of small programs are compiled here: without optimization, and kept for one module only."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()
