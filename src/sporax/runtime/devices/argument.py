"""The arguments of a step that a plan shards: role, shape, and what the planner may do with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sporax.ir.graph import Role


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a step.

    Attributes:
        role: what it is.
        name: of the Parameter, or ``"input 0"``.
        array: its shape and dtype, and where it is at present if it is an array already.
        shardable: whether optimizer parallelism may shard it.
        from_values: whether it was made of values, not by an initializer.
        trainable: whether it is a Parameter with gradients.
        on_host: whether it is in host memory between steps.
    """

    role: Role
    name: str
    array: Any
    shardable: bool = True
    from_values: bool = False
    trainable: bool = False
    on_host: bool = False
