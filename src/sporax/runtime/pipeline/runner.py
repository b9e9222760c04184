"""Executes a planned pipeline in one process that drives all devices.

A step is compiled into one flat list of instructions: run a program, or bring an array to the devices of another stage.
Values are kept in a list by number. Nothing is waited for: JAX starts every program as soon as what it reads is there, so
stages work at the same time although one thread starts them. The list is in the order of the simulated schedule, so no
stage waits for work that could have been started earlier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.ir.pipeline_schedule import Task, TaskKind
from sporax.ir.placement import Placement
from sporax.lowering.execute import rank_program
from sporax.lowering.pipeline.programs import PER_MICRO, ChunkProgram, Slot
from sporax.planner.pipeline.simulate import simulate, uniform_costs
from sporax.planner.pipeline.timeline import Times
from sporax.runtime.global_view import axis_names, jax_mesh, partition_spec, sharding_of
from sporax.runtime.pipeline.planning import PlannedPipeline

Key = tuple[Any, ...]
"""What a value is: chunk, kind of slot, number, and micro batch where there is one each."""


@dataclass(slots=True)
class Instruction:
    """One thing to do.

    Attributes:
        run: gets the values of `inputs`, gives those of `outputs`.
        inputs, outputs: numbers of values.
        frees: numbers of values that nobody reads afterwards.
        label: for traces: the task, or the transfer.
    """

    run: Callable[..., Sequence[Any]]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    frees: tuple[int, ...] = ()
    label: Any = None

    def execute(self, values: list[Any]) -> Sequence[Any]:
        """Start it; gives what it makes."""
        outputs = self.run(*[values[number] for number in self.inputs])
        for number, output in zip(self.outputs, outputs, strict=True):
            values[number] = output
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
        parts: of arguments cut into micro batches: numbers of the values by micro batch, position, shape, sharding.
        results: where the results of the step are, by position among the outputs.
        updated: where the new values of variables are, by position of the argument.
        executables: by name, for reading their memory needs.
        measuring: whether runs wait for every task and note `times`, its start and end in seconds.
    """

    planned: PlannedPipeline
    instructions: list[Instruction]
    num_values: int
    variables: list[tuple[int, int, Any]]
    parts: list[tuple[tuple[int, ...], int, tuple[int, ...], Any]]
    results: dict[int, int]
    updated: dict[int, int]
    executables: dict[str, Any] = field(default_factory=dict)
    measuring: bool = False
    times: Times = field(default_factory=dict)

    def __call__(self, arguments: Sequence[jax.Array]) -> tuple[dict[int, jax.Array], dict[int, jax.Array]]:
        """Run one step; gives updated variables by position and other results by position.

        Args:
            arguments: of the whole step: variables, then data.
        """
        values = self._values(arguments)
        if self.measuring:
            self.times = self._timed(values)
            return self._given(values)
        for instruction in self.instructions:
            instruction.execute(values)
        return self._given(values)

    def _timed(self, values: list[Any]) -> Times:
        """Run, waiting for the end of every task: tasks do not overlap, so each one's own time is measured."""
        jax.block_until_ready([value for value in values if value is not None])
        times: dict[Task, tuple[float, float]] = {}
        for instruction in self.instructions:
            begin = time.perf_counter()
            jax.block_until_ready(instruction.execute(values))
            if isinstance(instruction.label, Task):
                first = times.get(instruction.label, (begin, begin))[0]
                times[instruction.label] = (first, time.perf_counter())
        return times

    def _values(self, arguments: Sequence[jax.Array]) -> list[Any]:
        """The values that are there before the first instruction."""
        values: list[Any] = [None] * self.num_values
        for number, position, sharding in self.variables:
            array = arguments[position]
            values[number] = array if getattr(array, "sharding", None) == sharding else jax.device_put(array, sharding)
        self._cut(values, arguments)
        return values

    def _given(self, values: list[Any]) -> tuple[dict[int, jax.Array], dict[int, jax.Array]]:
        return (
            {position: values[number] for position, number in self.updated.items()},
            {position: values[number] for position, number in self.results.items()},
        )

    def _cut(self, values: list[Any], arguments: Sequence[jax.Array]) -> None:
        """Cut arguments into micro batches, on the host, and bring each part where it is read."""
        hosts: dict[int, np.ndarray[Any, Any]] = {}
        for numbers, position, shape, sharding in self.parts:
            if position not in hosts:
                hosts[position] = np.asarray(arguments[position])
            rows = hosts[position].reshape((len(numbers), *shape))
            for micro, number in enumerate(numbers):
                values[number] = jax.device_put(rows[micro], sharding)


