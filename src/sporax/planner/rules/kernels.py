"""Family 13: kernels that are written by hand.

Problem: a kernel is foreign code, but users of attention, and of Pallas at large, expect it to be sharded and counted.

Method: the attention of cuDNN is known by its name: batch and heads are mapped, and its arithmetic is that of its products, of
which a causal mask leaves half. A kernel of Pallas says in its grid what it reads and writes: an axis of the grid whose blocks go
with one dimension of every result, and which the kernel itself does not read, can be sharded. Its arithmetic is what its
author has estimated; kernels of attention in JAX are known by their names. Memory traffic is that of operands and results.

Reference: T. Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness", NeurIPS 2022.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sporax.ir.operation import Operation, Shape, TensorSpec
from sporax.planner.rules.language import Adapt, DimFactors, Draft, Rule, replicate

FAMILY = "13 kernels"

_FORWARD, _BACKWARD = 4.0, 10.0
"""Operations per query, key and element of a head: two products forward, five backward."""
_PALLAS = (
    (re.compile(r"(flash|splash|paged|mh|mq).*_?dkv"), 8.0),
    (re.compile(r"(flash|splash|mh|mq).*_?dq"), 6.0),
    (re.compile(r"mha_backward"), _BACKWARD),
    (re.compile(r"flash_attention|splash_m[hq]a|mha_forward"), _FORWARD),
)
"""Names of JAX's kernels of attention, and their operations as above; the backward pass comes in one kernel or two."""


def dot_product_attention(operation: Operation) -> Rule:
    """Attention of cuDNN, forward or backward: batch and heads of keys are mapped; sequences and elements of heads stay whole."""
    # Beyond what is read below, parameters are settings of the kernel, which slices share.
    params = dict(operation.params)
    if params.get("dropout_rate"):
        return replicate(operation, "its dropout depends on the whole shape", _cudnn_flops(operation))
    query, key = operation.operands[:2]
    heads = 1 if str(params.get("layout", 0)).upper() in ("1", "BNTH") else 2
    groups = query.shape[heads] // key.shape[heads]
    draft = Draft(operation)
    # The gradient of a bias that all of a batch, or all heads, share is a sum over them.
    bias = operation.results[_BIAS].shape if len(operation.results) > _BIAS else query.shape[:1] + query.shape[heads:]
    batch = draft.map(query.shape[0]) if bias[0] == query.shape[0] else draft.reduce(query.shape[0])
    of_keys = draft.map(key.shape[heads]) if bias[1] == query.shape[heads] else draft.reduce(key.shape[heads])
    of_queries = of_keys + draft.blocked(groups) if groups > 1 else of_keys

    inputs = {query.shape, key.shape, operation.operands[2].shape, operation.results[0].shape}

    def dims(spec: TensorSpec, is_bias: bool) -> DimFactors:
        place = heads if spec.shape in inputs and not is_bias else 1
        found: list[tuple[int, ...]] = [() for _ in spec.shape]
        if spec.shape and spec.shape[0] == query.shape[0]:
            found[0] = batch
        if spec.num_dims > 2:
            sizes = {query.shape[heads]: of_queries, key.shape[heads]: of_keys}
            found[place] = sizes.get(spec.shape[place], ())
        return tuple(found)

    operands = [dims(spec, number == _BIAS) for number, spec in enumerate(operation.operands)]
    results = [dims(spec, number == _BIAS) for number, spec in enumerate(operation.results)]
    points = (*batch, *of_keys)
    per_point = _cudnn_flops(operation) / math.prod((query.shape[0], key.shape[heads]))
    return draft.finish(operands, results, flops_per_point=per_point, points=points)


_BIAS = 3
"""Place of the bias, and of its gradient."""


def _cudnn_flops(operation: Operation) -> float:
    query, key = (operand.shape for operand in operation.operands[:2])
    sequence = 2 if str(operation.params.get("layout", 0)).upper() in ("1", "BNTH") else 1
    params = operation.params
    causal = "CAUSAL" in str(params.get("mask_type")) or params.get("is_causal") or params.get("use_causal_mask")
    share = 0.5 if causal else 1.0
    return share * (_BACKWARD if "bwd" in operation.name else _FORWARD) * math.prod(query) * key[sequence]


