"""Addresses of this machine that other machines reach, where its own name leads to itself.

Problem: Debian writes ``127.0.1.1 NAME`` into `/etc/hosts`, so a machine that asks for its own name gets an address that leads
every other machine to itself. A job on several machines needs the address of an interface instead. Method: the addresses of all
interfaces are listed; where there is one, it is meant, and where there are several, the user has to say which.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

from sporax.base.errors import SporaxValueError
from sporax.cluster import ports

_SIOCGIFADDR = 0x8915
"""Linux's request for the IPv4 address of an interface; see netdevice(7)."""
_REQUEST_BYTES = 256
_IPV6_TABLE = Path("/proc/net/if_inet6")
_GLOBAL_SCOPE = "00"


def is_loopback(address: str) -> bool:
    """Whether a numeric address leads every machine to itself."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def own_addresses() -> list[str]:
    """Numeric addresses of this machine's interfaces, IPv4 first, without loopback and link-local ones; none where this is no
    Linux.
    """
    if sys.platform != "linux":
        return []
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an IPv4 address
                request = struct.pack(f"{_REQUEST_BYTES}s", name.encode())
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
                found.append(socket.inet_ntoa(answer[20:24]))
    with suppress(OSError):  # a system without IPv6
        for line in _IPV6_TABLE.read_text().splitlines():
            digits, _, _, scope, *_ = line.split()
            if scope == _GLOBAL_SCOPE:
                found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return sorted(
        (address for address in found if not is_loopback(address)), key=lambda address: (":" in address, address)
    )


def address_for_others(host: str) -> str:
    """The address under which other machines reach the one called `host`, which may be this machine.

    Args:
        host: a name or an address, IPv6 also in brackets. An address is taken as it is, and so is a name that does not lead to a
            loopback address here.

    Raises:
        SporaxValueError: the name leads to a loopback address, and it is not this machine's, or this machine has several
            addresses.
    """
    host = host.strip("[]")
    _, resolved = ports.resolve_host(host)
    if is_address(host) or host == "localhost" or not is_loopback(resolved):
        return host
    own = socket.gethostname()
    if host.partition(".")[0] != own.partition(".")[0]:
        raise SporaxValueError(
            f"For 'master_addr', the name must lead to the node that runs the scheduler, but '{host}' leads to {resolved} here, "
            f"which is this machine ({own}). Set --master_addr (or MS_SCHED_HOST) to the address of that node."
        )
    found = own_addresses()
    # The address of each family of one interface is the same machine in the same network.
    first = [address for address in found if ":" not in address] or found
    if len(first) != 1:
        listed = ", ".join(found) or "none"
        raise SporaxValueError(
            f"For 'master_addr', the name must lead to an address that the other nodes reach, but '{host}' leads to {resolved} "
            f"here (see /etc/hosts). Set --master_addr (or MS_SCHED_HOST) to one of this machine's addresses: {listed}."
        )
    return first[0]


def is_address(host: str) -> bool:
    """Whether this is an address, not a name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def gloo_address() -> str:
    """Where gloo, XLA's transport between CPU processes, listens for this machine's other ranks and those of other machines: the
    first usable address of the machine's name (`gloo/transport/tcp/device.cc`). Nothing but the name can change it.
    """
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return "127.0.0.1"
    return next((str(entry[4][0]) for entry in found if ports.is_local(str(entry[4][0]))), "127.0.0.1")
