"""The text of a compiled program (`jax.stages.Compiled.as_text`): computations, instructions, and lines of the user's files.

XLA writes a program as named computations of instructions. Loops, branches, calls and fusions name the computations that they
run; a loop of known length says how often. Metadata name the scopes that an instruction comes from (``op_name``) and a stack
frame, from tables at the head of the text; older programs write file and line themselves.
"""

from __future__ import annotations

import math
import re
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from sporax.base.lazy_members import dataclass
from sporax.ir.device_matrix import transposed

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
"""Opcodes by which devices communicate; "-start" is added where they are asynchronous, and the "-done" half says nothing new."""

_HEAD = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<result>.*?) (?P<opcode>[a-z][\w\-]*)\(")
_ARRAY = re.compile(r"\b(pred|[sufc]\d+|bf16|f8\w+)\[([\d,]*)\]")
_BITS = {"pred": 8, "bf16": 16}
_NAME = re.compile(r"%([\w.\-]+)")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_PLACE = re.compile(r'source_file="(?P<file>[^"]*)"(?: source_line=(?P<line>\d+))?')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_CALLED = re.compile(r"(?:condition|body|calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_TABLE = re.compile(r"^(\d+) (?:\"(.*)\"|\{(.*)\})$")
_FIELD = re.compile(r"(\w+)=(\d+)")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")

_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), str(Path(__file__).parents[2]), "<")
"""How files begin that are not the user's."""


def is_of_user(file: str) -> bool:
    """Whether a file is none of Python, of installed packages or of Sporax."""
    return bool(file) and not file.startswith(_LIBRARIES)


def num_bytes(shape: str) -> int:
    """Bytes of the arrays that a type names: ``"(f32[8,2]{1,0}, bf16[4])"`` has 72."""
    total = 0
    for dtype, dims in _ARRAY.findall(shape):
        bits = _BITS.get(dtype) or int(re.sub(r"\D", "", dtype.partition("e")[0]) or 8)
        total += math.prod(map(int, filter(None, dims.split(",")))) * bits // 8
    return total


@dataclass(frozen=True, slots=True)
class HloInstruction:
    """One instruction.

    Attributes:
        name, opcode: as the text has them, without ``-start``.
        result: its type.
        operands: names of what it reads.
        text: the line, comments left out.
    """

    name: str
    opcode: str
    result: str
    operands: tuple[str, ...]
    text: str

    @property
    def op_name(self) -> str:
        """The scopes and the primitive of JAX; "" where nothing is noted."""
        found = _OP_NAME.search(self.text)
        return found[1] if found else ""

    @property
    def called(self) -> tuple[str, ...]:
        """The computations that it runs."""
        branches = _BRANCHES.search(self.text)
        return (*_CALLED.findall(self.text), *(_NAME.findall(branches[1]) if branches else ()))

    @property
    def trips(self) -> int | None:
        """How often a loop runs; 1 for all else, None where the text does not say it."""
        if self.opcode != "while":
            return 1
        known = _TRIPS.search(self.text)
        return int(known[1]) if known else None


