"""What devices ran during a recording of JAX's profiler, with the Cells that it was compiled from.

Problem: a recording names operators as the compiler does (``fusion.12`` of ``jit_step``). Method: the texts of the compiled
programs say for each of these names what kind of instruction it is and from which name scopes it comes; they are read once, at
the end of the recording. A fused operator counts for the Cell of its last part, as XLA notes it. Communication between devices
has a scope of its own (`communication_scope`), which says what it is for.

The host's part of a recording says which task of a pipeline has started which run of a program.

JAX's profiler, and the files that a recording leaves.

In the folder of a recording each process has one of its own:

| file | what it is for |
|---|---|
| ``rank_<R>/step_times.json`` | `sporax profile DIR`: totals per Cell path and kind of work |
| ``rank_<R>/perfetto.json.gz`` | https://ui.perfetto.dev: operators with their Cell paths, collectives, tasks of a pipeline |
| ``rank_<R>/plugins/profile/…`` | TensorBoard and XProf: JAX's own files |

Python frames are not recorded: a training step has hundreds of thousands, which slow it down and hide the rest.
"""

from __future__ import annotations

import bisect
import gzip
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import msgspec

from sporax.base.atomic_file import atomic_write
from sporax.lowering.ingest.ingest import path_of
from sporax.lowering.marks.tags import purposes_of
from sporax.report.render.step_times import perfetto, text
from sporax.report.view.step_times import COLLECTIVE, COMPUTE, COPY, OperatorRun, StepTimes, step_times
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
    for program in texts:
        head = _MODULE.match(program)
        if head is None:
            continue
        for line in program.splitlines():
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


def read_recording(file: Path) -> Recorded:
    """Read a file of JAX's profiler, with the programs that this process has compiled."""
    known = instructions_of(executable.as_text() for executable in SESSION.executables)
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
        # ``"all-reduce.3"`` -> ``"all-reduce"``: the name that the compiler gives where nothing else is known.
        instruction = known.get((program, operator)) or CompiledInstruction(
            re.sub(r"[.\d]+$", "", operator), "", operator or event.name, ""
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


TIMES_FILE, PERFETTO_FILE = "step_times.json", "perfetto.json.gz"
_PRINTED_ROWS = 12


def start(directory: Path) -> None:
    """Begin a recording in this process's folder of a directory."""
    start_profiler(folder_of_rank(directory))


def start_profiler(directory: Path, *, python_frames: bool = False) -> None:
    """Start JAX's profiler.

    Args:
        python_frames: record calls of Python functions, too.

    Raises:
        RuntimeError: it is running already.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = int(python_frames)
    jax.profiler.start_trace(str(directory), profiler_options=options)


def step_annotation(number: int) -> Any:
    """A context that is a step in the recording."""
    return jax.profiler.StepTraceAnnotation(f"{STEP}{number}", step_num=number)


def task_annotation(task: object) -> Any:
    """A context in which the host starts a task of a pipeline."""
    return jax.profiler.TraceAnnotation(f"{TASK}{task}")


def wait_for(values: Any) -> None:
    """Wait until devices have computed these."""
    jax.block_until_ready(values)


def finish(directory: Path, first: int, num_steps: int, seconds: float) -> StepTimes:
    """End the recording, and write its files; rank 0 prints where the time went.

    Args:
        directory: of all ranks.
        first: number of the first step.
        seconds: they took.
    """
    folder = folder_of_rank(directory)
    times = stop_profiler(folder, first, num_steps, seconds)
    if jax.process_index() == 0:
        print(
            f"sporax: {text(times, _PRINTED_ROWS)}\nsporax: all of it: sporax profile {directory}\n"
            f"sporax: a timeline: open {folder / PERFETTO_FILE} at https://ui.perfetto.dev",
            file=sys.stderr,
            flush=True,
        )
    return times


def stop_profiler(folder: Path, first: int, num_steps: int, seconds: float) -> StepTimes:
    """End JAX's recording; write one for Perfetto, with Cell paths, and the totals."""
    jax.profiler.stop_trace()
    newest = max(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime_ns)
    recorded = read_recording(newest)
    trace = perfetto(recorded.runs, recorded.host, jax.process_index())
    with atomic_write(folder / PERFETTO_FILE) as file:
        file.write(gzip.compress(trace.encode()))
    times = step_times(recorded.runs, first, num_steps, seconds, jax.process_index(), jax.process_count())
    with atomic_write(folder / TIMES_FILE) as file:
        file.write(msgspec.json.encode(times))
    return times


def folder_of_rank(directory: Path) -> Path:
    """The folder of this process in that of a recording."""
    return directory / f"rank_{jax.process_index()}"
