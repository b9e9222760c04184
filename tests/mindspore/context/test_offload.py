import pytest

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.ir.config.placement_config import OffloadConfig
from sporax.mindspore import context
from sporax.mindspore.context import _groups


@pytest.mark.parametrize("settings", [{"host_mem_block_size": "1GB"}, {"enable_pinned_mem": False}])
def test_settings_without_effect_warn_once(settings, monkeypatch):
    monkeypatch.setattr(_groups, "_warned", set())
    (key,) = settings
    with pytest.warns(UserWarning, match=f"For 'set_offload_context', '{key}' .*has no effect"):
        context.set_offload_context(settings)
    context.set_offload_context(settings)  # warnings are errors here


def test_defaults_and_changes():
    assert context.offload_snapshot() == OffloadConfig()
    context.set_offload_context({"offload_param": "cpu", "auto_offload": False, "offload_cpu_size": "512GB"})
    context.set_offload_context({"cpu_ratio": 0.5})
    assert context.offload_snapshot() == OffloadConfig(
        offload_param="cpu", auto_offload=False, offload_cpu_size="512GB", cpu_ratio=0.5
    )
    assert context.get_offload_context()["offload_param"] == "cpu"
    context.reset_offload_context()
    assert context.offload_snapshot() == OffloadConfig()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"foo": 1}, SporaxValueError),
        ({"offload_param": "tape"}, SporaxValueError),
        ({"offload_param": 1}, SporaxTypeError),
        ({"offload_checkpoint": "tape"}, SporaxValueError),
        ({"offload_path": 3}, SporaxTypeError),
        *(({"offload_cpu_size": size}, SporaxValueError) for size in ("512", "512MB", "GB", "0GB", "-1GB", "1GB ")),
        ({"offload_disk_size": 512}, SporaxTypeError),
        ({"enable_aio": 1}, SporaxTypeError),
        ({"aio_queue_depth": 0}, SporaxValueError),
        ({"aio_queue_depth": 1.5}, SporaxTypeError),
        ({"cpu_ratio": 0.0}, SporaxValueError),
        ({"cpu_ratio": 1.5}, SporaxValueError),
        ({"hbm_ratio": 1}, SporaxTypeError),
        ([], SporaxTypeError),
    ],
)
def test_offload_settings_that_make_no_sense_are_refused(settings, error):
    with pytest.raises(error, match="For 'set_offload_context'"):
        context.set_offload_context(settings)