def pallas_call(operation: Operation) -> Rule:
    """A kernel of Pallas: axes of its grid that go with one dimension of each result are mapped."""
    operation = replace(
        operation, params=dict(operation.params)
    )  # all others are settings of the kernel, which slices share
    flops, grid = pallas_flops(operation), operation.params.get("grid_mapping")
    shared = {} if grid is None else _shared_axes(operation)
    if grid is None or not shared:
        return replicate(operation, f"'{operation.name}' has a grid of which no axis can be sharded", flops)
    draft = Draft(operation)
    factors = {axis: draft.map(grid.grid[axis]) for axis in shared}
    blocks: dict[int, tuple[int, ...]] = {}

    def dims(spec: TensorSpec, block: _Block | None) -> DimFactors:
        found: list[tuple[int, ...]] = [() for _ in spec.shape]
        for dim, axis in enumerate(block.axes if block is not None else ()):
            if axis in factors:
                size = spec.shape[dim] // grid.grid[axis]
                inner = blocks.setdefault(size, draft.blocked(size)) if size > 1 else ()
                found[dim] = factors[axis] + inner
        return tuple(found)

    blocks_of = _blocks(operation)
    count = len(operation.operands)
    operands = list(map(dims, operation.operands, blocks_of[:count]))
    results = list(map(dims, operation.results, blocks_of[count:]))
    points = tuple(number for factor in factors.values() for number in factor)
    per_point = flops / math.prod(grid.grid[axis] for axis in factors)
    return draft.finish(operands, results, adapt=_on_slices(shared), flops_per_point=per_point, points=points)


def pallas_flops(operation: Operation) -> float:
    """Operations of a kernel of Pallas: those of attention for a known name, else what its author estimated, else 0."""
    name = operation.name.partition(":")[2]
    tensors = [spec.shape for spec in operation.operands if spec.num_dims > 2 and spec.is_inexact]
    known = next((flops for pattern, flops in _PALLAS if pattern.search(name)), None)
    if known is not None and len(tensors) > 1:
        # Kernels for sparse masks are made for causal ones, and others show by blocks that they leave out.
        share = 0.5 if "splash" in name or _leaves_blocks_out(operation) else 1.0
        return share * known * math.prod(tensors[0]) * tensors[1][-2]
    estimate = operation.params.get("cost_estimate")
    return float(getattr(estimate, "flops", 0.0))


class _Block:
    """What a kernel sees of one tensor at a time.

    Attributes:
        axes: per dimension the axis of the grid whose number is the number of the block; None for a whole or a computed one.
        used: axes that decide about the block in any way.
    """

    def __init__(self, mapping: Any, num_axes: int) -> None:
        jaxpr = mapping.index_map_jaxpr.jaxpr
        numbers = {var: axis for axis, var in enumerate(jaxpr.invars[:num_axes])}
        depends = {var: {axis} for var, axis in numbers.items()}
        for eqn in jaxpr.eqns:
            found = set().union(*(depends.get(var, set()) for var in eqn.invars if _is_variable(var)))
            depends |= dict.fromkeys(eqn.outvars, found)
        outs = [var if _is_variable(var) else None for var in jaxpr.outvars]
        self.axes = tuple(None if var is None else numbers.get(var) for var in outs)
        self.used = [axis for var in outs if var is not None for axis in depends.get(var, ())]
        self.compares = any(len(depends.get(var, ())) > 1 for var in outs if var is not None)


def _is_variable(atom: Any) -> bool:
    return not hasattr(atom, "val")


def _blocks(operation: Operation) -> list[_Block | None]:
    """Of operands and results; None for operands that decide about blocks, which every device has whole."""
    grid = operation.params["grid_mapping"]
    mapped = [_Block(mapping, len(grid.grid)) for mapping in grid.block_mappings]
    return [*[None] * grid.num_index_operands, *mapped]


def _leaves_blocks_out(operation: Operation) -> bool:
    """Whether the number of a block depends on two axes of the grid: so blocks above the diagonal are not read."""
    grid = operation.params.get("grid_mapping")
    return grid is not None and any(block is not None and block.compares for block in _blocks(operation))


