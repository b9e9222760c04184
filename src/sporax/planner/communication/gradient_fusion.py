"""Fusion of collectives: which parameters share a buffer, as `comm_fusion` and `all_reduce_fusion_config` set it.

There are three kinds of collectives of parameters: gradients that are all-reduced, gradients that are reduce-scattered
and weights that are gathered (the last two with optimizer parallelism). Each kind has its own rule. A rule counts over
all parameters; parameters of another kind leave gaps. Tensors with another dtype or other ranks are never fused.

The terms of gradients that are sums: one per micro batch, and one per operator that reads the parameter.

Problem: with ``gradient_accumulation_shard`` each term is reduced and scattered by itself, so that the sum is kept in slices.

Method: walk back from every finished gradient through the additions that differentiation inserted, as long as there
is no other reader of the partial result.

All terms of a gradient are ready to be computed at the same time, and a compiler that is free to choose computes all of them
before it reduces the first: then they are all there at full size. So each term waits for the one before it (`term_order`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sporax.ir.config import parallel_config
from sporax.ir.graph import IDENTITIES, LITERAL, OperatorGraph, Role
from sporax.ir.marks import GradientMark
from sporax.ir.placement import Placement
from sporax.ir.plan import Plan

Ids = Mapping[str, int]
"""By name of the parameter: those with one number above 0 are sent in one buffer; with 0 each is sent alone.

Empty where neither the context nor a parameter says anything: the compiler may then combine what it likes."""

_SPREAD = 1 << 16
"""Factor on the number of a buffer, above every `comm_fusion`: parameters of different `comm_fusion` never share one."""


@dataclass(frozen=True, slots=True)
class FusionIds:
    """With which others each parameter is sent.

    Attributes:
        reduced, scattered: of gradients that are all-reduced and reduce-scattered, in the order of the backward pass.
        gathered: of weights, in the order of the forward pass.
    """

    reduced: Ids = field(default_factory=dict)
    scattered: Ids = field(default_factory=dict)
    gathered: Ids = field(default_factory=dict)


def fusion_ids(graph: OperatorGraph, config: parallel_config.ParallelConfig) -> FusionIds:
    """The buffers of a step's parameters."""
    ids: tuple[dict[str, int], ...] = ({}, {}, {})
    for operator in graph.walk():
        mark = operator.mark
        if isinstance(mark, GradientMark):
            specs = operator.operation.operands
            members = [
                (name, own, spec.num_bytes) for name, own, spec in zip(mark.parameters, mark.fusion, specs, strict=True)
            ]
            # Gradients become ready from the last layer to the first, weights are needed the other way round.
            ids[0].update(_ids(members[::-1], "allreduce", config))
            ids[1].update(_ids(members[::-1], "reducescatter", config))
            ids[2].update(_ids(members, "allgather", config))
    return FusionIds(*ids)


def _ids(members: Sequence[tuple[str, int, int]], kind: str, config: parallel_config.ParallelConfig) -> dict[str, int]:
    """Numbers for parameters given as (name, `comm_fusion`, bytes), in the order of their collectives."""
    # A `comm_fusion` of 0 means alone, so these parameters are not counted by any rule.
    fused = [member for member in members if member[1]]
    numbers = _numbers([size for _, _, size in fused], kind, config)
    # Neither the context nor a parameter sets anything: the compiler combines as it likes.
    if numbers is None and config.comm_fusion.openstate and all(own == 1 for _, own, _ in members):
        return {}
    ids = {name: 0 for name, _, _ in members}
    for (name, own, _), number in zip(fused, numbers or (), strict=False):
        ids[name] = number * _SPREAD + own if number else 0
    return ids


def _numbers(sizes: Sequence[int], kind: str, config: parallel_config.ParallelConfig) -> Sequence[int] | None:
    """Numbers for collectives of these sizes in bytes; None where no rule was given."""
    rule = config.comm_fusion.fusion_rule_for(kind)
    positions = config.all_reduce_fusion_config if kind == "allreduce" else ()
    # The rule of `comm_fusion` goes before the older settings of all-reduces.
    if rule is not None and rule.mode != "index":
        return parallel_config.ids_by_size(sizes, (rule.threshold_megabytes or 0) * parallel_config.BYTES_PER_MEGABYTE)
    if rule is not None and isinstance(rule.config, tuple):
        return parallel_config.ids_by_position(len(sizes), rule.config)
    if positions:
        return parallel_config.ids_by_position(len(sizes), positions)
    if kind == "allreduce" and config.all_reduce_fusion_sizes:
        return parallel_config.ids_by_sizes(sizes, config.all_reduce_fusion_sizes)
    return None


