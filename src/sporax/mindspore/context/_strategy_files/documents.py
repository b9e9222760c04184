"""One operator's strategy in a JSON file, with MindSpore's field names.

Layouts are written where numbers of slices do not determine the slice of each device.
"""

from __future__ import annotations

import reprlib
from typing import Annotated, Any

from msgspec import Meta, Struct

from sporax.base.documents import MalformedError, convert
from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout
from sporax.ir.marks import Shardings
from sporax.planner.pins.strategies import on_devices

_MOST_DEVICES = 2**31 - 1
"""Devices of a job; a larger number in a file is a mistake."""


class LayoutDocument(Struct, frozen=True):
    """A Layout in a file."""

    device_matrix: tuple[int, ...]
    tensor_map: tuple[int | tuple[int, ...], ...]
    rank_list: tuple[int, ...]


class StrategyDocument(Struct, frozen=True):
    """The strategy of one operator in a file, with MindSpore's names."""

    parallel_strategy: tuple[tuple[Annotated[int, Meta(ge=1, le=_MOST_DEVICES)], ...], ...]
    stage: int = 0
    parallel_layouts: tuple[LayoutDocument | None, ...] | None = None
    """Where numbers of slices do not determine the slice of each device."""


def strategy_to_json(strategy: Shardings) -> dict[str, Any]:
    """One operator's entry."""
    numbers = [list(one.split if isinstance(one, Layout) else one or ()) for one in strategy]
    entry: dict[str, Any] = {"parallel_strategy": numbers, "stage": 0}
    if any(isinstance(one, Layout) for one in strategy):
        entry["parallel_layouts"] = [_layout_to_json(one) if isinstance(one, Layout) else None for one in strategy]
    return entry


def strategy_from_json(entry: Any, where: str) -> Shardings:
    """What `strategy_to_json` wrote.

    Args:
        entry: one operator's entry.
        where: what messages call the file.

    Raises:
        SporaxValueError: it is none.
    """
    try:
        document = convert(entry, StrategyDocument)
        layouts = document.parallel_layouts or (None,) * len(document.parallel_strategy)
        return tuple(
            numbers if layout is None else _layout(layout)
            for numbers, layout in zip(document.parallel_strategy, layouts, strict=True)
        )
    except (MalformedError, ValueError) as error:
        raise SporaxValueError(
            f"For '{where}', an operator must have an entry like {{'parallel_strategy': [[2, 4], [4, 1]]}}, but got "
            f"{reprlib.repr(entry)}: {error}."
        ) from None


def _layout_to_json(layout: Layout) -> dict[str, Any]:
    layout = on_devices(layout)
    matrix = layout.device_matrix
    return {"device_matrix": list(matrix.shape), "tensor_map": layout.tensor_map, "rank_list": list(matrix.ranks)}


def _layout(document: LayoutDocument) -> Layout:
    matrix = DeviceMatrix(document.device_matrix, (), document.rank_list)
    return Layout.from_tensor_map(matrix, document.tensor_map)
