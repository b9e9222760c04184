"""Questions about device memory are answered from JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.runtime import memory


def test_arrays_that_live_on_the_first_device_are_counted(monkeypatch):
    devices = jax.local_devices()
    here, elsewhere = (jax.device_put(np.zeros(1000, np.float32), device) for device in devices[:2])
    assert any(array is here for array in jax.live_arrays())
    # Arrays of other tests come and go at any time, so only these are there.
    monkeypatch.setattr(jax, "live_arrays", lambda: [here, elsewhere])
    assert memory.memory_allocated() == here.nbytes
    assert memory.max_memory_allocated() == here.nbytes  # CPUs keep no statistics


def test_devices_with_statistics_are_asked(monkeypatch):
    class Device:
        def memory_stats(self):
            return {"bytes_in_use": 5, "peak_bytes_in_use": 9}

    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    assert (memory.memory_allocated(), memory.max_memory_allocated()) == (5, 9)


def test_settings_of_the_pool_are_accepted_with_a_warning():
    with pytest.warns(
        UserWarning, match=r"'runtime\.set_memory' is accepted for compatibility; XLA manages memory here"
    ):
        memory.set_memory(max_size="10GB", huge_page_reserve_size="1GB")


def test_the_cache_is_emptied_and_work_is_waited_for(monkeypatch):
    calls = []
    monkeypatch.setattr(jax, "clear_caches", lambda: calls.append("clear"))
    monkeypatch.setattr(jax, "block_until_ready", lambda arrays: calls.append(len(arrays)))
    array = jnp.ones(3)
    memory.empty_cache()
    memory.synchronize()
    assert calls[0] == "clear"
    assert calls[1] >= 1
    assert not array.is_deleted()
