"""Training steps of several calls, planned as one where a process only makes plans (`sporax plan`).

Problem: ``loss, grads = grad_fn(x, y)`` and ``optimizer(grads)`` are two calls, and each would be a step of its own: a plan
of the first has no optimizer, no moments and no update. Method: what computes gradients is traced and not planned; its results
are zeros, by which it is recognized. The optimizer that is called with them plans both as one step. Gradients that were
changed between the two calls are taken as they were; the plan says so. Gradients with which no optimizer is called are
planned alone at the end of the script, and the plan says that, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.lazy_members import dataclass
from sporax.ir.config import PlanSettings
from sporax.runtime import program as programs
from sporax.runtime.session import SESSION, assigned
from sporax.runtime.state import ordered_trees

BETWEEN = (
    "What is done with gradients between their computation and the optimizer (clipping, scaling, a reducer, sums) is missing "
    "from this plan: it is planned as one step where all of it is in one Cell or one function with @jit."
)
ALONE = (
    "The optimizer is missing from this plan, its state and the update of the Parameters, too: the script computes gradients and "
    "calls no optimizer with them. It is planned as one step where all of it is in one Cell or one function with @jit."
)
_MOST = 8
"""Computations of gradients that wait for an optimizer; a script that has none is not run to its end."""


@dataclass(slots=True)
class DeferredGradients:
    """Gradients that were requested and are not planned yet.

    Attributes:
        program: computes them.
        args, kwargs: what it was called with.
        results: leaves of what it returned, by which it is recognized.
        taken: whether a step with an optimizer was made of it.
    """

    program: programs.Program
    args: tuple[Any, ...]
    kwargs: dict[str, object]
    results: list[Any] = field(repr=False)
    taken: bool = False

    def plan_alone(self) -> None:
        """Plan it without an optimizer."""
        with _saying(ALONE):
            self.program(*self.args, **self.kwargs)


def _saying(text: str) -> AbstractContextManager[None]:
    """Plans that are made inside say this at their heads."""
    return assigned(SESSION, remarks=(text,))


def run(program: programs.Program, args: tuple[Any, ...], kwargs: dict[str, object]) -> object:
    """Run a program. If it computes gradients and updates nothing, it is not planned yet and gives zeros."""
    leaves, tree = ordered_trees.flatten((args, kwargs))
    positions = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]

    def call(arrays: list[Any]) -> object:
        values = list(leaves)
        for place, array in zip(positions, arrays, strict=True):
            values[place] = array
        inner, named = jax.tree.unflatten(tree, values)
        return program.function(*inner, **named)

    found = programs.discover(call, [leaves[place] for place in positions], by_rank=False)
    updates = any(getattr(variable, "requires_grad", False) for variable in found.written)
    if updates or not found.frame.trains:
        return program(*args, **kwargs)
    result = ordered_trees.mapped(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.Array) else leaf, found.result
    )
    SESSION.deferred_gradients[:] = [entry for entry in SESSION.deferred_gradients if not entry.taken]
    SESSION.deferred_gradients.append(DeferredGradients(program, args, kwargs, _holders(result)))
    if len(SESSION.deferred_gradients) > _MOST:
        plan_rest()
    return result


def with_update(
    update: Callable[..., object], values: tuple[Any, ...], settings: Callable[[], PlanSettings | None]
) -> tuple[Any] | None:
    """Plan an optimizer's update together with the gradients that it gets; its result, or None where these are not known.

    Args:
        update: called with `values`, updates Parameters.
        values: the gradients first.
    """
    leaves, tree = jax.tree.flatten(values, is_leaf=_is_holder)
    match = _match(leaves)
    if match is None:
        return None
    found, positions, exact = match
    found.taken = True
    program = found.program

    def step(*args: object, **kwargs: object) -> object:
        results = _holders(program.function(*args, **kwargs))
        replaced = [leaf if place is None else results[place] for leaf, place in zip(leaves, positions, strict=True)]
        return update(*jax.tree.unflatten(tree, replaced))

    joined = programs.Program(step, f"{program.name}_and_update", settings)
    if exact:
        return (joined(*found.args, **found.kwargs),)
    with _saying(BETWEEN):
        return (joined(*found.args, **found.kwargs),)


def plan_rest() -> None:
    """Plan gradients with which no optimizer was called: the first of them, one plan."""
    rest = [entry for entry in SESSION.deferred_gradients if not entry.taken]
    SESSION.deferred_gradients.clear()
    if rest:
        rest[0].plan_alone()


def _match(leaves: list[Any]) -> tuple[DeferredGradients, list[int | None], bool] | None:
    """Whose results these are, at which positions, and whether exactly they."""
    if not leaves:
        return None
    for entry in reversed(SESSION.deferred_gradients):
        positions = {id(result): position for position, result in enumerate(entry.results)}
        found = [positions.get(id(leaf)) for leaf in leaves]
        if _are_results(leaves, found):
            return entry, list(found), True
    shapes = [_shape(leaf) for leaf in leaves]
    for entry in reversed(SESSION.deferred_gradients):
        # Gradients of Parameters come last.
        first = len(entry.results) - len(leaves)
        if first >= 0 and [_shape(result) for result in entry.results[first:]] == shapes:
            return entry, list(range(first, len(entry.results))), False
    return None


def _are_results(leaves: list[Any], found: list[int | None]) -> bool:
    """Whether all arrays among the leaves are results that were found, and there is one at least."""
    if all(position is None for position in found):
        return False
    return not any(position is None and _is_holder(leaf) for leaf, position in zip(leaves, found, strict=True))


def _holders(value: object) -> list[Any]:
    return jax.tree.leaves(value, is_leaf=_is_holder)


def _is_holder(value: object) -> bool:
    return type(value) in SESSION.holders or isinstance(value, jax.Array)


def _shape(leaf: object) -> object:
    return tuple(getattr(leaf, "shape", ())) if _is_holder(leaf) else leaf
