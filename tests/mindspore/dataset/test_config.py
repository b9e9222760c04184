"""Settings of MindSpore's runtime: kept, and never silently without effect."""

import json
import warnings

import pytest

import sporax.mindspore
import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import config

WITHOUT_EFFECT = [
    ("enable_autotune", True),
    ("autotune_interval", 30),
    ("auto_num_workers", True),
    ("numa_enable", True),
    ("enable_shared_mem", False),
    ("enable_watchdog", False),
    ("monitor_sampling_interval", 10),
    ("multiprocessing_timeout_interval", 10),
    ("multiprocessing_start_method", "fork"),
    ("auto_offload", True),
]


@pytest.fixture(autouse=True)
def forget():
    yield
    config._settings.without_effect.clear()


@pytest.mark.parametrize(("name", "value"), WITHOUT_EFFECT)
def test_a_setting_without_effect_warns_and_is_kept(name, value):
    setter, getter = getattr(config, f"set_{name}"), getattr(config, f"get_{name}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        setter(getter())
    with pytest.warns(UserWarning, match=f"For 'set_{name}'"):
        setter(value)
    assert getter() == value
    with pytest.raises(TypeError):
        setter(0.5)


def test_what_would_change_the_rows_is_an_error():
    for call in (lambda: config.set_sending_batches(3), lambda: config.set_video_backend("Ascend")):
        with pytest.raises(NotImplementedError, match="For 'set_"):
            call()
    config.set_sending_batches(0)
    with pytest.raises(ValueError, match=r"Input start_method is not within the valid set of \['fork', 'spawn'\]"):
        config.set_multiprocessing_start_method("thread")


def test_the_context_is_there_as_well():
    assert ds.context.get_context is sporax.mindspore.context.get_context


def test_load(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"numParallelWorkers": 3, "opConnectorSize": 5, "seed": 7}))
    before = config.get_num_parallel_workers(), config.get_prefetch_size(), config._settings.seed
    try:
        config.load(str(file))
        assert (config.get_num_parallel_workers(), config.get_prefetch_size(), config.get_seed()) == (3, 5, 7)
    finally:
        config.set_num_parallel_workers(before[0])
        config.set_prefetch_size(before[1])
        config._settings.seed = before[2]
    file.write_text(json.dumps({"deviceNum": 3}))
    with pytest.warns(UserWarning, match="'deviceNum' has no effect"):
        config.load(str(file))
    file.write_text("[")
    with pytest.raises(RuntimeError, match="cannot be read as JSON"):
        config.load(str(file))
