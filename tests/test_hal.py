import pytest

import sporax as ms
from sporax import Tensor, hal


def test_what_a_process_on_cpu_has():
    assert hal.is_available("CPU") and not hal.is_available("Ascend")
    assert hal.get_device_name(0, "CPU") == "CPU" and hal.get_device_properties(0, "CPU") is None
    assert hal.device_count("CPU") >= 1 and hal.device_count("Ascend") == 0


def test_memory_grows_with_what_lives():
    before = hal.memory_allocated()
    kept = Tensor([1.0]) + Tensor([0.0] * 1000)
    hal.synchronize()
    assert hal.memory_allocated() - before >= 4000 and kept.shape == (1000,)
    stats = hal.memory_stats()
    assert stats["total_reserved_memory"] == stats["total_allocated_memory"] + stats["total_idle_memory"]
    assert ms.runtime.memory_stats().keys() == stats.keys()


def test_wrong_devices_are_refused():
    with pytest.raises(ValueError, match=r"For 'hal.is_available', .* one of \['CPU', 'GPU', 'Ascend'\], but got TPU"):
        hal.is_available("TPU")
    with pytest.raises(ValueError, match=r"'device_id' must be in \[0, 0\)"):
        hal.get_device_properties(0, "Ascend")
    with pytest.raises(ValueError, match="'device_target' must be 'CPU'"):
        hal.memory_stats("Ascend")
