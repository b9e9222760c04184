"""All passes over a step's jaxpr in their order.

`PASSES` is the list: each entry has the tags that request the pass (`pass_tags`), and one line that says what it does.

Next to the list are the ways in which passes are applied: to a function (`rewritten`), to a step whose variables are stacks
(`rewritten_with_stacks`), to the program of one device (`with_hosts`), and to a program before it is planned (`run_rewrites`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, jaxpr_as_fun

from sporax.lowering.ingest.ingest import written_out
from sporax.lowering.marks.host_transfer import to_device, to_host, without_round_trips
from sporax.lowering.passes.host.file_values import ArrayInFile, NewFile, with_filed_arguments
from sporax.lowering.passes.host.offload import in_host_memory, offloaded
from sporax.lowering.passes.host.row_updates import by_rows, row_update_p
from sporax.lowering.passes.pass_tags import AUTO, BLOCKS, SAVED_IN_FILES, SAVED_ON_HOSTS, WAITING
from sporax.lowering.passes.recompute.recompute import PlanFacts, Recomputed, recompute
from sporax.lowering.passes.recompute.recompute_blocks import Chosen
from sporax.lowering.passes.repeat.block_loops import looped
from sporax.lowering.passes.repeat.stacked_arguments import Stacked, with_stacked_arguments
from sporax.lowering.rewriter import flat

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class PassState:
    """A program on its way through the passes.

    Attributes:
        program: flat.
        tags: of the passes that are wanted.
        facts: what a first plan says (`plan_facts`); None without plans.
        chosen: what is computed again next to what is marked.
        new_file: makes files for what is stored for recomputed Cells, where that goes to disk.
        calls: what is computed again.
    """

    program: ClosedJaxpr
    tags: frozenset[str]
    facts: PlanFacts | None = None
    chosen: Chosen | None = None
    new_file: NewFile | None = None
    calls: tuple[Recomputed, ...] = ()


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over the program of a step.

    Attributes:
        tags: any of them requests it.
        summary: what it does.
        run: the state after it.
    """

    tags: frozenset[str]
    summary: str
    run: Callable[[PassState], PassState]


def _recomputed(state: PassState) -> PassState:
    program, calls = recompute(state.program, state.facts, state.chosen)
    return replace(state, program=program, calls=calls)


def _offloaded(state: PassState) -> PassState:
    sent = state.calls if {SAVED_ON_HOSTS, SAVED_IN_FILES}.intersection(state.tags) else ()
    # Negative numbers cannot collide with those of the user's tags.
    stored = {var: -number for number, call in enumerate(sent, 1) for var in call.saved}
    new_file = state.new_file if SAVED_IN_FILES in state.tags else None
    return replace(state, program=offloaded(state.program, stored, new_file))


def _on_host(pass_: Callable[[ClosedJaxpr], ClosedJaxpr]) -> Callable[[PassState], PassState]:
    def run(state: PassState) -> PassState:
        # In steps of a plan, each device's program is rewritten (`with_hosts`).
        return state if state.facts is not None else replace(state, program=pass_(state.program))

    return run


PASSES: tuple[Pass, ...] = (
    # First: only then is it known what is stored and may be sent away.
    Pass(
        frozenset(("recompute", AUTO)),
        "recompute: the backward pass computes again what the forward pass need not store",
        _recomputed,
    ),
    Pass(
        WAITING | {SAVED_IN_FILES},
        "offload: activations wait for the backward pass in host memory or in files",
        _offloaded,
    ),
    Pass(
        frozenset(("host",)),
        "row updates: lookups, gradients and updates of tables on the host are ids and rows",
        _on_host(by_rows),
    ),
    Pass(
        frozenset(("host",)),
        "host work: what the host computes reads and leaves values in host memory",
        _on_host(in_host_memory),
    ),
    # When it is clear what the host itself works on.
    Pass(
        frozenset(("host",)),
        "round trips: transfers that are not needed are left out",
        lambda state: replace(state, program=without_round_trips(state.program)),
    ),
    # Last: the other passes look for single calls, which a loop would hide.
    Pass(
        frozenset((BLOCKS,)),
        "block loops: repeated blocks become one body in a loop",
        lambda state: replace(state, program=looped(state.program).program),
    ),
)
"""The passes, in the order in which they run."""


