import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.mindspore import context, nn
from sporax.mindspore.context import _supported


def config(**settings):
    return context.changed(ParallelConfig(), **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"device_num": 8},
        {"parallel_mode": "data_parallel"},
        {"parallel_mode": "semi_auto_parallel", "full_batch": True, "enable_parallel_optimizer": True},
        {"parallel_mode": "auto_parallel"},
    ],
)
def test_one_rank_may(settings):
    context.check_supported(config(**settings), 1)


def test_more_ranks_may():
    context.check_supported(config(parallel_mode="data_parallel", device_num=2), 2)
    context.check_supported(config(parallel_mode="hybrid_parallel", device_num=2), 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"pipeline_stages": 2, "device_num": 8},
            "pipeline_stages=2 must come with 'parallel_mode' 'semi_auto_parallel'",
        ),
        ({"pipeline_stages": 2}, "must be divisible by 'pipeline_stages'"),
        ({"parallel_mode": "data_parallel", "device_num": 8}, "is 8, but the job has 1 rank"),
    ],
)
def test_not_yet(settings, words):
    with pytest.raises(SporaxRuntimeError, match=words):
        context.check_supported(config(**settings), 1)


@pytest.fixture
def net():
    return nn.Dense(2, 2)


X = np.ones((1, 2), np.float32)


@pytest.mark.parametrize(
    ("switch", "words"),
    [(lambda: context.set_auto_parallel_context(pipeline_stages=2, device_num=8), "pipeline_stages=2")],
)
def test_a_compiled_step_is_refused_also_when_it_ran_before(net, switch, words):
    context.set_context(mode=context.GRAPH_MODE)
    x = ms.Tensor(X)
    before = net(x)
    switch()
    with pytest.raises(SporaxRuntimeError, match=words):
        net(x)
    with pytest.raises(SporaxRuntimeError, match=words):
        ms.jit(lambda x: x + 1)(x)
    context.reset_auto_parallel_context()
    context.reset_ps_context()
    context.set_context(memory_offload="OFF")
    assert (net(x).asnumpy() == before.asnumpy()).all()
    assert len(net.program.compilations) == 1  # the first program is found again


def test_a_changed_setting_compiles_a_step_anew(net):
    context.set_context(mode=context.GRAPH_MODE)
    net(ms.Tensor(X))
    context.set_auto_parallel_context(gradients_mean=True)
    net(ms.Tensor(X))
    reasons = [compilation.reason for compilation in net.program.compilations]
    assert reasons == ["first call", "the auto-parallel context: gradients_mean changed from False to True"]


@pytest.mark.parametrize(("rank", "lines"), [(0, 1), (1, 0)])
def test_what_gradients_mean_does_in_the_global_view_is_reported_once_by_rank_0(monkeypatch, capsys, rank, lines):
    _supported._say_once.cache_clear()
    monkeypatch.setattr(_supported.SESSION, "job", (8, rank))
    for mode in ("semi_auto_parallel", "semi_auto_parallel", "stand_alone"):
        context.check_supported(config(parallel_mode=mode, device_num=8, gradients_mean=True), 8)
    assert capsys.readouterr().err.count("divided by the number of devices that add them up") == lines
