"""Which equations a choice of recomputation decides together: blocks of a network, and levels of each.

Problem. To choose operator by operator what is computed again has as many answers as a network has operators, and nearly all
of them are bad.

Method. A *block* is what one numbered Cell (``blocks.3``, an element of a `CellList` or `SequentialCell`) computes in the
forward pass; of nested ones the outermost counts. What the user has marked is no part of a block. A block has *levels*, which
keep less and less (`Level`). The values that a block hands on are kept at all levels.

References: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022 (the attention level);
Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016 (everything).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.extend.core import ClosedJaxpr, JaxprEqn, Var

from sporax.ir.graph import MARK
from sporax.lowering.ingest.ingest import path_of
from sporax.lowering.marks.tags import RecomputeTag, innermost_tag, new_tag
from sporax.lowering.rewriter import Atom, aval_of, is_backward, stack_of, variables
from sporax.planner.memory.recomputation import Level

# The shortest prefix that ends in a number: the outermost numbered Cell.
_BLOCK = re.compile(r".*?(?:^|\.)\d+(?=\.|$)")
_PRODUCTS = ("dot_general", "conv_general_dilated")
_VIEWS = ("reshape", "transpose", "convert_element_type", "squeeze", "expand_dims", MARK)
"""What may be between the result of attention and the product that reads it."""


@dataclass(frozen=True, slots=True)
class RecomputeBlock:
    """What one numbered Cell computes in the forward pass.

    Attributes:
        path: of the Cell.
        positions: of its equations in the program, in order.
        results: values that other equations of the forward pass, or the program's results, read.
    """

    path: str
    positions: tuple[int, ...]
    results: frozenset[Var]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a choice says to the pass that recomputes.

    Attributes:
        tags: of equations, by position in the program.
        saved: values that are kept although their equations are tagged.
        paths: of the Cells that were chosen, by number of their tag.
    """

    tags: Mapping[int, RecomputeTag] = field(default_factory=dict)
    saved: frozenset[Var] = frozenset()
    paths: Mapping[int, str] = field(default_factory=dict)


def blocks_of(program: ClosedJaxpr) -> tuple[RecomputeBlock, ...]:
    """The blocks of a flat program, in the order in which they run."""
    positions: dict[str, list[int]] = {}
    readers: dict[Var, set[str]] = {}
    for position, eqn in enumerate(program.jaxpr.eqns):
        stack = stack_of(eqn)
        if is_backward(stack):
            continue
        path = path_of(stack)[0]
        match = _BLOCK.match(path)
        name = match.group() if match else ""
        for var in eqn.invars:
            if isinstance(var, Var):
                readers.setdefault(var, set()).add(name)
        # What the user has marked is decided already.
        if name and innermost_tag(stack) is None:
            positions.setdefault(name, []).append(position)
    returned = {var for var in program.jaxpr.outvars if isinstance(var, Var)}
    return tuple(
        RecomputeBlock(
            name, tuple(numbers), frozenset(_handed_on(program.jaxpr.eqns, numbers, readers, returned, name))
        )
        for name, numbers in positions.items()
    )


def _handed_on(
    eqns: Sequence[JaxprEqn], positions: Sequence[int], readers: Mapping[Var, set[str]], returned: set[Var], name: str
) -> list[Var]:
    """The values of a block that are read outside of it before the backward pass."""
    return [
        var for place in positions for var in eqns[place].outvars if var in returned or readers.get(var, set()) - {name}
    ]


def chosen(program: ClosedJaxpr, blocks: Sequence[RecomputeBlock], levels: Sequence[Level]) -> Chosen:
    """The choice of one level per block, as tags.

    Args:
        program: flat.
        levels: one per block.
    """
    tags: dict[int, RecomputeTag] = {}
    stored: set[Var] = set()
    paths: dict[int, str] = {}
    for block, level in zip(blocks, levels, strict=True):
        if level is Level.NOTHING:
            continue
        tag = new_tag(mp_comm_recompute=True)
        again, stays = _of_level(program, block, level)
        tags.update(dict.fromkeys(again, tag))
        stored |= stays | block.results
        paths[tag.number] = block.path
    return Chosen(tags, frozenset(stored), paths)


