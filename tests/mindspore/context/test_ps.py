import pytest

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.ir.config.placement_config import PsConfig
from sporax.mindspore import context


def test_defaults_and_changes():
    assert context.ps_snapshot() == PsConfig()
    assert (context.get_ps_context("scheduler_ip"), context.get_ps_context("scheduler_port")) == ("127.0.0.1", 6667)
    context.set_ps_context(enable_ps=True, worker_num=2, ms_role="MS_WORKER", server_mode="PARAMETER_SERVER")
    assert (context.get_ps_context("enable_ps"), context.get_ps_context("worker_num")) == (True, 2)
    context.set_ps_context(enable_ssl=1)
    assert context.get_ps_context("enable_ssl") is True
    context.reset_ps_context()
    assert context.ps_snapshot() == PsConfig()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"foo": 1}, SporaxValueError),
        ({"enable_ps": 1}, SporaxTypeError),
        ({"server_mode": "foo"}, SporaxRuntimeError),
        ({"server_mode": 3}, SporaxTypeError),
        ({"ms_role": "foo"}, SporaxRuntimeError),
        ({"worker_num": "a"}, SporaxTypeError),
        ({"worker_num": -1}, SporaxTypeError),
        ({"scheduler_port": 70000}, SporaxTypeError),
        ({"scheduler_ip": 3}, SporaxTypeError),
        ({"enable_ssl": "a"}, SporaxTypeError),
        ({"client_password": 3}, SporaxTypeError),
        ({"config_file_path": 3}, SporaxTypeError),
    ],
)
def test_settings_of_parameter_servers_are_checked(settings, error):
    with pytest.raises(error, match="For 'set_ps_context'"):
        context.set_ps_context(**settings)


@pytest.mark.parametrize("key", ["foo", "client_password", "server_password"])
def test_cannot_be_read(key):
    with pytest.raises(SporaxValueError, match="For 'get_ps_context'"):
        context.get_ps_context(key)


def test_passwords_are_not_printed():
    context.set_ps_context(client_password="open sesame")
    assert context.ps_snapshot().client_password == "open sesame"
    assert "sesame" not in repr(context.ps_snapshot())
