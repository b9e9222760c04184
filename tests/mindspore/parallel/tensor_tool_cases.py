"""Drawn layouts for the tools of `mindspore.parallel._tensor`, and what a module of these tools answers."""

import random
from types import ModuleType
from typing import Any

import numpy as np

NUM_CASES = 80
RANKS = (4, 8, 8, 12, 16)


def plain(value: Any) -> Any:
    """As JSON reads it back."""
    if isinstance(value, dict):
        return {str(key): plain(member) for key, member in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    if isinstance(value, slice):
        return [value.start, value.stop]
    return int(value) if isinstance(value, np.number | float) else value


def _matrix(draw: random.Random, left: int) -> list[int]:
    sizes = []
    while left > 1:
        size = left if draw.random() < 0.3 else draw.choice([size for size in (2, 3, 4, 8) if left % size == 0])
        sizes.append(size)
        left //= size
    return sizes


def _tensor_map(draw: random.Random, num_axes: int, num_dims: int, nested: bool) -> list[Any]:
    axes = draw.sample(range(num_axes), num_axes)
    entries: list[Any] = []
    for _ in range(num_dims):
        if axes and draw.random() < 0.6:
            entries.append([axes.pop(), axes.pop()] if nested and len(axes) > 1 else axes.pop())
        else:
            entries.append(-1)
    return entries


def cases() -> list[dict[str, Any]]:
    """Matrix, tensor map, shape and rank."""
    draw = random.Random(45)
    made = []
    for number in range(NUM_CASES):
        num_ranks, num_dims, nested = draw.choice(RANKS), draw.choice([1, 2, 2, 3]), number % 3 == 0
        matrix = _matrix(draw, num_ranks)
        shape = [draw.choice([num_ranks, 2 * num_ranks]) for _ in range(num_dims)]
        entries = _tensor_map(draw, len(matrix), num_dims, nested)
        made.append({"layout": [matrix, entries, shape], "rank": draw.randrange(num_ranks), "nested": nested})
    return made


def record(tools: ModuleType) -> list[dict[str, Any]]:
    """The answers to `cases`."""
    answers = []
    for case in cases():
        matrix, entries, shape = case["layout"]
        strategy = tools._get_tensor_strategy(matrix, entries)
        answer: dict[str, Any] = {"strategy": strategy, "spans": tools._chunk_shape_by_strategy(shape, strategy)[-2:]}
        ranks = range(int(np.prod(matrix)))
        # The wheel has no slices of dimensions that several axes shard.
        if not case["nested"]:
            answer["indices"] = [tools._get_tensor_slice_index(matrix, strategy, entries, rank) for rank in ranks]
            answer["part"] = tools._load_tensor_shape(matrix, entries, shape, case["rank"])
        answers.append(plain(answer))
    return answers
