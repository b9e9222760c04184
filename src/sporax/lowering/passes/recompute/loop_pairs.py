"""Loops that hold a forward pass, and the loops that hold its backward pass, as one program and as two again.

Problem. A loop over micro batches becomes two loops by differentiation, and what is kept in between is stacked. A pass that
sees the body of one loop alone does not see what the other one reads.

Method. Both bodies are joined to one program of one round: where the backward body reads what the forward body stacked, it
reads the value itself. After the pass, equations of the backward pass become the second body again. It reads what it needs of
the first: constants and rows of inputs as they are, everything else stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from sporax.lowering.flat_program import closed_jaxpr, flat, is_backward, stack_of
from sporax.lowering.jax_versions import scan_numbers, scan_params
from sporax.lowering.marks.tags import innermost_tag


class Entering(NamedTuple):
    """What an input of a joined body stands for.

    Attributes:
        atom: what the loop gets for it.
        is_row: whether the body gets one row of that, in the loop of the forward pass.
    """

    atom: Any
    is_row: bool = False


Pass = Callable[[ClosedJaxpr, list[Entering]], ClosedJaxpr]


def with_pairs_rewritten(program: ClosedJaxpr, rewrite: Pass) -> ClosedJaxpr:
    """The same program, where `rewrite` has been applied to the joined body of every pair with a tag inside.

    Args:
        program: flat.
        rewrite: a pass over programs of a forward and a backward pass; it also gets what enters the loops, input by input.
    """
    eqns = list(program.jaxpr.eqns)
    for first, second in list(_pairs(eqns)):
        eqns[first], eqns[second] = _rewritten(program, eqns, first, second, rewrite)
    jaxpr = program.jaxpr
    return closed_jaxpr(jaxpr.constvars, program.consts, jaxpr.invars, jaxpr.outvars, eqns)


def _pairs(eqns: list[JaxprEqn]) -> Iterator[tuple[int, int]]:
    stacked: dict[Var, int] = {}
    readers: dict[int, set[int]] = {}
    for number, eqn in enumerate(eqns):
        if eqn.primitive.name != "scan":
            continue
        if is_backward(stack_of(eqn)):
            for var in _inputs(eqn)[2]:
                if isinstance(var, Var) and var in stacked:
                    readers.setdefault(stacked[var], set()).add(number)
        elif any(innermost_tag(stack_of(inner)) is not None for inner in flat(eqn.params["jaxpr"]).jaxpr.eqns):
            # Only loops with a tag inside are worth the work.
            stacked.update(dict.fromkeys(eqn.outvars[scan_numbers(eqn.params)[1] :], number))
    for first, seconds in readers.items():
        # With two backward loops it is not clear which one computes a value again.
        if len(seconds) == 1 and eqns[min(seconds)].params["length"] == eqns[first].params["length"]:
            yield first, min(seconds)


def _inputs(eqn: JaxprEqn) -> tuple[list[Any], list[Any], list[Any]]:
    """Constants, first carries, and what is read row by row."""
    return _three(eqn, eqn.invars)


def _three(eqn: JaxprEqn, values: Any) -> tuple[list[Any], list[Any], list[Any]]:
    consts, num_carry = scan_numbers(eqn.params)
    carries = consts + num_carry
    return list(values[:consts]), list(values[consts:carries]), list(values[carries:])


def _rewritten(
    program: ClosedJaxpr, eqns: list[JaxprEqn], first: int, second: int, rewrite: Pass
) -> tuple[JaxprEqn, JaxprEqn]:
    one, two = eqns[first], eqns[second]
    front, back = flat(one.params["jaxpr"]), flat(two.params["jaxpr"])
    num_consts, num_carry = scan_numbers(one.params)
    # What the forward loop stacks, and the value of one round that goes into the stack.
    rows = dict(zip(one.outvars[num_carry:], front.jaxpr.outvars[num_carry:], strict=True))
    names: dict[Any, Any] = {
        inner: rows[outer]
        for outer, inner in zip(_inputs(two)[2], _three(two, back.jaxpr.invars)[2], strict=True)
        if isinstance(outer, Var) and outer in rows
    }
    # Stacks with other readers must still be made.
    elsewhere = _read_elsewhere(program, eqns, second)
    kept_rows = [outer for outer in one.outvars[num_carry:] if outer in elsewhere]
    first_row = num_carry + num_consts
    entering = [Entering(atom, position >= first_row) for position, atom in enumerate(one.invars)]
    entering += [Entering(atom) for atom, var in zip(two.invars, back.jaxpr.invars, strict=True) if var not in names]
    joined = closed_jaxpr(
        [*front.jaxpr.constvars, *back.jaxpr.constvars],
        [*front.consts, *back.consts],
        [*front.jaxpr.invars, *(var for var in back.jaxpr.invars if var not in names)],
        [
            *front.jaxpr.outvars[:num_carry],
            *(rows[outer] for outer in kept_rows),
            *(_renamed(names, var) for var in back.jaxpr.outvars),
        ],
        # One program of one round: forward equations, then backward ones that read values in place of rows.
        [*front.jaxpr.eqns, *(_as_backward(eqn, names) for eqn in back.jaxpr.eqns)],
    )
    after = rewrite(joined, entering)
    ours = [eqn for eqn in after.jaxpr.eqns if not is_backward(stack_of(eqn))]
    theirs = [eqn for eqn in after.jaxpr.eqns if is_backward(stack_of(eqn))]
    num_ours = num_carry + len(kept_rows)
    results = after.jaxpr.outvars[num_ours:]
    missing = _crossing(front.jaxpr.invars, ours, theirs, results)

    outer_of = dict(zip(front.jaxpr.invars, one.invars, strict=True))
    consts, _, xs = _three(one, front.jaxpr.invars)
    as_const = [var for var in missing if var in consts]
    as_row = [var for var in missing if var in xs]
    # What is neither a constant nor a row of an input has to be stacked.
    stacks = {var: _stack(var, one.params["length"]) for var in missing if var not in consts and var not in xs}
    back_consts, back_carries, back_rows = _three(two, back.jaxpr.invars)
    outer_consts, outer_carries, outer_rows = _inputs(two)
    still = [number for number, var in enumerate(back_rows) if var not in names]
    new_front = closed_jaxpr(
        front.jaxpr.constvars, front.consts, front.jaxpr.invars, [*after.jaxpr.outvars[:num_ours], *stacks], ours
    )
    new_back = closed_jaxpr(
        back.jaxpr.constvars,
        back.consts,
        [*back_consts, *as_const, *back_carries, *(back_rows[kept_var] for kept_var in still), *as_row, *stacks],
        results,
        theirs,
    )
    return (
        one.replace(
            outvars=[*one.outvars[:num_carry], *kept_rows, *stacks.values()],
            params=scan_params(one, new_front, num_consts, num_carry),
        ),
        two.replace(
            invars=[
                *outer_consts,
                *(outer_of[var] for var in as_const),
                *outer_carries,
                *(outer_rows[kept_var] for kept_var in still),
                *(outer_of[var] for var in as_row),
                *stacks.values(),
            ],
            params=scan_params(two, new_back, len(outer_consts) + len(as_const), len(outer_carries)),
        ),
    )


def _crossing(inputs: list[Var], ours: list[JaxprEqn], theirs: list[JaxprEqn], results: list[Any]) -> list[Var]:
    """What the backward part reads of the forward part."""
    there = {*inputs, *(var for eqn in ours for var in eqn.outvars)}
    read = [var for eqn in theirs for var in eqn.invars] + list(results)
    return [var for var in dict.fromkeys(atom for atom in read if isinstance(atom, Var)) if var in there]


def _read_elsewhere(program: ClosedJaxpr, eqns: list[JaxprEqn], second: int) -> set[Any]:
    read = {var for number, eqn in enumerate(eqns) if number != second for var in eqn.invars if isinstance(var, Var)}
    return read | {
        var
        for var in (*program.jaxpr.outvars, *_inputs(eqns[second])[0], *_inputs(eqns[second])[1])
        if isinstance(var, Var)
    }


def _stack(var: Var, length: int) -> Var:
    aval: Any = var.aval
    return Var(ShapedArray((length, *aval.shape), aval.dtype))


def _as_backward(eqn: JaxprEqn, names: dict[Any, Any]) -> JaxprEqn:
    """An equation of a backward body, in a name stack that says so."""
    info = eqn.source_info
    if not is_backward(stack_of(eqn)):
        # Equations of a backward loop do not always say so themselves, since JAX names the loop.
        info = info.replace(name_stack=info.name_stack.transform("transpose"))
    return eqn.replace(invars=[_renamed(names, var) for var in eqn.invars], source_info=info)


def _renamed(names: dict[Any, Any], atom: Any) -> Any:
    return atom if isinstance(atom, Literal) else names.get(atom, atom)