@dataclass(slots=True)
class CompiledText:
    """A program.

    Attributes:
        computations: instructions by name, by the name of the computation.
        entry: the computation that is the program.
        tables: rows of the tables at the head, by title and number.
    """

    computations: dict[str, dict[str, HloInstruction]] = field(default_factory=dict)
    entry: str = ""
    tables: dict[str, dict[int, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> CompiledText:
        """Read a text."""
        program, table = cls(), {}
        inside: dict[str, HloInstruction] = {}
        for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
            row, head = _TABLE.match(line), _HEAD.match(line)
            if line in _TABLES:
                table = program.tables.setdefault(line, {})
            elif row:
                table[int(row[1])] = row[2] if row[2] is not None else row[3]
            elif head:
                inside = program.computations.setdefault(head["name"], {})
                program.entry = head["name"] if head["entry"] else program.entry
            elif found := _INSTRUCTION.match(line):
                operands = tuple(_NAME.findall(_in_brackets(line, found.end())))
                opcode = found["opcode"].removesuffix("-start")
                inside[found["name"]] = HloInstruction(found["name"], opcode, found["result"], operands, line)
        return program

    def runs(self) -> dict[str, tuple[int, bool]]:
        """How often each computation runs in one run of the program, and whether that is known: not in loops without a length,
        which count once, as each branch does."""
        found: dict[str, tuple[int, bool]] = defaultdict(lambda: (0, True))
        found[self.entry] = (1, True)
        # Callees stand before their callers.
        for name in reversed(self.computations):
            count, known = found[name]
            for instruction in self.computations[name].values():
                for called in instruction.called:
                    trips, before = instruction.trips, found[called]
                    found[called] = before[0] + count * (trips or 1), before[1] and known and trips is not None
        return found

    def collectives(self) -> Iterator[tuple[str, HloInstruction]]:
        """Every collective with the name of its computation."""
        for name, inside in self.computations.items():
            yield from ((name, one) for one in inside.values() if one.opcode in COLLECTIVES)

    def operand_bytes(self, computation: str, instruction: HloInstruction) -> int:
        """Bytes that one device has when it begins an instruction."""
        inside = self.computations[computation]
        return sum(num_bytes(inside[name].result) for name in instruction.operands if name in inside)

    def place(self, instruction: HloInstruction) -> tuple[str, int]:
        """File and line of the user's program where an instruction comes from; ("", 0) where nothing is noted."""
        if found := _PLACE.search(instruction.text):
            return found["file"], int(found["line"] or 0)
        frame = _FRAME.search(instruction.text)
        stack = _fields(self._table("StackFrames").get(int(frame[1]) if frame else 0, ""))
        location = _fields(self._table("FileLocations").get(stack.get("file_location_id", 0), ""))
        return self._table("FileNames").get(location.get("file_name_id", 0), ""), location.get("line", 0)

    def _table(self, title: str) -> Mapping[int, str]:
        return self.tables.get(title, {})


def groups_of(instruction: HloInstruction, num_devices: int) -> list[Sequence[int]]:
    """The groups of devices that a collective joins; of a permutation pairs of sender and receiver."""
    text = instruction.text
    if listed := re.search(r"(?:replica_groups|source_target_pairs)=\{(\{[\d,{}\s]*\})\}", text):
        return [tuple(map(int, group.split(","))) for group in re.findall(r"\{([\d,]+)\}", listed[1])]
    if tiled := re.search(r"replica_groups=\[\d+,(\d+)\]<=(\S+)", text):
        return _rows(_devices(tiled[2]), int(tiled[1]))
    # Axes of a mesh since JAX 0.10: mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}; of a part of one, {'b':(2)2}.
    if named := re.search(r"replica_groups=mesh\[(.*?)\](?:, device_ids=\((.*?)\))? \{(.*?)\}", text):
        axes = [(name, int(size)) for name, size in re.findall(r"'([^']+)'=(\d+)", named[1])]
        return _along(axes, re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", named[3]), _devices(named[2]))
    return [range(num_devices)]


def _along(
    axes: Sequence[tuple[str, int]], chosen: Sequence[tuple[str, str, str]], devices: Sequence[int]
) -> list[Sequence[int]]:
    """The groups along some axes of a mesh, or parts of axes: (name, size of what is outside of the part, its size)."""
    wanted = {name: (int(outer or 1), int(size or 0)) for name, outer, size in chosen}
    dims: list[int] = []
    moving: list[int] = []
    for name, size in axes:
        outer, part = wanted.get(name, (size, 1))
        part = part or size // outer
        moving += [len(dims) + 1] if name in wanted else []
        dims += [outer, part, size // outer // part]
    order = [place for place in range(len(dims)) if place not in moving] + moving
    ranks = transposed(dims, order)
    return _rows([devices[rank] if devices else rank for rank in ranks], math.prod(dims[place] for place in moving))


def _devices(text: str | None) -> list[int]:
    """The numbers that ``[4,2]T(1,0)`` says: 0, 1, 2, … as an array with its dimensions in another order, row by row."""
    found = re.match(r"(?:\[[\d,]+\]<=)?\[([\d,]+)\](?:T\(([\d,]+)\))?", text or "")
    if found is None:
        return []
    dims = list(map(int, found[1].split(",")))
    return transposed(dims, list(map(int, found[2].split(","))) if found[2] else range(len(dims)))


def _rows(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


def _in_brackets(line: str, start: int) -> str:
    """What stands between a bracket that ends at `start` and its counterpart."""
    depth = 1
    for end in range(start, len(line)):
        depth += (line[end] == "(") - (line[end] == ")")
        if not depth:
            return line[start:end]
    return line[start:]


def _fields(row: str) -> dict[str, int]:
    return {name: int(value) for name, value in _FIELD.findall(row)}
