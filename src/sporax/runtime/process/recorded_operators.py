"""What devices ran during a recording of JAX's profiler, with the Cells that it was compiled from.

Problem: a recording names operators as the compiler does (``fusion.12`` of ``jit_step``). Method: the texts of the compiled
programs say for each of these names what kind of instruction it is and from which name scopes it comes; they are read once, at
the end of the recording. A fused operator counts for the Cell of its last part, as XLA notes it. Communication between devices
has a scope of its own (`communication_scope`), which says what it is for.

The host's part of a recording says which task of a pipeline has started which run of a program.
"""

from __future__ import annotations

import bisect
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax

from sporax.lowering.ingest.ingest import path_of
from sporax.lowering.marks.communication_scope import purposes_of
from sporax.report.view.step_times import COLLECTIVE, COMPUTE, COPY, OperatorRun
from sporax.runtime.session import SESSION

TASK = "pipeline task "
"""How the host's events begin that start a task of a pipeline."""
STEP = "step "
"""How the host's events of steps begin."""

_MODULE = re.compile(r"HloModule ([\w.\-]+)")
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = .*?\s([a-z][a-z0-9\-]*)\(")
_SCOPES = re.compile(r'metadata=\{[^}]*?op_name="((?:[^"\\]|\\.)*)"')
_COLLECTIVES = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast|send|recv)\b"
)
_NCCL = re.compile(r"nccl", re.IGNORECASE)
_COPIES = ("copy-start", "copy-done", "infeed", "outfeed")
_CONTAINERS = ("while", "conditional", "call")
"""Instructions that run others, which are recorded as well."""
_PYTHON = re.compile(
    r"jit\([^()]*\)|shard_map|closed_call|checkpoint|rematted_computation|while|body|cond|branch_\d+_fun"
)
"""Name scopes that JAX adds."""
_HOST_PLANE, _DEVICE_PLANE = "/host:CPU", re.compile(r"/device:\w+:(\d+)")
_DEVICE_LINES = ("Stream", "XLA Ops")
"""How lines of a device begin that have its operators: of GPUs, and of TPUs. The others repeat them."""


class CompiledInstruction(NamedTuple):
    """What the text of a compiled program says of one instruction.

    Attributes:
        opcode: of the compiler.
        path: of the Cell and operator.
        primitive: of JAX.
        purpose: of communication.
    """

    opcode: str
    path: str
    primitive: str
    purpose: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording.

    Attributes:
        runs: what devices ran.
        host: what the host did: name, start and end in seconds.
    """

    runs: tuple[OperatorRun, ...]
    host: tuple[tuple[str, float, float], ...]


def instructions_of(texts: Iterable[str]) -> dict[tuple[str, str], CompiledInstruction]:
    """The instructions of compiled programs by the names of the program and of the instruction.

    Example:
        >>> text = 'HloModule jit_f\\n  %sin.1 = f32[2]{0} sine(%x), metadata={op_name="jit(f)/net/fc1/Sin/sin"}'
        >>> instructions_of([text])["jit_f", "sin.1"].path
        'net.fc1.Sin'
    """
    found: dict[tuple[str, str], CompiledInstruction] = {}
    for text in texts:
        head = _MODULE.match(text)
        if head is None:
            continue
        for line in text.splitlines():
            match = _INSTRUCTION.match(line)
            if match is not None:
                scopes = _SCOPES.search(line)
                found[head.group(1), match.group(1)] = _described(
                    match.group(2), scopes.group(1) if scopes else "", head.group(1)
                )
    return found


def _described(opcode: str, scopes: str, program: str) -> CompiledInstruction:
    stack, _, primitive = scopes.rpartition("/")
    # One that the compiler has made of several names them all.
    purposes = purposes_of(stack)
    purpose = f"{purposes[0]} and {len(purposes) - 1} more" if len(purposes) > 1 else "".join(purposes)
    own = "/".join(part for part in stack.split("/") if not _PYTHON.fullmatch(part))
    path, _ = path_of(own)
    # All operators of a step have the name of its Cell in front.
    name = program.removeprefix("jit_")
    path = "" if path == name or len(purposes) > 1 else path.removeprefix(f"{name}.")
    # A parameter's metadata is its name alone, and that of what the compiler adds is empty.
    return CompiledInstruction(opcode, path or purpose, primitive, purpose)


def texts_of(executables: Iterable[Any]) -> list[str]:
    """The texts of compiled programs; several for programs of a pipeline."""
    return [executable.as_text() for executable in executables]


def read_recording(file: Path) -> Recorded:
    """Read a file of JAX's profiler, with the programs that this process has compiled."""
    known = instructions_of(texts_of(SESSION.executables))
    with warnings.catch_warnings():
        # Python 3.13 warns of the types that JAX makes of a file, within C++: where warnings are errors, the process would abort.
        warnings.simplefilter("ignore", DeprecationWarning)
        return _read(list(jax.profiler.ProfileData.from_file(str(file)).planes), known)


