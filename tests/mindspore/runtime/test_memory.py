"""Questions about device memory are answered from JAX."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.mindspore.context import set_context
from sporax.mindspore.context._global import device_limit
from sporax.mindspore.runtime import _memory


def test_arrays_that_live_on_the_first_device_are_counted(monkeypatch):
    devices = jax.local_devices()
    here, elsewhere = (jax.device_put(np.zeros(1000, np.float32), device) for device in devices[:2])
    assert any(array is here for array in jax.live_arrays())
    # Arrays of other tests come and go at any time, so only these are there.
    monkeypatch.setattr(jax, "live_arrays", lambda: [here, elsewhere])
    assert _memory.memory_allocated() == here.nbytes
    assert _memory.max_memory_allocated() == here.nbytes  # CPUs keep no statistics


def test_devices_with_statistics_are_queried(monkeypatch):
    class Device:
        def memory_stats(self):
            return {"bytes_in_use": 5, "peak_bytes_in_use": 9}

    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    assert (_memory.memory_allocated(), _memory.max_memory_allocated()) == (5, 9)


@pytest.fixture
def _no_pool(monkeypatch):
    """Neither a limit nor a GPU, whatever came before."""
    monkeypatch.setattr(_memory._POOL, "max_bytes", None)
    monkeypatch.setattr(_memory, "_gpu_bytes", lambda: 0)
    for name in _memory._FRACTIONS:
        monkeypatch.delenv(name, raising=False)
    yield
    os.environ.pop(_memory._FRACTIONS[1], None)


@pytest.mark.usefixtures("_no_pool")
def test_the_smaller_limit_of_a_device_counts(recwarn):
    assert device_limit() == 0
    _memory.set_memory(max_size="1.5GB")
    assert device_limit() == _memory.pool_limit() == 3 * 2**29
    try:
        set_context(max_device_memory="1GB")
        assert device_limit() == 2**30
    finally:
        set_context(max_device_memory="1024GB")


@pytest.mark.usefixtures("_no_pool")
def test_the_default_is_no_limit_and_counts_as_a_call():
    _memory.set_memory()
    assert _memory.pool_limit() == 0
    with pytest.raises(RuntimeError, match="can not be set repeatedly"):
        _memory.set_memory(max_size="1GB")


@pytest.mark.usefixtures("_no_pool")
@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"max_size": 3}, TypeError),
        ({"max_size": "0GB"}, ValueError),
        ({"max_size": "-1GB"}, ValueError),
        ({"init_size": "100MB"}, ValueError),
        ({"increase_size": "1 GB"}, ValueError),
        ({"huge_page_reserve_size": "GB"}, ValueError),
        ({"optimize_level": "O2"}, ValueError),
    ],
)
def test_sizes_and_levels_are_checked(settings, error):
    with pytest.raises(error, match=f"^For 'set_memory', '{next(iter(settings))}' must be"):
        _memory.set_memory(**settings)
    assert _memory.pool_limit() == 0


@pytest.mark.usefixtures("_no_pool")
@pytest.mark.parametrize(("given", "share"), [(None, "0.1250"), ("0.5", "0.5")])
def test_the_client_of_a_gpu_gets_a_share(monkeypatch, given, share):
    monkeypatch.setattr(_memory, "_gpu_bytes", lambda: 80 * 2**30)
    if given is not None:
        monkeypatch.setenv(_memory._FRACTIONS[1], given)
    _memory.set_memory(max_size="10GB")
    assert os.environ[_memory._FRACTIONS[1]] == share


def test_no_gpu_is_requested_where_jax_uses_none():
    assert _memory._gpu_bytes() == 0 or jax.default_backend() == "gpu"


def test_the_cache_is_emptied_and_work_is_waited_for(monkeypatch):
    calls = []
    monkeypatch.setattr(jax, "clear_caches", lambda: calls.append("clear"))
    monkeypatch.setattr(jax, "block_until_ready", lambda arrays: calls.append(len(arrays)))
    array = jnp.ones(3)
    _memory.empty_cache()
    _memory.synchronize()
    assert calls[0] == "clear"
    assert calls[1] >= 1
    assert not array.is_deleted()
