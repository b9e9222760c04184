"""MindSpore's `Layout`: a device matrix with named axes that is called to say how a tensor is sharded.

It is a thin layer over `sporax.ir.layout.Layout`, which does the arithmetic and never changes. This one can be called any
number of times; it remembers the last call, and each call gives a copy that later calls leave alone.
"""

from __future__ import annotations

import copy
import math
from typing import Any, Self

from sporax.base.errors import For, SporaxTypeError, SporaxValueError, named
from sporax.ir import INTERLEAVED, INTERLEAVED_SIZE, DeviceMatrix, Layout as LayoutValue, TensorMap

# MindSpore writes the text "None", not the value None.
NOT_SHARDED = "None"


class Layout:
    """How devices are arranged, and, once called, how a tensor is sharded over them. Same as MindSpore.

    Args:
        device_matrix: number of devices along each axis.
        alias_name: a name for each axis. A last axis ``"interleaved_parallel"`` of size 2 divides inside every device.
        rank_list: the ranks in row-major order; 0, 1, 2, … by default.

    Raises:
        SporaxTypeError: `device_matrix` or `alias_name` is no tuple, `rank_list` no list, or an element of the wrong type.
        SporaxValueError: sizes below 1, names that are empty, repeated, ``"None"`` or not one per axis, ranks that are
            repeated or not one per device.

    Example:
        >>> layout = Layout((2, 2, 2), ("dp", "sp", "mp"))
        >>> layout("mp", ("sp", "dp")).to_dict()["tensor_map"]
        (0, (1, 2))
    """

    def __init__(
        self, device_matrix: tuple[int, ...], alias_name: tuple[str, ...], rank_list: list[int] | None = None
    ) -> None:
        _check_items("device_matrix", device_matrix, tuple, int)
        _check_items("alias_name", alias_name, tuple, str)
        _check_names(device_matrix, alias_name)
        if rank_list is not None:
            _check_items("rank_list", rank_list, list, int)
        # The interleaved axis divides inside every device, so it has no ranks of its own.
        devices = device_matrix[:-1] if INTERLEAVED in alias_name else device_matrix
        self._device_matrix = DeviceMatrix(device_matrix, alias_name, _ranks(rank_list, math.prod(devices)))
        self._tensor_map: TensorMap | None = None

    def __call__(self, *tensor_map: str | tuple[str, ...]) -> Self:
        """Say how a tensor is sharded: for each dimension the name of an axis, ``"None"``, or a tuple, outermost axis first.

        Raises:
            SporaxValueError: a name that is not in `alias_name`, or that is used twice.
        """
        entries = tuple(
            tuple(map(self._number, entry)) if isinstance(entry, tuple) else self._number(entry) for entry in tensor_map
        )
        # A wrong map must fail at this call, and not when the Layout is used.
        LayoutValue.from_tensor_map(self._device_matrix, entries)  # checks it
        self._tensor_map = entries
        # MindSpore returns a copy that later calls of the same object leave alone.
        return copy.deepcopy(self)

    def to_dict(self) -> dict[str, Any]:
        """The arrangement and the shardings; axes in ``tensor_map`` are counted from the right, -1 is a whole dimension.

        Raises:
            SporaxValueError: the Layout has not been called yet.
        """
        matrix = self._device_matrix
        return {
            "device_matrix": matrix.shape,
            "tensor_map": self._called(),
            "interleaved_parallel": matrix.interleaved,
            "alias_name": matrix.names,
            "rank_list": list(matrix.ranks),
        }

    def __layout__(self) -> LayoutValue:
        """The sharding as an immutable value.

        Raises:
            SporaxValueError: the Layout has not been called yet.
        """
        return LayoutValue.from_tensor_map(self._device_matrix, self._called())

    def __repr__(self) -> str:
        if self._tensor_map is None:
            return f"Layout{self._device_matrix}"
        return f"Layout {self.__layout__()}"

    def _called(self) -> TensorMap:
        if self._tensor_map is None:
            raise SporaxValueError(
                f"For 'Layout', the tensor map must be set before it is used: call {self!r} with the names of axes."
            )
        return self._tensor_map

    def _number(self, name: Any) -> int:
        names = self._device_matrix.names
        if name == NOT_SHARDED:
            return -1
        For("Layout").refuse(name not in names, f"an axis must be one of {(*names, NOT_SHARDED)}", name, show=repr)
        # MindSpore counts axes from the right.
        return len(names) - 1 - names.index(name)


def _check_items(what: str, value: object, container: type[list[Any]] | type[tuple[Any, ...]], item: type) -> None:
    if not isinstance(value, container):
        raise SporaxTypeError(f"For 'Layout', '{what}' must be a {container.__name__}, but got {type(value).__name__}.")
    for entry in value:
        if not isinstance(entry, item) or isinstance(entry, bool):
            raise SporaxTypeError(
                f"For 'Layout', the elements of '{what}' must be {item.__name__}, but got {entry!r} in {value}."
            )


def _check_names(device_matrix: tuple[int, ...], names: tuple[str, ...]) -> None:
    if len(names) != len(device_matrix):
        raise For("Layout").error(f"'alias_name' must have one name per axis of {device_matrix}", names)
    if NOT_SHARDED in names:
        raise For("Layout").error(f"'{NOT_SHARDED}' says that a dimension is whole; it cannot be in {names}")
    if INTERLEAVED in names and device_matrix[names.index(INTERLEAVED)] != INTERLEAVED_SIZE:
        raise For("Layout").error(f"{named(INTERLEAVED)} must have size {INTERLEAVED_SIZE}", device_matrix)


def _ranks(rank_list: list[int] | None, num_devices: int) -> tuple[int, ...]:
    if rank_list is None:
        return ()
    if len(rank_list) != num_devices:
        raise SporaxValueError(
            f"For 'Layout', 'rank_list' must have one rank for each of the {num_devices} devices, but got {rank_list}."
        )
    return tuple(rank_list)
