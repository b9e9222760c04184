"""A complete plan: the sharding of every operator and the placement of every tensor of a step.

Plans are values: frozen, printable, saved as JSON and read again. What follows from a plan and its graph
(redistributions, bytes, memory) is computed by the planner, and the program is made by the lowering; both read nothing
else.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.errors import SporaxValueError
from sporax.ir.json_reading import MalformedError, flag, list_of, number, numbers, of_kind, whole
from sporax.ir.json_reading import field as field_of
from sporax.ir.json_reading import text as text_of
from sporax.ir.placement import Axes, Placement

T = TypeVar("T")

VERSION = 1
"""Of the JSON form."""


@dataclass(frozen=True, slots=True)
class Resharding:
    """Where a tensor is brought as soon as it is there, for all who read it.

        Attributes:
            placement: where.
            reason: why, for people: ``"result of MatMul"``, ``"gradient of fc.weight"``.
            in_float32: combine parts in float32.
            fusion: gradients with the same number above 0 are combined in one collective, with 0 each has its own; None: nothing
    was said, and the compiler may combine collectives.
            scale: the value is multiplied by it afterwards.
    """

    placement: Placement
    reason: str = ""
    in_float32: bool = False
    fusion: int | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """How one operator is sharded.

    Attributes:
        assignment: for each factor of the operator's rule the mesh axes that shard it.
        operands: where each operand must lie; a scalar's placement has no dimensions.
        results: where the results then lie.
        bodies: plans of the bodies of control flow.
    """

    assignment: tuple[Axes, ...]
    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    bodies: tuple[Plan, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """How a step is sharded.

    Attributes:
        mesh: the devices; its axes have prime sizes.
        inputs, outputs: where the step's arguments lie and where its results shall lie.
        operators: one entry per operator of the graph.
        settled: by number of the tensor.
        notes: what people should know: operators that could not be sharded, and why.
        alltoall: whether tensors may be moved by all-to-all and permute.
        graph: fingerprint of the graph it was made for.
    """

    mesh: DeviceMatrix
    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    operators: tuple[OperatorPlan, ...]
    reshardings: Mapping[int, Resharding] = field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = ()
    alltoall: bool = True
    graph: str = ""

    def __str__(self) -> str:
        cut = sum(any(operator.assignment) for operator in self.operators)
        return f"Plan({self.mesh}, {cut} of {len(self.operators)} operators sharded)"

    __repr__ = __str__

    @property
    def fusion_is_free(self) -> bool:
        """Whether the compiler may combine all-reduces: nothing was said about fusion."""
        return all(resharding.fusion is None for resharding in self.reshardings.values())

    def to_json(self) -> str:
        """The plan as text."""
        return json.dumps({"version": VERSION, **_plan_value(self)})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote.

        Raises:
            SporaxValueError: not a plan, or of another version; the message says where in it.
        """
        try:
            value = json.loads(text)
            field_of(value, "version", _version)
            return _plan(value)
        except (TypeError, ValueError, RecursionError) as error:
            problem = error.message if isinstance(error, SporaxValueError) else f"the text is no JSON: {error}"
        except MalformedError as error:
            problem = str(error)
        raise SporaxValueError(f"For 'Plan.from_json', there must be a saved plan, but {problem.rstrip('.')}.")


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
                "assignment": operator.assignment,
                "operands": list(map(_placement_value, operator.operands)),
                "results": list(map(_placement_value, operator.results)),
                **({"bodies": list(map(_plan_value, operator.bodies))} if operator.bodies else {}),
            }
            for operator in plan.operators
        ],
        "settled": {
            str(tensor): {
                "placement": _placement_value(resharding.placement),
                "reason": resharding.reason,
                "in_float32": resharding.in_float32,
                "fusion": resharding.fusion,
                "scale": resharding.scale,
            }
            for tensor, resharding in plan.reshardings.items()
        },
        "notes": plan.notes,
        "alltoall": plan.alltoall,
        "graph": plan.graph,
    }


def _version(value: Any) -> None:
    if whole(value) != VERSION:
        raise MalformedError(f"must be {VERSION}, but got {value!r}")


def _plan(value: Any) -> Plan:
    return Plan(
        field_of(value, "mesh", _mesh),
        field_of(value, "inputs", _placements),
        field_of(value, "outputs", _placements),
        field_of(value, "operators", lambda operators: list_of(operators, _operator)),
        field_of(value, "settled", _reshardings),
        field_of(value, "notes", lambda notes: list_of(notes, text_of)),
        field_of(value, "alltoall", flag),
        field_of(value, "graph", text_of),
    )


def _mesh(value: Any) -> DeviceMatrix:
    names = field_of(value, "names", lambda names: list_of(names, text_of))
    shape, ranks = field_of(value, "shape", numbers), field_of(value, "ranks", numbers)
    if not ranks:
        raise MalformedError("must have the 'ranks' of its devices, but got none")
    return _made(DeviceMatrix, shape, names, ranks)


def _operator(value: Any) -> OperatorPlan:
    return OperatorPlan(
        field_of(value, "assignment", lambda assignment: list_of(assignment, numbers)),
        field_of(value, "operands", _placements),
        field_of(value, "results", _placements),
        field_of(value, "bodies", lambda bodies: list_of(bodies, _plan)) if "bodies" in value else (),
    )


def _reshardings(value: Any) -> dict[int, Resharding]:
    reshardings = {}
    for tensor in of_kind(value, dict):
        if not tensor.isdecimal():
            raise MalformedError(f"must have numbers of tensors as keys, but got {tensor!r}")
        reshardings[int(tensor)] = field_of(value, tensor, _resharding)
    return reshardings


def _resharding(value: Any) -> Resharding:
    return Resharding(
        field_of(value, "placement", _placement),
        field_of(value, "reason", text_of),
        field_of(value, "in_float32", flag),
        field_of(value, "fusion", lambda fusion: None if fusion is None else whole(fusion)),
        field_of(value, "scale", number),
    )


def _made(kind: Callable[..., T], *values: Any) -> T:
    """A value of a class that checks itself."""
    try:
        return kind(*values)
    except SporaxValueError as error:
        raise MalformedError(f"cannot be what it says: {error.message.rstrip('.')}") from None


def _placement_value(placement: Placement) -> list[Any]:
    """``[dims]``, or ``[dims, partial, reduction]`` for a partial tensor."""
    return [placement.dims, placement.partial, placement.reduction] if placement.partial else [placement.dims]


def _placement(value: Any) -> Placement:
    entries = of_kind(value, list)
    if len(entries) not in (1, 3):
        raise MalformedError(f"must be [dimensions] or [dimensions, partial, reduction], but got {reprlib.repr(value)}")
    dims = list_of(entries[0], numbers)
    partial = numbers(entries[1]) if len(entries) == 3 else ()
    if any(axis < 0 for axes in (*dims, partial) for axis in axes):
        raise MalformedError(f"must have numbers of axes, 0 or more, but got {reprlib.repr(value)}")
    return _made(Placement, dims, *((partial, text_of(entries[2])) if len(entries) == 3 else ()))


def _placements(value: Any) -> tuple[Placement, ...]:
    return list_of(value, _placement)
