import subprocess
import sys
import warnings

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxKeyError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import context, nn, ops
from sporax.mindspore.parallel import Layout
from sporax.mindspore.parallel.auto_parallel import AutoParallel

X = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def net():
    return nn.Dense(2, 2)


@pytest.fixture
def parallel(net):
    return AutoParallel(net)


@pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE])
def test_on_one_device_it_runs_the_network_compiled(net, parallel, mode):
    context.set_context(mode=mode)
    x = ms.Tensor(X)
    np.testing.assert_allclose(parallel(x).asnumpy(), net(x).asnumpy(), rtol=1e-6)
    assert len(parallel.program.compilations) == 1


@pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE])
def test_numpy_arrays_are_constants_of_the_compiled_network(mode):
    context.set_context(mode=mode)
    scaled = AutoParallel(lambda x, scale: x * ms.Tensor(scale))
    for factor in (2, 3):
        scale = np.full(2, factor, np.float32)
        np.testing.assert_array_equal(scaled(ms.Tensor(X), scale).asnumpy(), X * factor)


def test_wraps_functions_and_keeps_names(net, parallel):
    np.testing.assert_array_equal(AutoParallel(lambda x, scale: x * scale)(ms.Tensor(X), 3).asnumpy(), X * 3)
    assert [parameter.name for parameter in parallel.get_parameters()] == ["weight", "bias"]


METHODS = {
    "hsdp": (-1, 0, "level3"),
    "pipeline": (2, True),
    "dataset_strategy": ("full_batch",),
    "comm_fusion": ({"allreduce": {"mode": "auto", "config": None}},),
    "save_param_strategy_file": ("{folder}/p.ckpt",),
    "load_param_strategy_file": ("{folder}/p.ckpt",),
    "save_operator_strategy_file": ("{folder}/o.json",),
    "load_operator_strategy_file": ("{folder}/o.json",),
    "set_group_ckpt_save_file": ("{folder}/g.pb",),
    "dump_local_norm": ("{folder}",),
    "transformer_opt": (None,),
    **dict.fromkeys(
        (
            "enable_fp32_communication",
            "enable_gradients_mean",
            "disable_gradient_fp32_sync",
            "disable_loss_repeated_mean",
            "disable_strategy_file_only_for_trainable_params",
            "no_init_parameters_in_compile",
            "print_local_norm",
            "enable_device_local_norm",
        ),
        (),
    ),
}


def test_on_one_device_every_method_leaves_a_training_step_as_it_is(tmp_path, capsys):
    def losses(*calls):
        ms.set_seed(1)
        network = nn.Dense(2, 2)
        step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), nn.Adam(network.trainable_params(), 0.1))
        parallel = AutoParallel(step)
        for name, arguments in calls:
            getattr(parallel, name)(
                *(item.format(folder=tmp_path) if isinstance(item, str) else item for item in arguments)
            )
        return [float(parallel(ms.Tensor(X), ms.Tensor(X))) for _ in range(2)]

    context._supported._say_once.cache_clear()
    expected = losses()
    assert "ranks have not been joined, so one of the 8 devices" in capsys.readouterr().err
    # Loading comes first: there is no file to read on one device.
    for call in METHODS.items():
        assert losses(call) == expected, call
    methods = {name for name, value in vars(AutoParallel).items() if callable(value) and not name.startswith("_")}
    assert methods - set(METHODS) == {"construct", "fingerprint", "get_pipeline_stages"}


def test_trains_inside_a_step(net):
    loss = nn.WithLossCell(AutoParallel(net), nn.MSELoss())
    step = nn.TrainOneStepCell(loss, nn.SGD(net.trainable_params(), 0.1))
    losses = [float(step(ms.Tensor(X), ms.Tensor(X))) for _ in range(5)]
    assert losses[-1] < losses[0]


