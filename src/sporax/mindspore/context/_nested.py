"""Settings that are dicts or tuples themselves: what may be in them, and how they become fields of a `ParallelConfig`.

A step gets all of its inputs from one data set, so the slices of a `dataset_strategy` in tuples must belong to the same rows of a
batch: `check_inputs` tests MindSpore's conditions, one after another, before anything is planned; the engine itself reads the
entries one by one (`sporax.planner.pins.data_placement`).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from sporax.base.errors import For, SporaxKeyError, SporaxRuntimeError, SporaxTypeError, SporaxValueError, named
from sporax.ir import HasLayout, Layout, Shape, Strategy, strategy_text
from sporax.ir.config import OPTIMIZER_LEVELS, PIPELINE_SCHEDULERS, CommFusion, FusionRule, ParallelConfig
from sporax.mindspore.context._settings import Check, kind, number, one_of

_SET = "set_auto_parallel_context"
_SHARD_SIZE = "optimizer_weight_shard_size"


def check_dataset_strategy(function: str, value: Any) -> tuple[Any, tuple[Any, ...] | None]:
    """The dataset strategy for the config, and the Layouts it was given in (None when it was not).

    Raises:
        SporaxTypeError: neither a string nor a tuple; entries that are neither tuples of ints nor Layouts, or both mixed.
        SporaxValueError: an unknown string; a Layout without tensor map, or with interleaved_parallel.
    """
    if isinstance(value, str):
        return one_of("full_batch", "data_parallel")(function, "dataset_strategy", value), None
    kind(str, tuple)(function, "dataset_strategy", value)
    if value and all(isinstance(entry, HasLayout) for entry in value):
        # Layouts are kept as they were given, since `get_auto_parallel_context` returns them.
        layouts = tuple(entry.__layout__() for entry in value)
        if any(layout.device_matrix.interleaved for layout in layouts):
            raise For(function).error("a Layout in 'dataset_strategy' must not use 'interleaved_parallel'", value)
        return layouts, value
    for entry in value:
        if not isinstance(entry, tuple):
            raise SporaxTypeError(
                f"For '{function}', the entries of 'dataset_strategy' must be all tuples or all Layouts, but got {entry!r}."
            )
        for count in entry:
            kind(int)(function, "a sharding in dataset_strategy", count)
            number(1)(function, "a sharding in dataset_strategy", count)
    return value, None


def as_lists(strategy: Any) -> Any:
    """What `get_auto_parallel_context("dataset_strategy")` gives of texts and of tuples of ints."""
    return strategy if isinstance(strategy, str) else [list(entry) for entry in strategy]


def set_strategy_files(config: ParallelConfig, value: Any) -> ParallelConfig:
    """``strategy_ckpt_config``: any of the files and the flag; the others stay."""
    checked = _checked_dict("strategy_ckpt_config", value, _STRATEGY_FILES)
    return dataclasses.replace(config, **{f"strategy_ckpt_{key}": setting for key, setting in checked.items()})


def set_pipeline_config(config: ParallelConfig, value: Any) -> ParallelConfig:
    """``pipeline_config``: both keys; another scheduler than 1f1b needs interleaving."""
    checked = _checked_dict("pipeline_config", value, _PIPELINE)
    for key in _PIPELINE:
        if key not in checked:
            raise SporaxKeyError(
                f"For '{_SET}', 'pipeline_config' must have the keys {[*_PIPELINE]}, '{key}' is missing."
            )
    # Other schedules need several chunks per stage.
    if not checked["pipeline_interleave"] and checked["pipeline_scheduler"] != "1f1b":
        raise SporaxTypeError(
            f"For '{_SET}', 'pipeline_scheduler' must be '1f1b' when 'pipeline_interleave' is False, but got "
            f"'{checked['pipeline_scheduler']}'."
        )
    return dataclasses.replace(config, **checked)


def set_shard_size(config: ParallelConfig, value: Any) -> ParallelConfig:
    """``optimizer_weight_shard_size``: more than 1, or -1 for all ranks; other numbers are ignored with a warning."""
    kind(int)(_SET, _SHARD_SIZE, value)
    if value <= 1 and value != -1:
        warnings.warn(
            # MindSpore ignores such a number, too.
            f"For '{_SET}', '{_SHARD_SIZE}' must be larger than 1 to have a meaning; {value} is ignored.",
            stacklevel=6,
        )
        return config
    return dataclasses.replace(config, optimizer_weight_shard_size=value)


def set_optimizer_config(config: ParallelConfig, value: Any) -> ParallelConfig:
    """``parallel_optimizer_config``: any of its keys; the others stay."""
    changes = _checked_dict("parallel_optimizer_config", value, _OPTIMIZER)
    if _SHARD_SIZE in changes:
        config = set_shard_size(config, changes.pop(_SHARD_SIZE))
    return _consistent_level(dataclasses.replace(config, **changes), changes)


def _consistent_level(config: ParallelConfig, changes: Mapping[str, Any]) -> ParallelConfig:
    """Level 2 shards accumulated gradients, the others must not; the flag stays from one call to the next."""
    # Only an explicit level is checked: the flag alone may be set before it.
    if changes.get("optimizer_level") == "level2":
        return dataclasses.replace(config, gradient_accumulation_shard=True)
    if "optimizer_level" in changes and config.gradient_accumulation_shard:
        raise SporaxValueError(
            f"For '{_SET}', 'optimizer_level' must be 'level2' while 'gradient_accumulation_shard' is True, but got "
            f"'{config.optimizer_level}'. Set 'gradient_accumulation_shard' to False with it."
        )
    return config


def _checked_dict(name: str, value: Any, checks: Mapping[str, Check]) -> dict[str, Any]:
    kind(dict)(_SET, name, value)
    for key in value:
        For(_SET).refuse(key not in checks, f"the keys of '{name}' must be among {[*checks]}", key, show=repr)
    return {key: checks[key](_SET, f"{key} in {name}", setting) for key, setting in value.items()}


def _all_or_a_number(function: str, key: str, value: Any) -> Any:
    # -1 stands for all ranks.
    return value if value == -1 else number(1)(function, key, value)


_STRATEGY_FILES = {"load_file": kind(str), "save_file": kind(str), "only_trainable_params": kind(bool)}
_PIPELINE: dict[str, Check] = {
    "pipeline_interleave": kind(bool),
    "pipeline_scheduler": one_of(*PIPELINE_SCHEDULERS, type_error=False),
}
_OPTIMIZER: dict[str, Check] = {
    "gradient_accumulation_shard": kind(bool),
    "parallel_optimizer_threshold": number(0),
    _SHARD_SIZE: _all_or_a_number,
    "optimizer_level": one_of(*OPTIMIZER_LEVELS, type_error=False),
}


_MODES = {"allreduce": ("auto", "size", "index"), "allgather": ("auto", "size"), "reducescatter": ("auto", "size")}


def set_comm_fusion(config: ParallelConfig, value: Any, function: str = "set_auto_parallel_context") -> ParallelConfig:
    """`config` with the rules of the dict `value`; kinds it does not name keep theirs. Without 'openstate', fusion is open.

    Raises:
        SporaxTypeError: something that must be a dict, bool, int or list is not.
        SporaxKeyError: unknown collective or mode, or a rule without 'mode' or 'config'.
        SporaxValueError: a negative size, or positions that are empty, repeated or not ascending.
    """
    _require(function, "comm_fusion", value, dict)
    # MindSpore opens fusion as soon as a rule is given.
    changes: dict[str, Any] = {"openstate": True}
    for collective, setting in value.items():
        if collective == "openstate":
            changes[collective] = _require(function, "comm_fusion['openstate']", setting, bool)
        elif collective in _MODES:
            changes[collective] = _rule(function, collective, setting)
        else:
            raise SporaxKeyError(
                f"For '{function}', the keys of 'comm_fusion' are {['openstate', *_MODES]}, but got {collective!r}."
            )
    changed = dataclasses.replace(config, comm_fusion=dataclasses.replace(config.comm_fusion, **changes))
    # The positions are also a setting of their own, as in MindSpore.
    positions = changed.comm_fusion.allreduce.config
    if "allreduce" in changes and isinstance(positions, tuple):
        changed = dataclasses.replace(changed, all_reduce_fusion_config=positions)
    return changed


def as_dict(fusion: CommFusion) -> dict[str, Any]:
    """The dict that `get_auto_parallel_context("comm_fusion")` gives."""
    rules = {collective: getattr(fusion, collective) for collective in _MODES}
    return {"openstate": fusion.openstate} | {
        # Lists, as the user gave them: the config holds tuples so that it can be hashed.
        collective: {"mode": rule.mode, "config": list(rule.config) if isinstance(rule.config, tuple) else rule.config}
        for collective, rule in rules.items()
    }


def check_positions(function: str, key: str, value: Any) -> tuple[int, ...]:
    """Positions at which AllReduce is split: a list of ints >= 0, ascending, not empty.

    Raises:
        SporaxTypeError: not a list of ints.
        SporaxValueError: empty, negative, repeated or not ascending.
    """
    _require(function, key, value, list)
    for position in value:
        _require(function, f"an element of {key}", position, int)
    # `strict=False`: the second list is one shorter by design.
    if not value or value[0] < 0 or any(b <= a for a, b in zip(value, value[1:], strict=False)):
        raise For(function).error(f"{named(key)} must be a list of ascending positions >= 0, not empty", value)
    return tuple(value)


def check_sizes(function: str, key: str, value: Any) -> tuple[int, ...]:
    """Sizes in bytes at which AllReduce is split: a list of ints above 0.

    Raises:
        SporaxTypeError: not a list of ints.
        SporaxValueError: a size that is not above 0.
    """
    _require(function, key, value, list)
    sizes = tuple(_require(function, f"an element of {key}", size, int) for size in value)
    For(function).refuse(any(size <= 0 for size in sizes), f"'{key}' must be a list of sizes above 0", value)
    return sizes


def _rule(function: str, collective: str, setting: Any) -> FusionRule:
    name = f"comm_fusion['{collective}']"
    _require(function, name, setting, dict)
    for key in ("mode", "config"):
        if key not in setting:
            raise SporaxKeyError(
                f"For '{function}', '{name}' must have the keys 'mode' and 'config', '{key}' is missing."
            )
    if extra := setting.keys() - {"mode", "config"}:
        warnings.warn(
            # The line that called set_auto_parallel_context.
            f"For '{function}', the keys {sorted(map(str, extra))} of '{name}' have no meaning.",
            stacklevel=7,
        )
    mode, value = setting["mode"], setting["config"]
    For(function).one_of(f"the mode of '{name}'", mode, _MODES[collective], kind=SporaxKeyError)
    if mode == "auto":
        # "auto" takes its size from the system; what 'config' says has no meaning then.
        return FusionRule(configured=True)
    if mode == "index":
        return FusionRule("index", check_positions(function, f"{name}['config']", value), configured=True)
    if _require(function, f"{name}['config']", value, int) < 0:
        raise For(function).error(f"'{name}['config']' is a size in MB and must be >= 0, but got {value}")
    return FusionRule("size", value, configured=True)


def _require(function: str, what: str, value: Any, kind: type) -> Any:
    # bool is an int in Python, but no size or position.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise SporaxTypeError(f"For '{function}', {what} must be {kind.__name__}, but got {type(value).__name__}.")
    return value


Entry = tuple[int, ...] | Layout

_WHERE = "dataset_strategy"


def check_inputs(config: ParallelConfig, shapes: Sequence[Shape], num_devices: int) -> None:
    """Check `dataset_strategy` against the inputs of a step, where it has an entry for each (`Session.input_checks`).

    Raises:
        SporaxRuntimeError: as `check_input_shardings`.
    """
    if not isinstance(config.dataset_strategy, str):
        check_input_shardings(config.dataset_strategy, shapes, num_devices)


def check_input_shardings(strategy: Sequence[Entry], shapes: Sequence[Shape], num_devices: int) -> None:
    """Check one entry per input. Layouts, and tuples that shard several dimensions, lift all limits on what belongs together.

    Args:
        strategy: the entries.
        shapes: of the inputs, over all ranks.
        num_devices: of one stage.

    Raises:
        SporaxRuntimeError: another number of entries or dimensions, a sharding that does not divide, inputs in different numbers
            of slices, or a sharded input next to a whole one with more dimensions.
    """
    if len(strategy) != len(shapes):
        raise SporaxRuntimeError(
            f"For '{_WHERE}', there must be one entry for each of the {len(shapes)} inputs, but got {len(strategy)}: "
            f"{strategy_text(strategy)}."
        )
    tuples = tuple(entry for entry in strategy if not isinstance(entry, Layout))
    # Layouts may shard as they like: their slices need not be of the batch.
    if len(tuples) != len(strategy):
        return
    Strategy(tuples).check(_WHERE, list(shapes), num_devices)
    # Slices of images over height and width are no rows of a batch, so they say nothing of the other inputs.
    if any(sum(slices > 1 for slices in entry) > 1 for entry in tuples):
        return
    counts = {number: max(entry) for number, entry in enumerate(tuples) if any(slices > 1 for slices in entry)}
    if len(set(counts.values())) > 1:
        raise SporaxRuntimeError(
            f"For '{_WHERE}', all inputs that are sharded must have one number of slices, but got "
            f"{' and '.join(map(str, sorted(set(counts.values()))))} in {strategy}."
        )
    # The largest input decides the batch; if it is whole, a sharded one has rows of another batch.
    rank = max(map(len, shapes), default=0)
    if counts and not any(len(shapes[number]) == rank for number in counts):
        raise SporaxRuntimeError(
            f"For '{_WHERE}', an input with most dimensions ({rank}) must be sharded if any is, but only inputs "
            f"{sorted(counts)} are: {strategy}."
        )
