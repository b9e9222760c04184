"""Keys of a job: CURVE encryption and authentication of every connection (CurveZMQ, curve25519).

One key pair for what listens (scheduler, servers) and one for what connects; a listener accepts the one connecting key
alone. `sporax ps keys DIR` writes both; `MS_PS_KEYS=DIR` (or `enable_ssl` with its configuration file) makes a process
use them. Without them both pairs follow from the job's token (`sporax.cluster.token`), which `sporax run` gives every
process of its job. Off loopback a process refuses to start without either unless ``MS_PS_INSECURE=1`` says so.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from sporax.base.documents import MalformedError, decode
from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.cluster.token import token_from_environ
from sporax.ir.variables import read


@dataclass(frozen=True, slots=True)
class Keys:
    """The four keys of a job, Z85 text; secrets are never printed."""

    server_public: str
    server_secret: str = field(repr=False)
    client_public: str
    client_secret: str = field(repr=False)

    def listen(self, zmq_socket: Any) -> None:
        """Make a socket accept encrypted connections only."""
        # `curve_server` makes the socket refuse everything that is not encrypted.
        zmq_socket.curve_server = True
        zmq_socket.curve_publickey = self.server_public.encode()
        zmq_socket.curve_secretkey = self.server_secret.encode()

    def connect(self, zmq_socket: Any) -> None:
        """Make a socket prove who it is and check who listens."""
        zmq_socket.curve_serverkey = self.server_public.encode()
        zmq_socket.curve_publickey = self.client_public.encode()
        zmq_socket.curve_secretkey = self.client_secret.encode()


def write_keys(directory: Path) -> None:
    """Make new keys and write them, readable by the owner alone.

    Raises:
        SporaxValueError: there are keys already.
    """
    import zmq

    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "keys.json"
    server, client = zmq.curve_keypair(), zmq.curve_keypair()
    keys = Keys(*(key.decode() for key in (*server, *client)))
    text = msgspec.json.format(msgspec.json.encode(keys), indent=2).decode()
    try:
        # O_EXCL: existing keys of a running job must not be replaced.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise SporaxValueError(f"For 'sporax ps keys', '{path}' must not exist yet, but it does.") from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def read_keys(directory: Path) -> Keys:
    """The keys `write_keys` wrote.

    Raises:
        SporaxValueError: there are none, or they are not keys.
    """
    path = directory / "keys.json"
    try:
        return decode(path.read_bytes(), Keys)
    except (OSError, MalformedError) as error:
        raise SporaxValueError(
            f"For 'sporax.ps', '{path}' must be a file made by `sporax ps keys`, but got: {error}."
        ) from None


def keys_of_token(token: str) -> Keys:
    """The keys that follow from a job's token: whoever knows it has them, and no one else."""
    import zmq
    from zmq.utils import z85

    def secret(name: str) -> bytes:
        return bytes(z85.encode(hmac.new(token.encode(), f"sporax.ps {name}".encode(), hashlib.sha256).digest()))

    # Two secrets of one token: the listening key must not be the connecting one.
    server, client = secret("server"), secret("client")
    public = [zmq.curve_public(key).decode() for key in (server, client)]
    return Keys(public[0], server.decode(), public[1], client.decode())


def keys_for(host: str, environ: Mapping[str, str] = os.environ) -> Keys | None:
    """The keys a process must use: of MS_PS_KEYS, else of the job's token; None on loopback without either.

    Raises:
        SporaxRuntimeError: other machines can be reached and there are no keys.
    """
    directory = environ.get("MS_PS_KEYS", "")
    if directory:
        return read_keys(Path(directory))
    # A token is enough where no keys were made.
    if token := token_from_environ(environ):
        return keys_of_token(token)
    if is_loopback(host) or read(environ, "MS_PS_INSECURE") == "1":
        return None
    raise SporaxRuntimeError(
        f"For 'sporax.ps', connections beyond this machine must be encrypted, but the scheduler is at '{host}' and "
        "MS_PS_KEYS names no directory with keys. Make them with `sporax ps keys DIR`, copy DIR to all machines and set "
        "MS_PS_KEYS=DIR; or give all processes one token (SPORAX_TOKEN_FILE); or set MS_PS_INSECURE=1 in a network you trust."
    )


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's loopback."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        return ipaddress.ip_address(str(found[0][4][0])).is_loopback
    except (OSError, ValueError):
        # A name that is not known is treated as another machine.
        return False


def authenticated(context: Any, keys: Keys) -> Any:
    """Start checking the keys of those who connect to sockets of `context`; stop it with its `stop`."""
    from zmq.auth.thread import ThreadAuthenticator

    class _OneKey:
        """Accepts the connecting key of the job."""

        def callback(self, domain: str, key: bytes) -> bool:
            return key == keys.client_public.encode()  # pyzmq hands over the text form

    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve_callback(domain="*", credentials_provider=_OneKey())
    return authenticator
