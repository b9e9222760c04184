"""Strategy files in MindSpore's own format: one protobuf message.

    ParallelStrategyMap   1 current_stage, 2 operators: {1 name, 2 {1 stage, 2 tensors: {1 slices}}},
                          3 Parameters: {1 name, 2 {1 {1 device matrix}, 2 {1 tensor map}, 3 {1 rows of uneven slices},
                          4 {1 their offsets}, 5 field,
                          6 opt_weight_shard_step, 7 opt_weight_shard_size, 15 {1 whole shape: not MindSpore's}}}
    ParallelGroupMap      1 groups: {1 name, 2 {1 ranks}}, 2 {1 ranks with the same weights}

In memory they look like those in JSON (`files`). The format knows numbers of slices but no Layouts, and one axis
per entry of a tensor map: a dimension that several axes shard has an entry for each, as in MindSpore.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sporax.base.errors import SporaxValueError
from sporax.mindspore._protobuf import fields, message, number, signed


def encode(content: Mapping[str, Any]) -> bytes:
    """The message for what a file says."""
    strategies = content.get("parallel_strategy_item", {}).items()
    layouts = content.get("parallel_layout_item", {}).items()
    return b"".join(
        (
            number(1, content["current_stage"]),
            *(message(2, _text(1, name) + message(2, _strategy(entry))) for name, entry in strategies),
            *(message(3, _text(1, name) + message(2, _layout(entry))) for name, entry in layouts),
        )
    )


def encode_groups(groups: Mapping[str, Sequence[int]], ranks_of_weights: Sequence[int]) -> bytes:
    """The message for which ranks work together.

    Args:
        groups: ranks of each group, by its name.
        ranks_of_weights: ranks that hold the same weights as this one, itself included.
    """
    items = (message(1, _text(1, name) + message(2, _dims(ranks))) for name, ranks in groups.items())
    return b"".join(items) + message(2, _dims(ranks_of_weights))


def _strategy(entry: Mapping[str, Any]) -> bytes:
    return number(1, entry["stage"]) + b"".join(message(2, _dims(counts)) for counts in entry["parallel_strategy"])


def _layout(entry: Mapping[str, Any]) -> bytes:
    axes = [axis for dim in entry["tensor_map"] for axis in (dim if isinstance(dim, list | tuple) else (dim,))]
    # In the order of MindSpore's numbers for these fields.
    numbers = ((5, "field"), (6, "opt_weight_shard_step"), (7, "opt_weight_shard_size"))
    parts = (
        message(1, _dims(entry["dev_matrix"])),
        message(2, _dims(axes)),
        message(3, _dims(entry.get("param_split_shape", ()))),
        message(4, _dims(entry.get("indices_offset", ()))),
    )
    shape = message(15, _dims(entry["tensor_shape"])) if entry.get("tensor_shape") else b""
    return b"".join(parts) + b"".join(number(field, entry[key]) for field, key in numbers) + shape


def _dims(numbers: Iterable[int]) -> bytes:
    return b"".join(number(1, value) for value in numbers)


def _text(field: int, value: str) -> bytes:
    return message(field, value.encode())


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
        "tensor_map": [signed(axis) for axis in _all(_one(content, 2), 1)],
        "field": signed(_one(content, 5)),
        "opt_weight_shard_step": signed(_one(content, 6)),
        "opt_weight_shard_size": signed(_one(content, 7)),
    }
    for field, key in ((3, "param_split_shape"), (4, "indices_offset"), (15, "tensor_shape")):
        numbers = [signed(number) for entry in _all(content, field) for number in _all(entry, 1)]
        if numbers:
            layout[key] = numbers
    return layout


def _all(content: Any, field: int) -> Iterator[Any]:
    return (value for number, value in fields(content) if number == field)


def _one(content: Any, field: int) -> Any:
    return next(_all(content, field))
