"""Strategy files of a planned step: how Parameters are, and how operators are sharded, saved and taken up again.

Two files, with the field names of MindSpore's:

    strategy_ckpt_save_file   parallel_layout_item     Parameter -> device matrix, tensor map, whole shape, optimizer shard
                              parallel_strategy_item   "MatMul_fc1.weight" -> strategy, of operators that read a Parameter
    op_strategy_save_file     parallel_strategy_item   "Net.fc1.matmul/MatMul-op0" -> strategy, of all operators

A third one, ``group_ckpt_save_file``, says which ranks hold the same weights, always as a message of MindSpore's.

A name that ends in ``.json`` makes a JSON file, another one MindSpore's protobuf message (`protobuf`; operators by
place are always in JSON). A file holds what all steps of a process had to say: gradients and the optimizer may be steps of
their own. Every process writes its own, whole or not at all.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from sporax.base import MalformedError, atomic_write, convert, decode
from sporax.base.errors import SporaxValueError
from sporax.ir import OperatorGraph, OperatorMark, Shardings, variables
from sporax.ir.config import ParallelConfig, PlanSettings
from sporax.mindspore.context._strategy_files import documents, protobuf
from sporax.mindspore.context._strategy_files.layouts import (
    ParameterLayout,
    PlacedStep,
    parameter_layouts,
    ranks_with_same_slices,
    refuse_stages,
)

LAYOUTS, STRATEGIES = "parallel_layout_item", "parallel_strategy_item"

_written: dict[str, dict[str, Any]] = {}
"""What this process has written to each file so far."""


class SavedStep(PlacedStep, Protocol):
    """A planned step whose strategies are saved (`planned.PlannedStep`)."""

    @property
    def settings(self) -> PlanSettings:
        """What it was planned under."""


def save(step: SavedStep, keeps: Callable[[OperatorMark], bool]) -> None:
    """Write the files that the step's settings name.

    Args:
        step: the step.
        keeps: whether its plan had to keep the user's strategy of an operator.

    Raises:
        OSError: a file cannot be written.
    """
    config = step.settings.parallel
    # Steps without trained Parameters (evaluation) say nothing about who holds which weight.
    trained = {argument.name for argument in step.arguments if argument.trainable}
    groups = config.group_ckpt_save_file or variables.read(os.environ, "GROUP_INFO_FILE")
    if groups and trained:
        _write_bytes(groups, _groups(step))
    operators, weights = config.op_strategy_save_file, config.strategy_ckpt_save_file
    if not operators and not weights:
        return
    by_place, by_weight = {}, {}
    for entrance in documents.entrances(step.graph, step.plan):
        strategy = documents.planned_strategy(entrance, step.plan.mesh, keeps)
        if strategy is not None:
            by_place[entrance.name] = documents.strategy_to_json(strategy)
            by_weight[entrance.weight_name] = by_place[entrance.name]
    # Operators that read no Parameter have no name by weight.
    by_weight.pop("", None)
    if operators:
        _write(operators, {STRATEGIES: by_place})
    if weights:
        only_trained = config.strategy_ckpt_only_trainable_params
        layouts = {
            name: layout_to_json(layout)
            for name, layout in parameter_layouts(step).items()
            if name in trained or not only_trained
        }
        _write(weights, {LAYOUTS: layouts, STRATEGIES: by_weight})


def by_operator(step: SavedStep) -> dict[str, list[list[int]]]:
    """Numbers of slices of a step's operators, empty where none shards it, by names such as ``"Default/network.fc/MatMul-op0"``.

    As in MindSpore, the class of the outermost Cell is left out, and equal operators are counted over the step.

    Raises:
        SporaxRuntimeError: it has several pipeline stages.
    """
    refuse_stages("_get_shard_strategy", "strategies", step)
    counts: Counter[str] = Counter()
    found = {}
    for entrance in documents.entrances(step.graph, step.plan):
        strategy = documents.planned_strategy(entrance, step.plan.mesh, lambda mark: True) or ()
        place = "/".join(filter(None, ("Default", entrance.mark.path.partition(".")[2], entrance.mark.operator)))
        found[f"{place}-op{counts[entrance.mark.operator]}"] = documents.strategy_to_json(strategy)["parallel_strategy"]
        counts[entrance.mark.operator] += 1
    return found


def layout_to_json(layout: ParameterLayout) -> dict[str, Any]:
    """The sharding of one Parameter.

    ``opt_weight_shard_size`` is the number of ranks that share a slice in optimizer parallelism, 0 where none do, and
    ``opt_weight_shard_step`` is how far apart they are.
    """
    members = _ranks(layout.opt_shard_group)
    return {
        "dev_matrix": _readable(layout.device_matrix, layout.tensor_map, bool(members)),
        "tensor_map": list(layout.tensor_map),
        "tensor_shape": list(layout.full_shape),
        "field": layout.field_size,
        "opt_weight_shard_size": len(members),
        "opt_weight_shard_step": members[1] - members[0] if len(members) > 1 else 0,
        **({"param_split_shape": list(layout.split_rows)} if layout.split_rows else {}),
    }


def _readable(matrix: Sequence[int], tensor_map: Sequence[int | tuple[int, ...]], is_shared: bool) -> list[int]:
    """A device matrix with which MindSpore's tools read a tensor map correctly.

    Where ranks share slices in optimizer parallelism and the first axis is the only one that shards nothing else, its tools take
    the map to be in the order of the matrix. Behind an axis of one device the same axis is not the first one.
    """
    plain = [dim for dim in tensor_map if dim != -1]
    numbers = [dim for dim in plain if isinstance(dim, int)]
    if is_shared and len(numbers) == len(plain) and numbers != sorted(numbers, reverse=True):
        unused = [axis for axis, size in enumerate(matrix) if size > 1 and len(matrix) - 1 - axis not in numbers]
        if unused == [0]:
            return [1, *matrix]
    return list(matrix)


def _write(path: str, items: Mapping[str, Mapping[str, Any]]) -> None:
    # Gradients and the optimizer may be separate steps, which add to one file.
    content = _written.setdefault(os.path.abspath(path), {"current_stage": 0})
    for kind, entries in items.items():
        content.setdefault(kind, {}).update(entries)
    _write_bytes(path, _as_json(content) if path.endswith(".json") else _as_message(content, path))


def _write_bytes(path: str, content: bytes) -> None:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Another process, or a killed run, must never see half a file.
    with atomic_write(target) as file:
        file.write(content)


def _groups(step: SavedStep) -> bytes:
    """Which ranks share slices in optimizer parallelism, and which hold the same slices of all Parameters as this one."""
    trained = {argument.name for argument in step.arguments if argument.trainable}
    layouts = {name: layout for name, layout in parameter_layouts(step).items() if name in trained}
    # Many Parameters share a group; a dict keeps the first of each and the order.
    names = dict.fromkeys(layout.opt_shard_group for layout in layouts.values() if layout.opt_shard_group)
    return protobuf.encode_groups({name: _ranks(name) for name in names}, ranks_with_same_slices(step))


def _ranks(group: str) -> list[int]:
    """The ranks in a name like ``"2-0-4"``, which begins with their number."""
    return [int(rank) for rank in group.split("-")[1:]]


def _as_json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def _as_message(content: Mapping[str, Any], path: str) -> bytes:
    lost = [name for name, entry in content.get(STRATEGIES, {}).items() if "parallel_layouts" in entry]
    # The message has only numbers of slices, so a Layout would be lost without notice.
    if lost:
        warnings.warn(
            f"For 'strategy_ckpt_save_file', '{path}' has numbers of slices only, without the Layouts of "
            f"{', '.join(lost)}: a file that ends in '.json' keeps them.",
            stacklevel=2,
        )
    return protobuf.encode(content)


class StrategyFile(Struct, frozen=True):
    """A strategy file with MindSpore's names; layouts and strategies are checked one by one by their readers."""

    parallel_layout_item: dict[str, Any] | None = None
    parallel_strategy_item: dict[str, Any] | None = None
    current_stage: int = 0

    def __post_init__(self) -> None:
        if self.parallel_layout_item is None and self.parallel_strategy_item is None:
            raise ValueError(f"has neither '{LAYOUTS}' nor '{STRATEGIES}'")