def _of_level(program: ClosedJaxpr, block: RecomputeBlock, level: Level) -> tuple[Sequence[int], set[Var]]:
    """The equations of a block that run again at a level, and results of them that are kept all the same."""
    if level is Level.ATTENTION:
        return _attention(program, block)
    if level is Level.EVERYTHING:
        return block.positions, set()
    eqns = program.jaxpr.eqns
    products = [place for place in block.positions if _is_product(eqns[place])]
    # At this level products with weights are kept; those of attention grow with the square of the length.
    if level is Level.PRODUCTS:
        products = [place for place in products if not _is_batched(eqns[place])]
    return block.positions, {_after_marks(eqns, block, eqns[place].outvars[0]) for place in products}


def _attention(program: ClosedJaxpr, block: RecomputeBlock) -> tuple[list[int], set[Var]]:
    """What follows on products with batch dimensions, up to what products with weights read."""
    eqns = program.jaxpr.eqns
    inside: set[Var] = set()
    again: list[int] = []
    stays: set[Var] = set()
    source: dict[Var, Var] = {}
    for place in block.positions:
        eqn = eqns[place]
        variables = [var for var in eqn.invars if isinstance(var, Var)]
        if _is_product(eqn) and not _is_batched(eqn):
            # The value that the product reads is kept in front of its views, which cost nothing to make again.
            stays.update(source.get(var, var) for var in variables if var in inside)
            continue
        if _is_batched(eqn) or any(var in inside for var in variables):
            inside.update(eqn.outvars)
            again.append(place)
            if str(eqn.primitive.name) in _VIEWS and variables:
                source[eqn.outvars[0]] = source.get(variables[0], variables[0])
    return sorted([*again, *_masks(program, block, again)]), stays


def _masks(program: ClosedJaxpr, block: RecomputeBlock, again: Sequence[int]) -> list[int]:
    """What is computed for these equations alone and from no activation: masks, and the random words of dropout."""
    eqns = program.jaxpr.eqns
    late = _of_activations(program, block)
    readers: dict[Var, set[int]] = {}
    for place in block.positions:
        for var in variables(eqns[place].invars):
            readers.setdefault(var, set()).add(place)
    taken, masks = set(again), list[int]()
    # Last to first: an equation joins when all its readers have joined.
    for place in reversed(block.positions):
        outvars = eqns[place].outvars
        reading = set[int]().union(*(readers.get(var, set()) for var in outvars))
        if reading <= taken and (late | block.results).isdisjoint(outvars) and not eqns[place].effects:
            taken.add(place)
            masks.append(place)
    return [place for place in masks if place not in again]


def _of_activations(program: ClosedJaxpr, block: RecomputeBlock) -> set[Atom]:
    """Tensors from outside of a block, and what is computed from these: no masks."""
    eqns, constants = program.jaxpr.eqns, set(program.jaxpr.constvars)
    inside = constants.union(*(eqns[place].outvars for place in block.positions))
    late: set[Atom] = set()
    for place in block.positions:
        read = variables(eqns[place].invars)
        late.update(var for var in read if var not in inside and _is_tensor(var))
        if not late.isdisjoint(read):
            late.update(eqns[place].outvars)
    return late


def _is_tensor(var: Var) -> bool:
    """Whether it is a tensor of numbers, and no counter, mask or scalar."""
    aval = aval_of(var)
    return bool(getattr(aval, "ndim", 0)) and aval.dtype.kind in "fV"


def _is_product(eqn: JaxprEqn) -> bool:
    return str(eqn.primitive.name) in _PRODUCTS


def _is_batched(eqn: JaxprEqn) -> bool:
    """Whether both operands differ from one batch entry to the next: scores of attention, not layers with weights."""
    return str(eqn.primitive.name) == "dot_general" and bool(eqn.params["dimension_numbers"][1][0])


def _after_marks(eqns: Sequence[JaxprEqn], block: RecomputeBlock, var: Var) -> Var:
    """What a value is called behind the marks that hand it on: there its partial sums are complete."""
    for place in block.positions:
        eqn: Any = eqns[place]
        if str(eqn.primitive.name) == MARK and var in eqn.invars:
            var = eqn.outvars[[invar is var for invar in eqn.invars].index(True)]
    return var