def test_settings_hold_while_the_network_is_traced_and_no_longer():
    seen = []

    def network(x):
        seen.append(context.snapshot())
        return x

    context.set_auto_parallel_context(loss_repeated_mean=False)
    before = context.snapshot()
    parallel = AutoParallel(network, "sharding_propagation")
    parallel.enable_gradients_mean()
    parallel.dataset_strategy("full_batch")
    parallel(ms.Tensor(X))
    inside = seen[-1]
    assert (inside.gradients_mean, inside.full_batch, inside.loss_repeated_mean) == (True, True, True)
    assert (inside.parallel_mode, inside.search_mode) == ("stand_alone", "sharding_propagation")
    assert inside.enable_alltoall
    assert context.snapshot() == before


def test_the_global_settings_are_back_after_an_error():
    def network(x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        AutoParallel(network)(ms.Tensor(X))
    assert context.snapshot().auto_parallel_new_interface is False


def test_a_setting_compiles_anew_and_global_settings_do_not(parallel):
    parallel(ms.Tensor(X))
    context.set_auto_parallel_context(gradients_mean=True)
    parallel(ms.Tensor(X))
    assert len(parallel.program.compilations) == 1
    parallel.enable_gradients_mean()
    parallel(ms.Tensor(X))
    assert len(parallel.program.compilations) == 2


@pytest.mark.parametrize("call", [lambda cell, x: cell(x), lambda cell, x: ops.GradOperation()(cell)(x)])
def test_the_network_is_sharded_over_all_devices(net, parallel, call):
    x = ms.Tensor(np.arange(16, dtype=np.float32).reshape(8, 2))
    alone = call(net, x)
    context.set_world(8, 0)
    cut = call(parallel, x)
    assert len(cut.array.sharding.device_set) == 8
    np.testing.assert_allclose(cut.asnumpy(), alone.asnumpy(), rtol=1e-5, atol=1e-6)


def test_stages_without_a_stage_for_any_cell_are_refused(parallel):
    context.set_world(8, 0)
    parallel.pipeline(stages=2, scheduler="gpipe", interleave=True)
    assert parallel.get_pipeline_stages() == 2
    with pytest.raises(SporaxRuntimeError, match="'pipeline_stages' is 2, but the Cells of the network are in 0 stage"):
        parallel(ms.Tensor(X))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("semi_auto", ("semi_auto_parallel", "recursive_programming")),
        ("sharding_propagation", ("auto_parallel", "sharding_propagation")),
        ("recursive_programming", ("auto_parallel", "recursive_programming")),
    ],
)
def test_a_mode_sets_parallel_and_search_modes(net, mode, expected):
    context.set_world(4, 1)
    config = AutoParallel(net, mode).parallel_config
    assert (config.parallel_mode, config.search_mode) == expected
    assert (config.device_num, config.global_rank) == (4, 1)


def test_every_setter_reaches_the_settings(parallel):
    parallel.hsdp(4, 32, "level2")
    parallel.comm_fusion({"allreduce": {"mode": "size", "config": 32}})
    parallel.comm_fusion(None)
    parallel.enable_fp32_communication()
    parallel.disable_gradient_fp32_sync()
    parallel.disable_loss_repeated_mean()
    parallel.load_param_strategy_file("in.ckpt")
    parallel.save_param_strategy_file("out.ckpt")
    parallel.disable_strategy_file_only_for_trainable_params()
    parallel.load_operator_strategy_file("/in.json")
    parallel.save_operator_strategy_file("/out.json")
    parallel.set_group_ckpt_save_file("groups")
    parallel.no_init_parameters_in_compile()
    parallel.dump_local_norm("norms")
    parallel.enable_device_local_norm()
    expected = {
        "enable_parallel_optimizer": True,
        "optimizer_weight_shard_size": 4,
        "parallel_optimizer_threshold": 32,
        "optimizer_level": "level2",
        "gradient_accumulation_shard": True,
        "force_fp32_communication": True,
        "gradient_fp32_sync": False,
        "loss_repeated_mean": False,
        "strategy_ckpt_load_file": "in.ckpt",
        "strategy_ckpt_save_file": "out.ckpt",
        "strategy_ckpt_only_trainable_params": False,
        "op_strategy_load_file": "/in.json",
        "op_strategy_save_file": "/out.json",
        "group_ckpt_save_file": "groups",
        "init_param_in_compile": False,
        "dump_local_norm": True,
        "dump_local_norm_path": "norms",
        "dump_device_local_norm": True,
    }
    settings = parallel.parallel_config.by_key()
    assert {key: settings[key] for key in expected} == expected
    assert parallel.parallel_config.comm_fusion.fusion_rule_for("allreduce").threshold_megabytes == 32
    parallel.hsdp()  # level 1 again
    assert parallel.parallel_config.gradient_accumulation_shard is False


