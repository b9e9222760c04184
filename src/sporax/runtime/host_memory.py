"""Variables that are in host memory between steps.

A Parameter marked ``on_host`` (the table of a lookup with ``target="CPU"``, what an optimizer with ``target="CPU"`` updates, what
``memory_offload`` sends there) is stored in pinned host memory. A step fetches it at its start and returns it at its end; the
transfers that are not needed, since the host itself works on it, are taken out of the step (`lowering.memory.host`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from sporax.ir.errors import SporaxRuntimeError
from sporax.lowering.memory.host import stored_on_host, to_device, to_host

_OFFLOAD = re.compile(r"offload above (\d+) within (-?\d+)")


def bring_to_host(variables: Sequence[Any], tags: Collection[str]) -> None:
    """Store the variables of a step where it expects them."""
    if "host" not in tags:
        return
    for tag in tags:
        match = _OFFLOAD.fullmatch(tag)
        if match is not None:
            _send_away(variables, *map(int, match.groups()))
    for variable in variables:
        if _on_host(variable):
            variable.raw = stored_on_host(variable.raw)


def _send_away(variables: Sequence[Any], above: int, within: int) -> None:
    """Mark the largest variables for the host, until the others take no more than `above` bytes.

    Raises:
        SporaxRuntimeError: they take more than `within` bytes there (-1: no limit).
    """
    arrays = [variable for variable in variables if variable.raw.ndim]
    on_device = sum(variable.raw.nbytes for variable in arrays if not _on_host(variable))
    for variable in sorted(arrays, key=lambda each: -each.raw.nbytes):
        if on_device <= above:
            break
        if hasattr(variable, "requires_grad") and not _on_host(variable):  # a Parameter; counters of masks stay
            variable.on_host = True
            on_device -= variable.raw.nbytes
    there = sum(variable.raw.nbytes for variable in arrays if _on_host(variable))
    if 0 <= within < there:
        raise SporaxRuntimeError(
            f"For 'set_offload_context', 'offload_cpu_size' times 'cpu_ratio' is {within} bytes, but {there} bytes of "
            "Parameters and state must be in host memory."
        )


def fetched(variables: Sequence[Any], values: Sequence[Any], asked: bool) -> list[Any]:
    """Values of variables in device memory; `asked` is False in steps that are sharded by a plan, which keeps all on devices."""
    if not asked or not any(map(_on_host, variables)):
        return list(values)
    return [
        to_device([value])[0] if _on_host(variable) else value
        for variable, value in zip(variables, values, strict=True)
    ]


def returned(variables: Sequence[Any], values: Sequence[Any], asked: bool) -> list[Any]:
    """New values of variables, in the memory in which they are between steps."""
    if not asked or not any(map(_on_host, variables)):
        return list(values)
    return [
        to_host([value])[0] if _on_host(variable) else value for variable, value in zip(variables, values, strict=True)
    ]


def _on_host(variable: Any) -> bool:
    return bool(getattr(variable, "on_host", False))
