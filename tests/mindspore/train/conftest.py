"""Small networks and data for the tests of training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import nn
from sporax.mindspore.dataset import NumpySlicesDataset
from sporax.mindspore.train import Model

sys.path.insert(0, str(Path(__file__).parent))  # the recipes shared with tools/golden


@pytest.fixture(autouse=True)
def _pynative_afterwards() -> Iterator[None]:
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.reset_auto_parallel_context()


@pytest.fixture
def make_data() -> Callable[..., Any]:
    """Batches of (x [2], y [3]), the same every time."""

    def make(num_samples: int = 6, batch_size: int = 2) -> Any:
        x = np.arange(num_samples * 2, dtype=np.float32).reshape(num_samples, 2) / 10
        y = np.ones((num_samples, 3), np.float32)
        return NumpySlicesDataset((x, y), ["x", "y"], shuffle=False).batch(batch_size)

    return make


@pytest.fixture
def make_model() -> Callable[..., Model]:
    """A linear model with known weights, mean squared error and momentum."""

    def make(**options: Any) -> Model:
        net = nn.Dense(2, 3, weight_init="ones", bias_init="zeros")
        return Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9), **options)

    return make