def compile_pipeline(planned: PlannedPipeline) -> CompiledPipeline:
    """Compile every program and write down the instructions of a step."""
    return _Compiler(planned).compile()


class _Compiler:
    def __init__(self, planned: PlannedPipeline) -> None:
        self.planned = planned
        self.numbers: dict[Key, int] = {}
        self.instructions: list[Instruction] = []
        self.executables: dict[str, Any] = {}
        self.readers: dict[tuple[int, bool], list[tuple[int, int]]] = {}
        self.num_micro = planned.micro.num_micro

    def compile(self) -> CompiledPipeline:
        for chunk in range(len(self.planned.chunks)):
            self._run(chunk, self._programs(chunk).prepare, -1, f"P{chunk}")
        for task in self._tasks():
            self._task(task)
        for level in range(self.planned.num_levels):
            for chunk in range(len(self.planned.chunks)):
                program = self._programs(chunk).updates[level]
                self._run(chunk, program, -1, Task(*self.planned.schedule.route[chunk], -1, TaskKind.UPDATE))
                self._send(chunk, program, -1)
        return self._finished()

    def _programs(self, chunk: int) -> Any:
        return self.planned.chunks[chunk].programs

    def _tasks(self) -> list[Task]:
        """Tasks of micro batches, in the order in which they would run on devices of equal speed."""
        schedule = self.planned.schedule
        outcome = simulate(schedule, uniform_costs(schedule))
        tasks = [task for task in schedule if task.micro >= 0]
        return sorted(tasks, key=lambda task: (outcome.start[task], -task.stage))

    def _task(self, task: Task) -> None:
        chunk = self.planned.schedule.position[task.stage, task.chunk]
        programs = self._programs(chunk)
        program = {
            TaskKind.FORWARD: programs.forward,
            TaskKind.BACKWARD: programs.backward,
            TaskKind.BACKWARD_INPUT: programs.inputs,
            TaskKind.BACKWARD_WEIGHT: programs.weights,
        }[task.kind]
        self._run(chunk, program, task.micro, task)
        self._send(chunk, program, task.micro)

    # ------------------------------------------------------------------------------------------------- instructions

    def _number(self, chunk: int, slot: Slot, micro: int, new: bool = False) -> int:
        kind = "updated" if new and slot.kind == "variable" else slot.kind
        key: Key = (chunk, kind, slot.number, micro if slot.kind in PER_MICRO else -1)
        return self.numbers.setdefault(key, len(self.numbers))

    def _run(self, chunk: int, program: ChunkProgram, micro: int, label: Any) -> None:
        if program.is_empty:
            return
        if program.name not in self.executables:
            self.executables[program.name] = compile_program(program)
        self.instructions.append(
            Instruction(
                self.executables[program.name],
                tuple(self._number(chunk, slot, micro) for slot, _ in program.inputs),
                tuple(self._number(chunk, slot, micro, new=True) for slot, _ in program.outputs),
                label=label,
            )
        )

    def _send(self, chunk: int, program: ChunkProgram, micro: int) -> None:
        """Bring what a program sends to the devices of its readers."""
        for slot, _place in program.outputs:
            if slot.kind != "sent":
                continue
            for reader, target in enumerate(self.planned.chunks):
                phase = target.chunk.received.get(slot.number)
                if phase is None:
                    continue
                inputs = target.chunk.step.graph.inputs
                where = next(
                    placement
                    for each, placement in zip(inputs, target.plan.inputs, strict=True)
                    if each.tensor == slot.number
                )
                arrives = Slot("received" if micro >= 0 else "arrived", slot.number)
                sharding = sharding_of(where, target.plan.mesh)
                self.instructions.append(
                    Instruction(
                        _Mover(sharding),
                        (self._number(chunk, slot, micro),),
                        (self._number(reader, arrives, micro),),
                        label=(chunk, reader, micro, slot.number),
                    )
                )

    def _finished(self) -> CompiledPipeline:
        results: dict[int, int] = {}
        updated: dict[int, int] = {}
        variables: list[tuple[int, int, Any]] = []
        parts: dict[tuple[int, int], dict[int, int]] = {}
        for (chunk, kind, number, micro), value in self.numbers.items():
            planned = self.planned.chunks[chunk]
            places = dict(
                zip((each.tensor for each in planned.chunk.step.graph.inputs), planned.plan.inputs, strict=True)
            )
            if kind == "variable":
                tensor = next(tensor for tensor, position in planned.chunk.arguments.items() if position == number)
                variables.append((value, number, sharding_of(places[tensor], planned.plan.mesh)))
            elif kind == "updated":
                updated[number] = value
            elif kind == "result":
                results[number] = value
            elif kind == "micro":
                parts.setdefault((chunk, number), {})[micro] = value
        cut = []
        for (chunk, tensor), values in parts.items():
            planned = self.planned.chunks[chunk]
            places = dict(
                zip((each.tensor for each in planned.chunk.step.graph.inputs), planned.plan.inputs, strict=True)
            )
            shape = planned.chunk.step.graph.tensors[tensor].shape
            sharding = sharding_of(places[tensor], planned.plan.mesh)
            position = planned.chunk.micro_inputs[tensor]
            cut.append((tuple(values[micro] for micro in range(self.num_micro)), position, shape, sharding))
        self._check({value for value, *_ in variables}, {value for values, *_ in cut for value in values})
        kept = {*results.values(), *updated.values()}
        _free(self.instructions, kept)
        return CompiledPipeline(
            self.planned, self.instructions, len(self.numbers), variables, cut, results, updated, self.executables
        )

    def _check(self, *there: set[int]) -> None:
        """Every value must be there before it is read: our own invariant."""
        known = set().union(*there)
        keys = {number: key for key, number in self.numbers.items()}
        for instruction in self.instructions:
            missing = [keys[number] for number in instruction.inputs if number not in known]
            assert not missing, f"{instruction.label} reads {missing}, which nothing makes before"
            known.update(instruction.outputs)


