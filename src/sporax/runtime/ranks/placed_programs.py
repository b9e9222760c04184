"""Programs with calls that one worker of the job computes for all: what all workers must have equal when they run."""

from __future__ import annotations

from collections.abc import Iterable

import jax

from sporax.runtime.ranks import collectives, groups
from sporax.runtime.ranks.collectives import Broadcast
from sporax.runtime.state import frames

TAG = "placed"
"""What the trace of a program with placed calls notes (`state.note_tag`)."""


def agree(variables: Iterable[frames.Variable]) -> None:
    """Give the variables of a program the values that worker 0 has. All workers must ask for the same ones."""
    group = groups.find(None)
    if group.size > 1:
        for variable in variables:
            (variable.raw,) = collectives.run(Broadcast(group), variable.raw)


def of_first_worker(arrays: list[jax.Array]) -> list[jax.Array]:
    """The data of a step, as worker 0 has them."""
    group = groups.find(None)
    return list(collectives.run(Broadcast(group), *arrays)) if group.size > 1 and arrays else arrays
