"""Communication subgraph reuse: equal collectives of a program become calls of one function.

Problem: a step of many layers has hundreds of communication operators of a few kinds, and the compiler gets each by itself.

Method: operators of one class (primitive, shapes, dtypes, axes, groups, what is combined) become calls of one subgraph, as in
MindSpore's ``MS_COMM_COMPILER_OPT``: a function of the lowered module with the operator in it once. A limit bounds how many
operators are replaced; the largest classes come first, so that it is spent well.

What XLA makes of calls: it writes each one out in its place. The program that runs is the same, operator by operator, so
results have the same bits, and neither steps nor XLA's work get shorter; JAX, too, lowers equal operators once by itself. Fewer
operators in the compiled program cannot be had by calls: of one that is marked against inlining XLA makes a copy of the function
for each caller, since it takes no others ("Call graph must be flattened before copy insertion"). Two other forms were tried.
One operator on a stack of operands that do not wait for each other makes steps shorter, and compilation several times as long:
XLA for CPUs compiles equal kernels once, and a slice at each place of the stack is a kernel of its own. At places that are
known only at run time slices are equal kernels, and still more work than the operators (1.6 times). Operators with several
operands are refused inside of `shard_map` ("Sharding is tuple-shaped but validation shape is not"). A program without its
collectives compiles in 0.8 of the time: a form of the operators alone cannot gain more. Loops over equal blocks
(`sporax.lowering.passes.repeat.block_loops`) have fewer operators, and other bits; docs/operator_parallel.md has the numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxpr_as_fun

from sporax.base.identity import ByIdentity
from sporax.lowering.rewriter import aval_of, bodies_of, with_bodies

ResultT = TypeVar("ResultT")
BodyT = TypeVar("BodyT", ClosedJaxpr, Jaxpr)

_NAMES = {
    "psum": "all_reduce",
    "psum_invariant": "all_reduce",
    "pmax": "all_reduce_max",
    "pmin": "all_reduce_min",
    "reduce_scatter": "reduce_scatter",
    "all_gather": "all_gather",
    "all_gather_invariant": "all_gather",
    "all_to_all": "all_to_all",
    "ppermute": "collective_permute",
}
"""What subgraphs are called, by primitive; all others are no communication operators."""

_CONTAINERS = frozenset(
    """jit pjit closed_call core_call scan while cond remat2 checkpoint custom_jvp_call custom_vjp_call""".split()
)
"""Equations whose bodies are part of the program."""

_FEWEST = 2
"""Members of a class that is worth a subgraph."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """What was reused in a program.

    Attributes:
        operators: communication operators that it had.
        calls: how many of them are calls now.
        subgraphs: functions that are called.
    """

    operators: int
    calls: int
    subgraphs: int

    @property
    def left(self) -> int:
        """Communication operators of the program as it is lowered."""
        return self.operators - self.calls + self.subgraphs


def with_reuse(program: Callable[..., ResultT], limit: int, report: Callable[[Reuse], None]) -> Callable[..., ResultT]:
    """The same program, run inside of `shard_map`, whose equal collectives are calls of one function.

    Args:
        limit: how many operators may be replaced.
        report: gets what was reused, whenever the program is traced.
    """

    def reusing(*arguments: object) -> ResultT:
        # Inside of a call of its own, a program that was traced once is lowered as it is.
        closed, shapes = jax.make_jaxpr(jax.jit(program), return_shape=True)(*arguments)
        rewritten, reuse = reused(closed, limit)
        report(reuse)
        results = jaxpr_as_fun(rewritten)(*jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    reusing.__name__ = reusing.__qualname__ = getattr(program, "__name__", "step")
    return reusing


def reused(program: ClosedJaxpr, limit: int) -> tuple[ClosedJaxpr, Reuse]:
    """The same program with calls, and what was reused. Arguments as for `with_reuse`."""
    classes = Counter(map(_class_of, _operators(program.jaxpr, set())))
    left: dict[Hashable, int] = {}
    for key, count in classes.most_common():
        taken = min(count, limit - sum(left.values()))
        if taken >= _FEWEST:
            left[key] = taken
    calls, writer = sum(left.values()), _Writer(left)
    written = writer.body(program) if left else program
    return written, Reuse(classes.total(), calls, len(writer.subgraphs))


def _operators(jaxpr: Jaxpr, seen: set[ByIdentity]) -> Iterator[JaxprEqn]:
    """The communication operators of a program and of its bodies, each body once."""
    owner = ByIdentity(jaxpr)
    if owner in seen:
        return
    seen.add(owner)
    for eqn in jaxpr.eqns:
        name = str(eqn.primitive.name)
        if name in _NAMES:
            yield eqn
        elif name in _CONTAINERS:
            for body in bodies_of(eqn):
                yield from _operators(body, seen)


def _class_of(eqn: JaxprEqn) -> Hashable:
    """What equal operators have in common."""
    params = tuple(sorted((name, repr(value)) for name, value in eqn.params.items()))
    # The context has the place of the computation: host or device.
    return str(eqn.primitive.name), params, tuple(atom.aval for atom in eqn.invars), repr(eqn.ctx.compute_type)


class _Writer:
    """Writes a program, and the bodies in it, with calls.

    Args:
        left: how many operators of each class become calls, the first ones: those that are still to come.

    Attributes:
        subgraphs: a call of each function, by class.
        written, closed: bodies that were written already: what was shared stays shared.
    """

    def __init__(self, left: dict[Hashable, int]) -> None:
        self.left = left
        self.subgraphs: dict[Hashable, JaxprEqn] = {}
        self.written: dict[ByIdentity, Jaxpr] = {}
        self.closed: dict[ByIdentity, ClosedJaxpr] = {}

    def body(self, body: BodyT) -> BodyT:
        """A body, with constants or without."""
        if not isinstance(body, ClosedJaxpr):
            return self._open(body)
        key = ByIdentity(body)
        if key not in self.closed:
            # Since JAX 0.11 one class stands for both kinds, so a body may be its own `jaxpr`.
            self.closed[key] = body.replace(jaxpr=self._open(body.jaxpr))
        return self.closed[key]

    def _open(self, jaxpr: Jaxpr) -> Jaxpr:
        key = ByIdentity(jaxpr)
        if key not in self.written:
            # Constants and names stay, so equations are all that is replaced.
            self.written[key] = jaxpr.replace(eqns=list(map(self._equation, jaxpr.eqns)))
        return self.written[key]

    def _equation(self, eqn: JaxprEqn) -> JaxprEqn:
        """The equation with calls in its bodies, or a call in its place."""
        name = str(eqn.primitive.name)
        if name in _CONTAINERS:
            return with_bodies(eqn, self.body)
        if name not in _NAMES or not self.left.get(key := _class_of(eqn)):
            return eqn
        self.left[key] -= 1
        if key not in self.subgraphs:
            self.subgraphs[key] = _subgraph(eqn)
        return self.subgraphs[key].replace(
            invars=eqn.invars, outvars=eqn.outvars, source_info=eqn.source_info, ctx=eqn.ctx
        )


def _subgraph(eqn: JaxprEqn) -> JaxprEqn:
    """A call of a new function that does what an equation does."""

    def communicate(*operands: jax.Array) -> jax.Array:
        return eqn.primitive.bind(*operands, **eqn.params)

    communicate.__name__ = communicate.__qualname__ = f"reused_{_NAMES[str(eqn.primitive.name)]}"
    structs = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in map(aval_of, eqn.invars)
    ]
    (call,) = jax.make_jaxpr(jax.jit(communicate))(*structs).jaxpr.eqns
    return call