class _Mover:
    """Brings an array to the devices of another stage, cut as it is read there."""

    __slots__ = ("sharding",)

    def __init__(self, sharding: Any) -> None:
        self.sharding = sharding

    def __call__(self, array: jax.Array) -> tuple[jax.Array]:
        return (jax.device_put(array, self.sharding),)


def _free(instructions: Sequence[Instruction], kept: set[int]) -> None:
    """Let every instruction forget the values that it is the last to read or that nobody reads."""
    last: dict[int, Instruction] = {}
    for instruction in instructions:
        for number in (*instruction.inputs, *instruction.outputs):
            last[number] = instruction
    frees: dict[int, list[int]] = {}
    for number, instruction in last.items():
        if number not in kept:
            frees.setdefault(id(instruction), []).append(number)
    for instruction in instructions:
        instruction.frees = tuple(frees.get(id(instruction), ()))


# ----------------------------------------------------------------------------------------------------------- programs


def compile_program(program: ChunkProgram) -> Any:
    """The compiled form of a program; sums, carries and updated variables are donated."""
    jitted, shapes = jitted_program(program)
    return jitted.lower(*shapes).compile()


def jitted_program(program: ChunkProgram) -> tuple[Any, list[jax.ShapeDtypeStruct]]:
    """A program as a jitted function of whole arrays, and what it takes."""
    mesh = program.plan.mesh
    tensors = program.step.graph.tensors
    inner = rank_program(program.step, program.plan, axis_names(mesh))
    num_sums, num_zeros = program.num_sums, program.zeros
    zeros = [
        (place.local_shape(tensors[slot.number].shape, mesh), tensors[slot.number].dtype)
        for slot, place in program.outputs[len(program.outputs) - num_zeros :]
    ]

    def run(*arguments: jax.Array) -> list[jax.Array]:
        results = inner(*arguments[num_sums:])
        sums = [total + each for total, each in zip(arguments[:num_sums], results[:num_sums], strict=True)]
        return [*sums, *results[num_sums:], *(jnp.zeros(shape, dtype) for shape, dtype in zeros)]

    run.__name__ = run.__qualname__ = program.name
    mapped = jax.shard_map(
        run,
        mesh=jax_mesh(mesh),
        in_specs=tuple(partition_spec(_complete(place), mesh) for _, place in program.inputs),
        out_specs=[partition_spec(_complete(place), mesh) for _, place in program.outputs],
        check_vma=False,
    )
    donated = tuple(number for number, (slot, _) in enumerate(program.inputs) if slot in program.donated)
    jitted = jax.jit(mapped, donate_argnums=donated)
    first = len(program.step.constants)
    numbers = [slot.number for slot, _ in program.inputs[:num_sums]]
    numbers += [each.tensor for each in program.step.graph.inputs[first:]]
    shapes = [
        jax.ShapeDtypeStruct(tensors[number].shape, tensors[number].dtype, sharding=sharding_of(_complete(place), mesh))
        for number, (_, place) in zip(numbers, program.inputs, strict=True)
    ]
    return jitted, shapes


def _complete(place: Placement) -> Placement:
    """A partial sum has the shape of the whole: every device has its own value of it."""
    return Placement(place.dims)
