"""Executes a planned pipeline, in one process that drives all devices or in several.

A step is compiled into one flat list of instructions: run a program, or bring an array to the devices of another stage.
Values are kept in a list by number. Nothing is waited for: JAX starts every program as soon as what it reads is there, so
stages work at the same time although one thread starts them. The list is in the order of the simulated schedule, so no
stage waits for work that could have been started earlier.

With several processes each of them writes down the same list, keeps and compiles what concerns its own devices, and exchanges
what crosses processes in the order of the list (`sporax.runtime.pipeline.stage_transfer`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.pipeline_schedule import Task, TaskKind
from sporax.lowering.marks.host_transfer import KIND
from sporax.lowering.pipeline.pipeline_plan import PlannedPipeline
from sporax.lowering.pipeline.programs import PER_MICRO, ChunkProgram, ChunkPrograms, Slot
from sporax.planner.pipeline.generators import linear_order
from sporax.report.render.pipeline_timeline import Times
from sporax.runtime.devices.global_view import jax_mesh, sharding_of
from sporax.runtime.pipeline import processes, stage_transfer
from sporax.runtime.pipeline.processes import ManyProcesses
from sporax.runtime.pipeline.stage_program import MemoryWatch, compile_program
from sporax.runtime.process.recorded_operators import task_annotation
from sporax.runtime.process.step_verification import Steps
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.session import SESSION

StepResults = tuple[dict[int, jax.Array], dict[int, jax.Array]]
"""Updated variables by position of the argument, and other results by position among the outputs."""

Key = tuple[Any, ...]
"""What a value is: chunk, kind of slot, number, and micro batch where there is one each."""


@dataclass(slots=True)
class StageInstruction:
    """One thing to do.

    Attributes:
        run: gets the values of `inputs`, gives those of `outputs`.
        inputs, outputs: numbers of values.
        frees: numbers of values that no instruction reads afterwards.
        label: for traces: the task, or the transfer.
    """

    run: Callable[..., Sequence[Any]]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    frees: tuple[int, ...] = ()
    label: Any = None

    def execute(self, values: list[Any]) -> Sequence[Any]:
        """Start it; gives what it makes."""
        outputs = self.run(*map(values.__getitem__, self.inputs))
        for number, output in zip(self.outputs, outputs, strict=True):
            values[number] = output
        # Forgotten at once: JAX frees a buffer when its last reference goes, so memory follows the schedule.
        for number in self.frees:
            values[number] = None
        return outputs


@dataclass(slots=True)
class CompiledPipeline:
    """A step that is ready to run.

    Attributes:
        planned: what it was made from.
        instructions: what to do, in order.
        num_values: how many values there are.
        variables: for every chunk's copy of a variable: number of the value, position of the argument, sharding.
        parts: of arguments divided into micro batches: numbers of the values by micro batch, position, shape, sharding.
        results: where the results of the step are, by position among the outputs.
        updated: where the new values of variables are, by position of the argument.
        copied: copies of variables that are still read when the variable itself is overwritten.
        executables: by name, for reading their memory needs.
        many: what there is to do for other processes, where there are any.
        once: brings variables that no step updates.
        steps: counts the steps, for programs that are verified at some of them.
        measuring: whether runs wait for every task and note `times`, its start and end in seconds, and `peaks`.
        peaks: by stage the most bytes that its first device held: arrays, and what XLA says a task needs inside.
    """

    planned: PlannedPipeline
    instructions: list[StageInstruction]
    num_values: int
    variables: list[tuple[int, int, Any]]
    parts: list[tuple[tuple[int, ...], int, tuple[int, ...], Any]]
    results: dict[int, int]
    updated: dict[int, int]
    copied: frozenset[int] = frozenset()
    executables: dict[str, Any] = field(default_factory=dict)
    many: ManyProcesses | None = None
    measuring: bool = False
    once: tuple[stage_transfer.CachedTransfer, ...] = ()
    steps: Steps = field(default_factory=Steps)
    times: Times = field(default_factory=dict)
    peaks: dict[int, int] = field(default_factory=dict)

    def __call__(self, arguments: Sequence[jax.Array]) -> StepResults:
        """Run one step; gives updated variables by position and other results by position.

        Args:
            arguments: of the whole step: variables, then data.
        """
        if processes.several():
            results: StepResults = processes.together("a pipeline step", lambda: self._run(arguments))
            return results
        return self._run(arguments)

    def _run(self, arguments: Sequence[jax.Array]) -> StepResults:
        self.steps.begin()
        for mover in self.once:
            mover.begin(arguments)
        values = self._values(arguments)
        if self.measuring:
            self.times = self._timed(values)
        elif SESSION.recording is not None:
            self._annotated(values)
        else:
            for instruction in self.instructions:
                instruction.execute(values)
        return self._collected(values)

    def _annotated(self, values: list[Any]) -> None:
        """Run, and name the tasks for a recording."""
        for instruction in self.instructions:
            with task_annotation(instruction.label) if isinstance(instruction.label, Task) else nullcontext():
                instruction.execute(values)

    def _timed(self, values: list[Any]) -> Times:
        """Run, waiting for the end of every task: tasks do not overlap, so each one's own time is measured."""
        # What still runs from before would be counted to the first task.
        jax.block_until_ready([value for value in values if value is not None])
        times: dict[Task, tuple[float, float]] = {}
        watch = MemoryWatch(self.planned)
        for instruction in self.instructions:
            watch.note(instruction, values)
            begin = time.perf_counter()
            jax.block_until_ready(instruction.execute(values))
            if isinstance(instruction.label, Task):
                # A task may be several instructions: it begins with the first and ends with the last.
                first = times.get(instruction.label, (begin, begin))[0]
                times[instruction.label] = (first, time.perf_counter())
        self.peaks = watch.peaks
        return times

    def _values(self, arguments: Sequence[jax.Array]) -> list[Any]:
        """The values that are there before the first instruction."""
        values: list[Any] = [None] * self.num_values
        for number, position, sharding in self.variables:
            array = arguments[position]
            # Comparing shardings costs about 1 us; device_put of an array in place would cost 20 times as much.
            if getattr(array, "sharding", None) != sharding:
                array = self._placed(array, position, sharding)
            # Not `jnp.copy`, which would bring what is on the host to the device.
            values[number] = jax.device_put(array, sharding, may_alias=False) if number in self.copied else array
        self._divide(values, arguments)
        return values

    def _placed(self, array: jax.Array, position: int, sharding: NamedSharding) -> jax.Array:
        """An argument, brought to where it is read."""
        # One process sees all devices, so JAX moves the array by itself.
        if self.many is None:
            moved: jax.Array = jax.device_put(array, sharding)
            return moved
        if processes.is_data(self.planned, position):
            return processes.placed_rows(array, self.many.shapes[position], sharding, self.many.config)
        # A host array, or one of this process's devices, which every process has.
        if getattr(array, "is_fully_addressable", True):
            return joint_arrays.place(array, sharding)
        if array.sharding.is_equivalent_to(sharding, array.ndim):
            return array
        # JAX may exchange data among the devices here, so the programs that follow wait for its end.
        if array.sharding.device_set == sharding.device_set:
            resharded: jax.Array = jax.block_until_ready(jax.device_put(array, sharding))
            return resharded
        # Between stages of different processes JAX cannot move an array: it is gathered first.
        return joint_arrays.place(joint_arrays.replicated(array).addressable_data(0), sharding)

    def _collected(self, values: list[Any]) -> StepResults:
        updated = {position: values[number] for position, number in self.updated.items()}
        results = {position: values[number] for position, number in self.results.items()}
        return (updated, results) if self.many is None else self.many.collected(updated, results)

    def _divide(self, values: list[Any], arguments: Sequence[jax.Array]) -> None:
        """Divide arguments into micro batches, on the host, and bring each part where it is read."""
        hosts: dict[int, np.ndarray[Any, Any]] = {}
        for numbers, position, shape, sharding in self.parts:
            if position not in hosts:
                # On the host, since slices of a device array would be one program and one copy for each part and stage.
                hosts[position] = np.asarray(arguments[position])
            array = hosts[position]
            # A micro batch is a block of consecutive rows, as in MindSpore's MicroBatch slices.
            rows = array.reshape((len(numbers), -1, *shape[1:]) if shape else (len(numbers),))
            if self.many is None or sharding.is_fully_addressable:
                # One call for all parts, since every `device_put` costs tens of microseconds.
                placed = jax.device_put(list(rows.reshape((len(numbers), *shape))), sharding)
            else:
                placed = [processes.placed_rows(part, shape, sharding, self.many.config) for part in rows]
            for number, array in zip(numbers, placed, strict=True):
                values[number] = array


