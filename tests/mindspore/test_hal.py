"""Questions about devices. Answers for CPUs are the wheel's."""

import pytest

from sporax.mindspore import device_context, hal
from sporax.mindspore.device_context.cpu import is_available, threads_num
from sporax.mindspore.device_context.cpu.op_tuning import threads_num as same
from sporax.mindspore.device_context.gpu.op_precision import conv_allow_tf32


class _Gpu:
    platform, device_kind, compute_capability = "gpu", "NVIDIA H200", "9.0"

    def memory_stats(self):
        return {"bytes_limit": 7, "bytes_in_use": 3, "peak_bytes_in_use": 5, "pool_bytes": 6, "peak_pool_bytes": 7}


@pytest.fixture
def gpu(monkeypatch):
    """A process that computes on a GPU."""
    monkeypatch.setattr(device_context, "of_kind", lambda kind: [_Gpu()] if kind == "GPU" else [])
    monkeypatch.setattr("jax.local_devices", lambda **options: [_Gpu()])


def test_a_process_without_accelerators():
    assert [hal.is_available(kind) for kind in ("CPU", "GPU", "Ascend")] == [True, False, False]
    assert (hal.is_initialized("CPU"), hal.device_count(), hal.get_device_name(0)) == (True, 1, "CPU")
    assert (hal.get_device_capability(0), hal.get_device_properties(0), hal.get_arch_list()) == (None, None, None)


def test_a_gpu_is_described(gpu):
    assert hal.get_device_name(0) == "NVIDIA H200"
    assert hal.get_device_properties(0) == hal.DeviceProperties("NVIDIA H200", 9, 0, 7)
    assert hal.get_arch_list("GPU") == ["sm_90"]
    assert (hal.memory_allocated(), hal.max_memory_allocated("GPU")) == (3, 5)
    assert (hal.memory_reserved(), hal.max_memory_reserved(), hal.memory_stats()["total_idle_memory"]) == (6, 7, 3)
    assert "6 B" in hal.memory_summary()
    with pytest.warns(UserWarning, match="JAX cannot reset the peak"):
        hal.reset_peak_memory_stats()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (lambda: hal.is_available("X"), r"must be one of \['CPU', 'GPU', 'Ascend'\], but got X"),
        (lambda: hal.device_count("GPU"), "GPU is not available"),
        (lambda: hal.get_device_name(3), "'device_id' must be less than device count: 1, but got 3"),
        (lambda: hal.memory_stats("Ascend"), "'device_target' must be 'CPU'"),
    ],
)
def test_what_is_not_there_is_refused(query, message):
    with pytest.raises(ValueError, match=message):
        query()


def test_settings_of_other_compilers_say_that_they_change_nothing():
    assert (device_context.cpu.is_available(), device_context.ascend.is_available()) == (True, False)
    assert device_context.cpu.device_count() == 1
    with pytest.raises(RuntimeError, match="the device Ascend does not exist"):
        device_context.ascend.device_count()
    with pytest.warns(UserWarning, match=r"'device_context.ascend.op_precision.precision_mode', the setting has no"):
        device_context.ascend.op_precision.precision_mode("force_fp16")


def test_settings_of_devices_are_imported_by_their_paths():
    assert threads_num is same is device_context.cpu.op_tuning.threads_num
    assert is_available() and device_context.cpu.device_count() == 1
    with pytest.warns(UserWarning, match=r"device_context\.gpu\.op_precision\.conv_allow_tf32"):
        conv_allow_tf32(True)
