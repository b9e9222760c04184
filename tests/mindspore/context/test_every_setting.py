"""Every setting of every group: a wrong type and a wrong number are refused, and one without effect is reported.

The settings come from the tables by which they are set, so a new one without a check, or without a rule that says when a step
reads it, fails here.
"""

import argparse
import dataclasses
import inspect
import warnings

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.placement_config import OffloadConfig, PsConfig
from sporax.ir.config.search_config import CostModelConfig, SearchConfig
from sporax.ir.pipeline_schedule import PipelineSchedule
from sporax.launch import options
from sporax.mindspore import Parameter, Tensor, amp, context, nn
from sporax.mindspore.context import _global, _groups, _nested, _parallel, _unused
from sporax.mindspore.nn import Optimizer
from sporax.mindspore.parallel.auto_parallel import AutoParallel

GROUPS = {
    "set_context": (ms.set_context, _global._settings),
    "set_auto_parallel_context": (ms.set_auto_parallel_context, _parallel._settings),
    "set_ps_context": (ms.set_ps_context, _groups._ps),
    "set_offload_context": (lambda **settings: context.set_offload_context(settings), _groups._offload),
    "set_algo_parameters": (context.set_algo_parameters, _groups._algo),
    "set_cost_model_context": (context.set_cost_model_context, _groups._cost_model),
}
KEYS = [(group, key) for group, (_, settings) in GROUPS.items() for key in settings._setters]


@pytest.fixture(autouse=True)
def _untold():
    mode = ms.get_context("mode")
    _unused.forget_reported()
    _global._warned.clear()
    _groups._warned.clear()
    yield
    for _, settings in GROUPS.values():
        settings.reset()
    ms.set_context(mode=mode)


def values_next_to(setting):
    """Numbers and words that are next to a value, and outside of what any setting may be."""
    if isinstance(setting, bool):
        return (2.5, "yes")
    if isinstance(setting, int):
        return (-(10**9), 10**30 * 1.5, float("nan"), True)
    if isinstance(setting, float):
        return (-1.0e9, float("nan"), float("inf"), "1.0")
    return (["a list of a list"],)


# ------------------------------------------------------------------------------------------- wrong types and numbers


@pytest.mark.parametrize(("group", "key"), KEYS)
def test_a_wrong_type_is_refused(group, key):
    change, settings = GROUPS[group]
    before = settings.current
    with pytest.raises(SporaxError, match=f"For '{group}'"):
        change(**{key: object()})
    assert settings.current is before


@pytest.mark.parametrize(("group", "key"), KEYS)
def test_numbers_that_no_setting_has_are_refused(group, key):
    change, settings = GROUPS[group]
    current = settings.current.config if group == "set_auto_parallel_context" else settings.current
    default = current.get(key) if isinstance(current, dict) else getattr(current, key, None)
    for value in values_next_to(default):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                change(**{key: value})
            except SporaxError:
                continue
        # MindSpore ignores some numbers: then it is reported.
        assert caught, f"{group}({key}={value!r}) is silent"


@pytest.mark.parametrize(("group", "key"), KEYS)
def test_unknown_keys_are_refused(group, key):
    with pytest.raises(ValueError, match=f"'{key}_'"):
        GROUPS[group][0](**{f"{key}_": 1})


@pytest.mark.parametrize(
    ("key", "table"),
    [
        ("parallel_optimizer_config", _nested._OPTIMIZER),
        ("pipeline_config", _nested._PIPELINE),
        ("strategy_ckpt_config", _nested._STRATEGY_FILES),
    ],
)
def test_settings_inside_of_settings_are_checked(key, table):
    for inner in table:
        for value in (object(), -7, "no such word" if inner not in ("load_file", "save_file") else 1):
            with pytest.raises(SporaxError, match=f"For 'set_auto_parallel_context', '.*{inner}"):
                ms.set_auto_parallel_context(
                    **{key: {**dict.fromkeys(table), inner: value}} if False else {key: {inner: value}}
                )
    with pytest.raises(ValueError, match="but got 'other'"):
        ms.set_auto_parallel_context(**{key: {"other": 1}})


@pytest.mark.parametrize("kind", ["allreduce", "allgather", "reducescatter"])
@pytest.mark.parametrize(
    "rule",
    [
        3,
        {},
        {"mode": "size"},
        {"mode": "some", "config": 1},
        {"mode": "size", "config": -1},
        {"mode": "size", "config": "1"},
    ],
)
def test_rules_of_fusion_are_checked(kind, rule):
    with pytest.raises(SporaxError, match="For 'set_auto_parallel_context'"):
        ms.set_auto_parallel_context(comm_fusion={kind: rule})


METHODS = [
    name
    for name, method in vars(AutoParallel).items()
    if inspect.isfunction(method) and not name.startswith("_") and len(inspect.signature(method).parameters) > 1
    if name not in ("construct",)
]


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_auto_parallel_refuse_wrong_types(name):
    wrapped = AutoParallel(nn.Dense(2, 2))
    for parameter in list(inspect.signature(getattr(wrapped, name)).parameters):
        with pytest.raises(SporaxError, match="^For '"):
            getattr(wrapped, name)(**{parameter: object()})


