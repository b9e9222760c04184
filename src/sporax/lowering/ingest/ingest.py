"""From a jaxpr to the operator graph.

Calls (`jit`, custom derivatives, `checkpoint`) are inlined; loops and branches become one operator with their bodies as
graphs. The graph knows nothing of JAX. `Ingested` keeps what the lowering needs to run it: the primitives and the
values of literals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive, Var
from jax.sharding import NamedSharding

from sporax.ir.graph import LITERAL, SEGMENT, STAGE, Input, Operator, OperatorGraph, Role
from sporax.ir.operation import Operation, TensorSpec
from sporax.lowering.ingest.attention import with_attention
from sporax.lowering.ingest.constraints import (
    ANY_MESH,
    SHARD_MAP,
    Constraints,
    body_of,
    island_of,
    placed_by,
    value_of,
    without_shardings,
)
from sporax.lowering.ingest.describe import describe, with_one_answer
from sporax.lowering.jax_versions import scan_numbers
from sporax.lowering.marks.host_transfer import DEVICE, runs_on_host, space_of
from sporax.lowering.marks.mark_primitive import mark_p
from sporax.lowering.marks.tags import innermost_tag, is_offloaded, without_tags
from sporax.lowering.rewriter import Atom
from sporax.planner.rules import Behaviour, entry_for

_BODIES: Mapping[str, tuple[str, ...]] = {
    "scan": ("jaxpr",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
}
"""Parameters that hold the bodies of control flow that is planned from inside."""


@dataclass(frozen=True, slots=True)
class Equation:
    """What runs for one operator of the graph.

    Attributes:
        primitive: what is bound.
        params: its parameters.
        literals: values of scalar constants, by position among the operands.
        bodies: of control flow, or of an island.
        on_host: whether the host computes it.
        waits: whether its results should wait for the backward pass in host memory.
        again: whether it is of the backward pass of a call that is computed again.
    """

    primitive: Primitive
    params: Mapping[str, Any]
    literals: Mapping[int, jax.Array] = field(default_factory=dict)
    bodies: tuple[Ingested, ...] = ()
    on_host: bool = False
    waits: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class Ingested:
    """A graph with what is needed to run it.

    Attributes:
        graph: the graph; its first inputs are `constants`, then come the program's arguments.
        equations: one per operator.
        constants: arrays that the traced code brought along.
        literal_outputs: values of outputs that are constants, by position.
        weak: which arguments and which outputs of the program have a weak type.
    """

    graph: OperatorGraph
    equations: tuple[Equation, ...]
    constants: tuple[jax.Array, ...] = ()
    literal_outputs: Mapping[int, jax.Array] = field(default_factory=dict)
    weak: tuple[Sequence[bool], Sequence[bool]] = (), ()


def ingest(
    jaxpr: ClosedJaxpr,
    inputs: Sequence[tuple[Role, str]] = (),
    aliases: Sequence[tuple[int, int]] = (),
    constraints: Constraints = ANY_MESH,
) -> Ingested:
    """The operator graph of a traced program.

    Args:
        inputs: role and name of each argument; data with a number where nothing is said.
        aliases: pairs of a result and the argument whose place it takes at the next step.
        constraints: makes marks of the shardings that the program says.
    """
    described = list(inputs) or [(Role.DATA, f"input {number}") for number in range(len(jaxpr.jaxpr.invars))]
    full = _read(jaxpr, described, "", constraints)
    offset = len(full.constants)
    # Constants come before arguments in the graph, so positions shift by their number.
    pairs = tuple((output, argument + offset) for output, argument in aliases)
    return replace(full, graph=replace(full.graph, aliases=pairs))


_Env = dict[Var, "int | Literal"]
"""What a variable of the jaxpr stands for: a tensor's number, or a literal that was handed to a call."""


def _read(jaxpr: ClosedJaxpr, inputs: Sequence[tuple[Role, str]], stack: str, constraints: Constraints) -> Ingested:
    """The graph of a whole program or body; arguments are called as `inputs` say."""
    reader = _Reader(constraints)
    # Values that were closed over are inputs of the graph, too: their placements are part of the plan.
    env: _Env = {
        var: reader.constant(var, value) for var, value in zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True)
    }
    arguments = [reader.tensor(var) for var in jaxpr.jaxpr.invars]
    reader.variables.update(zip(arguments, inputs, strict=True))
    env.update(zip(jaxpr.jaxpr.invars, arguments, strict=True))
    reader.read(jaxpr.jaxpr, env, stack)
    return reader.finish(
        jaxpr.jaxpr, env, [Input(tensor, *argument) for tensor, argument in zip(arguments, inputs, strict=True)]
    )


