"""What a compiled step is predicted to need on a device, and what devices and their hosts exchange.

Both are read from the program that is compiled, after all passes: so they say what the settings have done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.core import ClosedJaxpr

from sporax.base.errors import SporaxNotImplementedError
from sporax.base.text_tables import size_text
from sporax.lowering.marks.host_transfer import HOST, space_of, transfers
from sporax.planner.memory.peak import MemoryUse, backend_of, memory_of
from sporax.runtime.pipeline.pipelined_step import PipelinedStep
from sporax.runtime.planned.recompute_auto import memory_of_one_device
from sporax.runtime.planned.step import PlannedStep


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Memory of a step, for one device.

    Attributes:
        predicted: what it needs on the device; None where ranks exchange data by themselves, of which nothing is predicted.
        with_host: what it needs on device and host together, where these are one memory, as on CPUs; None as above.
        host_bytes: of variables that are in host memory between steps.
        transfers: direction (``"to host"``, ``"to device"``) and bytes of what a step sends, in order.
    """

    predicted: MemoryUse | None
    with_host: MemoryUse | None
    host_bytes: int
    transfers: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        sums = {
            way: sum(size for direction, size in self.transfers if direction == way) for way in ("to host", "to device")
        }
        counts = {way: sum(direction == way for direction, _ in self.transfers) for way in sums}
        sent = ", ".join(f"{size_text(size)} {way} in {counts[way]} transfers" for way, size in sums.items())
        return f"device: {self.predicted or 'not predicted'}; host: {size_text(self.host_bytes)}; a step sends {sent}"


def of_plan(planned: PlannedStep | PipelinedStep) -> MemoryReport:
    """The report of a step that a plan shards.

    Raises:
        SporaxNotImplementedError: it has several pipeline stages.
    """
    if isinstance(planned, PipelinedStep):
        raise SporaxNotImplementedError(
            "For 'Program.memory', 'pipeline_stages' must be 1: the summary of a plan says what stages need."
        )
    # Traced and not lowered: transfers are equations of the program, which XLA's text would hide.
    program = planned.jitted.trace(*planned.structs()).jaxpr
    device, with_host = (
        memory_of(planned.graph, planned.plan, backend_of(planned.model.platform), counted) for counted in (False, True)
    )
    return MemoryReport(device, with_host, *_of(program, planned.host_bytes()))


def of_ranks(jitted: Any, *arguments: Any) -> MemoryReport:
    """The report of a step in which ranks exchange data by themselves."""
    program = jitted.trace(*arguments).jaxpr
    return MemoryReport(None, None, *_of(program, _argument_bytes(program)))


def of_one_device(jitted: Any, updated: Sequence[str], read: Sequence[str], arguments: Sequence[Any]) -> MemoryReport:
    """The report of a step of one device, whose program takes variables, or stacks of them, of these names."""
    program = jitted.trace(*arguments).jaxpr
    device, with_host = (memory_of_one_device(program, updated, read, counted) for counted in (False, True))
    return MemoryReport(device, with_host, *_of(program, _argument_bytes(program)))


def _of(program: ClosedJaxpr, host_bytes: int) -> tuple[int, tuple[tuple[str, int], ...]]:
    return host_bytes, tuple(transfers(program))


def _argument_bytes(program: ClosedJaxpr) -> int:
    avals: list[Any] = [var.aval for var in program.jaxpr.invars if space_of(var) == HOST]
    return sum(aval.size * aval.dtype.itemsize for aval in avals)
