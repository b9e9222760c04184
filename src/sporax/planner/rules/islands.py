"""The rule of `jax.shard_map` inside of a program: an island has one sharding, the one that its author wrote."""

from __future__ import annotations

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.island import Island, Names
from sporax.planner.rules.derive import Assignment
from sporax.planner.rules.language import DimFactors, Draft, Operation, Rule, Shape


def shard_map(operation: Operation) -> Rule:
    """Each axis that the body names is a factor of its size; what is left of a dimension stays together."""
    island: Island = operation.params["island"]
    draft = Draft(operation)
    factors = {name: draft.map(island.num_devices((name,))) for name in island.axes}

    def dims(shape: Shape, names: Names) -> DimFactors:
        found = []
        for size, axes in zip(shape, names, strict=True):
            major = tuple(number for name in axes for number in factors[name])
            parts = island.num_devices(axes)
            found.append(major if size == parts > 1 else major + draft.blocked(size // parts))
        return tuple(found)

    return draft.finish(
        [dims(spec.shape, names) for spec, names in zip(operation.operands, island.operands, strict=True)],
        [dims(spec.shape, names) for spec, names in zip(operation.results, island.results, strict=True)],
        recipe="island",
        flops_per_point=island.flops,
        points=tuple(number for numbers in factors.values() for number in numbers),
    )


def only_assignment(operation: Operation, rule: Rule, mesh: DeviceMatrix) -> Assignment | None:
    """How an island is sharded; None for all other operations."""
    island = operation.params.get("island")
    if not isinstance(island, Island):
        return None
    runs = island.runs(mesh)
    return tuple(runs[name] for name in island.axes) + ((),) * (len(rule.factors) - len(island.axes))
