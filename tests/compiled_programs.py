"""Which programs are traced and compiled while a block of a test runs: JAX notifies its listeners."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax

_COMPILED = "/jax/core/compile/backend_compile_duration"


@dataclass
class Compiled:
    """What was compiled.

    Attributes:
        names: of the programs, in order.
    """

    names: list[str] = field(default_factory=list)


_listening: list[Compiled] = []


def _note(event: str, seconds: float, **facts: Any) -> None:
    if event == _COMPILED:
        for each in _listening:
            each.names.append(str(facts.get("fun_name", "?")))


jax.monitoring.register_event_duration_secs_listener(_note)  # once for the session: listeners cannot be taken away


@contextlib.contextmanager
def compilations() -> Iterator[Compiled]:
    """The programs that are compiled in the block."""
    noted = Compiled()
    _listening.append(noted)
    try:
        yield noted
    finally:
        _listening.remove(noted)
