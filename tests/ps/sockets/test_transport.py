"""Addresses of sockets between machines: IPv4, IPv6, and where a process listens."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from background_cluster import background
from sporax.cluster import ports
from sporax.launch import cli
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.environment import PsEnvironment
from sporax.ps.protocol.messages import OptimizerSpec
from sporax.ps.sockets.security import is_loopback, keys_of_token
from sporax.ps.sockets.transport import listening_address

KEYS = keys_of_token("0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize(
    ("host", "keys", "address"),
    [
        ("10.77.0.10", KEYS, "*:8119"),
        ("10.77.0.10", None, "10.77.0.10:8119"),
        ("fd77::10", KEYS, "[::]:8119"),
        ("fd77::10", None, "[fd77::10]:8119"),
        ("127.0.0.1", KEYS, "127.0.0.1:8119"),
        ("::1", KEYS, "[::1]:8119"),
    ],
)
def test_a_job_of_this_machine_is_closed_to_others(host, keys, address):
    assert listening_address(host, 8119, keys) == address


def test_a_name_with_addresses_of_both_families_means_ipv4(monkeypatch):
    def found(*families):
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda *_, **__: [(family, None, None, "", ()) for family in families]
        )

    found(socket.AF_INET6, socket.AF_INET)
    assert ports.preferred_family("node0") == socket.AF_INET
    found(socket.AF_INET6)
    assert ports.preferred_family("node0") == socket.AF_INET6


def test_ipv6_addresses_may_have_brackets():
    for host in ("fd77::10", "[fd77::10]"):
        place = PsEnvironment.read({"MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": host, "MS_WORKER_IP": "[fd77::11]"})
        assert (place.host, place.scheduler, place.own_host) == ("fd77::10", "[fd77::10]:8119", "fd77::11")
    assert is_loopback("[::1]")
    assert not is_loopback("[fd77::10]")


def test_servers_are_reached_over_ipv6(capsys):
    with background(1, 1, MS_SCHED_HOST="::1", MS_PS_STALENESS="-1") as cluster:
        assert cluster.cluster.address.startswith("[::1]:")
        store = ServerStore(cluster.cluster.address, timeout=30.0)
        store.declare([Dense("w", 3, 0)], [OptimizerSpec("sgd")])
        store.initialise([np.zeros(3)])
        store.wait(store.push([np.ones(3, np.float32)], [1.0]))
        assert store.pull(newest=True)[0][0].tolist() == [-1, -1, -1]
        assert store.link.view.servers[0].tcp.startswith("[::1]:")
        assert cli.main(["ps", "status", "--scheduler", cluster.cluster.address]) == 0
        assert "asynchronous" in capsys.readouterr().out
        store.close()


def test_an_ipv6_address_without_brackets_could_be_meant_in_two_ways(capsys):
    assert cli.main(["ps", "status", "--scheduler", "::1:8119"]) == 2
    assert "must be in brackets, [HOST]:PORT, but got '::1:8119'" in capsys.readouterr().err
