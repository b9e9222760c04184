"""Settings that are dicts or tuples themselves: what may be in them, and how they become fields of a `ParallelConfig`."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

from sporax.base.errors import SporaxKeyError, SporaxTypeError, SporaxValueError
from sporax.ir.config.parallel_config import OPTIMIZER_LEVELS, PIPELINE_SCHEDULERS, ParallelConfig
from sporax.ir.layout import HasLayout
from sporax.mindspore.context._settings import Check, kind, number, one_of

_SET = "set_auto_parallel_context"


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
            raise SporaxValueError(
                f"For '{function}', a Layout in 'dataset_strategy' must not use 'interleaved_parallel', but got {value}."
            )
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
    kind(int)(_SET, "optimizer_weight_shard_size", value)
    if value <= 1 and value != -1:
        warnings.warn(
            # MindSpore ignores such a number, too.
            f"For '{_SET}', 'optimizer_weight_shard_size' must be larger than 1 to have a meaning; {value} is ignored.",
            stacklevel=6,
        )
        return config
    return dataclasses.replace(config, optimizer_weight_shard_size=value)


def set_optimizer_config(config: ParallelConfig, value: Any) -> ParallelConfig:
    """``parallel_optimizer_config``: any of its keys; the others stay."""
    changes = _checked_dict("parallel_optimizer_config", value, _OPTIMIZER)
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
        if key not in checks:
            raise SporaxValueError(f"For '{_SET}', the keys of '{name}' must be among {[*checks]}, but got {key!r}.")
    return {key: checks[key](_SET, f"{key} in {name}", setting) for key, setting in value.items()}


def _all_or_a_number(function: str, key: str, value: Any) -> Any:
    # -1 stands for all ranks.
    return value if value == -1 else number(1)(function, key, value)


_STRATEGY_FILES: dict[str, Check] = {
    "load_file": kind(str),
    "save_file": kind(str),
    "only_trainable_params": kind(bool),
}
_PIPELINE: dict[str, Check] = {
    "pipeline_interleave": kind(bool),
    "pipeline_scheduler": one_of(*PIPELINE_SCHEDULERS, type_error=False),
}
_OPTIMIZER: dict[str, Check] = {
    "gradient_accumulation_shard": kind(bool),
    "parallel_optimizer_threshold": number(0),
    "optimizer_weight_shard_size": _all_or_a_number,
    "optimizer_level": one_of(*OPTIMIZER_LEVELS, type_error=False),
}