@pytest.mark.parametrize(
    ("setter", "arguments", "error"),
    [
        ("hsdp", {"shard_size": 0}, SporaxValueError),
        ("hsdp", {"shard_size": "a"}, SporaxValueError),
        ("hsdp", {"threshold": -1}, SporaxValueError),
        ("hsdp", {"threshold": "a"}, SporaxValueError),
        ("hsdp", {"optimizer_level": "x"}, SporaxValueError),
        ("pipeline", {"stages": 0}, SporaxValueError),
        ("pipeline", {"stages": "a"}, SporaxTypeError),
        ("pipeline", {"stages": True}, SporaxTypeError),
        ("pipeline", {"output_broadcast": 1}, SporaxTypeError),
        ("pipeline", {"interleave": 1}, SporaxTypeError),
        ("pipeline", {"scheduler": 3}, SporaxTypeError),
        ("pipeline", {"scheduler": "x"}, SporaxValueError),
        ("comm_fusion", {"config": 3}, SporaxTypeError),
        ("comm_fusion", {"config": {"foo": 1}}, SporaxKeyError),
        ("dataset_strategy", {"config": None}, SporaxValueError),
        ("dataset_strategy", {"config": "x"}, SporaxValueError),
        ("dataset_strategy", {"config": [1]}, SporaxTypeError),
        ("dataset_strategy", {"config": (1,)}, SporaxTypeError),
        ("dataset_strategy", {"config": ((1.0,),)}, SporaxTypeError),
        ("dataset_strategy", {"config": (Layout((2,), ("a",)),)}, SporaxValueError),
        ("load_param_strategy_file", {"file_path": 3}, SporaxTypeError),
        ("save_param_strategy_file", {"file_path": 3}, SporaxTypeError),
        ("load_operator_strategy_file", {"file_path": "a.json"}, SporaxKeyError),
        ("save_operator_strategy_file", {"file_path": "/a.txt"}, SporaxKeyError),
        ("save_operator_strategy_file", {"file_path": 3}, SporaxTypeError),
        ("set_group_ckpt_save_file", {"file_path": 3}, SporaxTypeError),
        ("dump_local_norm", {"file_path": 3}, SporaxTypeError),
        ("transformer_opt", {"file_path": 3}, SporaxTypeError),
    ],
)
def test_refused_settings(parallel, setter, arguments, error):
    before = parallel.parallel_config
    with pytest.raises(error, match="For '"):
        getattr(parallel, setter)(**arguments)
    assert parallel.parallel_config == before


@pytest.mark.parametrize("mode", ["foo", 3, None])
def test_refused_modes(net, mode):
    with pytest.raises(SporaxValueError, match="'parallel_mode' must be one of"):
        AutoParallel(net, mode)


def test_refused_networks():
    with pytest.raises(SporaxTypeError, match="must be a Cell or a function, but got int"):
        AutoParallel(3)


def test_rewrites_for_ascend_warn(parallel):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel.transformer_opt(None)
    with pytest.warns(UserWarning, match="changes nothing here"):
        parallel.transformer_opt("speed_up.json")


def test_its_module_may_be_the_first_that_is_imported():
    command = "from sporax.mindspore.parallel.auto_parallel import AutoParallel; print(AutoParallel.__name__)"
    job = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    assert job.stdout.split() == ["AutoParallel"], job.stderr
