"""Runs of isomorphic equations, as one body in a loop.

Problem. A network of N equal layers, written out in a Python loop, makes a program with N copies of everything: tracing aside,
planning and compiling take N times as long as one layer, and every collective is there N times.

Method. Equations of a flat program get a number each, equal for equal operations on equal shapes. A run of r blocks of p
equations is a stretch where the numbers repeat with period p. The longest such stretches are found by comparing the list of
numbers with itself, shifted (`find_runs`). A run can be a loop (`loop_of`) when what each block reads is, at every place, one of

    the same place of its own block     stays inside
    the same place of the block before  is carried from round to round
    one value, the same for all blocks  is a constant of the loop
    another value for each block        is stacked, and the loop takes one row a round

Blocks that hand nothing on to each other, as the updates of all layers' Parameters, stay: a loop would only put them in an order
and copy what they read and write.

What a block of a forward pass leaves for the backward pass is stacked; `derived` makes that as little as the compiler would keep
without loops. Results that are read outside leave the loop as rows of a stack. A later loop that takes these rows in the same
order, or in reverse as backward passes do, takes the stack itself. Parameters are stacked in the program, unless the step takes
their stacks (`stacked_arguments`).

Blocks that differ in anything (an operator's strategy, a shape, a setting) stay out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from sporax.base.identity import ByIdentity
from sporax.lowering.passes.repeat.recomputed_values import Kind, numbered, with_derived_values
from sporax.lowering.rewriter import Atom, JaxprRewriter, aval_of, closed_jaxpr, flat, renamed, stack_of

MIN_BLOCKS = 3
"""Shorter runs stay: two blocks gain little."""

MIN_EQUATIONS = 6
"""Shorter blocks stay: a round of a loop costs more than so few operations."""

_DIGITS = re.compile(r"\d+")

_CANDIDATES = 12
"""How many periods are tried; of the true one there are most votes."""


Arrays: TypeAlias = tuple[jax.Array, ...]
Key: TypeAlias = "Var | tuple[str, str, bytes]"
"""What an atom is known by: a literal by its value, see `literal_key`."""


@dataclass(frozen=True, slots=True)
class Run:
    """Isomorphic blocks.

    Attributes:
        start: position of the first equation.
        period: equations of a block.
        num_blocks: how many.
    """

    start: int
    period: int
    num_blocks: int

    @property
    def stop(self) -> int:
        """Position behind the last equation."""
        return self.start + self.period * self.num_blocks


@dataclass(frozen=True, slots=True)
class Loop:
    """A run as a loop.

    Attributes:
        run: the blocks.
        carried: pairs of what the first block reads, and the variable of the first block that the next one reads instead.
        constants: what all blocks read.
        rows: what each block reads, one value per block.
        inside: for each place (equation, operand) of a block that is not inside: what it stands for, as a pair of a kind
            ("carried", "constant", "rows") and a position there.
    """

    run: Run
    carried: tuple[tuple[Atom, Atom], ...]
    constants: tuple[Atom, ...]
    rows: tuple[tuple[Atom, ...], ...]
    inside: dict[tuple[int, int], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Row:
    """Where a value is to be had: a row of a stack."""

    stack: Atom
    index: int


@dataclass(frozen=True, slots=True)
class Looped:
    """A program with loops.

    Attributes:
        program: the equations.
        stacks: the stacks of arguments that it reads and does not make, by these arguments.
        rows: the values that it takes from stacks.
    """

    program: ClosedJaxpr
    stacks: Mapping[tuple[Atom, ...], Var]
    rows: Mapping[Atom, Row]


def looped(program: ClosedJaxpr, stacked: Collection[Var] = ()) -> Looped:
    """The same program with runs of equal blocks as loops, and what is known of its stacks.

    Args:
        program: flat.
        stacked: arguments whose stacks will be given to the program.
    """
    known: dict[ByIdentity, Kind] = {}
    loops = _loops(program, known)
    if len(loops) > 1:
        runs = [(loop.run.start, loop.run.stop) for loop in loops]
        # Deriving values changes what crosses between loops, so runs are looked for once more.
        derived = with_derived_values(program, runs)
        if derived is not program:
            program, loops = derived, _loops(derived, known)
    if not loops:
        return Looped(program, {}, {})
    writer = _LoopWriter(program, sorted(loops, key=lambda entry: entry.run.start), stacked)
    written = writer.run()
    return Looped(written, writer.stacks, writer.slices)


def _loops(program: ClosedJaxpr, known: dict[ByIdentity, Kind]) -> list[Loop]:
    """The runs of a program that become loops."""
    eqns = program.jaxpr.eqns
    loops: list[Loop] = []
    # What distinguishes layers in a name stack: its numbers
    for run in find_runs(numbered(eqns, known), [tuple(_DIGITS.findall(stack_of(eqn))) for eqn in eqns]):
        loop = _shrunk_until_it_fits(eqns, run)
        # Without a carried value blocks are independent, and a loop would only put them in an order.
        if loop is not None and loop.carried:
            loops.append(loop)
    return loops


# -------------------------------------------------------------------------------------------------------------- runs


def find_runs(numbers: np.ndarray, layers: Sequence[tuple[str, ...]] = ()) -> list[Run]:
    """The stretches of the list that repeat themselves, the ones that save most first.

    Args:
        numbers: what is compared.
        layers: blocks preferably begin where this changes.
    """
    runs: list[Run] = []
    open_ = [(0, len(numbers))]
    while open_:
        low, high = open_.pop()
        run = _best_run(numbers[low:high])
        if run is None:
            continue
        run = _aligned(Run(run.start + low, run.period, run.num_blocks), numbers, layers, high)
        runs.append(run)
        open_ += [(low, run.start), (run.stop, high)]
    return runs


def _best_run(numbers: np.ndarray) -> Run | None:
    count = len(numbers)
    if count < MIN_BLOCKS * MIN_EQUATIONS:
        return None
    # Equal numbers next to each other: their distances vote for periods, without comparing all pairs.
    order = np.argsort(numbers, kind="stable")
    distances = np.diff(order)[np.diff(numbers[order]) == 0]
    distances = distances[distances >= MIN_EQUATIONS]
    if not len(distances):
        # The true period is the distance of all equations of a block, so it gets most votes.
        return None
    votes = np.bincount(distances)
    best: Run | None = None
    saved = 0
    for period in np.argsort(-votes, kind="stable")[:_CANDIDATES].tolist():
        if not period or not votes[period]:
            break
        start, length = _longest(numbers[:-period] == numbers[period:])
        blocks = length // period + 1
        if blocks >= MIN_BLOCKS and (blocks - 1) * period > saved:
            best, saved = Run(start, period, blocks), (blocks - 1) * period
    return best


def _longest(same: np.ndarray) -> tuple[int, int]:
    """Start and length of the longest stretch of truths."""
    # A stretch begins where the mask rises and ends where it falls.
    edges = np.flatnonzero(np.diff(np.concatenate([[0], same.astype(np.int8), [0]])))
    if not len(edges):
        return 0, 0
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    longest = int(np.argmax(lengths))
    return int(starts[longest]), int(lengths[longest])


def _aligned(run: Run, numbers: np.ndarray, layers: Sequence[tuple[str, ...]], high: int) -> Run:
    """The same run, begun where a layer begins, if there is such a place."""
    if not layers:
        return run
    # The run may go on beyond its last whole block.
    stop = run.stop
    while stop < high and numbers[stop] == numbers[stop - run.period]:
        stop += 1
    for start in range(run.start, min(run.start + run.period, stop)):
        blocks = (stop - start) // run.period
        if blocks < MIN_BLOCKS:
            break
        if start and layers[start] != layers[start - 1] and layers[start] != layers[start + run.period]:
            return Run(start, run.period, blocks)
    return run


# --------------------------------------------------------------------------------------------------------- data flow


def _shrunk_until_it_fits(eqns: Sequence[JaxprEqn], run: Run) -> Loop | None:
    """The run as a loop; blocks at its ends, which often differ, are given up where that helps."""
    # First and last blocks are often special: embeddings, heads, other strategies. Small losses are tried first.
    for first, last in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1), (0, 2), (1, 2)):
        blocks = run.num_blocks - first - last
        if blocks < MIN_BLOCKS:
            continue
        loop = loop_of(eqns, Run(run.start + first * run.period, run.period, blocks))
        if loop is not None:
            return loop
    return None


def loop_of(eqns: Sequence[JaxprEqn], run: Run) -> Loop | None:
    """How a run becomes a loop, or None when its blocks read in different ways."""
    flow = _DataFlow(eqns, run)
    for place in range(run.period):
        readers = [eqns[run.start + block * run.period + place] for block in range(run.num_blocks)]
        for operand in range(len(readers[0].invars)):
            if not flow.note((place, operand), tuple(eqn.invars[operand] for eqn in readers)):
                return None
    return flow.loop()


class _DataFlow:
    """What the blocks of a run read, operand by operand."""

    def __init__(self, eqns: Sequence[JaxprEqn], run: Run) -> None:
        self.run = run
        self.makers: dict[Atom, tuple[int, int, int]] = {}
        for position in range(run.start, run.stop):
            block, place = divmod(position - run.start, run.period)
            self.makers.update((var, (block, place, number)) for number, var in enumerate(eqns[position].outvars))
        # By key: a position, and what is read.
        self.carried: dict[tuple[Key, ...], tuple[int, tuple[Atom, Atom]]] = {}
        self.constants: dict[Key, tuple[int, Atom]] = {}
        self.rows: dict[tuple[Key, ...], tuple[int, tuple[Atom, ...]]] = {}
        self.inside: dict[tuple[int, int], tuple[str, int]] = {}

    def note(self, where: tuple[int, int], atoms: tuple[Atom, ...]) -> bool:
        """Note what the blocks read at one place; False where that is no loop."""
        makers = [self.makers.get(atom) if isinstance(atom, Var) else None for atom in atoms]
        # Inside of a block: all blocks must read from the same place of their own.
        if makers[0] is not None:
            return _in_step(makers)
        keys = tuple(map(literal_key, atoms))
        if any(maker is not None for maker in makers):
            # The first block reads a start value, all others the same place of the block before.
            kind, number = "carried", self.carried.setdefault(keys[:2], (len(self.carried), (atoms[0], atoms[1])))[0]
            if not _in_step(makers[1:]):
                return False
        # One value for all blocks.
        elif len(set(keys)) == 1:
            kind, number = "constant", self.constants.setdefault(keys[0], (len(self.constants), atoms[0]))[0]
        else:
            kind, number = "rows", self.rows.setdefault(keys, (len(self.rows), atoms))[0]
        self.inside[where] = kind, number
        return True

    def loop(self) -> Loop | None:
        """The run as a loop."""
        carried = tuple(pair for _, pair in self.carried.values())
        # A carried value keeps its type from round to round.
        if any(str(first.aval) != str(after.aval) for first, after in carried):
            return None
        constants = tuple(atom for _, atom in self.constants.values())
        return Loop(self.run, carried, constants, tuple(atoms for _, atoms in self.rows.values()), self.inside)


def _in_step(makers: Sequence[tuple[int, int, int] | None]) -> bool:
    """Whether these are the results of one place of a block, block by block."""
    first = makers[0]
    return first is not None and all(maker == (block, *first[1:]) for block, maker in enumerate(makers))


def literal_key(atom: Atom) -> Key:
    """What distinguishes atoms: literals are equal when their values are."""
    return ("literal", str(atom.aval), np.asarray(atom.val).tobytes()) if isinstance(atom, Literal) else atom


# ----------------------------------------------------------------------------------------------------------- writing


class _LoopWriter(JaxprRewriter):
    """Writes a program with loops.

    Attributes:
        rows: values that are rows of stacks.
        outside: variables that are read outside of the loop that makes them.
        stacks, slices: as in `Looped`.
    """

    def __init__(self, program: ClosedJaxpr, loops: Sequence[Loop], stacked: Collection[Var]) -> None:
        super().__init__(program)
        self.loops, self.stacked = loops, stacked
        self.rows: dict[Atom, Row] = {}
        self.outside: dict[Var, None] = {}
        self.stacks: dict[tuple[Atom, ...], Var] = {}
        self.slices: dict[Atom, Row] = {}
        self._note_readers(program.jaxpr.eqns)

    def run(self) -> ClosedJaxpr:
        eqns, position = self.program.jaxpr.eqns, 0
        for loop in self.loops:
            for eqn in eqns[position : loop.run.start]:
                self.keep(eqn)
            self._write(loop, eqns)
            position = loop.run.stop
        for eqn in eqns[position:]:
            self.keep(eqn)
        return self.finish()

    def _note_readers(self, eqns: Sequence[JaxprEqn]) -> None:
        """Note which variables are read outside of the loop that makes them."""
        owner: dict[Var, int] = {}
        number_at: dict[int, int] = {}
        for number, loop in enumerate(self.loops):
            number_at.update(dict.fromkeys(range(loop.run.start, loop.run.stop), number))
        for position, eqn in enumerate(eqns):
            own = number_at.get(position, -1)
            for var in eqn.invars:
                # Read in another loop or between loops: the value must leave the one that makes it.
                if isinstance(var, Var) and owner.get(var, -1) not in (-1, own):
                    self.outside[var] = None
            owner.update(dict.fromkeys(eqn.outvars, own))
        self.outside.update((var, None) for var in self.program.jaxpr.outvars if isinstance(var, Var))

    def read(self, atom: Atom) -> Atom:
        """What is read in place of `atom`; a row is taken from its stack when it is requested alone for the first time."""
        if isinstance(atom, Var) and atom in self.rows and atom not in self.names:
            self.names[atom] = take_row(self, self.rows[atom])
            self.slices[self.names[atom]] = self.rows[atom]
        return super().read(atom)

    def _write(self, loop: Loop, eqns: Sequence[JaxprEqn]) -> None:
        run = loop.run
        first = eqns[run.start : run.start + run.period]
        leaving = self._leaving(loop, eqns)
        body = _body(loop, first, [first[place].outvars[number] for place, number in leaving])
        backwards = self._runs_backwards(loop)
        stacks = [self._stack(atoms, backwards) for atoms in loop.rows]
        init = [self.read(atom) for atom, _ in loop.carried]
        constants = [self.read(atom) for atom in loop.constants]
        num_carried, num_constants = len(init), len(constants)
        call = jaxpr_as_fun(body)

        def rounds(*values: jax.Array) -> list[jax.Array]:
            fixed, start = values[:num_constants], values[num_constants : num_constants + num_carried]

            def one(carry: Arrays, row: Arrays) -> tuple[Arrays, Arrays]:
                results = call(*fixed, *carry, *row)
                return tuple(results[:num_carried]), tuple(results[num_carried:])

            end, stacked = jax.lax.scan(
                one,
                tuple(start),
                tuple(values[num_constants + num_carried :]),
                length=run.num_blocks,
                reverse=backwards,
            )
            return [*end, *stacked]

        results = self.emit(rounds, *constants, *init, *stacks)
        # The last round leaves what the block behind the run reads.
        last = (run.num_blocks - 1) * run.period
        for (_, var), result in zip(loop.carried, results[:num_carried], strict=True):
            place, number = next(
                (place, eqn.outvars.index(var)) for place, eqn in enumerate(first) if var in eqn.outvars
            )
            self.names[eqns[run.start + last + place].outvars[number]] = result
        for (place, number), stack in zip(leaving, results[num_carried:], strict=True):
            for block in range(run.num_blocks):
                var = eqns[run.start + block * run.period + place].outvars[number]
                # In reverse, the first round is the last block.
                self.rows[var] = Row(stack, run.num_blocks - 1 - block if backwards else block)

    def _leaving(self, loop: Loop, eqns: Sequence[JaxprEqn]) -> list[tuple[int, int]]:
        """Places of a block, and numbers of results there, that are read outside, other than the last values carried."""
        run = loop.run
        carried = {var for _, var in loop.carried}
        leaving = []
        for place in range(run.period):
            for number, var in enumerate(eqns[run.start + place].outvars):
                members = [
                    eqns[run.start + block * run.period + place].outvars[number] for block in range(run.num_blocks)
                ]
                if any(member in self.outside for member in (members[:-1] if var in carried else members)):
                    leaving.append((place, number))
        return leaving

    def _runs_backwards(self, loop: Loop) -> bool:
        """Whether most of what comes from other loops comes in reverse order."""
        votes = 0
        for atoms in loop.rows:
            rows = [self.rows.get(atom) if isinstance(atom, Var) else None for atom in atoms]
            if rows[0] is not None and rows[1] is not None:
                votes += rows[1].index - rows[0].index
        return votes < 0

    def _stack(self, atoms: tuple[Atom, ...], backwards: bool) -> Atom:
        """The values of all blocks in the order in which the loop takes its rows."""
        ordered = atoms[::-1] if backwards else atoms
        stack = self._of_one_stack(ordered)
        if stack is not None:
            return stack
        literals = [atom for atom in ordered if isinstance(atom, Literal)]
        if len(literals) == len(ordered):
            var = Var(stacked_aval(ordered))
            dtype = aval_of(ordered[0]).dtype
            self.constants[var] = jnp.asarray(np.stack([np.asarray(literal.val, dtype) for literal in literals]))
            return var
        values = tuple(map(self.read, ordered))
        if not all(isinstance(value, Var) and value in self.stacked for value in values):
            (stack,) = self.emit(lambda *rows: jnp.stack(rows), *values)
            return stack
        if values not in self.stacks:
            self.stacks[values] = Var(stacked_aval(values))
        return self.stacks[values]

    def _of_one_stack(self, atoms: Sequence[Atom]) -> Atom | None:
        """These values as a slice of one stack; None where they are not neighbouring rows of one."""
        rows = [row for atom in atoms if isinstance(atom, Var) and (row := self.rows.get(atom)) is not None]
        if len(rows) < len(atoms) or any(row.stack is not rows[0].stack for row in rows):
            return None
        stack, indices = rows[0].stack, [row.index for row in rows]
        aval = aval_of(stack)
        low, count = min(indices), len(indices)
        neighbours, down = list(range(low, low + count)), indices[0] > indices[-1]
        if indices != (neighbours[::-1] if down else neighbours):
            return None
        # The whole stack: nothing is copied.
        if count == aval.shape[0] and not down:
            return stack
        (some,) = self.emit(lambda stack: _some_rows(stack, low, count, down), stack)
        return some


def stacked_aval(rows: Sequence[Atom]) -> ShapedArray:
    """Shape and dtype of a stack of values of one type."""
    first = aval_of(rows[0])
    return ShapedArray((len(rows), *first.shape), first.dtype)


def take_row(writer: JaxprRewriter, row: Row) -> Atom:
    """Write the equations that take a row from its stack; gives their result."""
    aval = aval_of(row.stack)
    body = _first_row(aval.shape, aval.dtype).jaxpr
    names: dict[Var, Atom] = {body.invars[0]: row.stack}
    for eqn in body.eqns:
        params = eqn.params
        if eqn.primitive is jax.lax.slice_p:
            start, limit = params["start_indices"], params["limit_indices"]
            params = {**params, "start_indices": (row.index, *start[1:]), "limit_indices": (row.index + 1, *limit[1:])}
        results = writer.write(eqn, [renamed(names, atom) for atom in eqn.invars], params=params)
        names.update(zip(eqn.outvars, results, strict=True))
    return names[body.outvars[0]]


@lru_cache(maxsize=1024)
def _first_row(shape: tuple[int, ...], dtype: np.dtype) -> ClosedJaxpr:
    """The program that takes row 0 of a stack: for other rows only the bounds of the slice differ."""
    stack = jax.ShapeDtypeStruct(shape, dtype)
    return flat(jax.make_jaxpr(lambda stack: jax.lax.squeeze(jax.lax.slice_in_dim(stack, 0, 1), (0,)))(stack))


def _some_rows(stack: jax.Array, low: int, count: int, down: bool) -> jax.Array:
    rows = jax.lax.slice_in_dim(stack, low, low + count)
    return jax.lax.rev(rows, (0,)) if down else rows


def _body(loop: Loop, first: Sequence[JaxprEqn], leaving: Sequence[Var]) -> ClosedJaxpr:
    """One round: from constants, carried values and rows to carried values and what leaves."""

    def fresh(atoms: Sequence[Atom]) -> list[Var]:
        return [Var(atom.aval) for atom in atoms]

    inputs = {
        "constant": fresh(loop.constants),
        "carried": fresh([atom for atom, _ in loop.carried]),
        "rows": fresh([atoms[0] for atoms in loop.rows]),
    }
    outvars = [*(var for _, var in loop.carried), *leaving]
    writer = JaxprRewriter(
        closed_jaxpr([], [], [*inputs["constant"], *inputs["carried"], *inputs["rows"]], outvars, [])
    )
    for place, eqn in enumerate(first):
        invars = list(eqn.invars)
        for operand in range(len(invars)):
            if (place, operand) in loop.inside:
                kind, number = loop.inside[place, operand]
                invars[operand] = inputs[kind][number]
        writer.keep(eqn, invars=invars)
    return writer.finish()
