"""Collectives of a compiled program, read from its text, and those of its plan, by kind and bytes."""

import math
import re
from collections import Counter

from sporax.ir.graph import MARK
from sporax.planner.communication.transfers import collective_bytes as bytes_of, schedule
from sporax.planner.rules import exchanged_bytes, rule_for

_KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
_LINE = re.compile(rf"= (?P<result>.*?) (?P<kind>{_KINDS})(?:-start)?\((?P<operands>[^)]*)\)")
_ARRAY = re.compile(r"\b(pred|[suf]\d+|bf16|c\d+)\[([\d,]*)\]")
_BITS = {"pred": 8, "bf16": 16}


def compiled(program, *arguments):
    """What was compiled when the program ran with such arguments, or else is compiled now."""
    program.plan(*arguments)  # makes it the one whose executable can be had
    return program.executable or program.lower(*arguments).compile()


def collective_bytes(program, *arguments):
    """Bytes that one rank holds when it enters the collectives of each kind, from the optimised program."""
    return read_collectives(compiled(program, *arguments).as_text())


def count_collectives(program, *arguments):
    """How many collectives of each kind the optimised program has, by XLA's names."""
    text = compiled(program, *arguments).as_text()
    return Counter(match[1] for match in re.finditer(rf" ({_KINDS})\(", text))


def count_kinds(text):
    """How many collectives of each kind a program's text has, by the planner's names."""
    kinds = re.findall(rf"= .*? ({_KINDS})(?:-start)?\(", text)
    return Counter(kind.replace("-", "_").replace("collective_permute", "permute") for kind in kinds)


def read_collectives(text):
    """As `collective_bytes`, of a program's text."""
    total = Counter()
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        match = _LINE.search(line)
        if match is None:
            continue
        kind = match["kind"].replace("-", "_").replace("collective_permute", "permute")
        size = sum(map(_bytes, _ARRAY.findall(match["result"])))
        members = _members(line)
        total[kind] += {"all_gather": size // members, "reduce_scatter": size * members}.get(kind, size)
    return dict(total)


def planned_bytes(planned):
    """The same from the plan: its transfers, and what operators exchange with their neighbours while they compute."""
    graph, plan = planned.graph, planned.plan
    total = Counter(bytes_of(list(schedule(graph, plan))))
    for operator, cut in zip(graph.operators, plan.operators, strict=True):
        if operator.name != MARK and not operator.bodies:
            rule = rule_for(operator.operation)
            total["permute"] += exchanged_bytes(operator.operation, rule, cut.assignment, plan.mesh)
    return {kind: size for kind, size in total.items() if size}


def _members(line):
    """How many devices of one group a collective connects; 1 where it names none."""
    groups = re.search(r"replica_groups=(?:\{\{([\d,]+)\}|\[\d+,(\d+)\]|mesh\[(.*?)\] \{(.*?)\})", line)
    if groups is None:
        return 1
    listed, counted, mesh, axes = groups.groups()
    if mesh is not None:  # since JAX 0.11: mesh['a'=2,'b'=4] {'b'}
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", mesh)}
        names = re.findall(r"'(\w+)'", axes)
        assert names, line
        return math.prod(sizes[name] for name in names)
    return len(listed.split(",")) if listed else int(counted)


def _bytes(array):
    dtype, shape = array
    count = 1
    for size in filter(None, shape.split(",")):
        count *= int(size)
    return count * _BITS.get(dtype, int(re.sub(r"\D", "", dtype) or 8)) // 8
