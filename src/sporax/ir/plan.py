"""A finished plan: where every tensor of a step lies, and how every operator is cut.

Plans are values: frozen, printable, saved as JSON and read again. What follows from a plan and its graph (redistributions,
bytes, memory) is computed by the planner, and what runs is written by the lowering; both read nothing but this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxValueError
from sporax.ir.placement import Axes, Placement

VERSION = 1
"""Of the JSON form."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """Where a tensor is brought as soon as it is there, for all who read it.

    Attributes:
        placement: where.
        reason: why, for people: ``"result of MatMul"``, ``"gradient of fc.weight"``.
        in_float32: combine parts in float32.
        fusion: gradients with the same number above 0 are combined in one collective.
        scale: the value is multiplied by it afterwards.
    """

    placement: Placement
    reason: str = ""
    in_float32: bool = False
    fusion: int = 0
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """How one operator is cut.

    Attributes:
        assignment: for each factor of the operator's rule the mesh axes that cut it.
        operands: where each operand must lie; a scalar's placement has no dimensions.
        results: where the results then lie.
        bodies: plans of the bodies of control flow.
    """

    assignment: tuple[Axes, ...]
    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    bodies: tuple[Plan, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """How a step is cut.

    Attributes:
        mesh: the devices; its axes have prime sizes.
        inputs, outputs: where the step's arguments lie and where its results shall lie.
        operators: one entry per operator of the graph.
        settled: by number of the tensor.
        notes: what people should know: operators that could not be cut, and why.
        alltoall: whether tensors may be moved by all-to-all and permute.
        graph: fingerprint of the graph it was made for.
    """

    mesh: DeviceMatrix
    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    operators: tuple[OperatorPlan, ...]
    settled: Mapping[int, Settlement] = field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = ()
    alltoall: bool = True
    graph: str = ""

    def __str__(self) -> str:
        cut = sum(any(each.assignment) for each in self.operators)
        return f"Plan({self.mesh}, {cut} of {len(self.operators)} operators cut)"

    def to_json(self) -> str:
        """The plan as text."""
        return json.dumps({"version": VERSION, **_plan_value(self)})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote.

        Raises:
            SporaxValueError: not a plan, or of another version.
        """
        try:
            value = json.loads(text)
            version = value["version"]
            if version == VERSION:
                return _plan(value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SporaxValueError(f"For 'Plan.from_json', the text must be a saved plan, but {error!r}.") from None
        raise SporaxValueError(f"For 'Plan.from_json', the version must be {VERSION}, but got {version!r}.")


def _plan_value(plan: Plan) -> dict[str, Any]:
    return {
        "mesh": {
            "shape": plan.mesh.shape,
            "names": plan.mesh.names,
            "ranks": list(plan.mesh.ranks),
        },
        "inputs": list(map(_placement_value, plan.inputs)),
        "outputs": list(map(_placement_value, plan.outputs)),
        "operators": [
            {
                "assignment": each.assignment,
                "operands": list(map(_placement_value, each.operands)),
                "results": list(map(_placement_value, each.results)),
                **({"bodies": list(map(_plan_value, each.bodies))} if each.bodies else {}),
            }
            for each in plan.operators
        ],
        "settled": {
            str(tensor): {
                "placement": _placement_value(each.placement),
                "reason": each.reason,
                "in_float32": each.in_float32,
                "fusion": each.fusion,
                "scale": each.scale,
            }
            for tensor, each in plan.settled.items()
        },
        "notes": plan.notes,
        "alltoall": plan.alltoall,
        "graph": plan.graph,
    }


def _plan(value: Mapping[str, Any]) -> Plan:
    mesh = value["mesh"]
    return Plan(
        DeviceMatrix(tuple(mesh["shape"]), tuple(mesh["names"]), tuple(mesh["ranks"])),
        tuple(map(_placement, value["inputs"])),
        tuple(map(_placement, value["outputs"])),
        tuple(
            OperatorPlan(
                tuple(map(tuple, each["assignment"])),
                tuple(map(_placement, each["operands"])),
                tuple(map(_placement, each["results"])),
                tuple(map(_plan, each.get("bodies", ()))),
            )
            for each in value["operators"]
        ),
        {
            int(tensor): Settlement(**{**each, "placement": _placement(each["placement"])})
            for tensor, each in value["settled"].items()
        },
        tuple(value["notes"]),
        bool(value["alltoall"]),
        str(value["graph"]),
    )


def _placement_value(placement: Placement) -> list[Any]:
    """``[dims]``, or ``[dims, partial, reduction]`` for a tensor in parts."""
    return [placement.dims, placement.partial, placement.reduction] if placement.partial else [placement.dims]


def _placement(value: list[Any]) -> Placement:
    dims, partial, reduction = value if len(value) == 3 else (value[0], (), "")
    return Placement(tuple(map(tuple, dims)), tuple(partial), reduction)
