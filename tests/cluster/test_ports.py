import socket

import pytest

from sporax.cluster import ports
from sporax.ir.errors import SporaxRuntimeError, SporaxValueError


def test_what_is_local():
    assert ports.is_local("127.0.0.1")
    assert ports.is_local("localhost")
    assert not ports.is_local("192.0.2.1")  # an address reserved for documentation


def test_unknown_names():
    with pytest.raises(SporaxValueError, match=r"but got 'no\.such\.host\.invalid'"):
        ports.resolve_host("no.such.host.invalid")


def test_a_port_in_use_is_named():
    with ports.listen("127.0.0.1", None) as taken, pytest.raises(SporaxRuntimeError, match="must be free, but got"):
        ports.listen("127.0.0.1", taken.getsockname()[1])


def test_reserved_ports_differ_and_can_still_be_opened_as_jax_opens_its_own():
    with ports.reserve_port("127.0.0.1") as one, ports.reserve_port("127.0.0.1") as other:
        assert one.getsockname() != other.getsockname()
        with socket.socket() as service:
            service.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            service.bind(one.getsockname())
            service.listen()
            with socket.create_connection(one.getsockname()):
                service.accept()[0].close()


def test_own_address():
    assert ports.own_address("127.0.0.1") == "127.0.0.1"
