"""When random words are drawn: with the call that uses them, and not at the start of the step.

Problem. Random words depend on a seed and a counter alone, so compilers that run operations as soon as they can draw the words
of all layers first, and these words are there until their layers run. Where a backward pass computes words again, the forward
pass has no other reason to keep them.

Method. In each stretch of equations of one recomputed call, what leads to random words passes a barrier together with the
value that reaches the call last. That value is kept for the backward pass, so it is written in any case and the barrier
separates nothing that a compiler could fuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from jax.extend.core import JaxprEqn, Var

from sporax.ir.graph import MARK
from sporax.lowering.rewriter import aval_of, variables

_DRAW = "random_bits"


@dataclass(frozen=True, slots=True)
class WaitingDraws:
    """A stretch of equations, before which random states wait.

    Attributes:
        begin, end: positions, `end` excluded.
        states: what enters and leads to random words.
        late: what they wait for.
    """

    begin: int
    end: int
    states: tuple[Var, ...]
    late: Var


def draws_that_wait(
    eqns: Sequence[JaxprEqn], calls: Sequence[int | None], runs_again: Callable[[Var], bool]
) -> Iterator[WaitingDraws]:
    """The stretches of recomputed calls that draw random words.

    Args:
        eqns: of the step, in order.
        calls: for each the number of its recomputed call, or None.
        runs_again: whether a value is computed again, and so need not be written.
    """
    depths: dict[Var, int] = {}
    # A stretch is a row of equations of one call, without others in between.
    for call, numbers in groupby(range(len(eqns)), key=lambda number: calls[number]):
        stretch = list(numbers)
        if call is not None:
            wait = _wait(eqns, stretch, depths, runs_again)
            if wait is not None:
                yield wait
        # Depth stands for time: the longest chain of equations that leads to a value.
        for eqn in (eqns[number] for number in stretch):
            depth = 1 + max((depths.get(var, 0) for var in variables(eqn.invars)), default=0)
            depths.update(dict.fromkeys(eqn.outvars, depth))


def _wait(
    eqns: Sequence[JaxprEqn], stretch: Sequence[int], depths: dict[Var, int], runs_again: Callable[[Var], bool]
) -> WaitingDraws | None:
    maker = {var: number for number in stretch for var in eqns[number].outvars}
    read = [var for number in stretch for var in variables(eqns[number].invars)]
    entering = [var for var in dict.fromkeys(read) if var not in maker]
    states = _leading_to(stretch, eqns, maker)
    # The latest value that is written anyway, so that the barrier adds no memory traffic.
    values = [var for var in entering if var not in states and depths.get(var)]
    written = [var for var in values if _is_written(var) and not runs_again(var)]
    late = max(written, key=depths.__getitem__, default=None)
    return None if late is None or not states else WaitingDraws(stretch[0], stretch[-1] + 1, tuple(states), late)


def _leading_to(stretch: Sequence[int], eqns: Sequence[JaxprEqn], maker: dict[Var, int]) -> dict[Var, None]:
    """What enters a stretch and leads to its random words."""
    states: dict[Var, None] = {}
    draws = [number for number in stretch if eqns[number].primitive.name == _DRAW]
    missing = [var for number in draws for var in variables(eqns[number].invars)]
    visited = set(missing)
    while missing:
        var = missing.pop()
        if var not in maker:
            states[var] = None
            continue
        eqn = eqns[maker[var]]
        # A mark of an operator takes its data and its key, and hands each on by itself.
        sources = [eqn.invars[eqn.outvars.index(var)]] if eqn.primitive.name == MARK else eqn.invars
        for source in sources:
            if isinstance(source, Var) and source not in visited:
                visited.add(source)
                missing.append(source)
    return states


def _is_written(var: Var) -> bool:
    """Whether it is a tensor of numbers: keys have no memory of their own, and conditions are fused."""
    aval = aval_of(var)
    kind = getattr(getattr(aval, "dtype", None), "kind", None)  # dtypes of keys have none
    return kind is not None and kind in "fV" and aval.size > 0 and aval.ndim > 0
