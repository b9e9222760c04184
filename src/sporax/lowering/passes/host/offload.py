"""Activations in host memory between the forward and the backward pass.

Problem. What the forward pass keeps for the backward pass is idle for most of a step.

Method. A value that a tagged equation makes and the backward pass reads is sent to host memory where it is made, and brought
back before its first reader. What one call of a Cell sent comes back together, when the backward pass of the call that
runs before it there begins (*prefetch*): so transfers of one layer run while the layer after it is computed. The way back
starts at a cotangent of that moment, behind an `optimization_barrier`, so the compiler cannot fetch everything at once.

Reference: Rhu et al., vDNN: Virtualized Deep Neural Networks, 2016.

What the host computes works on values in host memory, and transfers are written down.

Problem. `run_on_host` only says who computes. Values of such equations keep the type of device memory, so a table in host memory
would be fetched whole, handed to the host, and returned whole.

Method. An equation of the host takes its operands from host memory: a value that came from there is taken where it is, any other
is sent once, when the first equation of the host reads it. Its results are in host memory and are fetched once, when the first
equation of the device reads them. So the transfers of the program are those that are needed, and `host.transfers` counts them.

Equations whose lowering makes arrays of its own, and those with bodies (loops, branches), keep values in device memory, and the
compiler brings these to the host: JAX refuses to mix both memories in one operation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from sporax.ir.graph import MARK
from sporax.lowering.marks.host_transfer import DEVICE, HOST, Space, moves, runs_on_host, space_of, transferred
from sporax.lowering.passes.host.file_values import ArrayInFile, NewFile, Reads, first_element, write
from sporax.lowering.rewriter import Atom, JaxprRewriter, aval_of, renamed, runs_backward, stack_of, variables

_SCOPE = re.compile(r"offload-(\d+)-(\d+)")
_VIEWS = frozenset(("transpose", "reshape", "squeeze", "convert_element_type", "copy"))
"""What stays on the device when it is made of arguments alone: weights in another form."""


def offloaded(
    program: ClosedJaxpr, stored: Mapping[Var, int] | None = None, new_file: NewFile | None = None
) -> ClosedJaxpr:
    """The same program; values of tagged calls wait for the backward pass in host memory.

    Args:
        program: flat, after recomputation.
        stored: further values to send, with numbers of the calls for which they come back together.
        new_file: makes the files to which `stored` is sent; None sends it to host memory as well.
    """
    return _Offloading(program, stored or {}, new_file).run()


class _Offloading(JaxprRewriter):
    """Sends values away and brings them back.

    Attributes:
        group: for each value that is sent away the call with whose values it comes back.
        order: the calls, in the order in which the backward pass needs them.
        ahead: for each call how many calls earlier its values are brought back.
        files: the files of values that are sent there.
        same: what passed a mark, before the mark.
        away, back: what stands for a value where it waits, and in the backward pass.
        latest: a value of the backward pass that is there.
    """

    def __init__(self, program: ClosedJaxpr, recomputed: Mapping[Var, int], new_file: NewFile | None) -> None:
        super().__init__(program)
        self.new_file = new_file
        self.reads = Reads()
        self.files: dict[Var, ArrayInFile] = {}
        self.ahead: dict[int, int] = {}
        self.same: dict[Var, Atom] = {}
        self.away: dict[Var, Atom] = {}
        self.back: dict[Var, Atom] = {}
        self.latest: Var | None = None
        self.group = self._chosen(self._tagged(recomputed), self._weights())
        self.order = list(dict.fromkeys(self.group.values()))

    def visit(self, eqn: JaxprEqn) -> None:
        if not runs_backward(eqn):
            self.eqns.append(eqn)
            for var in eqn.outvars:
                if var in self.group:
                    self.away[var] = self._send(var)
            return
        for number in [self.group[var] for var in variables(map(self._original, eqn.invars)) if var in self.group]:
            place = self.order.index(number)
            for other in self.order[place : place + 1 + self.ahead.get(number, 1)]:
                self._bring_back(other, eqn)
        self.keep(eqn)
        self.latest = next((var for var in eqn.outvars if getattr(var.aval, "size", 0)), self.latest)

    def run(self) -> ClosedJaxpr:
        self.walk()
        return self.finish(self.program.jaxpr.outvars)

    def read(self, atom: Atom) -> Atom:
        """A value that came back, or the value itself."""
        first = self._original(atom)
        return self.back.get(first, atom) if isinstance(first, Var) else atom

    def _tagged(self, recomputed: Mapping[Var, int]) -> dict[Var, int]:
        """The values that may be sent away, with the numbers of their calls."""
        # Values that recomputation keeps come with groups of their own; tags add the user's.
        tagged = dict(recomputed)
        for eqn in self.program.jaxpr.eqns:
            match = _SCOPE.findall(stack_of(eqn))
            if match and not runs_backward(eqn):
                number, self.ahead[number] = map(int, match[-1])
                tagged.update(dict.fromkeys(eqn.outvars, number))
            if eqn.primitive.name == MARK:
                self.same.update(zip(eqn.outvars, map(self._original, eqn.invars), strict=True))
        return tagged

    def _weights(self) -> set[Atom]:
        """Arguments, and other forms of them: a transposed weight can be made again from the weight."""
        weights: set[Atom] = {*self.program.jaxpr.invars, *self.program.jaxpr.constvars}
        for eqn in self.program.jaxpr.eqns:
            read = map(self._original, eqn.invars)
            if eqn.primitive.name in _VIEWS and all(isinstance(var, Var) and var in weights for var in read):
                weights.update(eqn.outvars)
        return weights

    def _chosen(self, tagged: Mapping[Var, int], weights: Collection[Atom]) -> dict[Var, int]:
        """The values that the backward pass reads."""
        group: dict[Var, int] = {}
        for var in variables(atom for eqn in self.program.jaxpr.eqns if runs_backward(eqn) for atom in eqn.invars):
            first, aval = self._original(var), var.aval
            # Scalars are not worth a transfer.
            if isinstance(first, Literal) or first in weights or not getattr(aval, "ndim", 0):
                continue
            # The mark and the value before it are one array; either may carry the tag.
            for item in (first, var):
                if item in tagged:
                    group.setdefault(first, tagged[item])
        return group

    def _original(self, var: Atom) -> Atom:
        """The value that was marked, for a marked one: both are one array, which is sent once."""
        return renamed(self.same, var)

    def _bring_back(self, number: int, reader: JaxprEqn) -> None:
        """Bring the values of one call back, not before the backward pass is here."""
        missing = [
            var for var, group in self.group.items() if group == number and var in self.away and var not in self.back
        ]
        if not missing:
            return
        arrived: Sequence[Atom] = [self.away[var] for var in missing]
        late: list[Atom] = []
        if self.latest is not None:
            # Together with the latest cotangent, so the compiler cannot fetch before the backward pass is here.
            *arrived, latest = self.barrier([*arrived, self.latest], reader)
            # Files wait for one element of the cotangent, since a callback would take all of it to the host.
            late = [first_element(self, latest)]
        for var, copy in zip(missing, arrived, strict=True):
            if var in self.files:
                self.back[var], _ = self.reads.read(self, self.files[var], [copy, *late])
            else:
                self.back[var] = transferred(self, copy, DEVICE)

    def _send(self, var: Var) -> Atom:
        """Send a value away; the result stands for it there."""
        aval = aval_of(var)
        # Groups of recomputed calls have negative numbers; only these may go to files.
        if self.new_file is None or self.group[var] >= 0:
            return transferred(self, var, HOST)
        self.files[var] = self.new_file(f"activation {len(self.files)}", tuple(aval.shape), aval.dtype)
        return write(self, self.files[var], var, [])


_PLAIN = frozenset(
    "abs add add_any and broadcast_in_dim concatenate convert_element_type copy cos div dot_general eq erf exp expm1 floor ge gt "
    "integer_pow is_finite le log log1p logistic lt max min mul ne neg not or pow reduce_and reduce_max reduce_min reduce_or "
    "reduce_prod reduce_sum rem reshape round rsqrt select_n sign sin slice sqrt square squeeze sub tanh transpose xor".split()
)
"""Operations that compile for values in either memory."""
_BY_POSITION = frozenset(("gather", "scatter", "scatter-add"))
"""Operations that do so where positions are in range: what is done with others needs constants."""


def in_host_memory(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same flat program; equations of the host read and leave values in host memory."""
    if not any(map(runs_on_host, program.jaxpr.eqns)):
        return program
    return _InHostMemory(program).run()


