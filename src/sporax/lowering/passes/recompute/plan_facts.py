"""What recomputation reads from a plan: which collectives should not be repeated, what may be kept in smaller slices.

Both depend on how the step is sharded, so a first plan is made of the step without recomputation. Equations of a flat program and
operators of its graph are in one order, so a tensor of the graph is a variable of the program. The loops over micro batches of a
pipeline are found in the same way: one round of both, joined, is planned for the devices of one stage.

What a plan's notes say of memory: what recomputation saves and costs, and what devices and their hosts exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from jax.extend.core import ClosedJaxpr, JaxprEqn, Var

from sporax.base.errors import SporaxNotImplementedError
from sporax.base.text_tables import size_text
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import IDENTITIES, MARK, OperatorGraph, Role
from sporax.ir.layout import Layout
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan
from sporax.lowering.ingest.describe import describe
from sporax.lowering.ingest.ingest import path_of
from sporax.lowering.marks.tags import RecomputeTag, innermost_tag, path_of_tag
from sporax.lowering.passes.recompute.loop_pairs import Entering
from sporax.lowering.passes.recompute.recompute import CONTROL, PlanFacts, Recomputed, without_saved_marks
from sporax.lowering.rewriter import Atom, aval_of, is_backward, stack_of
from sporax.planner.communication.transfers import Transfer, schedule
from sporax.planner.rules import local_flops, rule_for

Roles = list[tuple[Role, str]]
Planner = Callable[[ClosedJaxpr], tuple[OperatorGraph, Plan]]
LoopPlanner = Callable[[ClosedJaxpr, Roles], tuple[OperatorGraph, Plan]]


def plan_facts(
    program: ClosedJaxpr, plan_of: Planner, roles: Roles, plan_of_loop: LoopPlanner | None = None
) -> PlanFacts:
    """What a first plan says; it is only made where a tag requests it.

    Args:
        program: flat, calls as `ingest.written_out` says.
        plan_of: plans a program that is not recomputed.
        roles: role and name of each argument.
        plan_of_loop: plans one round of the loops over micro batches, given role and name of what enters it; None where
            there are none.
    """
    weights = {
        var: name for var, (role, name) in zip(program.jaxpr.invars, roles, strict=True) if role is Role.PARAMETER
    }
    of_loop = None if plan_of_loop is None else partial(_of_loop, program, roles, plan_of_loop)
    tags = [tag for eqn in program.jaxpr.eqns if (tag := innermost_tag(stack_of(eqn))) is not None]
    # No tag depends on how the step is sharded, so no plan has to be made.
    if all(tag.keep or (tag.mp_comm_recompute and not tag.recompute_slice_activation) for tag in tags):
        return PlanFacts(weights=weights, of_loop=of_loop)
    plain = without_saved_marks(program)
    graph, plan = plan_of(plain)
    # The graph must have the program's equations one by one, or tensors could not be matched.
    if len(graph.operators) != len(plain.jaxpr.eqns):
        raise SporaxNotImplementedError(
            "For 'Cell.recompute', 'mp_comm_recompute=False' and 'recompute_slice_activation=True' are not offered in steps "
            f"that a plan changes (tables in uneven parts, level3): the step has {len(plain.jaxpr.eqns)} operators, its "
            f"plan {len(graph.operators)}."
        )
    variables = _variables(plain, graph)
    return PlanFacts(
        saved=_received(plain, graph, plan, variables),
        weights=weights,
        slices=_slices(plain, graph, plan, variables, set(weights)),
        of_loop=of_loop,
    )


def _of_loop(
    program: ClosedJaxpr, roles: Roles, plan_of_loop: LoopPlanner, joined: ClosedJaxpr, entering: list[Entering]
) -> PlanFacts:
    """The facts of one round of a loop of `program`, which has arguments of these roles."""
    described: dict[Any, tuple[Role, str]] = dict(zip(program.jaxpr.invars, roles, strict=True))
    for eqn in program.jaxpr.eqns:
        if eqn.primitive.name == MARK:
            pairs = zip(eqn.outvars, eqn.invars, strict=True)
            described.update(
                (var, described[atom]) for var, atom in pairs if isinstance(atom, Var) and atom in described
            )

    def role_of(number: int, entry: Entering) -> tuple[Role, str]:
        if entry.is_row:
            return Role.DATA, f"row of input {number}"
        known = described.get(entry.atom) if isinstance(entry.atom, Var) else None
        return known or (Role.CONSTANT, f"input {number}")

    inside = [role_of(number, entry) for number, entry in enumerate(entering)]
    return plan_facts(joined, lambda plain: plan_of_loop(plain, inside), inside)


def _variables(program: ClosedJaxpr, graph: OperatorGraph) -> dict[int, Var]:
    """The variable of each tensor that an operator makes."""
    pairs = zip(graph.operators, program.jaxpr.eqns, strict=True)
    return {tensor: var for operator, eqn in pairs for tensor, var in zip(operator.results, eqn.outvars, strict=True)}


def _tags(program: ClosedJaxpr) -> Iterator[RecomputeTag | None]:
    """The tag of each equation of the forward pass."""
    for eqn in program.jaxpr.eqns:
        stack = stack_of(eqn)
        yield None if is_backward(stack) else innermost_tag(stack)


def _received(program: ClosedJaxpr, graph: OperatorGraph, plan: Plan, variables: dict[int, Var]) -> set[Var]:
    """Results of collectives that tags forbid to repeat."""
    tags = list(_tags(program))
    makers = graph.producers()
    received: set[Var] = set()
    for together in schedule(graph, plan):
        for transfer in together:
            tensor = _arrived(transfer, graph)
            maker = makers.get(tensor)
            tag = None if maker is None else tags[maker]
            collective = any(move.collective for move in transfer.redistribution.moves)
            # A transfer without communication is repeated at no cost.
            if tag is not None and not tag.mp_comm_recompute and collective:
                received.add(variables[tensor])
    return received


def _arrived(transfer: Transfer, graph: OperatorGraph) -> int:
    """The tensor whose value is where a transfer brings it: what a mark that requests it hands on, or the tensor itself."""
    if transfer.resharding is None and transfer.operator >= 0:
        reader = graph.operators[transfer.operator]
        if reader.name in IDENTITIES:
            return reader.results[reader.operands.index(transfer.tensor)]
    return transfer.tensor


def _slices(
    program: ClosedJaxpr, graph: OperatorGraph, plan: Plan, variables: dict[int, Var], weights: set[Var]
) -> dict[Var, tuple[Layout, Layout]]:
    """For values that enter calls with sliced activations: smaller slices of them, and where they are otherwise."""
    tags = list(_tags(program))
    makers = graph.producers()
    slices: dict[Var, tuple[Layout, Layout]] = {}
    for operator, tag in zip(graph.operators, tags, strict=True):
        if tag is None or not tag.recompute_slice_activation:
            continue
        for tensor in operator.operands:
            maker = makers.get(tensor)
            other = None if maker is None else tags[maker]
            # What the same call makes does not enter it.
            if maker is None or (other is not None and other.number == tag.number):
                continue
            settled = plan.reshardings.get(tensor)
            results = graph.operators[maker].results
            here = plan.operators[maker].results[results.index(tensor)] if settled is None else settled.placement
            smaller = finer(here, graph.tensors[tensor], plan.mesh)
            if smaller is not None:
                slices[variables[tensor]] = smaller.to_layout(plan.mesh), here.to_layout(plan.mesh)
    # Optimizer parallelism decides how weights are stored.
    return {var: part for var, part in slices.items() if var not in weights}


def finer(here: Placement, spec: TensorSpec, mesh: DeviceMatrix) -> Placement | None:
    """The placement sharded further along the axes over which it is repeated, along its first dimension that allows it."""
    repeated = tuple(axis for axis in range(mesh.num_axes) if axis not in here.used)
    if here.partial or not repeated:
        return None
    # The first dimension that divides, since one slice per rank is all that is needed.
    for dim in range(len(here.dims)):
        sharded = Placement((*here.dims[:dim], (*here.dims[dim], *repeated), *here.dims[dim + 1 :]))
        if sharded.fits(spec.shape, mesh):
            return sharded
    return None


_MOST_NAMES = 12
"""Of variables in one note."""


def recomputation_notes(calls: Sequence[Recomputed]) -> list[str]:
    """For each Cell and operator that was marked, in the order of the forward pass, what its mark saves and costs.

    Bytes that are no longer kept, bytes of what is kept to compute them again, and floating-point operations that run twice;
    of all devices together.
    """
    saved: dict[str, int] = {}
    stored: dict[str, int] = {}
    flops: dict[str, float] = {}
    for call in reversed(calls):  # the backward pass began with the last one
        path = path_of(path_of_tag(call.stack))[0] if call.path is None else call.path
        saved[path] = saved.get(path, 0) + _num_bytes(call.released)
        stored[path] = stored.get(path, 0) + _num_bytes(call.saved)
        flops[path] = flops.get(path, 0.0) + sum(map(_flops, call.again))
    return [
        f"recompute {path}: {size_text(saved[path])} of the whole step are not kept, {size_text(stored[path])} are kept to "
        f"compute them again, {flops[path]:.3g} flops run twice"
        for path in saved
    ]


def host_notes(names: Sequence[str], held_bytes: int, sent: Sequence[tuple[str, int]]) -> list[str]:
    """What is in host memory between steps, and what every device sends to its host and fetches from there in a step.

    Args:
        names: of the variables on the host.
        held_bytes: what each device has of them.
        sent: direction and bytes of each transfer.
    """
    listed = ", ".join(names[:_MOST_NAMES]) + (
        f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    )
    notes = [f"host memory of each device: {size_text(held_bytes)} of {listed}"] if names else []
    sizes = {way: [size for direction, size in sent if direction == way] for way in ("to host", "to device")}
    if sent:
        notes.append(
            f"every device sends {size_text(sum(sizes['to host']))} to its host in {len(sizes['to host'])} transfers a step, "
            f"and fetches {size_text(sum(sizes['to device']))} in {len(sizes['to device'])}"
        )
    return notes


def _num_bytes(variables: Sequence[Atom]) -> int:
    return sum(int(aval.size * aval.dtype.itemsize) for aval in map(aval_of, variables))


def _flops(eqn: JaxprEqn) -> float:
    # Marks do nothing; work inside of loops is not counted.
    if eqn.primitive.name == MARK or eqn.primitive.name in CONTROL:
        return 0.0
    rule = rule_for(describe(eqn))
    # Of the whole step, hence as if one device did everything.
    return local_flops(rule, ((),) * len(rule.factors), DeviceMatrix((1,)))
