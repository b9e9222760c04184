import socket

import pytest

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.cluster import ports


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


def test_two_free_ports_are_not_among_those_that_connections_get(tmp_path, monkeypatch):
    kernel = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "_KERNEL_PORTS", kernel)
    for first in (None, 1024, 32_768):
        if first is not None:
            kernel.write_text(f"{first}\t60999\n")
        found = [ports.two_free_ports() for _ in range(20)]
        assert len(set(found)) > 10
        assert all(10_000 <= port < max(first or 49_152, 20_000) - 1 for port in found)
        for port in (found[0], found[0] + 1):
            ports.listen("127.0.0.1", port).close()


def test_a_port_whose_neighbour_is_taken_is_not_chosen(monkeypatch):
    with ports.listen("127.0.0.1", ports.two_free_ports() + 1) as taken:
        port = taken.getsockname()[1]
        choices = iter([port - 1, port, port + 1])
        monkeypatch.setattr(ports.secrets, "randbelow", lambda _: next(choices) - 10_000)
        assert ports.two_free_ports() == port + 1


def test_own_address():
    assert ports.own_address("127.0.0.1") == "127.0.0.1"


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such option")
def test_a_silent_connection_breaks_in_the_time_that_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as stream:
        ports.notice_silence(stream)
        options = {
            name: stream.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        }
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    until_broken = options["TCP_KEEPIDLE"] + options["TCP_KEEPINTVL"] * options["TCP_KEEPCNT"]
    assert until_broken == options["TCP_USER_TIMEOUT"] / 1000 == ports.UNANSWERED_SECONDS
