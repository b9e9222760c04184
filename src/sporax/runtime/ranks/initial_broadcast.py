"""Ranks that train together begin with the values of rank 0 (`parameter_broadcast`).

Problem: each rank draws its own weights, and a training step may be anything: a Cell, a compiled function, gradients that are
computed operator by operator with an optimizer after them, Parameters that only closures know.
Method: whoever computes gradients of weights, or updates them, says so (`request`). A compiled program gives its variables the
values of rank 0 when it is compiled; operator by operator a Parameter gets them when it is read for the first time (`reading`).
Each Parameter gets them once, so what one rank alone compiles again later is no exchange.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax

from sporax.runtime import ranks as between_ranks
from sporax.runtime.ranks import groups
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames

TAG = "first values"
"""What the trace of a program notes that begins with rank 0's values (`state.note_tag`)."""


def request(variables: Iterable[Any]) -> None:
    """Say that what runs now trains: `variables`, and all that the program around it has, begin with rank 0's values."""
    if frames.compiling():
        frames.note_tag(TAG)
    else:
        agree(variables)


def reading() -> AbstractContextManager[Any]:
    """Context in which Parameters that are read begin with rank 0's values; compiled programs have `TAG` for it."""
    return nullcontext() if frames.compiling() else _FirstReads()


def agree(variables: Iterable[Any]) -> None:
    """Give Parameters rank 0's values, except for those that have got them before and those that belong to their rank.

    All ranks must call it, with the same ones.
    """
    shared = [variable for variable in variables if _is_shared(variable) and id(variable) not in SESSION.agreed]
    if not shared:
        return
    # Reading may happen in the body of a loop, whose trace must not take the exchange for a part of it.
    with jax.ensure_compile_time_eval():
        values = [frames.in_device_memory(variable.raw) for variable in shared]
        for variable, value in zip(
            shared, between_ranks.flat_buffers.broadcast_buckets(groups.find(None), 0, values), strict=True
        ):
            frames.put(variable, value)
    note_agreed(shared)


def note_agreed(variables: Iterable[Any]) -> None:
    """Note that these Parameters have rank 0's values."""
    SESSION.agreed.update((id(variable), variable) for variable in variables)


class _FirstReads(frames.Frame):
    """Frame around a function that runs operator by operator and reads Parameters that its caller does not know."""

    def read(self, variable: frames.Variable) -> jax.Array:
        """Value of `variable`, which is rank 0's from the first read on."""
        if variable not in self.values:
            agree((variable,))
        return super().read(variable)


def _is_shared(variable: object) -> bool:
    # Servers give all workers the same values; random streams are no Parameters.
    is_own = getattr(variable, "layerwise_parallel", True)
    return not is_own and not getattr(variable, "is_param_ps", False)