class _InHostMemory(JaxprRewriter):
    """Writes transfers.

    Attributes:
        held: by memory, and by value of the old program, the variable that holds it there, as far as it was needed.
    """

    def __init__(self, program: ClosedJaxpr) -> None:
        super().__init__(program)
        self.held: dict[Space, dict[Var, Atom]] = {HOST: {}, DEVICE: {}}
        self._computed([*program.jaxpr.invars, *program.jaxpr.constvars])

    def visit(self, eqn: JaxprEqn) -> None:
        if moves(eqn):
            self._move(eqn)
        elif runs_on_host(eqn) and _stays_there(eqn):
            self._compute(eqn)
        else:
            self.keep(eqn)
            self._computed(eqn.outvars)

    def read(self, atom: Atom) -> Atom:
        """A value in the memory that its type says."""
        return atom if isinstance(atom, Literal) else self._value(atom, space_of(atom))

    def _computed(self, values: Sequence[Var]) -> None:
        for var in values:
            self.held[space_of(var)][var] = var

    def _move(self, eqn: JaxprEqn) -> None:
        """A transfer that the program has already; it is left out where the value is there."""
        (before,), (after,) = eqn.invars, eqn.outvars
        target = space_of(after)
        # A literal is nowhere.
        there = {space: held[before] for space, held in self.held.items() if isinstance(before, Var) and before in held}
        if target == HOST and HOST in there:
            self.held[HOST][after] = there[HOST]
            return
        for space, value in there.items():
            self.held[space][after] = value
        self.keep(eqn)
        self.held[target][after] = after

    def _compute(self, eqn: JaxprEqn) -> None:
        # An operation on literals alone would be typed for device memory.
        scalars = all(isinstance(var, Literal) for var in eqn.invars)
        invars = [var if isinstance(var, Literal) and not scalars else self._value(var, HOST) for var in eqn.invars]
        outvars = [Var(aval.update(memory_space=HOST)) for aval in map(aval_of, eqn.outvars)]
        self.held[HOST].update(zip(eqn.outvars, outvars, strict=True))
        self.keep(eqn, invars=invars, outvars=outvars)

    def _value(self, atom: Atom, space: Space) -> Atom:
        """A value in one of the memories."""
        if isinstance(atom, Literal):
            return transferred(self, atom, space)
        there = self.held[space]
        if atom not in there:
            there[atom] = transferred(self, self.held[DEVICE if space == HOST else HOST][atom], space)
        return there[atom]


def _stays_there(eqn: JaxprEqn) -> bool:
    name = str(eqn.primitive.name)
    if name in _BY_POSITION:
        # Other modes make constants for indices out of range, which JAX types as device memory.
        return eqn.params["mode"] == jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return name in _PLAIN and bool(eqn.invars)
