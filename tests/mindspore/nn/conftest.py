"""What the tests of layers share."""

import numpy as np
import pytest

import sporax.mindspore as ms


@pytest.fixture(autouse=True)
def _mode():
    """Start in PYNATIVE_MODE, and leave the mode and the seed as they were."""
    before = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=before)


@pytest.fixture
def tensor():
    """Makes float32 Tensors of reproducible normal numbers: ``tensor(2, 3)``."""
    draw = np.random.default_rng(5)
    return lambda *shape: ms.Tensor(draw.normal(size=shape).astype(np.float32))
