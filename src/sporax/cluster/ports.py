"""Addresses and ports of this machine: which are ours, which are free, how to keep one for later, and which other machines reach.

Problem: Debian writes ``127.0.1.1 NAME`` into `/etc/hosts`, so a machine that resolves its own name gets an address that leads
every other machine to itself. A job on several machines needs the address of an interface instead. Method
(`address_for_others`): the addresses of all interfaces are listed; where there is one, it is meant, and where there are
several, the user has to say which.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import secrets
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

from sporax.base.errors import SporaxRuntimeError, SporaxValueError

_LEAST_PORT = 10_000
"""Below it are the ports of most services."""
_KERNEL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_DYNAMIC_PORT = 49_152
"""RFC 6335, section 6: ports from here on are for such sockets."""
_PROBE_SECONDS = 1
"""A connection that is silent for so long is probed, again and again: seldom, and a cable is back too late."""
_PROBES = 8
UNANSWERED_SECONDS = _PROBE_SECONDS * _PROBES
"""A peer that the network does not reach for so long counts as lost: later than a cable that is plugged in again after five
seconds, and earlier than JAX's heartbeats, which end a rank without a word about the cause.
"""
UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
"""Errors of a connection whose peer is not reached."""
UNANSWERED = f"has not answered for {UNANSWERED_SECONDS} s (its machine is gone, or the network to it)"

_SIOCGIFADDR = 0x8915
"""Linux's request for the IPv4 address of an interface; see netdevice(7)."""
_REQUEST_BYTES = 256
_IPV6_TABLE = Path("/proc/net/if_inet6")
_GLOBAL_SCOPE = "00"


def resolve_host(host: str) -> tuple[socket.AddressFamily, str]:
    """The address family and numeric address of a host name or address (IPv6 also in brackets).

    Raises:
        SporaxValueError: the name is not known.
    """
    try:
        # Brackets belong to URLs; the system wants the bare address.
        addresses = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SporaxValueError(
            f"For 'master_addr', the value must be an address or a host name that is known here, but got '{host}' "
            f"({error.strerror})."
        ) from error
    family, *_, address = addresses[0]
    return family, str(address[0])


def preferred_family(host: str) -> socket.AddressFamily:
    """The family of addresses by which a host is reached where only one can be used: IPv4, unless it has addresses of IPv6 alone.

    A name that is not known, which may become known later, counts as IPv4.
    """
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError:
        return socket.AF_INET
    return socket.AF_INET6 if all(family == socket.AF_INET6 for family, *_ in found) else socket.AF_INET


def is_local(host: str) -> bool:
    """Whether `host` names this machine: only its own addresses can be bound."""
    family, address = resolve_host(host)
    # Binding fails for addresses of other machines; port 0 is any free one.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def listen(host: str, port: int | None) -> socket.socket:
    """Open a listening socket on `port` of this machine's address `host`; on any free port when `port` is None.

    Raises:
        SporaxRuntimeError: the port is in use, or may not be opened.
    """
    family, address = resolve_host(host)
    listener = socket.socket(family, socket.SOCK_STREAM)
    # A port of a job that has just ended may be used again at once.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port or 0))
    except OSError as error:
        listener.close()
        raise SporaxRuntimeError(
            f"For 'master_port', the port must be free, but got {port} on {host} ({error.strerror}). Another job may "
            "be using it: choose another port, or give none on a single node and a free one is taken."
        ) from error
    listener.listen(128)
    return listener


def notice_silence(stream: socket.socket) -> None:
    """Let a TCP connection break when its peer cannot be reached: a machine without power closes none.

    Reading then fails with an OSError after `UNANSWERED_SECONDS` (RFC 1122, section 4.2.3.6; RFC 5482 for what was sent and is
    not acknowledged). Where the system has no such options its own times hold, two hours as a rule.
    """
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": _PROBE_SECONDS,
        "TCP_KEEPINTVL": _PROBE_SECONDS,
        "TCP_KEEPCNT": _PROBES - 1,  # the last probe, too, has its pause
        "TCP_USER_TIMEOUT": 1000 * UNANSWERED_SECONDS,
    }
    for name, value in options.items():
        if hasattr(socket, name):
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def reserve_port(host: str) -> socket.socket:
    """Take a free port on address `host` and hold it, so that no one else is given it before it is used.

    The socket never listens. JAX's coordinator opens its port with SO_REUSEPORT, as this socket does, and so can
    open the very port that is held here; close the socket when the job is over.
    """
    family, address = resolve_host(host)
    holder = socket.socket(family, socket.SOCK_STREAM)
    # JAX's coordinator sets the same option, which the kernel demands of both sockets.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind((address, 0))
    return holder


def two_free_ports() -> int:
    """The first of two neighbouring ports of this machine that are free now and stay so unless somebody requests them.

    They lie below those that the kernel gives to connections and to sockets that take any port: one of these could be gone
    before a process that starts now has opened it. The scheduler of ranks and the store use two neighbouring ports.
    """
    end = max(_first_port_of_the_kernel(), 2 * _LEAST_PORT)
    while True:
        port = _LEAST_PORT + secrets.randbelow(end - _LEAST_PORT - 1)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("", port))
                second.bind(("", port + 1))
            except OSError:
                continue
        return port


def _first_port_of_the_kernel() -> int:
    """The first of the ports that are given to sockets which name none."""
    try:
        return int(_KERNEL_PORTS.read_text().split()[0])
    except OSError:  # another system than Linux
        return _FIRST_DYNAMIC_PORT


def own_address(peer: str) -> str:
    """This machine's address as `peer` sees it. Nothing is sent."""
    family, address = resolve_host(peer)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket only chooses the interface.
            probe.connect((address, 1))
        except OSError as error:
            raise SporaxValueError(
                f"For 'master_addr', the address must be reachable from here, but got '{peer}' ({error.strerror})."
            ) from error
        return str(probe.getsockname()[0])


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
    _, resolved = resolve_host(host)
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
    return next((str(entry[4][0]) for entry in found if is_local(str(entry[4][0]))), "127.0.0.1")
