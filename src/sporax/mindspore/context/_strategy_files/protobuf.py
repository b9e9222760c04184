"""Strategy files in MindSpore's own format: one protobuf message.

    ParallelStrategyMap   1 current_stage, 2 operators: {1 name, 2 {1 stage, 2 tensors: {1 slices}}},
                          3 Parameters: {1 name, 2 {1 {1 device matrix}, 2 {1 tensor map}, 3 {1 rows of uneven slices},
                          4 {1 their offsets}, 5 field,
                          6 opt_weight_shard_step, 7 opt_weight_shard_size}}
    ParallelGroupMap      1 groups: {1 name, 2 {1 ranks}}, 2 {1 ranks with the same weights}

In memory they look like those in JSON (`files`). The format knows numbers of slices but no Layouts, and one axis
per entry of a tensor map: a dimension that several axes shard has an entry for each, as in MindSpore.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sporax.base.errors import SporaxValueError

_VARINT, _BYTES = 0, 2


# --------------------------------------------------------------------------------------------------------------- writing


def encode(content: Mapping[str, Any]) -> bytes:
    """The message for what a file says."""
    strategies = content.get("parallel_strategy_item", {}).items()
    layouts = content.get("parallel_layout_item", {}).items()
    return b"".join(
        (
            _number(1, content["current_stage"]),
            *(_message(2, _text(1, name) + _message(2, _strategy(entry))) for name, entry in strategies),
            *(_message(3, _text(1, name) + _message(2, _layout(entry))) for name, entry in layouts),
        )
    )


def encode_groups(groups: Mapping[str, Sequence[int]], ranks_of_weights: Sequence[int]) -> bytes:
    """The message for which ranks work together.

    Args:
        groups: ranks of each group, by its name.
        ranks_of_weights: ranks that hold the same weights as this one, itself included.
    """
    items = (_message(1, _text(1, name) + _message(2, _dims(ranks))) for name, ranks in groups.items())
    return b"".join(items) + _message(2, _dims(ranks_of_weights))


def _strategy(entry: Mapping[str, Any]) -> bytes:
    return _number(1, entry["stage"]) + b"".join(_message(2, _dims(counts)) for counts in entry["parallel_strategy"])


def _layout(entry: Mapping[str, Any]) -> bytes:
    axes = [axis for dim in entry["tensor_map"] for axis in (dim if isinstance(dim, list | tuple) else (dim,))]
    # In the order of MindSpore's numbers for these fields.
    numbers = ((5, "field"), (6, "opt_weight_shard_step"), (7, "opt_weight_shard_size"))
    parts = (
        _message(1, _dims(entry["dev_matrix"])),
        _message(2, _dims(axes)),
        _message(3, _dims(entry.get("param_split_shape", ()))),
        _message(4, _dims(entry.get("indices_offset", ()))),
    )
    return b"".join(parts) + b"".join(_number(field, entry[key]) for field, key in numbers)


def _dims(numbers: Iterable[int]) -> bytes:
    return b"".join(_number(1, number) for number in numbers)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(content)) + content


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())


def _varint(value: int) -> bytes:
    """Seven bits per byte, the lowest first; negative numbers as 64 bits."""
    # Protobuf writes a negative number as its 64-bit two's complement.
    rest = value % (1 << 64)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


# --------------------------------------------------------------------------------------------------------------- reading


def decode(content: bytes) -> dict[str, Any]:
    """What a message says, in the form of JSON files.

    Raises:
        SporaxValueError: it is no such message.
    """
    with _explained("strategies"):
        strategies: dict[str, Any] = {}
        for item in _all(content, 2):
            entry = _one(item, 2)
            counts = [list(_all(tensor, 1)) for tensor in _all(entry, 2)]
            strategies[_one(item, 1).decode()] = {"parallel_strategy": counts, "stage": _one(entry, 1)}
        layouts = {_one(item, 1).decode(): _decoded_layout(_one(item, 2)) for item in _all(content, 3)}
        stage = next(_all(content, 1), 0)
        return {"current_stage": stage, "parallel_strategy_item": strategies, "parallel_layout_item": layouts}
    raise AssertionError  # the block above returns or raises


def decode_groups(content: bytes) -> tuple[dict[str, list[int]], list[int]]:
    """The ranks of each group by its name, and the ranks with the same weights: what `encode_groups` wrote.

    Raises:
        SporaxValueError: it is no such message.
    """
    with _explained("groups"):
        groups = {_one(item, 1).decode(): list(_all(_one(item, 2), 1)) for item in _all(content, 1)}
        return groups, [int(rank) for rank in _all(_one(content, 2), 1)]
    raise AssertionError  # the block above returns or raises


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, IndexError, RuntimeError, StopIteration, TypeError, ValueError) as error:
        # Reading a broken message can fail in each of these ways, and all mean the same to the user.
        raise SporaxValueError(f"it is no message of {what}: {error!r}") from None


def _decoded_layout(content: bytes) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "dev_matrix": list(_all(_one(content, 1), 1)),
        "tensor_map": [_signed(axis) for axis in _all(_one(content, 2), 1)],
        "field": _signed(_one(content, 5)),
        "opt_weight_shard_step": _signed(_one(content, 6)),
        "opt_weight_shard_size": _signed(_one(content, 7)),
    }
    for field, key in ((3, "param_split_shape"), (4, "indices_offset")):
        numbers = [_signed(number) for entry in _all(content, field) for number in _all(entry, 1)]
        if numbers:
            layout[key] = numbers
    return layout


def _signed(number: int) -> int:
    # The reverse of how protobuf writes negative numbers.
    return number - (1 << 64) if number >= 1 << 63 else number


def _all(content: Any, field: int) -> Iterator[Any]:
    return (value for number, value in _fields(content) if number == field)


def _one(content: Any, field: int) -> Any:
    return next(_all(content, field))


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    place = 0
    while place < len(content):
        key, place = _read(content, place)
        # After a field of bytes comes their length, after a number the number: both are varints.
        value, place = _read(content, place)
        if key & 7 == _BYTES:
            if place + value > len(content):
                raise ValueError(f"{value} bytes announced, {len(content) - place} left")
            yield key >> 3, content[place : place + value]
            place += value
        elif key & 7 == _VARINT:
            yield key >> 3, value
        else:
            # MindSpore's messages use no other kinds.
            raise ValueError(f"kind {key & 7} of a field")


def _read(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
