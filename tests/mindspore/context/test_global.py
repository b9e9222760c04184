import os
import warnings

import jax
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.cluster.environment import SIMULATED_DEVICES
from sporax.mindspore import context
from sporax.mindspore.context import _global, _parallel
from sporax.mindspore.context._settings import GlobalSettings, ParallelSettings


def test_defaults_and_changes():
    assert context.get_context("mode") == context.PYNATIVE_MODE == 1
    context.set_context(mode=context.GRAPH_MODE, deterministic="ON")
    assert context.graph_mode()
    assert (context.get_context("mode"), context.get_context("deterministic")) == (0, "ON")
    assert (context.get_context("save_graphs"), context.get_context("max_call_depth")) == (False, 1000)
    assert context.get_context("device_target") == {"gpu": "GPU", "tpu": "TPU"}.get(jax.default_backend(), "CPU")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"foo": 1}, SporaxValueError),
        ({"mode": 7}, SporaxValueError),
        ({"mode": "GRAPH"}, SporaxTypeError),
        ({"mode": True}, SporaxTypeError),
        ({"device_target": "XPU"}, SporaxValueError),
        ({"device_target": 3}, SporaxTypeError),
        ({"device_target": "TPU"}, SporaxRuntimeError),
        ({"device_id": -1}, SporaxValueError),
        ({"device_id": 4096}, SporaxValueError),
        ({"device_id": "a"}, SporaxTypeError),
        ({"deterministic": "foo"}, SporaxValueError),
        ({"deterministic": True}, SporaxTypeError),
        ({"max_call_depth": 0}, SporaxValueError),
        ({"save_graphs": 7}, SporaxValueError),
        ({"save_graphs": "a"}, SporaxTypeError),
        ({"memory_optimize_level": "O3"}, SporaxValueError),
        ({"runtime_num_threads": -1}, SporaxValueError),
        ({"jit_syntax_level": 7}, SporaxValueError),
        ({"jit_syntax_level": 1.0}, SporaxTypeError),
        ({"debug_level": "1"}, SporaxTypeError),
        ({"memory_optimize_level": 0}, SporaxValueError),
        ({"save_graphs_path": ""}, SporaxValueError),
        ({"exec_order": "any"}, SporaxValueError),
        ({"aoe_tune_mode": ""}, SporaxValueError),
        ({"aoe_config": {"job_type": "3"}}, SporaxValueError),
        ({"jit_config": {"jit_level": "O3"}}, SporaxValueError),
        ({"jit_config": {"level": "O0"}}, SporaxValueError),
        ({"ascend_config": 3}, SporaxTypeError),
        ({"enable_compile_cache": 3}, SporaxTypeError),
        ({"memory_offload": True}, SporaxTypeError),
        ({"memory_offload": "on"}, SporaxValueError),
        ({"max_device_memory": 3}, SporaxTypeError),
        ({"max_device_memory": "3"}, SporaxValueError),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_switches_that_make_no_sense_are_refused(settings, error):
    with pytest.raises(error, match="For 'set_context'"):
        context.set_context(**settings)


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("save_graphs", True, 2),
        ("save_graphs_path", "graphs", os.path.realpath("graphs")),
        ("mempool_block_size", "2GB", 2.0),
        ("memory_optimize_level", "O1", 1),
        ("profiling_options", "task_trace", "task_trace"),
        ("jit_config", {"jit_level": "O1", "infer_boost": "off"}, {"jit_level": "O1", "infer_boost": "off"}),
        ("jit_level", "O3", "O3"),
        ("exec_order", "dfs", "dfs"),
        ("enable_auto_mixed_precision", True, True),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_switches_are_read_back_as_in_mindspore(key, value, read):
    context.set_context(**{key: value})
    assert context.get_context(key) == read


def test_unknown_switches_cannot_be_read():
    with pytest.raises(SporaxValueError, match="but got 'foo'"):
        context.get_context("foo")
    with pytest.raises(SporaxTypeError, match="must be a string, but got int"):
        context.get_context(3)


def test_a_wrong_value_changes_nothing():
    with pytest.raises(SporaxValueError):
        context.set_context(mode=context.GRAPH_MODE, deterministic="foo")
    assert not context.graph_mode()


def test_switches_without_meaning_warn_once_and_only_when_moved():
    context.set_context(save_graphs=False, enable_graph_kernel=False)  # where they stand: no warning
    with pytest.warns(UserWarning, match="'save_graphs' .* changes nothing here"):
        context.set_context(save_graphs=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context.set_context(save_graphs=2)
    assert context.get_context("save_graphs") == 2


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="needs a machine without GPUs")
@pytest.mark.parametrize("target", ["Ascend", "GPU"])
@pytest.mark.parametrize(("flags", "found"), [("", "what JAX finds"), (SIMULATED_DEVICES + "=8", "simulated devices")])
def test_scripts_for_hardware_that_is_not_here_run_on_what_there_is(monkeypatch, target, flags, found):
    monkeypatch.setenv("XLA_FLAGS", flags)
    with pytest.warns(UserWarning, match=f"device_target='{target}' is accepted .* runs on {found} instead"):
        context.set_context(device_target=target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context.set_context(device_target=target)
    assert context.get_context("device_target") == target
    assert ms.Tensor([1.0]).raw.device == jax.devices()[0]


def test_sizes_of_device_memory():
    assert context.get_context("max_device_memory") == 1024.0
    with pytest.warns(UserWarning, match="what XLA allocates is not limited by it"):
        context.set_context(max_device_memory="3.5GB")
    assert context.get_context("max_device_memory") == 3.5


def test_new_arrays_go_to_the_chosen_device():
    context.set_device("CPU", 0)
    assert jax.config.jax_default_device == "cpu"
    assert ms.Tensor([1.0]).raw.device.platform == "cpu"


@pytest.mark.skipif(jax.local_device_count("cpu") < 4, reason="needs 4 CPU devices")
def test_one_of_several_devices():
    context.set_context(device_id=3, device_target="CPU")
    assert ms.Tensor([1.0]).raw.device == jax.devices("cpu")[3]


@pytest.mark.parametrize("index", [jax.local_device_count("cpu"), 4095])
@pytest.mark.parametrize(
    "choose",
    [
        lambda index: context.set_context(device_target="CPU", device_id=index),
        lambda index: context.set_context(device_id=index, device_target="CPU"),
        lambda index: context.set_device("CPU", index),
    ],
)
def test_a_script_that_names_a_device_of_its_machine_runs_on_the_first(index, choose):
    """Public programs have ``device_id=1`` as a default; MindSpore's documentation has 4096 devices per machine at most."""
    with pytest.warns(UserWarning, match=rf"device_id={index} is accepted .* has \d+ device\(s\) and runs on device 0"):
        choose(index)
    assert context.get_context("device_id") == index
    assert ms.Tensor([1.0]).raw.device == jax.devices("cpu")[0]


def test_a_launched_ranks_own_device_has_its_number_on_the_node(monkeypatch):
    """Scripts say ``device_id=int(os.getenv("DEVICE_ID"))``, which the launcher sets; the rank sees that device alone."""
    number = jax.local_device_count("cpu") + 1
    monkeypatch.setenv("DEVICE_ID", str(number))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context.set_context(device_id=number, device_target="CPU")
    assert context.get_context("device_id") == number
    assert ms.Tensor([1.0]).raw.device == jax.devices("cpu")[0]


@pytest.mark.parametrize(("module", "keys"), [(_global, GlobalSettings), (_parallel, ParallelSettings)])
def test_editors_know_every_key_of_the_setters(module, keys):
    assert keys.__annotations__.keys() == module._settings._setters.keys()