class _Reader:
    """Collects tensors and operators while it walks through a jaxpr and the calls in it."""

    def __init__(self, constraints: Constraints) -> None:
        self.constraints = constraints
        self.tensors: list[TensorSpec] = []
        self.operators: list[Operator] = []
        self.equations: list[Equation] = []
        self.constants: dict[int, jax.Array] = {}
        self.variables: dict[int, tuple[Role, str]] = {}

    def constant(self, var: Var, value: jax.Array) -> int:
        """A new tensor that the program brings along."""
        tensor = self.tensor(var)
        self.constants[tensor] = value
        return tensor

    def tensor(self, var: Var) -> int:
        """A new tensor of the variable's type."""
        shape, dtype = getattr(var.aval, "shape", ()), getattr(var.aval, "dtype", "token")
        itemsize = int(getattr(dtype, "itemsize", 0))
        # What is in host memory takes no bytes of a device.
        sizes = {"itemsize": itemsize} if space_of(var) == DEVICE else {"itemsize": 0, "host_itemsize": itemsize}
        self.tensors.append(TensorSpec(tuple(shape), str(dtype), **sizes))
        return len(self.tensors) - 1

    def finish(self, jaxpr: Jaxpr, env: _Env, arguments: Sequence[Input]) -> Ingested:
        """What was read, with the results of `jaxpr`."""
        outputs = [_look_up(env, var) for var in jaxpr.outvars]
        numbers = tuple(LITERAL if isinstance(output, Literal) else output for output in outputs)
        literals = {number: value_of(output) for number, output in enumerate(outputs) if isinstance(output, Literal)}
        constants = [Input(tensor, Role.CONSTANT, f"constant {number}") for number, tensor in enumerate(self.constants)]
        graph = OperatorGraph(tuple(self.tensors), tuple(self.operators), (*constants, *arguments), numbers)
        return Ingested(with_attention(graph), tuple(self.equations), tuple(self.constants.values()), literals)

    def read(self, jaxpr: Jaxpr, env: _Env, stack: str) -> None:
        """Add the equations of `jaxpr`.

        Args:
            env: its variables; results are added.
            stack: name stack of the calls around it.
        """
        for eqn in jaxpr.eqns:
            # Derivatives of integers have no values to compute or to send; readers get zeros of their type.
            if eqn.outvars and all(_is_float0(var) for var in eqn.outvars):
                env.update(
                    {
                        var: Literal(np.zeros(getattr(var.aval, "shape", ()), jax.dtypes.float0), var.aval)
                        for var in eqn.outvars
                    }
                )
                continue
            # JAX counts name stacks from the innermost call, so the stack of the caller is put before.
            own = str(eqn.source_info.name_stack)
            where = f"{stack}/{own}" if stack and own else stack or own
            self._equation(eqn, env, where)

    def _equation(self, eqn: JaxprEqn, env: _Env, where: str) -> None:
        name, body = str(eqn.primitive.name), written_out(eqn)
        requester, shardings = placed_by(eqn)
        if requester:
            atoms = [_look_up(env, var) for var in eqn.invars]
            env.update(zip(eqn.outvars, self._placed(atoms, shardings, requester, where), strict=True))
        elif name == SHARD_MAP:
            self._island(eqn, env, where)
        elif body is not None:
            self._call(eqn, body, env, where)
        elif name in _BODIES:
            self._control_flow(eqn, env, where)
        else:
            eqn, sharding = without_shardings(eqn)
            self._operator(eqn, env, where)
            if sharding is not None:
                (result,) = eqn.outvars
                (env[result],) = self._placed([_look_up(env, result)], [sharding], name, where)

    def _island(self, eqn: JaxprEqn, env: _Env, stack: str) -> None:
        """An operator whose body runs as it is, on slices; the planner sees its border alone."""
        body = body_of(eqn)
        read = _read(body, [(Role.CONSTANT, "")] * len(body.jaxpr.invars), stack, self.constraints)
        self._operator(eqn, env, stack)
        operator, island = self.operators[-1], island_of(eqn, read.graph, self.constraints)
        self.operators[-1] = replace(operator, operation=replace(operator.operation, params={"island": island}))
        self.equations[-1] = replace(self.equations[-1], bodies=(read,))

    def _operator(self, eqn: JaxprEqn, env: _Env, stack: str, bodies: Sequence[Ingested] = ()) -> None:
        atoms = [_look_up(env, var) for var in eqn.invars]
        # A literal that was handed into a call is a literal inside, too.
        inside = [atom if isinstance(atom, Literal) else var for var, atom in zip(eqn.invars, atoms, strict=True)]
        operation = describe(eqn.replace(invars=inside))
        literals = {number: value_of(atom) for number, atom in enumerate(atoms) if isinstance(atom, Literal)}
        operands = tuple(LITERAL if isinstance(atom, Literal) else atom for atom in atoms)
        results = tuple(self.tensor(var) for var in eqn.outvars)
        env.update(zip(eqn.outvars, results, strict=True))
        path, backward = path_of(stack)
        # The planner sees bodies as graphs alone; the lowering needs their primitives, too.
        graphs = tuple(body.graph for body in bodies)
        stage, segment = (_last(kind, stack) for kind in (STAGE, SEGMENT))
        self.operators.append(
            Operator(operation, operands, results, path, backward, graphs, stage=stage, segment=segment)
        )
        tag = innermost_tag(stack) if backward else None
        again, waits = tag is not None and not tag.keep, not backward and is_offloaded(stack)
        self.equations.append(
            Equation(eqn.primitive, eqn.params, literals, tuple(bodies), runs_on_host(eqn), waits, again)
        )

    def _control_flow(self, eqn: JaxprEqn, env: _Env, stack: str) -> None:
        bodies: list[Ingested] = []
        eqn = with_one_answer(eqn)
        for name in _BODIES[str(eqn.primitive.name)]:
            value = eqn.params[name]
            for body in value if isinstance(value, tuple | list) else (value,):
                names = self._names_inside(eqn, env, len(body.jaxpr.invars))
                bodies.append(_read(body, names, stack, self.constraints))
        self._operator(eqn, env, stack, bodies)

    def _names_inside(self, eqn: JaxprEqn, env: _Env, count: int) -> list[tuple[Role, str]]:
        """What the inputs of a body are: variables that a loop or branch is handed keep their names."""
        unnamed = (Role.CONSTANT, "")
        # Operands of a while are of two bodies: no position says which variable a body's input is.
        if str(eqn.primitive.name) == "while":
            return [unnamed] * count
        # Rows of stacked inputs are slices of a variable, and not the variable itself.
        num_passed = sum(scan_numbers(eqn.params)) if str(eqn.primitive.name) == "scan" else count
        first = len(eqn.invars) - count  # the index of a branch
        atoms = [_look_up(env, var) for var in eqn.invars[first:]]
        names = [unnamed if isinstance(atom, Literal) else self.variables.get(atom, unnamed) for atom in atoms]
        return [
            item if number < num_passed and item[0] in (Role.PARAMETER, Role.STATE) else unnamed
            for number, item in enumerate(names)
        ]

    def _call(self, eqn: JaxprEqn, body: ClosedJaxpr, env: _Env, stack: str) -> None:
        """Write a call out."""
        inner, constants = body.jaxpr, body.consts
        atoms = [_look_up(env, var) for var in eqn.invars]
        # Written out, a rematerialized body is the same code as the forward pass, and XLA would merge the two.
        if str(eqn.primitive.name).startswith("remat") and eqn.params.get("prevent_cse", True):
            atoms = self._barrier(atoms, stack)
        requester = f"jit({eqn.params.get('name', '')})"
        atoms = self._placed(atoms, eqn.params.get("in_shardings", ()), requester, stack)
        within: _Env = dict(zip(inner.invars, atoms, strict=True))
        for var, value in zip(inner.constvars, constants, strict=True):
            within[var] = self.constant(var, value)
        self.read(inner, within, stack)
        results = [_look_up(within, var) for var in inner.outvars]
        results = self._placed(results, eqn.params.get("out_shardings", ()), requester, stack)
        env.update(zip(eqn.outvars, results, strict=True))

    def _placed(
        self, atoms: Sequence[int | Literal], shardings: Sequence[Any], requester: str, stack: str
    ) -> list[int | Literal]:
        """The same values where the user says, as far as shardings of a mesh are there."""
        placed = list(atoms)
        for position, (atom, sharding) in enumerate(zip(atoms, shardings, strict=False)):
            # A literal is on every device.
            if isinstance(sharding, NamedSharding) and not isinstance(atom, Literal):
                mark = self.constraints.mark(sharding, self.tensors[atom].num_dims, requester)
                (placed[position],) = self._identity(mark_p, {"mark": mark}, (atom,), stack)
        return placed

    def _barrier(self, atoms: Sequence[int | Literal], stack: str) -> list[int | Literal]:
        """The same values, for XLA others: so it does not find out that a recomputation repeats what it has."""
        operands = tuple(dict.fromkeys(atom for atom in atoms if not isinstance(atom, Literal)))
        # A barrier around literals alone has nothing to hide.
        if not operands:
            return list(atoms)
        replaced = dict(zip(operands, self._identity(jax.lax.optimization_barrier_p, {}, operands, stack), strict=True))
        return [atom if isinstance(atom, Literal) else replaced[atom] for atom in atoms]

    def _identity(
        self, primitive: Primitive, params: Mapping[str, Any], operands: tuple[int, ...], stack: str
    ) -> tuple[int, ...]:
        """New tensors, which are the operands behind a mark or barrier."""
        specs = tuple(self.tensors[tensor] for tensor in operands)
        results = tuple(range(len(self.tensors), len(self.tensors) + len(specs)))
        self.tensors.extend(specs)
        path, backward = path_of(stack)
        operation, stage = Operation(str(primitive.name), specs, specs, params), _last(STAGE, stack)
        self.operators.append(
            Operator(operation, operands, results, path, backward, stage=stage, segment=_last(SEGMENT, stack))
        )
        self.equations.append(Equation(primitive, params))
        return results


