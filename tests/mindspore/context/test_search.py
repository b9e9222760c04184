import pytest

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.ir.config.search_config import CostModelConfig, SearchConfig
from sporax.mindspore import context
from sporax.mindspore.parallel import _cost_model_context, algo_parameter_config


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
        ({"algo_approxi_epsilon": 1.5}, SporaxRuntimeError),
        ({"algo_approxi_epsilon": 0.0}, SporaxRuntimeError),
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
        ({"costmodel_alpha": 0.0}, SporaxRuntimeError),
        ({"costmodel_beta": -1.0}, SporaxRuntimeError),
        ({"costmodel_gamma": 2.0}, SporaxRuntimeError),
        ({"costmodel_communi_bias": -1.0}, SporaxRuntimeError),
        ({"device_memory_capacity": 0.0}, SporaxRuntimeError),
        ({"device_memory_capacity": 1}, SporaxTypeError),
        ({"device_memory_capacity": float("nan")}, SporaxRuntimeError),
        ({"device_memory_capacity": float("inf")}, SporaxRuntimeError),
        ({"costmodel_beta": float("inf")}, SporaxRuntimeError),
        ({"costmodel_gamma": float("nan")}, SporaxRuntimeError),
        ({"run_phase": 2}, SporaxValueError),
        ({"run_phase": True}, SporaxTypeError),
        ({"costmodel_allreduce_fusion_algorithm": 7}, SporaxValueError),
        ({"costmodel_allreduce_fusion_tail_percent": 2.0}, SporaxRuntimeError),
        ({"is_multi_subgraphs": 1}, SporaxTypeError),
    ],
)
def test_refused_cost_models(settings, error):
    with pytest.raises(error, match="For 'set_cost_model_context'"):
        context.set_cost_model_context(**settings)


@pytest.mark.parametrize("key", ["threshold", "const", "bias"])
def test_messages_may_cost_what_they_are(key):
    context.set_cost_model_context(**{f"costmodel_communi_{key}": 0.0})
    assert context.get_cost_model_context(f"costmodel_communi_{key}") == 0.0
    context.reset_cost_model_context()


def test_settings_that_mindspore_sets_by_functions():
    _cost_model_context._set_algo_single_loop()
    _cost_model_context._set_multi_subgraphs()
    _cost_model_context._set_rp_matmul_mem_coef(0.25)
    config = context.search_snapshot()[1]
    assert (config.dp_algo_single_loop, config.is_multi_subgraphs, config.rp_matmul_mem_coef) == (True, True, 0.25)
    assert _cost_model_context._get_algo_single_loop() is _cost_model_context._get_multi_subgraphs() is True
    assert _cost_model_context._get_rp_matmul_mem_coef() == 0.25
    _cost_model_context._set_rp_matmul_mem_coef(1024)
    assert _cost_model_context._get_rp_matmul_mem_coef() == 1024.0
    context.reset_cost_model_context()


@pytest.mark.parametrize("get", [context.get_algo_parameters, context.get_cost_model_context])
def test_unknown_keys(get):
    with pytest.raises(SporaxValueError, match="but got 'foo'"):
        get("foo")


def test_mindspore_homes():
    assert algo_parameter_config.set_algo_parameters is context.set_algo_parameters
    assert _cost_model_context.set_cost_model_context is context.set_cost_model_context
