import pytest

from sporax import context
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ir.search_config import CostModelConfig, SearchConfig
from sporax.parallel import _cost_model_context, algo_parameter_config


def test_algo_parameters():
    assert context.search_snapshot()[0] == SearchConfig()
    context.set_algo_parameters(fully_use_devices=True, tensor_slice_align_size=8, algo_approxi_epsilon=0.5)
    assert context.search_snapshot()[0] == SearchConfig(True, tensor_slice_align_size=8, algo_approxi_epsilon=0.5)
    assert context.get_algo_parameters("tensor_slice_align_size") == 8
    context.reset_algo_parameters()
    assert context.get_algo_parameters("fully_use_devices") is False


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"foo": 1}, SporaxValueError),
        ({"fully_use_devices": 1}, SporaxTypeError),
        ({"tensor_slice_align_size": 0}, SporaxValueError),
        ({"tensor_slice_align_size": 1025}, SporaxValueError),
        ({"tensor_slice_align_size": 1.5}, SporaxTypeError),
        ({"algo_approxi_epsilon": 1}, SporaxTypeError),
        ({"algo_approxi_epsilon": 1.5}, SporaxValueError),
        ({"algo_approxi_epsilon": 0.0}, SporaxValueError),
    ],
)
def test_refused_algo_parameters(settings, error):
    with pytest.raises(error, match="For 'set_algo_parameters'"):
        context.set_algo_parameters(**settings)


def test_cost_model():
    assert context.get_cost_model_context("costmodel_beta") == 400.0
    assert context.get_cost_model_context("device_memory_capacity") == 16 * 1024**3
    context.set_cost_model_context(costmodel_gamma=0.5, run_phase=1)
    assert context.search_snapshot()[1] == CostModelConfig(costmodel_gamma=0.5, run_phase=1)
    context.reset_cost_model_context()
    assert context.get_cost_model_context("costmodel_gamma") == 0.001


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"foo": 1}, SporaxValueError),
        ({"costmodel_alpha": 1}, SporaxTypeError),
        ({"costmodel_alpha": -1.0}, SporaxValueError),
        ({"costmodel_gamma": 2.0}, SporaxValueError),
        ({"device_memory_capacity": 1}, SporaxTypeError),
        ({"run_phase": 2}, SporaxValueError),
        ({"run_phase": True}, SporaxTypeError),
        ({"costmodel_allreduce_fusion_algorithm": 7}, SporaxValueError),
        ({"costmodel_allreduce_fusion_tail_percent": 2.0}, SporaxValueError),
        ({"is_multi_subgraphs": 1}, SporaxTypeError),
    ],
)
def test_refused_cost_models(settings, error):
    with pytest.raises(error, match="For 'set_cost_model_context'"):
        context.set_cost_model_context(**settings)


@pytest.mark.parametrize("get", [context.get_algo_parameters, context.get_cost_model_context])
def test_unknown_keys(get):
    with pytest.raises(SporaxValueError, match="but got 'foo'"):
        get("foo")


def test_mindspore_homes():
    assert algo_parameter_config.set_algo_parameters is context.set_algo_parameters
    assert _cost_model_context.set_cost_model_context is context.set_cost_model_context