# ------------------------------------------------------------------------------------------------- without effect


FIELDS = {
    "set_auto_parallel_context": (ParallelConfig, _unused.PARALLEL),
    "set_algo_parameters": (SearchConfig, _unused.SEARCH),
    "set_offload_context": (OffloadConfig, _unused.OFFLOAD),
    "set_ps_context": (PsConfig, _unused.PS),
}


@pytest.mark.parametrize("group", FIELDS)
def test_every_setting_has_a_rule_that_says_when_it_is_read(group):
    config, table = FIELDS[group]
    assert set(table) == {field.name for field in dataclasses.fields(config)}


FUSION = {"allreduce": {"mode": "size", "config": 3}}
OTHERS = {
    "parallel_mode": None,  # read by every step
    "pipeline_schedule": PipelineSchedule,
    "dataset_strategy": "full_batch",
    "search_mode": "dynamic_programming",
    "auto_parallel_search_mode": "dynamic_programming",
    "parallel_optimizer_config": {"parallel_optimizer_threshold": 1},
    "optimizer_weight_shard_size": 2,
    "pipeline_config": {"pipeline_interleave": True, "pipeline_scheduler": "gpipe"},
    "comm_fusion": FUSION,
    "all_reduce_fusion_config": [1],
    "all_reduce_fusion_sizes": [8],
    "communi_parallel_mode": "no_group_parallel",
    "strategy_ckpt_config": {"only_trainable_params": False},
    "recompute": None,  # works everywhere
    "grad_accumulation_step": 2,
    "server_mode": "PARAMETER_SERVER",
    "ms_role": "MS_WORKER",
    "durability": "disk",
    "scheduler_port": 1234,
    "offload_param": "cpu",
    "offload_checkpoint": "cpu",
    "tensor_slice_align_size": 8,
    "run_phase": 1,
    "costmodel_allreduce_fusion_algorithm": 1,
    "mode": None,
    "device_target": "Ascend",
    "device_id": None,  # a device that is there is used
    "memory_offload": None,
    "pynative_synchronize": None,
    "deterministic": None,  # sums of a CPU are the same anyway
    "jit_syntax_level": None,
    "memory_optimize_level": "O1",
    "jit_level": "O1",
    "debug_level": 1,
    "device_memory_capacity": 1.0e9,
}
"""Values of settings that are not simply other than their default; None: a setting that every program reads."""


def moved(key, default):
    """A value other than the default."""
    if key in OTHERS:
        return OTHERS[key]
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    if isinstance(default, float):
        return default / 2
    if isinstance(default, dict):
        return {"some": 1}
    return "7GB" if "size" in key or "memory" in key else "here"


def train():
    """A training step of one device in the mode that holds; servers, plans and files have no part in it."""
    net = nn.Dense(2, 1)
    nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))(
        Tensor(np.ones((1, 2), np.float32)), Tensor(np.ones((1, 1), np.float32))
    )


@pytest.mark.parametrize(("group", "key"), KEYS)
@pytest.mark.sampled(60)
def test_a_setting_without_effect_is_reported_or_refused(group, key):
    change, settings = GROUPS[group]
    current = settings.current.config if group == "set_auto_parallel_context" else settings.current
    default = current.get(key) if isinstance(current, dict) else getattr(current, key, False)
    value = moved(key, default)
    if value is None or value is PipelineSchedule:
        pytest.skip("every program reads it" if value is None else "a schedule is built for its stages")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            change(**{key: value})
            train()
        except SporaxError as error:
            assert "For '" in str(error)  # noqa: PT017  # either is right
            return
    assert any("For 'set" in str(entry.message) or key in str(entry.message) for entry in caught), (
        f"{key}={value!r} is silent"
    )


def test_passwords_are_not_printed():
    ms.set_ps_context(client_password="open sesame")
    with pytest.warns(UserWarning, match="'client_password' has no effect") as caught:
        train()
    assert not any("sesame" in str(entry.message) for entry in caught)


def test_what_is_read_is_not_reported():
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        device_num=8,
        gradients_mean=True,
        enable_parallel_optimizer=True,
        parallel_optimizer_config={"parallel_optimizer_threshold": 0},
        optimizer_weight_shard_size=2,
        enable_alltoall=True,
        comm_fusion=FUSION,
        dataset_strategy="full_batch",
    )
    ms.set_context(mode=ms.GRAPH_MODE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train()
    assert [str(entry.message) for entry in caught] == []


def test_each_is_reported_once_for_each_mode_and_value():
    ms.set_auto_parallel_context(gradients_mean=True)
    with pytest.warns(UserWarning, match="'gradients_mean' has no effect in this step: it needs a parallel mode"):
        train()
    train()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"enable_parallel_optimizer": True, "optimizer_weight_shard_size": 3},
            "must divide the 8 devices .* but got 3",
        ),
        (
            {"enable_parallel_optimizer": True, "optimizer_weight_shard_size": 16},
            "must divide the 8 devices .* but got 16",
        ),
        ({"all_reduce_fusion_config": [1, 50]}, r"is \[1, 50\], but there are only 2 gradients"),
        ({"comm_fusion": {"allreduce": {"mode": "index", "config": [9]}}}, r"is \[9\], but there are only 2 gradients"),
        ({"parameter_broadcast": True}, "'parameter_broadcast' has no effect"),
        ({"pipeline_segments": 2}, "'pipeline_segments' has no effect"),
    ],
)
def test_numbers_that_do_not_fit_the_devices_or_the_gradients(settings, message):
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, **settings)
    with pytest.warns(UserWarning, match=message):
        train()


