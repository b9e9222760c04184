"""What an instruction of a pipeline runs besides programs of its own process: transfers, and programs that wait in line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from sporax.runtime.pipeline.transfer import Line


class InLine:
    """A program of a stage that several processes drive."""

    def __init__(self, executable: Any, line: Line) -> None:
        self.executable, self.line = executable, line

    def __call__(self, *arrays: jax.Array) -> Any:
        """Start it when the program before has ended."""
        return self.line.next(self.executable, *arrays)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executable, name)


class Once:
    """Brings a variable again only when it has got another value than before.

    Processes that receive it have nothing of it in their hands, and all must agree on whether it is sent. So what is compared is
    the argument of the step, which every process has and which scripts set on all of them.
    """

    def __init__(self, mover: Any, position: int) -> None:
        self.mover = mover
        self.position = position
        # A value that no argument is, so that the first call always moves.
        self.last: Any = self
        self.due = True
        self.copy: Any = None

    def begin(self, arguments: Sequence[Any]) -> None:
        """A step begins with these arguments."""
        self.due = arguments[self.position] is not self.last
        self.last = arguments[self.position]

    def __call__(self, array: jax.Array | None) -> Any:
        """The array where it is read; the one of an earlier step where nothing has changed."""
        if self.due:
            self.copy = self.mover(array)
        return self.copy


class Mover:
    """Brings an array to the devices of another stage, cut as it is read there."""

    __slots__ = ("sharding",)

    def __init__(self, sharding: Any) -> None:
        self.sharding = sharding

    def __call__(self, array: jax.Array) -> tuple[jax.Array]:
        """The array on the other devices."""
        return (jax.device_put(array, self.sharding),)
