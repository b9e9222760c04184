"""Which values of a rank's program differ from rank to rank.

Problem: when one process acts for several ranks, each computes on rows of its own, and what a step gives is one value only where
all ranks have the same one. Method: labels go through the jaxpr of the rank's program from its inputs to its results. What
depends on an input that differs, differs, until a collective over all ranks has combined it. A gradient of weights that is not
combined yet has a label of its own, which what is computed from it has, too; so has a number of a rank, as its loss is, and what
is made of such numbers alone. Carried values of loops are repeated until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from sporax.ir.marks import GradientMark, RowsMark
from sporax.lowering.jax_versions import scan_numbers
from sporax.lowering.marks.mark_primitive import mark_p, number_of_read
from sporax.lowering.rewriter import aval_of, bodies_of

EQUAL, NUMBER, DIFFERENT, GRADIENT = 0, 1, 2, 3
"""Labels: the same on all ranks; different, made of numbers of the rank; different; and computed from a gradient of weights."""

_COMBINING = frozenset({"psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant"})
_MIXING = frozenset({"axis_index", "ppermute", "all_to_all", "reduce_scatter"})


def labels_of_results(jaxpr: Jaxpr, inputs: Sequence[int], reads: Mapping[int, int]) -> list[int]:
    """The label of each result of a rank's program, whose constants are equal.

    Args:
        jaxpr: the program, inside of the mesh axis of ranks.
        inputs: labels of its inputs.
        reads: labels of the variables that differ, by the number under which the program reads them.
    """
    labels: dict[Var, int] = dict(zip(jaxpr.invars, inputs, strict=True))
    for eqn in jaxpr.eqns:
        known = [_of(labels, var) for var in eqn.invars]
        labels.update(zip(eqn.outvars, _of_equation(eqn, known, reads), strict=True))
    return [_of(labels, var) for var in jaxpr.outvars]


def _of(labels: Mapping[Var, int], var: Var | Literal) -> int:
    return EQUAL if isinstance(var, Literal) else labels.get(var, EQUAL)


def _of_equation(eqn: JaxprEqn, known: list[int], reads: Mapping[int, int]) -> list[int]:
    name, count = eqn.primitive.name, len(eqn.outvars)
    highest = max(known, default=EQUAL)
    number = number_of_read(eqn)
    if number is not None:
        return [reads.get(number, EQUAL)]
    if name in _COMBINING and eqn.params.get("axis_index_groups") is None:
        return [EQUAL] * count
    if name in _MIXING or name in _COMBINING:
        return [max(highest, DIFFERENT)] * count
    if eqn.primitive is mark_p:
        if isinstance(eqn.params["mark"], RowsMark):
            return [max(label, DIFFERENT) for label in known]
        is_gradient = isinstance(eqn.params["mark"], GradientMark)
        return [GRADIENT if is_gradient and label else label for label in known]
    if name in _CONTROL:
        return _CONTROL[name](eqn, known, reads)
    inner = _body(eqn)
    if inner is not None:
        return labels_of_results(inner, known, reads)
    return [_of_value(aval_of(var), highest) for var in eqn.outvars]


def _of_value(aval: ShapedArray, highest: int) -> int:
    if highest in (EQUAL, GRADIENT):
        return highest
    # Numbers become numbers; a flag or a position has no mean.
    is_number = highest == NUMBER or aval.shape == ()
    return NUMBER if is_number and jnp.issubdtype(aval.dtype, jnp.inexact) else DIFFERENT


def _of_branches(eqn: JaxprEqn, known: list[int], reads: Mapping[int, int]) -> list[int]:
    choice, *operands = known
    branches = [labels_of_results(branch.jaxpr, operands, reads) for branch in eqn.params["branches"]]
    return [max(choice, *labels) for labels in zip(*branches, strict=True)]


def _of_while(eqn: JaxprEqn, known: list[int], reads: Mapping[int, int]) -> list[int]:
    of_condition, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    first = of_condition + of_body
    carried = known[first:]
    while True:
        after = labels_of_results(eqn.params["body_jaxpr"].jaxpr, [*known[of_condition:first], *carried], reads)
        (goes_on,) = labels_of_results(eqn.params["cond_jaxpr"].jaxpr, [*known[:of_condition], *carried], reads)
        # Ranks that go on for another number of rounds have other values.
        merged = [max(goes_on, old, new) for old, new in zip(carried, after, strict=True)]
        if merged == carried:
            return carried
        carried = merged


def _of_scan(eqn: JaxprEqn, known: list[int], reads: Mapping[int, int]) -> list[int]:
    first, count = scan_numbers(eqn.params)
    carried = known[first : first + count]
    while True:
        results = labels_of_results(
            eqn.params["jaxpr"].jaxpr, [*known[:first], *carried, *known[first + count :]], reads
        )
        merged = list(map(max, carried, results[:count]))
        if merged == carried:
            return [*carried, *results[count:]]
        carried = merged


_CONTROL: Mapping[str, Callable[[JaxprEqn, list[int], Mapping[int, int]], list[int]]] = {
    "cond": _of_branches,
    "while": _of_while,
    "scan": _of_scan,
}


def _body(eqn: JaxprEqn) -> Jaxpr | None:
    """The program that an equation calls with its own inputs, if it calls one."""
    lengths = len(eqn.invars), len(eqn.outvars)
    return next((body for body in bodies_of(eqn) if (len(body.invars), len(body.outvars)) == lengths), None)
