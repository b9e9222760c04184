"""Every test here starts from, and leaves behind, untouched settings."""

import jax
import pytest

from sporax.mindspore import context
from sporax.mindspore.context import _global


@pytest.fixture(autouse=True)
def _untouched(monkeypatch):
    monkeypatch.setattr(_global, "_warned", set())
    switches, device = _global._settings.current, jax.config.jax_default_device
    yield
    jax.config.update("jax_default_device", device)
    _global._settings.current = switches
    context.set_world(1, 0)
    context.reset_auto_parallel_context()
    context.reset_algo_parameters()
    context.reset_cost_model_context()
    context.reset_ps_context()
    context.reset_offload_context()
