"""What a plan's notes say of memory: what recomputation saves and costs, and what devices and their hosts exchange."""

from __future__ import annotations

from collections.abc import Sequence

from jax.extend.core import JaxprEqn

from sporax.base.text_tables import size_text
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import MARK
from sporax.lowering.ingest.describe import describe
from sporax.lowering.ingest.ingest import path_of
from sporax.lowering.marks.tags import path_of_tag
from sporax.lowering.passes.recompute.recompute import Recomputed
from sporax.lowering.rewriter import Atom, aval_of
from sporax.planner.rules import local_flops, rule_for

_MOST_NAMES = 12
"""Of variables in one note."""
_LOOPS = ("scan", "while", "cond")


def recomputation_notes(calls: Sequence[Recomputed]) -> list[str]:
    """For each Cell and operator that was marked, in the order of the forward pass, what its mark saves and costs.

    Bytes that are no longer kept, bytes of what is kept to compute them again, and floating-point operations that run twice;
    of all devices together.
    """
    saved: dict[str, int] = {}
    stored: dict[str, int] = {}
    flops: dict[str, float] = {}
    for call in reversed(calls):  # the backward pass began with the last one
        path = path_of(path_of_tag(call.stack))[0] if call.path is None else call.path
        saved[path] = saved.get(path, 0) + _num_bytes(call.released)
        stored[path] = stored.get(path, 0) + _num_bytes(call.saved)
        flops[path] = flops.get(path, 0.0) + sum(map(_flops, call.again))
    return [
        f"recompute {path}: {size_text(saved[path])} of the whole step are not kept, {size_text(stored[path])} are kept to "
        f"compute them again, {flops[path]:.3g} flops run twice"
        for path in saved
    ]


def host_notes(names: Sequence[str], held_bytes: int, sent: Sequence[tuple[str, int]]) -> list[str]:
    """What is in host memory between steps, and what every device sends to its host and fetches from there in a step.

    Args:
        names: of the variables on the host.
        held_bytes: what each device has of them.
        sent: direction and bytes of each transfer.
    """
    listed = ", ".join(names[:_MOST_NAMES]) + (
        f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    )
    notes = [f"host memory of each device: {size_text(held_bytes)} of {listed}"] if names else []
    sizes = {way: [size for direction, size in sent if direction == way] for way in ("to host", "to device")}
    if sent:
        notes.append(
            f"every device sends {size_text(sum(sizes['to host']))} to its host in {len(sizes['to host'])} transfers a step, "
            f"and fetches {size_text(sum(sizes['to device']))} in {len(sizes['to device'])}"
        )
    return notes


def _num_bytes(variables: Sequence[Atom]) -> int:
    return sum(int(aval.size * aval.dtype.itemsize) for aval in map(aval_of, variables))


def _flops(eqn: JaxprEqn) -> float:
    # Marks do nothing; work inside of loops is not counted.
    if eqn.primitive.name == MARK or eqn.primitive.name in _LOOPS:
        return 0.0
    rule = rule_for(describe(eqn))
    # Of the whole step, hence as if one device did everything.
    return local_flops(rule, ((),) * len(rule.factors), DeviceMatrix((1,)))
