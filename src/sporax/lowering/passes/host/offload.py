"""Activations in host memory between the forward and the backward pass.

Problem. What the forward pass keeps for the backward pass is idle for most of a step.

Method. A value that a tagged equation makes and the backward pass reads is sent to host memory where it is made, and brought
back before its first reader. What one call of a Cell sent comes back together, when the backward pass of the call that
runs before it there begins (*prefetch*): so transfers of one layer run while the layer after it is computed. The way back
starts at a cotangent of that moment, behind an `optimization_barrier`, so the compiler cannot fetch everything at once.

Reference: Rhu et al., vDNN: Virtualized Deep Neural Networks, 2016.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from sporax.ir.graph import MARK
from sporax.lowering.flat_program import barrier, closed_jaxpr, is_backward, stack_of
from sporax.lowering.marks.host_transfer import DEVICE, HOST
from sporax.lowering.passes.host.file_values import Filed, NewFile, Reads, first_element, write

_SCOPE = re.compile(r"offload-(\d+)-(\d+)")
_VIEWS = frozenset(("transpose", "reshape", "squeeze", "convert_element_type", "copy"))
"""What stays on the device when it is made of arguments alone: weights in another form."""


def offload_scope(number: int, prefetch: int) -> str:
    """The component of a name stack that says so; `prefetch` is how many calls earlier values are brought back."""
    return f"offload-{number}-{prefetch}"


def offloaded(
    program: ClosedJaxpr, kept: Mapping[Var, int] | None = None, new_file: NewFile | None = None
) -> ClosedJaxpr:
    """The same program; values of tagged calls wait for the backward pass in host memory.

    Args:
        program: flat, after recomputation.
        kept: further values to send, with numbers of the calls for which they come back together.
        new_file: makes the files to which `kept` is sent; None sends it to host memory as well.
    """
    return _Rewriter(program, dict(kept or {}), new_file).run()


@dataclass(slots=True)
class _Rewriter:
    program: ClosedJaxpr
    group: dict[Var, int]
    new_file: NewFile | None = None
    files: dict[Var, Filed] = field(default_factory=dict)
    reads: Reads = field(default_factory=Reads)
    constants: dict[Var, Any] = field(default_factory=dict)
    ahead: dict[int, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    same: dict[Var, Any] = field(default_factory=dict)
    away: dict[Var, Var] = field(default_factory=dict)
    back: dict[Var, Var] = field(default_factory=dict)
    result: list[JaxprEqn] = field(default_factory=list)
    latest: Var | None = None

    def run(self) -> ClosedJaxpr:
        eqns = self.program.jaxpr.eqns
        self._choose(eqns)
        for eqn in eqns:
            if not is_backward(stack_of(eqn)):
                self.result.append(eqn)
                for var in eqn.outvars:
                    if var in self.group:
                        self.away[var] = self._send(var)
                continue
            read = [self._original(var) for var in eqn.invars if isinstance(var, Var)]
            groups = [self.group[var] for var in read if isinstance(var, Var) and var in self.group]
            for number in groups:
                place = self.order.index(number)
                for other in self.order[place : place + 1 + self.ahead.get(number, 1)]:
                    self._bring_back(other, eqn)
            invars = [
                self.back.get(first, var) if isinstance(first, Var) else var
                for var, first in zip(eqn.invars, map(self._original, eqn.invars), strict=True)
            ]
            self.result.append(eqn.replace(invars=invars))
            self.latest = next((var for var in eqn.outvars if getattr(var.aval, "size", 0)), self.latest)
        jaxpr = self.program.jaxpr
        constants = {**dict(zip(jaxpr.constvars, self.program.consts, strict=True)), **self.constants}
        return closed_jaxpr(list(constants), list(constants.values()), jaxpr.invars, jaxpr.outvars, self.result)

    def _choose(self, eqns: Sequence[JaxprEqn]) -> None:
        """Find the values that are sent away, and the order in which they come back."""
        # Values that recomputation keeps come with groups of their own; tags add the user's.
        tagged: dict[Var, int] = dict(self.group)
        views: set[Any] = {*self.program.jaxpr.invars, *self.program.jaxpr.constvars}
        for eqn in eqns:
            match = _SCOPE.findall(stack_of(eqn))
            if match and not is_backward(stack_of(eqn)):
                number, prefetch = map(int, match[-1])
                self.ahead[number] = prefetch
                tagged.update(dict.fromkeys(eqn.outvars, number))
            read = list(map(self._original, eqn.invars))
            if eqn.primitive.name == MARK:
                self.same.update(zip(eqn.outvars, read, strict=True))
            elif eqn.primitive.name in _VIEWS and all(isinstance(var, Var) and var in views for var in read):
                # A transposed weight can be made again from the weight, which stays on the device.
                views.update(eqn.outvars)
        self.group = {}
        for eqn in filter(lambda item: is_backward(stack_of(item)), eqns):
            for var in eqn.invars:
                first, aval = self._original(var), getattr(var, "aval", None)
                # Scalars are not worth a transfer.
                if (
                    isinstance(var, Literal)
                    or isinstance(first, Literal)
                    or first in views
                    or not getattr(aval, "ndim", 0)
                ):
                    continue
                # The mark and the value before it are one array; either may carry the tag.
                for item in (first, var):
                    if item in tagged:
                        self.group.setdefault(first, tagged[item])
        self.order = list(dict.fromkeys(self.group.values()))

    def _original(self, var: Any) -> Any:
        """The value that was marked, for a marked one: both are one array, which travels once."""
        return var if isinstance(var, Literal) else self.same.get(var, var)

    def _bring_back(self, number: int, reader: JaxprEqn) -> None:
        """Bring the values of one call back, not before the backward pass is here."""
        missing = [var for var, group in self.group.items() if group == number and var not in self.back]
        missing = [var for var in missing if var in self.away]
        if not missing:
            return
        if self.latest is None:
            arrived: Sequence[Any] = [self.away[var] for var in missing]
        else:
            # Together with the latest cotangent, so the compiler cannot fetch before the backward pass is here.
            arrived, through = barrier([*(self.away[var] for var in missing), self.latest], reader)
            self.result.append(through)
        # Files wait for one element of the cotangent, since a callback would take all of it to the host.
        late = [] if self.latest is None else [self._element(arrived[-1])]
        for var, copy in zip(missing, arrived, strict=False):
            self.back[var] = self._read(var, [copy, *late]) if var in self.files else self._move(copy, DEVICE)

    def _send(self, var: Var) -> Var:
        """Send a value away; the result stands for it there."""
        aval: Any = var.aval
        # Groups of recomputed calls have negative numbers; only these may go to files.
        if self.new_file is None or self.group[var] >= 0:
            return self._move(var, HOST)
        self.files[var] = self.new_file(f"activation {len(self.files)}", tuple(aval.shape), aval.dtype)
        eqns, token, constants = write(self.files[var], var, [])
        self.result += eqns
        self.constants.update(constants)
        return token

    def _read(self, var: Var, waits_for: Sequence[Any]) -> Var:
        eqns, array, _, constants = self.reads.read(self.files[var], waits_for)
        self.result += eqns
        self.constants.update(constants)
        return array

    def _element(self, value: Any) -> Any:
        eqns, element = first_element(value)
        self.result += eqns
        return element

    def _move(self, var: Var, space: Any) -> Var:
        aval: Any = var.aval
        sub = jax.make_jaxpr(lambda array: jax.device_put(array, space))(aval)
        (eqn,) = sub.jaxpr.eqns
        result = Var(eqn.outvars[0].aval)
        self.result.append(eqn.replace(invars=[var], outvars=[result]))
        return result