def _shared_axes(operation: Operation) -> Mapping[int, None]:
    """The axes of the grid that can be sharded: each tensor has one in a dimension of whole blocks, or not at all."""
    params = operation.params
    grid = params["grid_mapping"]
    compiler = params.get("compiler_params")
    semantics = list(getattr(compiler, "dimension_semantics", None) or ())
    talks = getattr(compiler, "has_side_effects", False) or getattr(compiler, "collective_id", None) is not None
    inner = [axis for axis in range(len(grid.grid)) if axis not in grid.vmapped_dims]
    queried = {inner[number] for number in _queried(params["jaxpr"]) if number < len(inner)}
    parallel = {axis for axis, word in zip(inner, semantics, strict=False) if str(word).lower().endswith("parallel")}
    independent = {*grid.vmapped_dims, *parallel} if semantics or grid.scratch_avals else {*range(len(grid.grid))}
    specs, blocks = (*operation.operands, *operation.results), _blocks(operation)

    def fits(axis: int, number: int, spec: TensorSpec, block: _Block | None) -> bool:
        if block is None or axis not in block.used:
            return number < len(operation.operands)
        (dim, *others) = [dim for dim, own in enumerate(block.axes) if own == axis] or [-1]
        alone = dim >= 0 and not others and block.used.count(axis) == 1
        return alone and spec.shape[dim] % grid.grid[axis] == 0 and _is_full(grid, number, dim, spec)

    def shareable(axis: int) -> bool:
        if axis not in independent or axis in queried or not isinstance(grid.grid[axis], int) or grid.grid[axis] < 2:
            return False
        return all(fits(axis, number, *pair) for number, pair in enumerate(zip(specs, blocks, strict=True)))

    if talks or params.get("input_output_aliases") or len(specs) != len(blocks):
        return {}
    return dict.fromkeys(filter(shareable, range(len(grid.grid))))


def _is_full(grid: Any, number: int, dim: int, spec: TensorSpec) -> bool:
    """Whether the blocks along a dimension are whole ones, as many as the grid has."""
    mapping = grid.block_mappings[number - grid.num_index_operands]
    block = mapping.block_shape[dim]
    size = block if isinstance(block, int) else getattr(block, "block_size", 1 if block is None else None)
    size = 1 if type(block).__name__ == "Squeezed" else size
    axis = _Block(mapping, len(grid.grid)).axes[dim]
    return size is not None and axis is not None and size * grid.grid[axis] == spec.shape[dim]


def _queried(jaxpr: Any) -> Iterator[int]:
    """Axes of the grid whose number, or number of blocks, a kernel reads."""
    for eqn in jaxpr.eqns:
        if str(eqn.primitive) in ("program_id", "num_programs"):
            yield eqn.params["axis"]
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                body = getattr(inner, "jaxpr", inner)
                if hasattr(body, "eqns"):
                    yield from _queried(body)


def _on_slices(shared: Mapping[int, None]) -> Adapt:
    """The grid and the shapes that a kernel is called with on slices."""

    def adapt(operation: Operation, operands: tuple[Shape, ...], results: tuple[Shape, ...]) -> Mapping[str, Any]:
        params, grid = operation.params, operation.params["grid_mapping"]
        shapes: Sequence[Shape] = (*operands, *results)[grid.num_index_operands :]
        mappings, sizes = [], list(grid.grid)
        for mapping, shape in zip(grid.block_mappings, shapes, strict=True):
            for dim, axis in enumerate(_Block(mapping, len(sizes)).axes):
                if axis is not None and axis in shared:
                    sizes[axis] = grid.grid[axis] * shape[dim] // mapping.array_aval.shape[dim]
            mappings.append(replace(mapping, array_aval=mapping.array_aval.update(shape=shape)))
        avals = tuple(aval.update(shape=shape) for aval, shape in zip(params["out_avals"], results, strict=True))
        changed = replace(grid, grid=tuple(sizes), block_mappings=tuple(mappings))
        return {"grid_mapping": changed, "out_avals": avals}

    return adapt
