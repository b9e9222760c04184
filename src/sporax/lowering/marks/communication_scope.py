"""A name scope around communication: it says what is sent, and for what, in the text of the compiled program and in profiles."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

import jax

_PREFIX = "communication:"
# Paths of operators leave out parts with a colon.
_PURPOSE = re.compile(rf"{_PREFIX}([^/]*)")


def communication_scope(purpose: str, path: str = "") -> AbstractContextManager[None]:
    """Names what is traced inside.

    Args:
        purpose: for people: ``"gradient of fc.weight"``.
        path: of the operator that it is for.
    """
    name = f"{_PREFIX}{purpose.replace('/', '.')}"
    scope: AbstractContextManager[None] = jax.named_scope(f"{path}/{name}" if path else name)
    return scope


def purposes_of(stack: str) -> list[str]:
    """What a name stack says of communication.

    Example:
        >>> purposes_of("step/fc/communication:gradient of fc.weight")
        ['gradient of fc.weight']
    """
    return _PURPOSE.findall(stack)
