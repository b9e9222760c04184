import warnings

import jax
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
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


def test_ascend_is_accepted_with_a_warning_and_a_gpu_where_devices_are_simulated(monkeypatch):
    with pytest.warns(UserWarning, match="device_target='GPU' is accepted .* runs on simulated devices"):
        context.set_context(device_target="GPU")
    monkeypatch.setenv("XLA_FLAGS", "")
    with pytest.raises(RuntimeError, match="'device_target' is 'GPU', but JAX found only CPU"):
        context.set_context(device_target="GPU")
    with pytest.warns(UserWarning, match="device_target='Ascend'"):
        context.set_context(device_target="Ascend")
    assert context.get_context("device_target") == "Ascend"


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


def test_a_launched_ranks_own_device_has_its_number_on_the_node(monkeypatch):
    """Scripts say ``device_id=int(os.getenv("DEVICE_ID"))``, which the launcher sets; the rank sees that device alone."""
    number = jax.local_device_count("cpu") + 1
    monkeypatch.setenv("DEVICE_ID", str(number))
    context.set_context(device_id=number, device_target="CPU")
    assert context.get_context("device_id") == number
    assert ms.Tensor([1.0]).raw.device == jax.devices("cpu")[0]
    with pytest.raises(SporaxValueError, match="'device_id' must be in"):
        context.set_context(device_id=number + 1, device_target="CPU")
    context.set_context(device_id=0, device_target="CPU")


def test_the_device_is_checked_against_the_kind_set_with_it():
    with pytest.raises(SporaxValueError, match="'device_id' must be in"):
        context.set_context(device_id=jax.local_device_count("cpu"), device_target="CPU")
    assert context.get_context("device_id") == 0


@pytest.mark.parametrize(("module", "keys"), [(_global, GlobalSettings), (_parallel, ParallelSettings)])
def test_editors_know_every_key_of_the_setters(module, keys):
    assert keys.__annotations__.keys() == module._settings._setters.keys()
