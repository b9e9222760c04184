"""Communication subgraph reuse: equal collectives of a program become calls of one function.

Problem: a step of many layers has hundreds of communication operators of a few kinds, and each is lowered and compiled by itself.

Method: operators of one class (primitive, shapes, dtypes, axes, groups, what is combined) become calls of one subgraph, as in
MindSpore's ``MS_COMM_COMPILER_OPT``: a function of the lowered module with the operator in it once. A limit bounds how many
operators are replaced; the largest classes come first, so that it is spent well.

What XLA makes of calls: it writes each one out in its place, or, of a call that is marked against that, makes a copy of the
function, since its buffer assignment refuses a computation with two callers ("Call graph must be flattened before copy
insertion"). So calls alone make lowering shorter, and leave the compiled program as it is, instruction by instruction.

To have fewer operators in the compiled program as well, small ones of a class that do not wait for each other are called
together: one operator on the stack of their operands. Only those of which every bit stays: operators that move or compare
values, sums of integers, and sums of floats where XLA adds in the order of the ranks, which is inside of one process on CPUs.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from sporax.ir.identity import ByIdentity

_SUMS = {"psum": "all_reduce", "psum_invariant": "all_reduce", "reduce_scatter": "reduce_scatter"}
_MOVES = {
    "pmax": "all_reduce_max",
    "pmin": "all_reduce_min",
    "all_gather": "all_gather",
    "all_gather_invariant": "all_gather",
    "all_to_all": "all_to_all",
    "ppermute": "collective_permute",
}
_NAMES = {**_SUMS, **_MOVES}
"""What subgraphs are called, by primitive; all others are no communication operators."""

_CONTAINERS = frozenset(
    """jit pjit closed_call core_call scan while cond remat2 checkpoint custom_jvp_call custom_vjp_call""".split()
)
"""Equations whose bodies are part of the program."""

_FEWEST = 2
"""Members of a class that is worth a subgraph."""

_SMALL_BYTES = 32 * 2**10
"""Largest operand or result of operators that are called together: above, stacking costs more than an operator's start. Measured
with 16 operators on 8 CPU devices: all-reduces of 64 KiB and all-gathers of 4 KiB to 32 KiB took 0.8 of the time, and all-gathers
of 64 KiB to 512 KiB 4.6 times as long."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """What was reused in a program.

    Attributes:
        operators: communication operators that it had.
        calls: how many of them are calls now.
        subgraphs: functions that are called.
        joined: operators that are called together with others of their class.
        joint_calls: by so many calls.
    """

    operators: int
    calls: int
    subgraphs: int
    joined: int
    joint_calls: int

    @property
    def left(self) -> int:
        """Communication operators of the program as it is lowered."""
        return self.operators - self.calls + self.subgraphs


@dataclass(frozen=True, slots=True)
class _Site:
    """A communication operator: where it is, and its class."""

    owner: ByIdentity
    position: int
    key: Hashable


def with_reuse(
    program: Callable[..., Any], limit: int, tell: Callable[[Reuse], None], *, joins: bool
) -> Callable[..., Any]:
    """The same program, run inside of `shard_map`, whose equal collectives are calls of one function.

    Args:
        program: of one device's arrays.
        limit: how many operators may be replaced.
        tell: is told what was reused, whenever the program is traced.
        joins: whether operators may be called together. All devices must run equal programs for that.
    """

    def reusing(*arguments: Any) -> Any:
        # Inside of a call of its own, a program that was traced once is lowered as it is.
        closed, shapes = jax.make_jaxpr(jax.jit(program), return_shape=True)(*arguments)
        rewritten, reuse = reused(closed, limit, joins=joins)
        tell(reuse)
        return jax.tree.unflatten(jax.tree.structure(shapes), jaxpr_as_fun(rewritten)(*jax.tree.leaves(arguments)))

    reusing.__name__ = reusing.__qualname__ = getattr(program, "__name__", "step")
    return reusing


def reused(program: ClosedJaxpr, limit: int, *, joins: bool) -> tuple[ClosedJaxpr, Reuse]:
    """The same program with calls, and what was reused. Arguments as for `with_reuse`."""
    sites = list(_sites(program.jaxpr, set()))
    chosen = _chosen(sites, limit)
    by_owner: dict[ByIdentity, dict[int, Hashable]] = defaultdict(dict)
    for site in chosen:
        by_owner[site.owner][site.position] = site.key
    writer = _Writer(by_owner, joins)
    written = writer.closed(program) if chosen else program
    joined = sum(writer.joined)
    return written, Reuse(len(sites), len(chosen), len(writer.subgraphs), joined, len(writer.joined))


def _sites(jaxpr: Jaxpr, seen: set[ByIdentity]) -> Iterator[_Site]:
    """The communication operators of a program and of its bodies, each body once."""
    owner = ByIdentity(jaxpr)
    if owner in seen:
        return
    seen.add(owner)
    for position, eqn in enumerate(jaxpr.eqns):
        name = str(eqn.primitive.name)
        if name in _NAMES:
            yield _Site(owner, position, _class_of(eqn))
        elif name in _CONTAINERS:
            for body in _bodies(eqn):
                yield from _sites(body, seen)


def _class_of(eqn: JaxprEqn) -> Hashable:
    """What equal operators have in common."""
    params = tuple(sorted((name, repr(value)) for name, value in eqn.params.items()))
    # The context has the place of the computation: host or device.
    return str(eqn.primitive.name), params, tuple(atom.aval for atom in eqn.invars), repr(eqn.ctx.compute_type)


def _bodies(eqn: JaxprEqn) -> Iterator[Jaxpr]:
    for value in eqn.params.values():
        for entry in value if type(value) is tuple else (value,):
            if isinstance(entry, ClosedJaxpr):
                yield entry.jaxpr
            elif isinstance(entry, Jaxpr):
                yield entry


def _chosen(sites: Sequence[_Site], limit: int) -> list[_Site]:
    """The operators that become calls: those of the largest classes, and among these the first."""
    members: dict[Hashable, list[_Site]] = defaultdict(list)
    for site in sites:
        members[site.key].append(site)
    chosen: list[_Site] = []
    for group in sorted(members.values(), key=len, reverse=True):
        taken = group[: limit - len(chosen)]
        if len(taken) >= _FEWEST:
            chosen += taken
    return chosen


# ----------------------------------------------------------------------------------------------------------- writing


@dataclass(slots=True)
class _Writer:
    """Writes a program with calls.

    Attributes:
        chosen: by body the operators that become calls, with their classes.
        joins: whether some are called together.
        subgraphs: a call of each function.
        joined: how many operators each call of several has.
        written: bodies that were written already: what was shared stays shared.
    """

    chosen: Mapping[ByIdentity, Mapping[int, Hashable]]
    joins: bool
    subgraphs: dict[tuple[Hashable, int], JaxprEqn] = field(default_factory=dict)
    joined: list[int] = field(default_factory=list)
    written: dict[ByIdentity, ClosedJaxpr | Jaxpr] = field(default_factory=dict)

    def closed(self, program: ClosedJaxpr) -> ClosedJaxpr:
        """A program with its constants."""
        key = ByIdentity(program)
        if key not in self.written:
            self.written[key] = program.replace(jaxpr=self.open(program.jaxpr))
        return self.written[key]  # type: ignore[return-value]  # of the same kind as its key

    def open(self, jaxpr: Jaxpr) -> Jaxpr:
        """A body."""
        key = ByIdentity(jaxpr)
        if key not in self.written:
            self.written[key] = self._rewritten(jaxpr, self.chosen.get(key, {}))
        return self.written[key]  # type: ignore[return-value]  # of the same kind as its key

    def _rewritten(self, jaxpr: Jaxpr, chosen: Mapping[int, Hashable]) -> Jaxpr:
        groups = _groups(jaxpr.eqns, chosen) if self.joins else []
        replaced: dict[int, JaxprEqn] = {}
        for group in groups:
            # At the place of the last one all operands are known.
            replaced[group[-1]] = self._call(chosen[group[-1]], [jaxpr.eqns[position] for position in group])
            self.joined.append(len(group))
        alone = set(chosen).difference(*groups)
        replaced.update((position, self._call(chosen[position], [jaxpr.eqns[position]])) for position in alone)
        eqns = [
            replaced[position] if position in replaced else self._with_bodies(eqn)
            for position, eqn in enumerate(jaxpr.eqns)
        ]
        return jaxpr.replace(eqns=_in_order(eqns, groups) if groups else eqns)

    def _with_bodies(self, eqn: JaxprEqn) -> JaxprEqn:
        if str(eqn.primitive.name) not in _CONTAINERS:
            return eqn
        return eqn.replace(params={name: self._value(value) for name, value in eqn.params.items()})

    def _value(self, value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return self.closed(value)
        if isinstance(value, Jaxpr):
            return self.open(value)
        # Branches are a tuple; other tuples (axes, shardings, named ones too) are handed on as they are.
        if type(value) is tuple and any(isinstance(entry, ClosedJaxpr | Jaxpr) for entry in value):
            return tuple(map(self._value, value))
        return value

    def _call(self, key: Hashable, eqns: Sequence[JaxprEqn]) -> JaxprEqn:
        """One call in place of equations of a class."""
        function = key, len(eqns)
        if function not in self.subgraphs:
            self.subgraphs[function] = _subgraph(eqns)
        return self.subgraphs[function].replace(
            invars=[atom for eqn in eqns for atom in eqn.invars],
            outvars=[var for eqn in eqns for var in eqn.outvars],
            source_info=eqns[-1].source_info,
            ctx=eqns[-1].ctx,
        )


def _subgraph(eqns: Sequence[JaxprEqn]) -> JaxprEqn:
    """A call of a new function that does what these equal equations do."""
    like = eqns[0]

    def alone(*operands: Any) -> Any:
        return like.primitive.bind(*operands, **like.params)

    def together(*operands: Any) -> list[Any]:
        # JAX knows of each collective how it runs along a further dimension.
        results = jax.vmap(alone)(jnp.stack(operands))
        return [results[position] for position in range(len(operands))]

    function = alone if len(eqns) == 1 else together
    name = _NAMES[str(like.primitive.name)]
    function.__name__ = function.__qualname__ = f"reused_{name}" if len(eqns) == 1 else f"reused_{name}_of_{len(eqns)}"
    structs = [_struct(atom) for eqn in eqns for atom in eqn.invars]
    (call,) = jax.make_jaxpr(jax.jit(function))(*structs).jaxpr.eqns
    return call


def _struct(atom: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype, weak_type=atom.aval.weak_type)


# ---------------------------------------------------------------------------------------------------------- together


def _groups(eqns: Sequence[JaxprEqn], chosen: Mapping[int, Hashable]) -> list[list[int]]:
    """Positions of operators that are called together: of one class, of which none waits for another."""
    # What is ordered (callbacks, prints) stays in its order.
    if any(type(effect).__name__ != "NamedAxisEffect" for eqn in eqns for effect in eqn.effects):
        return []
    small = {position for position in chosen if _can_join(eqns[position])}
    groups: dict[tuple[Hashable, int], list[int]] = defaultdict(list)
    levels: dict[Var, int] = {}
    for position, eqn in enumerate(eqns):
        # Operators of one level cannot wait for each other, and groups of levels cannot wait for each other in a circle.
        level = max((levels.get(atom, 0) for atom in eqn.invars if not isinstance(atom, Literal)), default=0)
        if position in small:
            groups[chosen[position], level].append(position)
            level += 1
        levels.update((var, level) for var in eqn.outvars)
    return [group for group in groups.values() if len(group) >= _FEWEST]


def _can_join(eqn: JaxprEqn) -> bool:
    """Whether an operator is small, and gives the same bits in a stack."""
    if len(eqn.invars) != 1 or len(eqn.outvars) != 1:
        return False
    avals = eqn.invars[0].aval, eqn.outvars[0].aval
    if max(aval.size * aval.dtype.itemsize for aval in avals) > _SMALL_BYTES:
        return False
    # Over a wire an element's place in a buffer decides in which order it is summed up.
    by_rank = jax.process_count() == 1 and jax.default_backend() == "cpu"
    return by_rank or str(eqn.primitive.name) in _MOVES or not jnp.issubdtype(avals[0].dtype, jnp.inexact)


def _in_order(eqns: Sequence[JaxprEqn], groups: Sequence[Sequence[int]]) -> list[JaxprEqn]:
    """The equations without those that were joined with a later one, each behind what it reads."""
    gone = {position for group in groups for position in group[:-1]}
    makers = {var: position for position, eqn in enumerate(eqns) if position not in gone for var in eqn.outvars}
    readers: dict[int, list[int]] = defaultdict(list)
    missing: Counter[int] = Counter()
    for position in range(len(eqns)):
        if position in gone:
            continue
        needed = {makers[atom] for atom in eqns[position].invars if not isinstance(atom, Literal) and atom in makers}
        missing[position] = len(needed)
        for maker in needed:
            readers[maker].append(position)
    ready = [position for position, count in missing.items() if not count]
    heapq.heapify(ready)
    ordered: list[JaxprEqn] = []
    while ready:
        position = heapq.heappop(ready)
        ordered.append(eqns[position])
        for reader in readers[position]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    assert len(ordered) == len(eqns) - len(gone)
    return ordered
