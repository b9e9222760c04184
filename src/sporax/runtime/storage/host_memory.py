"""Variables that are in host memory between steps.

A Parameter marked ``on_host`` (the table of a lookup with ``target="CPU"``, what an optimizer with ``target="CPU"`` updates, what
``memory_offload`` sends there) is stored in pinned host memory. A step fetches it at its start and returns it at its end; the
transfers that are not needed, since the host itself works on it, are taken out of the step (`lowering.marks.host_transfer`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from sporax.base.errors import SporaxRuntimeError
from sporax.lowering import marks as trace_marks

T = TypeVar("T")
_OFFLOAD = re.compile(r"offload above (\d+) within (-?\d+)")


def bring_to_host(variables: Sequence[Any], tags: Collection[str], peak_bytes: Callable[[], int | None]) -> None:
    """Store the variables of a step where it expects them.

    Args:
        peak_bytes: predicts what the step needs with everything on the device; None where that is not known.
    """
    if "host" not in tags:
        return
    # Chosen before anything moves, so that a limit which is too small leaves all arrays where they are.
    for above, within in limits_of(tags):
        _send_away(variables, above, within, peak_bytes)
    for variable in variables:
        if _on_host(variable):
            variable.raw = trace_marks.stored_on_host(variable.raw)


def limits_of(tags: Collection[str]) -> list[tuple[int, int]]:
    """What the settings of offload say: bytes that a device may need, bytes that its host may hold (-1: no limit)."""
    matches = map(_OFFLOAD.fullmatch, tags)
    return [(int(match.group(1)), int(match.group(2))) for match in matches if match is not None]


def _send_away(variables: Sequence[Any], above: int, within: int, peak_bytes: Callable[[], int | None]) -> None:
    """Mark variables for the host, until the step needs no more than `above` bytes on the device.

    Raises:
        SporaxRuntimeError: they take more than `within` bytes there (-1: no limit).
    """
    candidates = [variable for variable in variables if not _on_host(variable)]
    for variable in chosen_variables(candidates, above, peak_bytes):
        variable.on_host = True
    check_room(sum(variable.raw.nbytes for variable in variables if _on_host(variable)), within)


def check_room(there: int, within: int) -> None:
    """Check that the host may hold so many bytes; -1 is no limit.

    Raises:
        SporaxRuntimeError: it may not.
    """
    if 0 <= within < there:
        raise SporaxRuntimeError(
            f"For 'set_offload_context', 'offload_cpu_size' times 'cpu_ratio' is {within} bytes, but {there} bytes of "
            "Parameters and state must be in host memory."
        )


def chosen_variables(variables: Sequence[Any], above: int, peak_bytes: Callable[[], int | None]) -> list[Any]:
    """The variables to send away: the largest, until the rest of the step needs no more than `above` bytes.

    Args:
        variables: that are on the device. Those that are no Parameters, such as counters of masks, stay.
        above: bytes; 0 sends all.
        peak_bytes: as for `bring_to_host`; without a prediction variables alone are counted.
    """
    # Scalars, such as step counters, save nothing and would cost a transfer each.
    parameters = [candidate for candidate in variables if hasattr(candidate, "requires_grad") and candidate.raw.ndim]
    peak = peak_bytes() if above else None
    needed = sum(candidate.raw.nbytes for candidate in variables) if peak is None else peak
    return largest([(candidate, candidate.raw.nbytes) for candidate in parameters], above, needed)


def largest(sizes: Sequence[tuple[T, int]], above: int, needed: int) -> list[T]:
    """Those of these, with their bytes, without which no more than `above` of so many bytes are needed; 0 takes all."""
    sent = []
    # The largest first, so that few transfers bring the step under its limit.
    for item, size in sorted(sizes, key=lambda entry: -entry[1]) if above else sizes:
        if above and needed <= above:
            break
        sent.append(item)
        needed -= size
    return sent


def moved(
    variables: Sequence[Any], values: Sequence[Any], move: Callable[[Sequence[Any]], list[Any]], requested: bool
) -> list[Any]:
    """Values of variables, those of the host brought to the device, or new ones back to where they are between steps.

    Args:
        move: `to_device` or `to_host` of `lowering.marks`.
        requested: False in steps that are sharded by a plan, which keeps all on devices.
    """
    return [
        move([value])[0] if requested and _on_host(variable) else value
        for variable, value in zip(variables, values, strict=True)
    ]


def _on_host(variable: Any) -> bool:
    return bool(getattr(variable, "on_host", False))