def rewritten(
    function: Callable[..., ResultT],
    tags: Collection[str],
    choose: Callable[[ClosedJaxpr], Chosen] | None = None,
    filed: Mapping[int, ArrayInFile] | None = None,
    new_file: NewFile | None = None,
) -> Callable[..., ResultT]:
    """`function` of updated variables, other variables and data, as a program to which the passes have been applied.

    Args:
        choose: says for a flat program what is computed again next to what is marked; None for nothing.
        filed: the variables that are in files, by position; the program takes and returns tokens in their place.
        new_file: makes files for activations.
    """

    def program(*args: object) -> ResultT:
        tokens, tree = jax.tree.flatten(args)
        # In the traced function such a variable has its real shape; only outside of it is it a token.
        inside = {number: jax.ShapeDtypeStruct(struct.shape, struct.dtype) for number, struct in (filed or {}).items()}
        leaves = [inside.get(number, token) for number, token in enumerate(tokens)]

        def of_leaves(*arrays: jax.Array) -> ResultT:
            return function(*jax.tree.unflatten(tree, arrays))

        closed, shapes = jax.make_jaxpr(of_leaves, return_shape=True)(*leaves)
        # Flat first: all passes see every equation with its whole name stack.
        flattened = flat(closed)
        chosen = None if choose is None else choose(flattened)
        final = run_rewrites(flattened, tags, None, chosen, new_file)[0]
        if filed:
            num_updated, num_read = (len(jax.tree.leaves(argument)) for argument in args[:2])
            final = with_filed_arguments(final, filed, num_updated, num_updated + num_read)
        results = jaxpr_as_fun(final)(*tokens)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    program.__name__ = program.__qualname__ = function.__name__
    return program


def with_hosts(
    function: Callable[..., Sequence[jax.Array]], away: Collection[int], returned: Collection[int]
) -> Callable[..., list[jax.Array]]:
    """One device's program of a plan, some of whose arguments and results are in host memory.

    Args:
        function: of all slices in device memory.
        away: positions of the arguments that are on the host.
        returned: positions of the results that go there.
    """

    def program(*arguments: jax.Array) -> list[jax.Array]:
        def inside(*values: jax.Array) -> list[jax.Array]:
            here = [to_device([value])[0] if number in away else value for number, value in enumerate(values)]
            results = function(*here)
            return [to_host([result])[0] if number in returned else result for number, result in enumerate(results)]

        final, _ = run_rewrites(flat(jax.make_jaxpr(inside)(*arguments)), ("host",))
        return list(jaxpr_as_fun(final)(*arguments))

    program.__name__ = program.__qualname__ = getattr(function, "__name__", "step")
    return program


def rewritten_with_stacks(
    flattened: ClosedJaxpr,
    tags: Collection[str],
    choose: Callable[[ClosedJaxpr], Chosen] | None,
    num_updated: int,
    num_read: int,
    rows: frozenset[int],
    name: str,
) -> tuple[Callable[..., tuple[list[jax.Array], list[jax.Array]]], Stacked]:
    """A step with repeated blocks after the passes; it takes and returns the variables of its loops as stacks.

    Args:
        flattened: flat, of updated variables, other variables and data; its first results are the new values of the first.
        tags, choose: as for `rewritten`.
        num_updated, num_read: how many variables it updates and only reads.
        rows: the positions of the variables that may be in stacks.
    """
    before, _ = run_rewrites(flattened, set(tags) - {BLOCKS}, chosen=None if choose is None else choose(flattened))
    stackable = [var for number, var in enumerate(before.jaxpr.invars[: num_updated + num_read]) if number in rows]
    loops = looped(before, frozenset(stackable))
    stacked = with_stacked_arguments(loops, num_updated, num_read, rows.__contains__)
    # A stack takes the place of its variables, so there are fewer first results.
    num_first = num_updated - sum(len(group) - 1 for group in stacked.updated)
    run = jaxpr_as_fun(stacked.program)

    def program(*args: object) -> tuple[list[jax.Array], list[jax.Array]]:
        results = run(*jax.tree.leaves(args))
        return list(results[:num_first]), list(results[num_first:])

    program.__name__ = program.__qualname__ = name
    return program, stacked


def flat_for_plan(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program in the form that passes work on, with every call written out that a plan sees into, but updates of rows."""
    return flat(closed, seen_into)


def seen_into(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The body of a call that a plan sees into, or None; updates of rows are one equation until a pass has seen them."""
    return None if eqn.primitive is row_update_p else written_out(eqn)


def run_rewrites(
    program: ClosedJaxpr,
    tags: Collection[str],
    facts: PlanFacts | None = None,
    chosen: Chosen | None = None,
    new_file: NewFile | None = None,
) -> tuple[ClosedJaxpr, tuple[Recomputed, ...]]:
    """A flat program after all passes, and what is computed again in it.

    Args:
        program: as `flat` or `flat_for_plan` gives it.
        facts: what a first plan says (`plan_facts`); None without plans.
        chosen: what is computed again next to what is marked.
        new_file: makes files for what is kept for recomputed Cells, where that goes to disk.
    """
    # Passes see a choice of the planner as they see the tag that requests one.
    wanted = frozenset(tags) if chosen is None else frozenset((*tags, AUTO))
    state = PassState(program, wanted, facts, chosen, new_file)
    for entry in PASSES:
        if not entry.tags.isdisjoint(state.tags):
            state = entry.run(state)
    return state.program, state.calls
