"""The collectives of a compiled program: along which axes, how often, bytes, predicted time, and whether they had to be.

A collective is taken for a rematerialization ("involuntary full rematerialization" in XLA's words) where every device makes an
array whole and then reads nothing of it but a slice of its own: XLA knew no way between two shardings. An all-reduce whose
result is read like this is a reduce-scatter on GPUs and TPUs, whose compilers make one of it, and is counted as that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import HardwareProfile
from sporax.ir.placement import prime_mesh
from sporax.planner.communication.moves import Move, MoveKind
from sporax.planner.cost.chosen_model import link_costs
from sporax.report.resharding import FoundCollective, SourceLine
from sporax.runtime.process.compiled_text import CompiledText, HloInstruction, groups_of
from sporax.runtime.resharding.explicit_types import place_of
from sporax.runtime.resharding.sharded_program import NumberedEquation, number_of, without_numbers

_KINDS = {
    "all-reduce": MoveKind.ALL_REDUCE,
    "all-gather": MoveKind.ALL_GATHER,
    "reduce-scatter": MoveKind.REDUCE_SCATTER,
    "all-to-all": MoveKind.ALL_TO_ALL,
    "collective-permute": MoveKind.PERMUTE,
}
_MOVEMENTS = frozenset(
    "copy bitcast convert transpose reshape get-tuple-element all-gather optimization-barrier".split()
)
"""Opcodes that hand on all of an array."""
_NEAR = 2
"""Instructions between a collective and one that says where it comes from."""
_SLICING = frozenset("dynamic_slice dynamic_update_slice gather scatter slice".split())
"""Primitives of JAX whose slices the user has written."""
_BY_HAND = frozenset(
    "psum psum2 psum_invariant pmax pmin all_gather all_gather_invariant reduce_scatter all_to_all ppermute".split()
)


class CollectiveCosts:
    """What collectives cost on a mesh.

    Args:
        mesh: devices along each axis, by its name.
        profile: the hardware.
    """

    def __init__(self, mesh: Mapping[str, int], profile: HardwareProfile) -> None:
        self.mesh, self.profile = mesh, profile
        self.primes = prime_mesh(DeviceMatrix(tuple(mesh.values())))
        self.names = [name for name, size in mesh.items() for _ in prime_mesh(DeviceMatrix((size,))).shape]
        self.links = link_costs(profile, self.primes, merging=False)

    def along(self, groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The prime axes along which members of a group differ."""
        grids = [list(zip(*map(self.primes.coordinates, group), strict=True)) for group in groups]
        return tuple(axis for axis in range(self.primes.num_axes) if any(len({*grid[axis]}) > 1 for grid in grids))

    def axes(self, groups: Sequence[Sequence[int]]) -> tuple[str, ...]:
        """The same by the names of the user's axes."""
        return tuple(dict.fromkeys(self.names[axis] for axis in self.along(groups)))

    def seconds(self, kind: MoveKind, groups: Sequence[Sequence[int]], local_bytes: int) -> float:
        """Time of a collective that begins with slices of `local_bytes`."""
        axes = self.along(groups)
        sizes = [self.primes.shape[axis] for axis in axes]
        if kind is MoveKind.PERMUTE or math.prod(sizes) == len(groups[0]):
            return self.links.seconds(kind, "sum", axes, sizes, local_bytes) if axes else 0.0
        # Groups that are no rows of the mesh: one axis, as slow as the link between those farthest apart.
        alone = DeviceMatrix((len(groups[0]),), ranks=tuple(groups[0]))
        return link_costs(self.profile, alone, merging=False).seconds(kind, "sum", (0,), alone.shape, local_bytes)


@dataclass(frozen=True, slots=True)
class Found:
    """A collective, and the number of the equation that it comes from; None where the compiler does not say it."""

    collective: FoundCollective
    number: int | None