def read_strategy_file(path: str) -> StrategyFile:
    """A strategy file: JSON where its name ends in ``.json``, else MindSpore's message.

    Raises:
        MalformedError, SporaxValueError: it is none.
        OSError: it cannot be read.
    """
    content = Path(path).read_bytes()
    if path.endswith(".json"):
        return decode(content, StrategyFile)
    return convert(protobuf.decode(content), StrategyFile)


def loaded(graph: OperatorGraph, config: ParallelConfig) -> dict[int, Shardings]:
    """The strategies that the settings' files have for operators of a step, by number of the call.

    Raises:
        SporaxValueError: a file is missing, or no strategy file.
    """
    by_place = _read("op_strategy_load_file", config.op_strategy_load_file)
    by_weight = _read("strategy_ckpt_load_file", config.strategy_ckpt_load_file)
    if not by_place and not by_weight:
        return {}
    strategies = documents.chosen(graph, by_place, by_weight)
    # Nothing fits: more likely the file of another network than a network without strategies.
    if not strategies and documents.entrances(graph):
        files = " and ".join(filter(None, (config.op_strategy_load_file, config.strategy_ckpt_load_file)))
        warnings.warn(
            f"For 'strategy_ckpt_load_file', no operator of this step has a strategy in {files}; it was saved by another "
            "program.",
            stacklevel=2,
        )
    return strategies


def _read(key: str, path: str) -> dict[str, Shardings]:
    if not path:
        return {}
    try:
        entries = read_strategy_file(path).parallel_strategy_item or {}
    except FileNotFoundError:
        raise SporaxValueError(f"For '{key}', the file must exist, but got '{path}'.") from None
    except (MalformedError, ValueError) as error:
        raise SporaxValueError(f"For '{key}', '{path}' must be a strategy file, but got: {error}.") from None
    return {name: documents.strategy_from_json(entry, path) for name, entry in entries.items()}
