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
    """Matrix, tensor map, shape and rank; a second layout of the same tensor; step and size of an optimizer's sharding."""
    draw = random.Random(45)
    made = []
    for number in range(NUM_CASES):
        num_ranks, num_dims, nested = draw.choice(RANKS), draw.choice([1, 2, 2, 3]), number % 3 == 0
        matrix, new_matrix = _matrix(draw, num_ranks), _matrix(draw, num_ranks)
        shape = [draw.choice([num_ranks, 2 * num_ranks]) for _ in range(num_dims)]
        entries = _tensor_map(draw, len(matrix), num_dims, nested)
        used = [axis for entry in entries for axis in (entry if isinstance(entry, list) else [entry])]
        repeated = [axis for axis in range(len(matrix)) if axis not in used]
        made.append(
            {
                "from": [matrix, entries, shape],
                "to": [new_matrix, _tensor_map(draw, len(new_matrix), num_dims, nested), shape],
                "rank": draw.randrange(num_ranks),
                "nested": nested,
                "opt": [int(np.prod(matrix[len(matrix) - repeated[0] :])), matrix[-repeated[0] - 1]]
                if repeated
                else [0, 0],
            }
        )
    return made


def record(tools: ModuleType) -> list[dict[str, Any]]:
    """The answers to `cases`."""
    answers = []
    for case in cases():
        matrix, entries, shape = case["from"]
        strategy = tools._get_tensor_strategy(matrix, entries)
        answer: dict[str, Any] = {
            "strategy": strategy,
            "expanded": tools._expand_layout(matrix, entries, shape),
            "item": tools._extract_layout_item([matrix, entries, shape, 0, 1, -1]),
            "opt": tools._construct_tensor_layout_for_opt_shard_by_layout(matrix, entries, *case["opt"], shape),
            "pair": tools._construct_from_to_tensor_layout(shape, [2, *matrix], entries, shape, *case["to"][:2]),
            "spans": tools._chunk_shape_by_strategy(shape, strategy)[-2:],
        }
        ranks = list(range(int(np.prod(matrix))))
        if not case["nested"]:
            pair = tuple(map(tuple, case["from"])), tuple(map(tuple, case["to"]))
            answer["indices"] = [tools._get_tensor_slice_index(matrix, strategy, entries, rank) for rank in ranks]
            answer["part"] = tools._load_tensor_shape(matrix, entries, shape, case["rank"])
            answer["needed"] = tools._get_needed_rank_list_by_layouts(*pair, ranks, case["rank"])
        stages = [matrix, entries, shape, ranks], [matrix, entries, shape, list(range(3 * len(ranks)))]
        answer["merged"] = tools._get_pipeline_operator_map(*stages, case["rank"])
        answers.append(plain(answer))
    return answers
