"""The helper modules of these tests stand beside them; the reader of compiled programs is that of `tests/mindspore/parallel`.

Plans are compiled for eight simulated devices, once each.
"""

import sys
from pathlib import Path

import jax
import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "mindspore" / "parallel")]


@pytest.fixture(autouse=True, scope="package")
def _quick_compilation():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