def collectives_of(text: str, costs: CollectiveCosts, equations: Mapping[int, NumberedEquation]) -> list[Found]:
    """The collectives of a compiled program, equal ones of one equation as one, those of most bytes first."""
    program = CompiledText.of(text)
    runs, found = program.runs(), dict[object, Found]()
    for computation, instruction in program.collectives():
        count, is_known = runs[computation]
        one = _described(program, computation, instruction, costs, equations)
        once = replace(one.collective, has_known_count=is_known)
        key = replace(once, local_bytes=0, sent_bytes=0, seconds=0.0), one.number
        before = found[key].collective if key in found else replace(key[0], count=0)
        total = replace(
            before,
            count=before.count + count,
            local_bytes=max(before.local_bytes, once.local_bytes),
            sent_bytes=before.sent_bytes + count * once.sent_bytes,
            seconds=before.seconds + count * once.seconds,
        )
        found[key] = Found(total, one.number)
    alive = (one for one in found.values() if one.collective.count and one.collective.axes)
    return sorted(alive, key=lambda one: (-one.collective.sent_bytes, str(one.collective.place)))


def _described(
    program: CompiledText,
    computation: str,
    instruction: HloInstruction,
    costs: CollectiveCosts,
    equations: Mapping[int, NumberedEquation],
) -> Found:
    groups = groups_of(instruction, costs.primes.num_devices)
    size = program.operand_bytes(computation, instruction)
    # Compilers for CPUs add 16-bit numbers as float32.
    size = size // 2 if "_promoted" in instruction.text else size
    operator = instruction.opcode
    is_sliced = operator in ("all-gather", "all-reduce") and _is_sliced(program, computation, instruction.name)
    operator = "reduce-scatter" if is_sliced and operator == "all-reduce" else operator
    kind, members = _KINDS[operator], len(groups[0])
    origin = _origin(program, computation, instruction)
    number = number_of(origin.op_name)
    equation = None if number is None else equations.get(number)
    scope, _, primitive = without_numbers(origin.op_name).rpartition("/")
    collective = FoundCollective(
        operator,
        primitive if equation is None else equation.eqn.primitive.name,
        SourceLine(*program.place(origin)) if equation is None else place_of(equation.eqn),
        scope,
        costs.axes(groups),
        members,
        1,
        True,
        size,
        Move(kind, (), local_bytes=size, reduction="sum").sent_bytes(members),
        costs.seconds(kind, groups, size),
        is_sliced and instruction.opcode == "all-gather",
        equation is not None and equation.is_manual and equation.eqn.primitive.name in _BY_HAND,
    )
    return Found(collective, number)


def _origin(program: CompiledText, computation: str, instruction: HloInstruction) -> HloInstruction:
    """The instruction itself; where the compiler has noted nothing about it, one next to it, or the loop that it is in."""
    inside = program.computations[computation]
    near = [instruction]
    for _ in range(_NEAR):
        names = {name for one in near for name in (one.name, *one.operands)}
        near += [one for one in inside.values() if one not in near and not names.isdisjoint((one.name, *one.operands))]
    around = [one for other in program.computations.values() for one in other.values() if computation in one.called]
    return next((one for one in (*near, *around) if number_of(one.op_name) is not None), instruction)


def _is_sliced(program: CompiledText, computation: str, name: str) -> bool:
    """Whether all that reads an array takes a slice of it that the user has not written."""
    inside = program.computations[computation]
    readers = [one for one in inside.values() if name in one.operands]
    return bool(readers) and all(_takes_slice(program, computation, name, reader) for reader in readers)


def _takes_slice(program: CompiledText, computation: str, name: str, reader: HloInstruction) -> bool:
    if reader.opcode == "dynamic-slice":
        return reader.operands[0] == name and reader.op_name.rpartition("/")[2] not in _SLICING
    if reader.opcode in _MOVEMENTS:
        return _is_sliced(program, computation, reader.name)
    if reader.opcode != "fusion":
        return False
    fused = program.computations[reader.called[0]]
    inputs = [f"parameter({place})" for place, operand in enumerate(reader.operands) if operand == name]
    names = [one.name for one in fused.values() if any(text in one.text for text in inputs)]
    if all(_is_sliced(program, reader.called[0], each) for each in names):
        return True
    # A fusion that hands on all of it.
    moves_only = all(one.opcode in (*_MOVEMENTS, "parameter") for one in fused.values())
    return moves_only and _is_sliced(program, computation, reader.name)