def test_parameters_of_one_rank_have_no_meaning_in_plans():
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    net = nn.Dense(2, 1)
    net.weight.layerwise_parallel = True
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    with pytest.warns(UserWarning, match="'layerwise_parallel' of 'weight' has no effect"):
        step(Tensor(np.ones((8, 2), np.float32)), Tensor(np.ones((8, 1), np.float32)))


# --------------------------------------------------------------------------------------------- optimizers, command line


def numbers_of_optimizers():
    """Every argument of every optimizer whose default is a float, and the learning rate and loss scale of all."""
    for name in nn.__all__:
        cls = getattr(nn, name)
        if inspect.isclass(cls) and issubclass(cls, Optimizer) and cls not in (Optimizer, nn.OptaxOptimizer):
            for argument, entry in inspect.signature(cls).parameters.items():
                if type(entry.default) is float or argument == "learning_rate":
                    yield name, argument


@pytest.mark.filterwarnings("ignore:For 'AdamOffload', the state of the optimizer is kept on the device")
@pytest.mark.parametrize(("name", "argument"), list(numbers_of_optimizers()))
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_optimizers_refuse_what_is_no_finite_number(name, argument, value):
    cls = getattr(nn, name)
    needed = [p for p, entry in inspect.signature(cls).parameters.items() if entry.default is inspect.Parameter.empty]
    weight = Parameter(Tensor(np.ones((2, 2), np.float32)), name="weight")
    known = {"learning_rate": 0.1, "momentum": 0.9, "params": [weight], "optimizer": nn.SGD([weight], 0.1)}
    settings = {key: known[key] for key in needed if key in known}
    with pytest.raises(SporaxError, match="^For '"):
        cls(**{**settings, argument: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scales_are_finite(value):
    for make in (
        amp.FixedLossScaleManager,
        amp.DynamicLossScaleManager,
        amp.StaticLossScaler,
        lambda scale: amp.DynamicLossScaler(scale, 2, 10),
        nn.FixedLossScaleUpdateCell,
        lambda scale: nn.DynamicLossScaleUpdateCell(scale, 2, 10),
        lambda scale: nn.TrainOneStepCell(nn.Dense(2, 2), nn.SGD(nn.Dense(2, 2).trainable_params(), 0.1), scale),
    ):
        with pytest.raises(SporaxError, match="^For '"):
            make(value)


def checked(*words):
    parser = argparse.ArgumentParser()
    options.add_arguments(parser, options.RUN_DEFAULTS)
    return options.checked(parser.parse_args(words), options.RUN_DEFAULTS)


def flags():
    parser = argparse.ArgumentParser()
    options.add_arguments(parser, options.RUN_DEFAULTS)
    return [action for action in parser._actions if action.option_strings and action.dest not in ("help", "module")]


@pytest.mark.parametrize("flag", [action.option_strings[0] for action in flags() if action.type is int])
@pytest.mark.parametrize("value", ["-1000000", "some", "1.5"])
def test_numbers_of_the_command_line_are_checked(flag, value, capsys):
    given = ["--worker_num", "2"] if flag != "--worker_num" else []
    given += ["--server_num", "1"] if flag == "--staleness" else []
    with pytest.raises((SystemExit, SporaxError)) as refused:
        checked(*given, flag, value, __file__)
    assert flag.strip("-") in str(refused.value) + capsys.readouterr().err


@pytest.mark.parametrize("action", flags(), ids=lambda action: action.dest)
def test_flags_of_the_launcher_are_refused_where_nothing_is_launched(action):
    in_one_process = (
        "config",
        "worker_num",
        "local_devices",
        "resume",
        "no_cache",
        "verbose",
        "verify_plan",
        "verify_steps",
    )
    if action.dest in (*in_one_process, "profile", "profile_steps"):
        pytest.skip("has a meaning for one process")
    values = {int: "3", options._switch: "False", options._binding: "True"}
    value = (
        "memory"
        if action.choices and action.type is None
        else str(action.choices[-1])
        if action.choices
        else values.get(action.type, "here")
    )
    with pytest.raises(SporaxError, match="must be used together with --worker_num"):
        checked(action.option_strings[0], *([] if action.nargs == 0 else [value]), __file__)


def test_cost_model_fields_are_its_settings():
    assert set(_groups._cost_model._setters) == {field.name for field in dataclasses.fields(CostModelConfig)}