def _read(planes: Sequence[Any], known: Mapping[tuple[str, str], CompiledInstruction]) -> Recorded:
    tasks: dict[int, str] = {}
    host: list[tuple[str, float, float]] = []
    for plane in planes:
        if plane.name == _HOST_PLANE:
            for line in plane.lines:
                _read_host(line, host, tasks)
    runs: list[OperatorRun] = []
    for plane in planes:
        device = _DEVICE_PLANE.fullmatch(plane.name)
        for number, line in enumerate(plane.lines):
            if plane.name == _HOST_PLANE or (device is not None and line.name.startswith(_DEVICE_LINES)):
                runs += _read_line(number, line, None if device is None else int(device.group(1)), known, tasks)
    return Recorded(tuple(_without_containers(runs)), tuple(host))


def _read_host(line: Any, host: list[tuple[str, float, float]], tasks: dict[int, str]) -> None:
    """Note steps and tasks on a line of the host, and which runs of programs began inside of a task."""
    spans: list[tuple[int, int, str]] = []
    for event in line.events:
        if event.name.startswith((TASK, STEP)):
            host.append((event.name, event.start_ns * 1e-9, (event.start_ns + event.duration_ns) * 1e-9))
        if event.name.startswith(TASK):
            spans.append((event.start_ns, event.start_ns + event.duration_ns, event.name.removeprefix(TASK)))
    if not spans:
        return
    spans.sort()
    starts = [start for start, _, _ in spans]
    for event in line.events:
        run = dict(event.stats).get("run_id")
        place = bisect.bisect_right(starts, event.start_ns) - 1
        if run is not None and place >= 0 and event.start_ns < spans[place][1]:
            tasks[int(run)] = spans[place][2]


def _read_line(
    number: int,
    line: Any,
    device: int | None,
    known: Mapping[tuple[str, str], CompiledInstruction],
    tasks: Mapping[int, str],
) -> Iterable[OperatorRun]:
    """The operators on a line."""
    for event in line.events:
        facts = dict(event.stats)
        operator, program = str(facts.get("hlo_op", "")), str(facts.get("hlo_module", ""))
        # On a line of the host only what XLA ran has the name of an instruction; on one of a device all is work.
        if not operator and device is None:
            continue
        instruction = known.get((program, operator)) or CompiledInstruction(
            _opcode(operator), "", operator or event.name, ""
        )
        kind = _kind(instruction.opcode, event.name)
        execution = int(facts.get("run_id", 0))
        yield OperatorRun(
            int(facts.get("device_ordinal", 0)) if device is None else device,
            number,
            event.start_ns * 1e-9,
            (event.start_ns + event.duration_ns) * 1e-9,
            instruction.path,
            kind,
            _name(instruction, kind, operator or event.name),
            program,
            tasks.get(execution, ""),
            execution,
        )


def _opcode(operator: str) -> str:
    """``"all-reduce.3"`` -> ``"all-reduce"``: the name that the compiler gives where nothing else is known."""
    return re.sub(r"[.\d]+$", "", operator)


def _kind(opcode: str, event: str) -> str:
    if _COLLECTIVES.match(opcode) or _NCCL.search(event):
        return COLLECTIVE
    return COPY if opcode in _COPIES or event.startswith("Memcpy") else COMPUTE


def _name(instruction: CompiledInstruction, kind: str, operator: str) -> str:
    if instruction.opcode in _CONTAINERS:
        return instruction.opcode
    if kind == COLLECTIVE:
        return f"{instruction.opcode} ({instruction.purpose})" if instruction.purpose else instruction.opcode
    return instruction.primitive or operator


def _without_containers(runs: list[OperatorRun]) -> Iterable[OperatorRun]:
    """The runs without loops and calls whose parts were recorded as well."""
    starts: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        if not _is_container(run):
            starts[run.device].append(run.start)
    for times in starts.values():
        times.sort()
    for run in runs:
        times = starts[run.device]
        place = bisect.bisect_left(times, run.start)
        if not _is_container(run) or place == len(times) or times[place] > run.end:
            yield run


def _is_container(run: OperatorRun) -> bool:
    return run.name in _CONTAINERS
