"""Writes programs: the one class behind every pass from a jaxpr to a jaxpr.

Problem. A pass leaves most equations as they are, writes a few others, and hands on under new names what these compute.

Method. `JaxprRewriter` goes through the equations in order and calls `visit` for each. A pass overrides it and uses four things:

    names       what a value of the old program is called in the new one, where that is another variable (`read`)
    keep        the old equation, whose operands are called as they are now
    emit        the equations of a JAX function of some values; `write`, `identity` and `inline` write other kinds
    constants   values that the new program brings along

`flat` writes calls out in their caller's place, so that passes see every equation with its whole name stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import jax
from jax.core import ShapedArray
from jax.extend.core import (
    ClosedJaxpr,
    DebugInfo,
    Jaxpr,
    JaxprEqn,
    Literal,
    Primitive,
    Var,
    jaxpr_as_fun,
    new_jaxpr_eqn,
)

from sporax.base.identity import ByIdentity

if TYPE_CHECKING:
    from jax.extend.source_info_util import NameStack, SourceInfo

Atom: TypeAlias = Var | Literal
"""What equations read."""

_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call"})
"""Calls that carry no derivative rule of their own."""
_MOST_TEXTS = 50_000
"""Name stacks whose texts are remembered: passes read them several times per equation, and a large step has some 10,000."""

Called = Callable[[JaxprEqn], ClosedJaxpr | None]
"""Gives the body of an equation that should be written out; None for all others."""


class JaxprRewriter:
    """Writes a program again, equation by equation.

    Args:
        program: what is read.

    Attributes:
        eqns: what is written.
        names: by value of the program the atom that stands for it, where that is not the value itself.
        constants: values that the written program brings along, by variable.

    Example:
        A pass that takes out copies::

            class WithoutCopies(JaxprRewriter):
                def visit(self, eqn):
                    if eqn.primitive.name == "copy":
                        self.rename(eqn.outvars, map(self.read, eqn.invars))
                    else:
                        self.keep(eqn)

            WithoutCopies(program).run()
    """

    def __init__(self, program: ClosedJaxpr) -> None:
        self.program = program
        self.eqns: list[JaxprEqn] = []
        self.names: dict[Var, Atom] = {}
        self.constants: dict[Var, object] = dict(zip(program.jaxpr.constvars, program.consts, strict=True))

    def run(self) -> ClosedJaxpr:
        """The new program."""
        self.walk()
        return self.finish()

    def walk(self) -> None:
        """Visit the equations in order."""
        for eqn in self.program.jaxpr.eqns:
            self.visit(eqn)

    def visit(self, eqn: JaxprEqn) -> None:
        """Write what takes the place of an equation."""
        self.keep(eqn)

    def finish(self, outvars: Sequence[Atom] | None = None, invars: Sequence[Var] | None = None) -> ClosedJaxpr:
        """The program of what was written; with the results and arguments of the old one where no others are passed."""
        jaxpr = self.program.jaxpr
        results = [self.read(atom) for atom in jaxpr.outvars] if outvars is None else outvars
        arguments = jaxpr.invars if invars is None else invars
        return closed_jaxpr(list(self.constants), list(self.constants.values()), arguments, results, self.eqns)

    def read(self, atom: Atom) -> Atom:
        """What an atom of the old program is called in the new one."""
        return renamed(self.names, atom)

    def rename(self, values: Sequence[Var], atoms: Iterable[Atom]) -> None:
        """From here on, `atoms` stand for these values of the old program."""
        self.names.update(zip(values, atoms, strict=True))

    def keep(self, eqn: JaxprEqn, **changes: Any) -> None:
        """Write an equation of the old program, with `changes`; its results keep their names."""
        renamed = eqn if "invars" in changes else reading(eqn, self.read)
        self.eqns.append(renamed.replace(**changes) if changes else renamed)

    def write(self, eqn: JaxprEqn, operands: Sequence[Atom], **changes: Any) -> list[Var]:
        """Write an equation once more, of other operands; gives its new results."""
        results = [Var(var.aval) for var in eqn.outvars]
        self.eqns.append(eqn.replace(invars=list(operands), outvars=results, **changes))
        return results

    def identity(self, primitive: Primitive, operands: Sequence[Atom], like: JaxprEqn, **params: Any) -> list[Var]:
        """Write an equation that hands its operands on; gives what they are called behind it.

        Args:
            primitive: a mark, or a barrier.
            like: the equation whose place in the user's program it takes.
        """
        results = [Var(operand.aval) for operand in operands]
        self.eqns.append(
            new_jaxpr_eqn(list(operands), results, primitive, params, frozenset(), like.source_info, like.ctx)
        )
        return results

    def barrier(self, operands: Sequence[Atom], like: JaxprEqn) -> list[Var]:
        """The same values, which the compiler takes for others: it cannot find out what they were computed from."""
        return self.identity(jax.lax.optimization_barrier_p, operands, like)

    def emit(self, function: Callable[..., object], *atoms: Atom) -> list[Atom]:
        """Write the equations of a JAX function of atoms of the new program; gives its results."""
        shapes = (jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in map(aval_of, atoms))
        return self.inline(jax.make_jaxpr(function)(*shapes), atoms)

    def inline(self, body: ClosedJaxpr, operands: Sequence[Atom], called: Called | None = None) -> list[Atom]:
        """Write the equations of a program of these operands, its calls written out; gives its results.

        Args:
            body: the program; it may be written several times.
            operands: atoms of the new program.
            called: as for `flat`.
        """
        return _Inliner(self, called or _plain_call).write(body, operands, None)


class _Inliner:
    """Writes a program and the calls in it into another one, under new names."""

    def __init__(self, writer: JaxprRewriter, called: Called) -> None:
        self.writer = writer
        self.called = called
        self.stacks: dict[tuple[ByIdentity, ByIdentity], NameStack] = {}

    def write(self, body: ClosedJaxpr, operands: Sequence[Atom], stack: NameStack | None) -> list[Atom]:
        names: dict[Var, Atom] = dict(zip(body.jaxpr.invars, operands, strict=True))
        for var, value in zip(body.jaxpr.constvars, body.consts, strict=True):
            names[var] = constant = Var(var.aval)
            self.writer.constants[constant] = value
        for eqn in body.jaxpr.eqns:
            info = eqn.source_info if stack is None else self._within(eqn.source_info, stack)
            atoms = [renamed(names, atom) for atom in eqn.invars]
            inner = self.called(eqn)
            if inner is None:
                results: Sequence[Atom] = self.writer.write(eqn, atoms, source_info=info)
            else:
                results = self.write(inner, self._entering(eqn.replace(source_info=info), atoms), info.name_stack)
            names.update(zip(eqn.outvars, results, strict=True))
        return [renamed(names, atom) for atom in body.jaxpr.outvars]

    def _within(self, info: SourceInfo, stack: NameStack) -> SourceInfo:
        """Source information in a call with a name stack; equal stacks are one object, so that they are read once."""
        key = ByIdentity(stack), ByIdentity(info.name_stack)
        joined = self.stacks.get(key)
        if joined is None:
            joined = self.stacks[key] = stack + info.name_stack
        return info.replace(name_stack=joined)

    def _entering(self, call: JaxprEqn, atoms: list[Atom]) -> list[Atom]:
        """What a call reads."""
        # Without a barrier XLA would find the recomputation equal to the forward pass and merge the two.
        if not (str(call.primitive.name).startswith("remat") and call.params.get("prevent_cse", True)):
            return atoms
        tensors = list(dict.fromkeys(variables(atoms)))
        passed = dict(zip(tensors, self.writer.barrier(tensors, call), strict=True))
        return [renamed(passed, atom) for atom in atoms]


def flat(closed: ClosedJaxpr, called: Called | None = None) -> ClosedJaxpr:
    """The same program without calls.

    Args:
        closed: the program.
        called: the body of an equation that should be written out, or None; by default plain calls are.
    """
    writer = JaxprRewriter(closed)
    # Constants get new names, like all that is computed.
    writer.constants.clear()
    return writer.finish(writer.inline(closed, closed.jaxpr.invars, called))


def _plain_call(eqn: JaxprEqn) -> ClosedJaxpr | None:
    if str(eqn.primitive.name) not in _CALLS:
        return None
    body = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    # A call with shardings of its own means more than its equations.
    shardings = (*eqn.params.get("in_shardings", ()), *eqn.params.get("out_shardings", ()))
    if not isinstance(body, ClosedJaxpr) or any(isinstance(option, jax.sharding.Sharding) for option in shardings):
        return None
    return body


def closed_jaxpr(
    constvars: Sequence[Var],
    consts: Sequence[object],
    invars: Sequence[Var],
    outvars: Sequence[Atom],
    eqns: list[JaxprEqn],
) -> ClosedJaxpr:
    """A program of these equations."""
    effects = frozenset().union(*(eqn.effects for eqn in eqns)) if eqns else frozenset()
    # JAX demands one name per argument and result; empty ones are enough.
    names = DebugInfo("jit", "step", ("",) * len(invars), ("",) * len(outvars))
    return ClosedJaxpr(Jaxpr(list(constvars), list(invars), list(outvars), eqns, effects, names), list(consts))


def run_equation(eqn: JaxprEqn, operands: Sequence[jax.Array]) -> list[jax.Array]:
    """The results of one equation for these values of its operands."""
    values = {atom: value for atom, value in zip(eqn.invars, operands, strict=True) if isinstance(atom, Var)}
    # As a program of one equation: JAX knows how to run every kind of it, custom derivatives and loops included.
    single = closed_jaxpr([], [], list(values), eqn.outvars, [eqn])
    return jaxpr_as_fun(single)(*values.values())


def renamed(names: Mapping[Var, Atom], atom: Atom) -> Atom:
    """What `names` call an atom; literals, and what is not in `names`, are called as they are."""
    return atom if isinstance(atom, Literal) else names.get(atom, atom)


def reading(eqn: JaxprEqn, read: Callable[[Atom], Atom]) -> JaxprEqn:
    """An equation whose operands are called as `read` says."""
    operands = list(map(read, eqn.invars))
    # An equation that stays as it is stays one object, so that what is known of it need not be found out again.
    if all(new is old for new, old in zip(operands, eqn.invars, strict=True)):
        return eqn
    return eqn.replace(invars=operands)


def variables(atoms: Iterable[Atom]) -> list[Var]:
    """The atoms that are no literals."""
    return [atom for atom in atoms if isinstance(atom, Var)]


def needed(
    eqns: Sequence[JaxprEqn], outvars: Sequence[Atom], may_go: Callable[[JaxprEqn], bool] = lambda eqn: not eqn.effects
) -> list[JaxprEqn]:
    """The equations without those that may go and whose results neither `outvars` nor equations that stay read."""
    read = set(variables(outvars))
    staying: list[JaxprEqn] = []
    # Last to first, so that an equation whose only reader goes may go, too.
    for eqn in reversed(eqns):
        if not may_go(eqn) or not read.isdisjoint(eqn.outvars):
            read.update(variables(eqn.invars))
            staying.append(eqn)
    return staying[::-1]


def bodies_of(eqn: JaxprEqn) -> Iterator[Jaxpr]:
    """The programs among the parameters of an equation."""
    for value in eqn.params.values():
        for entry in value if isinstance(value, tuple | list) else (value,):
            if isinstance(entry, ClosedJaxpr):
                yield entry.jaxpr
            elif isinstance(entry, Jaxpr):
                yield entry


def with_bodies(eqn: JaxprEqn, change: Callable[[Any], Any]) -> JaxprEqn:
    """The equation, in which each program among its parameters is changed."""

    def changed(value: Any) -> Any:
        if isinstance(value, ClosedJaxpr | Jaxpr):
            return change(value)
        # Branches are a tuple; other tuples (axes, shardings, named ones too) are handed on as they are.
        if type(value) is tuple and any(isinstance(entry, ClosedJaxpr | Jaxpr) for entry in value):
            return tuple(map(changed, value))
        return value

    return eqn.replace(params={name: changed(value) for name, value in eqn.params.items()})


def stack_of(eqn: JaxprEqn) -> str:
    """Its name stack as text."""
    # By identity: comparing name stacks would cost as much as their text.
    return _text_of(ByIdentity(eqn.source_info.name_stack))


@lru_cache(maxsize=_MOST_TEXTS)
def _text_of(stack: ByIdentity) -> str:
    return str(stack.value)


def is_backward(stack: str) -> bool:
    """Whether an equation with this name stack belongs to a backward pass."""
    return "transpose(" in stack


def runs_backward(eqn: JaxprEqn) -> bool:
    """Whether an equation belongs to a backward pass."""
    return is_backward(stack_of(eqn))


def in_backward(eqn: JaxprEqn) -> SourceInfo:
    """The source information of an equation, as that of a copy of it in the backward pass."""
    # Later passes read from the name stack that the copy belongs there.
    return eqn.source_info.replace(name_stack=eqn.source_info.name_stack.transform("transpose"))


def aval_of(atom: Atom) -> ShapedArray:
    """Shape, dtype and memory of a value: JAX's type for all kinds of values has none of them."""
    return cast("ShapedArray", atom.aval)


def num_bytes(atom: Atom) -> int:
    """Bytes of a value; 0 where its type has no size."""
    return int(getattr(atom.aval, "size", 0) * getattr(getattr(atom.aval, "dtype", None), "itemsize", 0))
