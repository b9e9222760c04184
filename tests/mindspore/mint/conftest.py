"""Makes the modules shared with the recorder in `tools/golden` importable by the tests here."""

import sys
from pathlib import Path

import jax
import pytest

import sporax.mindspore as ms

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "golden")]


@pytest.fixture(autouse=True)
def _mode():
    """Start in PYNATIVE_MODE, and leave the mode as it was."""
    before = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=before)


@pytest.fixture(autouse=True, scope="module")
def _quick_programs():
    """Hundreds of small programs are compiled here: without optimization, and kept for one module only."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()
