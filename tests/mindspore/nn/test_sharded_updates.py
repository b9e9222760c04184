"""Optimizer parallel in data-parallel mode: when it is refused, and who owns what (trainings: tests/mindspore/communication)."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, context, nn


@pytest.fixture(autouse=True)
def _untouched():
    yield
    context.set_world(1, 0)
    ms.reset_auto_parallel_context()


def make_parameters(count):
    return [Parameter(Tensor(np.ones((2, 3), np.float32)), name=f"p{i}") for i in range(count)]


@pytest.mark.parametrize("mode", ["stand_alone", "hybrid_parallel"])
def test_modes_without_it(mode):
    ms.set_auto_parallel_context(parallel_mode=mode, enable_parallel_optimizer=True)
    with pytest.raises(RuntimeError, match=f"For 'Lamb', .* but got '{mode}'"):
        nn.Lamb(make_parameters(1), 0.1)


@pytest.mark.parametrize("make", [lambda p: nn.Momentum(p, 0.1, 0.9), nn.Adam, lambda p: nn.SGD(p, 0.1)])
def test_optimizers_without_it(make):
    ms.set_auto_parallel_context(parallel_mode="data_parallel", enable_parallel_optimizer=True)
    with pytest.raises(RuntimeError, match="Lamb, AdamWeightDecay or AdaFactor"):
        make(make_parameters(2))


def test_fewer_parameters_than_devices():
    ms.set_auto_parallel_context(parallel_mode="data_parallel", enable_parallel_optimizer=True, device_num=4)
    with pytest.raises(RuntimeError, match="3 parameters for 4 devices"):
        nn.AdamWeightDecay(make_parameters(3))


def test_parameters_go_round():
    ms.set_auto_parallel_context(parallel_mode="data_parallel", enable_parallel_optimizer=True, device_num=2)
    parameters = make_parameters(5)
    parameters[2].layerwise_parallel = True
    assert nn.AdaFactor(parameters)._owners == (0, 1, None, 1, 0)


@pytest.mark.parametrize("mode", ["data_parallel", "semi_auto_parallel"])
def test_one_device_updates_all(mode):
    ms.set_auto_parallel_context(parallel_mode=mode, enable_parallel_optimizer=True)
    parameters = make_parameters(2)
    optimizer = nn.AdamWeightDecay(parameters, 0.1)
    optimizer(tuple(Tensor(np.ones((2, 3), np.float32)) for _ in parameters))
    assert all((parameter.asnumpy() < 1).all() for parameter in parameters)