def compile_pipeline(planned: PlannedPipeline, config: ParallelConfig) -> CompiledPipeline:
    """Compile the programs of this process's stages and write down the instructions of a step."""
    return _Compiler(planned, config).compile()


class _Compiler:
    def __init__(self, planned: PlannedPipeline, config: ParallelConfig) -> None:
        self.planned = planned
        self.config = config
        # With one process JAX's own order of programs is enough.
        self.line = stage_transfer.Line() if processes.several() else None
        self.meshes = [jax_mesh(chunk.plan.mesh) for chunk in planned.chunks]
        # Of each chunk's inputs, by tensor.
        self.shardings = [
            {
                entry.tensor: sharding_of(place, chunk.plan.mesh)
                for entry, place in zip(chunk.chunk.step.graph.inputs, chunk.plan.inputs, strict=True)
            }
            for chunk in planned.chunks
        ]
        self.drivers = [{device.process_index for device in mesh.devices.flat} for mesh in self.meshes]
        self.numbers: dict[Key, int] = {}
        self.instructions: list[StageInstruction] = []
        self.executables: dict[str, Any] = {}
        self.transfers: dict[Key, Any] = {}
        self.num_micro = planned.micro.num_micro
        self.steps = Steps()

    def compile(self) -> CompiledPipeline:
        # Weights are prepared once per step, before the first micro batch reads them.
        for chunk in range(len(self.planned.chunks)):
            self._run(chunk, self._programs(chunk).prepare, -1, f"P{chunk}")
        self._micro_batches()
        for level in range(self.planned.num_levels):
            for chunk in range(len(self.planned.chunks)):
                program = self._programs(chunk).updates[level]
                self._run(chunk, program, -1, Task(*self.planned.schedule.route[chunk], -1, TaskKind.UPDATE))
                self._send(chunk, program, -1)
        return self._finished()

    def _is_here(self, chunk: int) -> bool:
        """Whether this process drives devices of the chunk's stage."""
        return jax.process_index() in self.drivers[chunk]

    def _programs(self, chunk: int) -> ChunkPrograms:
        return self.planned.chunks[chunk].programs

    def _micro_batches(self) -> None:
        schedule = self.planned.schedule
        for task, starts in linear_order(schedule):
            chunk = schedule.position[task.stage, task.chunk]
            program = self._programs(chunk).by_kind[task.kind]
            if starts:
                self._run(chunk, program, task.micro, task)
            else:
                # Tasks and what they send are separate, so that a slow transfer does not hold the next task back.
                self._send(chunk, program, task.micro)

    # ------------------------------------------------------------------------------------------------- instructions

    def _number(self, chunk: int, slot: Slot, micro: int, new: bool = False) -> int:
        kind = "updated" if new and slot.kind == "variable" else slot.kind
        # An updated variable gets a number of its own: both values exist while other chunks still read the old one.
        key: Key = (chunk, kind, slot.number, micro if slot.kind in PER_MICRO else -1)
        return self.numbers.setdefault(key, len(self.numbers))

    def _run(self, chunk: int, program: ChunkProgram, micro: int, label: Any) -> None:
        if program.is_empty:
            return
        # Stages of other processes are written down, too, but never compiled here.
        if program.name not in self.executables and self._is_here(chunk):
            executable = compile_program(program, self.planned.options, self.steps)
            # Programs of a stage that several processes drive contain collectives, so they keep the global order.
            if self.line is not None and len(self.drivers[chunk]) > 1:
                executable = stage_transfer.InLine(executable, self.line)
            self.executables[program.name] = executable
        self.instructions.append(
            StageInstruction(
                self.executables.get(program.name, _of_others),
                tuple(self._number(chunk, slot, micro) for slot, _ in program.inputs),
                tuple(self._number(chunk, slot, micro, new=True) for slot, _ in program.outputs),
                label=label,
            )
        )

    def _send(self, chunk: int, program: ChunkProgram, micro: int) -> None:
        """Bring what a program sends to the devices of its readers."""
        for slot, place in program.outputs:
            if slot.kind != "sent":
                continue
            for reader, target in enumerate(self.planned.chunks):
                # Sent once to every chunk that reads it: a tied weight or a skip connection may have several.
                if slot.number not in target.chunk.received:
                    continue
                # Between micro batches' tasks a value arrives once per micro batch, in the update once per step.
                arrives = Slot("received" if micro >= 0 else "arrived", slot.number)
                sharding = self.shardings[reader][slot.number]
                spec = self.planned.chunks[chunk].chunk.step.graph.tensors[slot.number]
                # What is sent is no partial sum any more.
                origin = sharding_of(place.complete(), program.plan.mesh)
                self.instructions.append(
                    StageInstruction(
                        self._mover(spec, origin, sharding),
                        (self._number(chunk, slot, micro),),
                        (self._number(reader, arrives, micro),),
                        label=(chunk, reader, micro, slot.number),
                    )
                )

    def _mover(self, spec: Any, source: NamedSharding, target: NamedSharding) -> Any:
        if self.line is None:
            return lambda array: (jax.device_put(array, target),)
        key = (tuple(spec.shape), str(spec.dtype), source, target)
        # Transfers of equal arrays between the same stages share one compiled program.
        if key not in self.transfers:
            first, last = (NamedSharding(sharding.mesh, sharding.spec) for sharding in (source, target))
            transfer: Any = stage_transfer.DeviceTransfer(spec, first, last, self.line)
            if not transfer.involves_this_process:
                transfer = _of_others
            elif KIND in (source.memory_kind, target.memory_kind):
                transfer = stage_transfer.ByDevices(transfer, source, target)
            self.transfers[key] = transfer
        return self.transfers[key]

    def _finished(self) -> CompiledPipeline:
        variables, divided = self._variables(), self._parts()
        updated, results = self._made("updated"), self._made("result")
        # What a step starts with; all else must be made by an instruction before it is read.
        there = {value for value, *_ in variables} | {value for values, *_ in divided for value in values}
        many = None
        if self.line is not None:
            variables, arriving = self._from_storage(variables, set(updated))
            # First of all: every process does it at the same place of the order, whatever its stage.
            self.instructions[:0] = arriving
            there |= {value for value, *_ in variables}
            many = ManyProcesses(self.planned, self.config, self.line, set(updated), self._results(set(results)))
        self._check(there)
        if many is not None:
            # Checked before instructions of other processes are dropped: the check needs the whole step.
            self.instructions = [instruction for instruction in self.instructions if instruction.run is not _of_others]
            variables = [variable for variable in variables if stage_transfer.is_here(variable[2])]
            divided = [part for part in divided if stage_transfer.is_here(part[3])]
            updated, results = self._made("updated", here=True), self._made("result", here=True)
        _free(self.instructions, {*results.values(), *updated.values()})
        return CompiledPipeline(
            self.planned,
            self.instructions,
            len(self.numbers),
            variables,
            divided,
            results,
            updated,
            self._copied(variables),
            self.executables,
            many,
            once=tuple(
                instruction.run
                for instruction in self.instructions
                if isinstance(instruction.run, stage_transfer.CachedTransfer)
            ),
            steps=self.steps,
        )

    def _made(self, kind: str, here: bool = False) -> dict[int, int]:
        """Values of the step's results, or of the variables that it updates, by position; with `here` of this process alone."""
        return {
            number: value
            for (chunk, of, number, _), value in self.numbers.items()
            if of == kind and (not here or self._is_here(chunk))
        }

    def _copied(self, variables: list[tuple[int, int, Any]]) -> frozenset[int]:
        """Copies that the update of a chunk reads of a variable that another chunk of the same devices updates."""
        shardings = {value: sharding for value, _, sharding in variables}
        # The chunk that updates a variable owns its buffer, which it donates.
        owners = {position: chunk for chunk, kind, position, _ in self.numbers if kind == "updated"}
        copies = set()
        for (chunk, kind, position, _), value in self.numbers.items():
            owner = owners.get(position, chunk)
            if kind != "variable" or owner == chunk or value not in shardings:
                continue
            own = self.numbers.get((owner, "variable", position, -1), -1)
            reads = (slot for program in self._programs(chunk).updates for slot, _ in program.inputs)
            # Same devices and same sharding: the update would overwrite the buffer that this chunk still reads.
            if shardings.get(own) == shardings[value] and Slot("variable", position) in reads:
                copies.add(value)
        return frozenset(copies)

    def _variables(self) -> list[tuple[int, int, Any]]:
        """Every chunk's copy of a variable: value, position of the argument, sharding."""
        copies: list[tuple[int, int, Any]] = []
        for (chunk, kind, number, _), value in self.numbers.items():
            if kind == "variable":
                arguments = self.planned.chunks[chunk].chunk.arguments
                tensor = next(tensor for tensor, position in arguments.items() if position == number)
                copies.append(
                    (value, number, processes.stored_sharding(self.planned, number, self.shardings[chunk][tensor]))
                )
        return copies

    def _parts(self) -> list[tuple[tuple[int, ...], int, tuple[int, ...], Any]]:
        """Every chunk's copy of an argument that is divided into micro batches: values, position, shape of a part, sharding."""
        parts: dict[tuple[int, int], dict[int, int]] = {}
        for (chunk, kind, number, micro), value in self.numbers.items():
            if kind == "micro":
                parts.setdefault((chunk, number), {})[micro] = value
        copies = []
        for (chunk, tensor), values in parts.items():
            graph = self.planned.chunks[chunk].chunk
            shape, position = graph.step.graph.tensors[tensor].shape, graph.micro_inputs[tensor]
            numbers = tuple(values[micro] for micro in range(self.num_micro))
            copies.append((numbers, position, shape, self.shardings[chunk][tensor]))
        return copies

    def _from_storage(
        self, variables: list[tuple[int, int, Any]], updated: set[int]
    ) -> tuple[list[tuple[int, int, Any]], list[StageInstruction]]:
        """Copies of variables that other processes may hold come from where they are stored, at the beginning of a step.

        Gives the copies that need no transfer, and what brings the others. One that no step updates is brought once.
        """
        assert self.line is not None
        ready: list[tuple[int, int, Any]] = []
        arriving: list[StageInstruction] = []
        for value, position, sharding in variables:
            storage = processes.storage_of(self.planned, position)
            everywhere = processes.is_broadcast(self.planned, position) or processes.is_data(self.planned, position)
            if everywhere or storage is None or storage == sharding:
                ready.append((value, position, sharding))
                continue
            key: Key = (-1, "storage", position, -1)
            # The stored array is one value for all chunks that read the variable.
            if key not in self.numbers:
                ready.append((self.numbers.setdefault(key, len(self.numbers)), position, storage))
            mover = self._mover(self._argument(position), storage, sharding)
            # Frozen weights do not change between steps.
            if position not in updated and mover is not _of_others:
                mover = stage_transfer.CachedTransfer(mover, position)
            arriving.append(StageInstruction(mover, (self.numbers[key],), (value,), label=("storage", position)))
        return ready, arriving

    def _argument(self, position: int) -> Any:
        graph = self.planned.micro.step.graph
        return graph.tensors[graph.inputs[len(self.planned.micro.step.constants) + position].tensor]

    def _results(self, positions: set[int]) -> dict[int, tuple[NamedSharding, Any]]:
        """The shardings of the step's results, and their shapes and dtypes."""
        graph = self.planned.micro.step.graph
        specs: dict[int, tuple[NamedSharding, Any]] = {}
        for chunk in self.planned.chunks:
            programs = chunk.programs
            for program in (programs.prepare, programs.forward, programs.backward, programs.weights, *programs.updates):
                for slot, place in program.outputs:
                    if slot.kind == "result" and slot.number in positions:
                        spec = graph.tensors[graph.outputs[slot.number]]
                        specs[slot.number] = (sharding_of(place.complete(), program.plan.mesh), spec)
        return specs

    def _check(self, *there: set[int]) -> None:
        """Every value must be there before it is read: our own invariant."""
        available = set().union(*there)
        keys = {number: key for key, number in self.numbers.items()}
        for instruction in self.instructions:
            missing = [keys[number] for number in instruction.inputs if number not in available]
            assert not missing, f"{instruction.label} reads {missing}, which nothing makes before"
            available.update(instruction.outputs)


def _of_others(*_: Any) -> Sequence[Any]:
    """Stands for what other processes do."""
    # `_finished` removes such instructions, so this is never called.
    raise AssertionError("an instruction of other processes was kept")


def _free(instructions: Sequence[StageInstruction], needed: set[int]) -> None:
    """Let every instruction forget the values that it is the last to read or that are never read."""
    last: dict[int, int] = {}
    for position, instruction in enumerate(instructions):
        for number in (*instruction.inputs, *instruction.outputs):
            last[number] = position
    # Worked out once per compilation, so that a step pays no reference counting of its own.
    frees: list[list[int]] = [[] for _ in instructions]
    for number, position in last.items():
        if number not in needed:
            frees[position].append(number)
    for instruction, numbers in zip(instructions, frees, strict=True):
        instruction.frees = tuple(numbers)