def written_out(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The body of a call that `ingest` writes out in its caller's place, or None."""
    return _called(eqn) if entry_for(str(eqn.primitive.name)).behaviour is Behaviour.INLINE else None


def _called(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The body of a call, as far as one is known by its parameters."""
    # Primitives of JAX name their body differently.
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        body = eqn.params.get(name)
        if isinstance(body, ClosedJaxpr):
            # Where the numbers differ (custom rules that close over values), the call stays an operator of its own.
            return body if len(body.jaxpr.invars) == len(eqn.invars) else None
        if isinstance(body, Jaxpr):
            return ClosedJaxpr(body, ()) if len(body.invars) == len(eqn.invars) and not body.constvars else None
    return None


def _is_float0(var: Atom) -> bool:
    """Whether a variable is a derivative of integers, which JAX gives no values: what makes it need not run."""
    return bool(getattr(var.aval, "dtype", None) == jax.dtypes.float0)


def _look_up(env: _Env, var: Atom) -> int | Literal:
    if isinstance(var, Literal):
        return var
    return env[var]


_WRAPPED = re.compile(r"(\w+)\(([^()]*)\)")


def path_of(stack: str) -> tuple[str, bool]:
    """A name stack as a path of the user's program, and whether it belongs to a derivative.

    Example:
        >>> path_of("Step/transpose(jvp(network))/fc1")
        ('Step.network.fc1', True)
    """
    backward, stack = "transpose(" in stack, stack.replace("rematted_computation", "recomputed")  # JAX's word
    while True:
        # Transformations nest, transpose(jvp(...)): the innermost pair of brackets goes first, until none is left.
        plain = _WRAPPED.sub(r"\2", stack)
        if plain == stack:
            parts = without_tags([part for part in stack.split("/") if part])
            return ".".join(part for part in parts if ":" not in part), backward
        stack = plain


def _last(kind: str, stack: str) -> int | None:
    """The innermost stage or segment that a name stack says."""
    # The innermost Cell that says something wins.
    numbers = re.findall(rf"\b{kind}:(\d+)", stack)
    return int(numbers[-1]) if numbers else None
