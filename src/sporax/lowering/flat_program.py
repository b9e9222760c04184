"""A jaxpr with its calls written out in their caller's place, so that passes see every equation with its whole name stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Literal, Var, new_jaxpr_eqn

from sporax.base.identity import ByIdentity

_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call"})
"""Calls that carry no derivative rule of their own."""
_MOST_TEXTS = 50_000
"""Name stacks whose texts are remembered: passes ask for them several times per equation, and a large step has some 10,000."""


def flat(closed: ClosedJaxpr, called: Callable[[JaxprEqn], ClosedJaxpr | None] | None = None) -> ClosedJaxpr:
    """The same program without calls.

    Args:
        closed: the program.
        called: the body of an equation that should be written out, or None; by default plain calls are.
    """
    writer = _Writer(called or _plain_call)
    jaxpr = closed.jaxpr
    constvars = [writer.constant(var, value) for var, value in zip(jaxpr.constvars, closed.consts, strict=True)]
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, constvars, strict=True))
    env.update((var, var) for var in jaxpr.invars)
    writer.write(jaxpr, env, None)
    outvars = [_atom(env, var) for var in jaxpr.outvars]
    return closed_jaxpr(list(writer.constants), list(writer.constants.values()), jaxpr.invars, outvars, writer.eqns)


def closed_jaxpr(
    constvars: Sequence[Var], consts: Sequence[Any], invars: Sequence[Var], outvars: Sequence[Any], eqns: list[JaxprEqn]
) -> ClosedJaxpr:
    """A program of these equations."""
    effects = frozenset().union(*(eqn.effects for eqn in eqns)) if eqns else frozenset()
    # JAX demands one name per argument and result; empty ones are enough.
    names = DebugInfo("jit", "step", ("",) * len(invars), ("",) * len(outvars))
    return ClosedJaxpr(Jaxpr(list(constvars), list(invars), list(outvars), eqns, effects, names), list(consts))


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


def barrier(operands: Sequence[Any], like: JaxprEqn) -> tuple[list[Var], JaxprEqn]:
    """The same values, which the compiler takes for others: it cannot be found out what they were computed from.

    Args:
        operands: what passes.
        like: the equation whose place in the user's program it takes.
    """
    results = [Var(operand.aval) for operand in operands]
    primitive = jax.lax.optimization_barrier_p
    eqn = new_jaxpr_eqn(list(operands), results, primitive, {}, frozenset(), like.source_info, like.ctx)
    return results, eqn


def equations_of(function: Callable[..., Any], *atoms: Any) -> tuple[list[JaxprEqn], list[Any], dict[Var, Any]]:
    """The equations of a JAX function of these values, its results, and the constants that it brings along."""
    sub = flat(jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in atoms)))
    env: dict[Any, Any] = dict(zip(sub.jaxpr.invars, atoms, strict=True))
    constants: dict[Var, Any] = {}
    for var, value in zip(sub.jaxpr.constvars, sub.consts, strict=True):
        env[var] = Var(var.aval)
        constants[env[var]] = value
    eqns = []
    for eqn in sub.jaxpr.eqns:
        # New variables: one function may be written several times into a program.
        results = [Var(var.aval) for var in eqn.outvars]
        eqns.append(eqn.replace(invars=[_atom(env, var) for var in eqn.invars], outvars=results))
        env.update(zip(eqn.outvars, results, strict=True))
    return eqns, [_atom(env, var) for var in sub.jaxpr.outvars], constants


class _Writer:
    def __init__(self, called: Callable[[JaxprEqn], ClosedJaxpr | None]) -> None:
        self.called = called
        self.eqns: list[JaxprEqn] = []
        self.constants: dict[Var, Any] = {}
        self.stacks: dict[tuple[ByIdentity, ByIdentity], Any] = {}

    def constant(self, var: Var, value: Any) -> Var:
        """A new variable that stands for a value which the program brings along."""
        new = Var(var.aval)
        self.constants[new] = value
        return new

    def write(self, jaxpr: Jaxpr, env: dict[Any, Any], stack: Any) -> None:
        for eqn in jaxpr.eqns:
            info = eqn.source_info if stack is None else self.within(eqn.source_info, stack)
            atoms = [_atom(env, var) for var in eqn.invars]
            body = self.called(eqn)
            if body is None:
                results = [Var(var.aval) for var in eqn.outvars]
                self.eqns.append(eqn.replace(invars=atoms, outvars=results, source_info=info))
            else:
                results = self._call(eqn, body, atoms, info)
            env.update(zip(eqn.outvars, results, strict=True))

    def within(self, info: Any, stack: Any) -> Any:
        """Source information in a call with a name stack; equal stacks are one object, so that they are read once."""
        key = ByIdentity(stack), ByIdentity(info.name_stack)
        joined = self.stacks.get(key)
        if joined is None:
            joined = self.stacks[key] = stack + info.name_stack
        return info.replace(name_stack=joined)

    def _call(self, eqn: JaxprEqn, body: ClosedJaxpr, atoms: list[Any], info: Any) -> list[Any]:
        # Without a barrier XLA would find the recomputation equal to the forward pass and merge the two.
        if str(eqn.primitive.name).startswith("remat") and eqn.params.get("prevent_cse", True):
            tensors = [atom for atom in dict.fromkeys(atoms) if not isinstance(atom, Literal)]
            results, through = barrier(tensors, eqn.replace(source_info=info))
            self.eqns.append(through)
            replaced = dict(zip(tensors, results, strict=True))
            atoms = [atom if isinstance(atom, Literal) else replaced[atom] for atom in atoms]
        inner = body.jaxpr
        within: dict[Any, Any] = dict(zip(inner.invars, atoms, strict=True))
        within.update((var, self.constant(var, value)) for var, value in zip(inner.constvars, body.consts, strict=True))
        self.write(inner, within, info.name_stack)
        return [_atom(within, var) for var in inner.outvars]


def _atom(env: dict[Any, Any], var: Any) -> Any:
    return var if isinstance(var, Literal) else env[var]


def _plain_call(eqn: JaxprEqn) -> ClosedJaxpr | None:
    if str(eqn.primitive.name) not in _CALLS:
        return None
    body = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    # A call with shardings of its own means more than its equations.
    given = (*eqn.params.get("in_shardings", ()), *eqn.params.get("out_shardings", ()))
    if not isinstance(body, ClosedJaxpr) or any(isinstance(option, jax.sharding.Sharding) for option in given):
        return None
    return body