TERM = "part of the gradient of"
"""Begins the reasons of reshardings of terms."""
_LIGHT = frozenset({"convert_element_type", "transpose", "reshape", "squeeze", "copy", *IDENTITIES})
"""What only hands on: the operator before it is the one that must wait."""
_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})


@dataclass(frozen=True, slots=True)
class Delay:
    """An operator that begins when a term of a gradient has been reduced.

    Attributes:
        operand: position of the operand that comes late.
        term: the tensor that must be there first.
        placement: where that is.
    """

    operand: int
    term: int
    placement: Placement


def term_order(graph: OperatorGraph, plan: Plan) -> dict[int, Delay]:
    """By position the operators that compute a term of a gradient, and the term before it, for which they wait.

    Args:
        plan: how it is sharded; only terms that it reduces by themselves count.
    """
    scattered = {tensor for tensor, how in plan.reshardings.items() if how.reason.startswith(TERM)}
    if not scattered:
        return {}
    producers, consumers = graph.producers(), graph.consumers()
    terms: dict[int, list[int]] = {}
    for tensor, parameter in gradient_terms(graph).items():
        if tensor in scattered and tensor in producers:
            terms.setdefault(parameter, []).append(tensor)
    order: dict[int, Delay] = {}
    for of_parameter in terms.values():
        of_parameter.sort(key=producers.__getitem__)
        for before, after in itertools.pairwise(of_parameter):
            number = _worker(after, graph, producers, consumers)
            operand = _late_operand(graph, number)
            may_be_waited_for = graph.tensors[before].dtype in _FLOATS and graph.tensors[before].num_bytes > 0
            # An operator that comes earlier in the graph cannot wait for it.
            if may_be_waited_for and operand is not None and producers[before] < number and number not in order:
                order[number] = Delay(operand, before, plan.reshardings[before].placement)
    return order


def _worker(tensor: int, graph: OperatorGraph, producers: Mapping[int, int], consumers: Mapping[int, list[int]]) -> int:
    """The operator that computes a tensor which others may have cast or transposed since."""
    number = producers[tensor]
    while graph.operators[number].name in _LIGHT:
        operator = graph.operators[number]
        before = operator.sources.get(tensor, operator.operands[0])
        if before not in producers or len(consumers[before]) > 1:
            break
        tensor, number = before, producers[before]
    return number


def _late_operand(graph: OperatorGraph, number: int) -> int | None:
    """The smallest array that an operator reads: it is copied."""
    operator = graph.operators[number]
    arrays = [place for place, tensor in enumerate(operator.operands) if tensor != LITERAL]
    # A mark does nothing itself, and a loop's operands are read before it runs.
    if not arrays or operator.name in IDENTITIES or operator.bodies:
        return None
    return min(arrays, key=lambda place: operator.operation.operands[place].num_bytes)


def gradient_terms(graph: OperatorGraph) -> dict[int, int]:
    """For every tensor that is added up to a gradient, the parameter; nothing of gradients that are no sums."""
    parameters = {argument.name: argument.tensor for argument in graph.inputs if argument.role is Role.PARAMETER}
    producers, consumers = graph.producers(), graph.consumers()
    parameter_of: dict[int, int] = {}
    for operator in graph.operators:
        mark = operator.mark
        if not isinstance(mark, GradientMark):
            continue
        for gradient, name in zip(operator.operands, mark.parameters, strict=True):
            terms = _terms(gradient, graph, producers, consumers)
            # The gradient of one reader is no sum: its own resharding does all there is to do.
            if len(terms) > 1 and name in parameters:
                parameter_of.update(dict.fromkeys(terms, parameters[name]))
    return parameter_of


def _terms(
    tensor: int, graph: OperatorGraph, producers: Mapping[int, int], consumers: Mapping[int, list[int]]
) -> list[int]:
    """The tensors that a tensor is the sum of; the tensor itself where it is no sum, or has other readers."""
    terms, left = [], [tensor]
    while left:
        tensor = left.pop()
        operator = graph.operators[producers[tensor]] if tensor in producers else None
        # `add_any` is the addition that differentiation inserts; other additions are the user's.
        # A second reader needs the sum itself, so what comes before it must not be taken apart.
        if operator is None or operator.name != "add_any" or LITERAL in operator.operands or len(consumers[tensor]) > 1:
            terms.append(tensor)
        else:
            left.extend(operator.operands)
    return terms
