"""The secret that the processes of one job share, and how they prove that they know it.

A launcher draws a random token for each job and leaves it in a file of mode 600 in a private directory, whose path its ranks
get in SPORAX_TOKEN_FILE. Where several machines or hand-started processes form a job, the user gives all of them the same token:
`sporax run --token-file FILE`, or one of the two variables::

    SPORAX_TOKEN_FILE   path of a file that holds the token; no one but its owner may be able to read it
    SPORAX_TOKEN        the token itself

The token is never sent. Who connects gets a random challenge and answers with its HMAC-SHA256 under the token (RFC 2104), which
is compared in constant time. An answer that somebody overheard is of no use for another connection.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping

from sporax.base.errors import SporaxValueError

TOKEN_VARIABLE = "SPORAX_TOKEN"
TOKEN_FILE_VARIABLE = "SPORAX_TOKEN_FILE"
# 16 characters of a hexadecimal token are 64 bits.
_MIN_CHARACTERS = 16
"""A shorter token could be guessed by trying."""
_MAX_BYTES = 4096


def new_token() -> str:
    """A random token of 256 bits."""
    return secrets.token_hex(32)


def new_nonce() -> str:
    """What one connection is challenged with."""
    return secrets.token_hex(16)


def proof(token: str, nonce: str) -> str:
    """The answer to a challenge; "" without a token."""
    # Hex, since messages are text.
    return hmac.new(token.encode(), nonce.encode(), hashlib.sha256).hexdigest() if token else ""


def is_proof(token: str, nonce: str, answer: str) -> bool:
    """Whether the answer to a challenge is right; takes the same time wherever it is wrong."""
    return hmac.compare_digest(proof(token, nonce).encode(), answer.encode())


def token_from_environ(environ: Mapping[str, str]) -> str:
    """The token of this process's job; "" where none is given.

    Raises:
        SporaxValueError: the file cannot be read or others may read it, or the token is too short.
    """
    if path := environ.get(TOKEN_FILE_VARIABLE):
        return read_token(path, TOKEN_FILE_VARIABLE)
    # A file is preferred: environment variables are visible to other processes of the user.
    text = environ.get(TOKEN_VARIABLE, "").strip()
    return _checked(text, TOKEN_VARIABLE) if text else ""


def read_token(path: str, name: str) -> str:
    """The token in a file.

    Args:
        path: the file.
        name: what the user calls it, for messages.

    Raises:
        SporaxValueError: it cannot be read, others may read it, or it holds no token.
    """
    try:
        with open(path, encoding="utf-8") as file:
            # On the open file, so that it cannot be exchanged after the check.
            mode = os.fstat(file.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise SporaxValueError(
                    f"For '{name}', only its owner may be able to read or write the file (mode 600), but '{path}' has "
                    f"mode {stat.S_IMODE(mode):o}. Change it: chmod 600 {path}."
                )
            text = file.read(_MAX_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SporaxValueError(f"For '{name}', the file must be readable, but got '{path}' ({reason}).") from error
    return _checked(text.strip(), name)


def write_token(path: str, token: str) -> None:
    """Write a token to a new file that only its owner can read."""
    # O_EXCL: a file that somebody has put there is not used.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(token)


def _checked(text: str, name: str) -> str:
    if len(text) < _MIN_CHARACTERS:
        raise SporaxValueError(
            f"For '{name}', a token must have at least {_MIN_CHARACTERS} characters, but got {len(text)}. "
            "`openssl rand -hex 32` makes a good one."
        )
    return text
