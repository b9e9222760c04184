"""The auto-parallel context: `set_auto_parallel_context` and its relatives.

The present settings are one frozen `ParallelConfig`. Two things are kept next to it: whether the user gave the size of the
job and the rank (otherwise `communication.init` says them), and the dataset strategy in the form it was given in.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Unpack, get_type_hints

import jax

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.ir import PipelineSchedule
from sporax.ir.config import COMMUNI_PARALLEL_MODES, DEVICES, MAX_RANKS, ParallelConfig, ParallelMode
from sporax.mindspore.context import _nested as nested
from sporax.mindspore.context._settings import (
    Check,
    ParallelSettings,
    Reader,
    Setter,
    Settings,
    flag,
    kind,
    number,
    one_of,
    search_name,
    stored,
)
from sporax.runtime import world
from sporax.runtime.process import dry_run
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames

_SET = "set_auto_parallel_context"
_DEFAULT_SEARCH = ParallelConfig().search_mode


@dataclass(frozen=True, slots=True)
class _Context:
    """What the global context holds.

    Attributes:
        config: the settings.
        specified: names of the settings in `_NOTED` that the user gave; defaults of two of them depend on the job.
        layouts: the dataset strategy as the user gave it, when that was in Layouts.
    """

    config: ParallelConfig = dataclasses.field(default_factory=ParallelConfig)
    specified: frozenset[str] = frozenset()
    layouts: tuple[Any, ...] | None = None


def set_world(num_ranks: int, rank: int) -> None:
    """Say how large the job is and which rank this is; what the user set in the context wins over it."""
    For("set_world").refuse(not 0 <= rank < num_ranks, f"'rank' must be in [0, {num_ranks - 1}]", rank)
    SESSION.job = (num_ranks, rank)
    # Compiled steps check their settings again.
    frames.touch()


def world_size() -> int:
    """How many ranks the job has."""
    return SESSION.job[0]


def num_devices() -> int:
    """How many devices a step of the global view is sharded over: as the user said, else all that the job has."""
    # What the user said is taken even where it is not what JAX sees: plans are made for other machines.
    is_set = "device_num" in _settings.current.specified
    return _settings.current.config.device_num if is_set else max(SESSION.job[0], world.num_devices())


def gives_device_num() -> bool:
    """Whether the user has said how many devices there are."""
    return "device_num" in _settings.current.specified


def ranks_of_process() -> int:
    """For how many ranks of the job this process counts, whatever the mode: one for each of its devices."""
    if SESSION.world is None or world.num_feeders() == 1:
        return num_devices()
    return 1 if dry_run.active() else max(num_devices() // jax.process_count(), 1)


def _runs_by_rank() -> bool:
    """Whether each rank runs a step of its own batch."""
    return parallel_mode() in (ParallelMode.DATA_PARALLEL, ParallelMode.HYBRID_PARALLEL)


def _num_ranks_here() -> int:
    """For how many ranks the processes of a job act when they run a step: by rank one for each device.

    In the global view, as where all steps are planned, a step is one program of all devices: ranks have no parts of their own.
    """
    return num_devices() if _runs_by_rank() and not SESSION.plans_all else 1


def _sharded_over() -> int:
    """Over how many devices a step of the global view is sharded."""
    return num_devices() if snapshot().in_global_view else 1


SESSION.acts_for, SESSION.by_rank, SESSION.sharded_over = _num_ranks_here, _runs_by_rank, _sharded_over


def starts_from_first_rank() -> bool:
    """Whether training begins with rank 0's values on all ranks, by the present settings."""
    return _runs_by_rank() and _settings.current.config.parameter_broadcast and world.has_other_processes()


def snapshot() -> ParallelConfig:
    """The present settings, as a compiled step takes them; `device_num` and `global_rank` are those of the job."""
    return _resolved(_settings.current)


def parallel_mode() -> str:
    """The present parallel mode; quicker than a snapshot, for what is read at every call of a Cell."""
    return _settings.current.config.parallel_mode


def set_auto_parallel_context(**kwargs: Unpack[ParallelSettings]) -> None:
    """Change settings of the parallel run. Same as MindSpore, except that a call with a wrong setting changes nothing.

    Args:
        kwargs: settings by name; ``docs/parallel_context.md`` lists them with their meanings and defaults.

    Raises:
        SporaxValueError: unknown setting, or a value that is not allowed.
        SporaxTypeError: a value of the wrong type.
        SporaxKeyError: a key of a nested setting is missing or unknown.

    Example:
        >>> set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    """
    _settings.set({**kwargs})


def get_auto_parallel_context(attr_key: str) -> Any:
    """The present value of one setting.

    Raises:
        SporaxValueError: unknown setting, or one that can only be set (``pipeline_config``, ``parallel_optimizer_config``,
            ``pipeline_segments``, ``group_ckpt_save_file``).
    """
    return _settings.get(attr_key)


def reset_auto_parallel_context() -> None:
    """Bring all settings of the parallel run back to their defaults."""
    _settings.reset()


@contextmanager
def using(config: ParallelConfig) -> Iterator[None]:
    """Context in which `config` is the present setting. For code that is being traced: it makes no program stale."""
    before = _settings.current
    # As if the user had given both, so that the job's own numbers do not replace them.
    _settings.current = _Context(config, frozenset(("device_num", "global_rank")))
    try:
        yield
    finally:
        _settings.current = before


class _ParallelGuard:
    """What a compiled step remembers of the settings it was compiled under."""

    def fingerprint(self) -> Mapping[str, Hashable]:
        """The settings by name."""
        # By key, so that a message can name the setting that has changed.
        return snapshot().by_key()

    def describe(self) -> str:
        """What messages call it."""
        return "the auto-parallel context"


PARALLEL_GUARD = _ParallelGuard()


def changed(config: ParallelConfig, **settings: Any) -> ParallelConfig:
    """`config` with settings changed by the rules of `set_auto_parallel_context`, the global context untouched."""
    return _settings.changed(_Context(config), settings).config


def _resolved(context: _Context) -> ParallelConfig:
    num_ranks, rank = SESSION.job
    config = context.config
    devices = num_devices() if config.in_global_view else num_ranks * world.num_ranks_here()
    job: dict[str, Any] = {"device_num": devices, "global_rank": rank}
    missing = {name: value for name, value in job.items() if name not in context.specified}
    missing["has_reduce_scatter"] = world.has_reduce_scatter()
    # The same object where nothing is missing: it is compared at every step.
    if all(getattr(config, name) == value for name, value in missing.items()):
        return config
    return dataclasses.replace(config, **missing)


def _on_config(setter: Setter, *noted: str) -> Setter:
    """A setter of the ParallelConfig as one of the context; from then on the job's own number does not replace a noted one."""
    return lambda context, value: dataclasses.replace(
        context, config=setter(context.config, value), specified=context.specified.union(noted)
    )


def _gives_way(setter: Setter) -> Setter:
    """A number of devices that gives way to the one that `sporax plan --devices` sets."""

    def set_number(config: Any, value: Any) -> Any:
        requested = os.environ.get(DEVICES, "") if SESSION.plans_all else ""
        config = setter(config, value)
        return dataclasses.replace(config, device_num=int(requested)) if requested else config

    return set_number


def _set_full_batch(context: _Context, value: Any) -> _Context:
    flag(type(None))(_SET, "full_batch", value)
    # Shardings say more than 'full_batch' does, so they win.
    if not isinstance(context.config.dataset_strategy, str):
        warnings.warn(
            f"For '{_SET}', 'full_batch' is the old spelling of 'dataset_strategy'; the shardings "
            f"{context.config.dataset_strategy} set there stay in force.",
            stacklevel=5,
        )
        return context
    return _set_dataset_strategy(context, "full_batch" if value else "data_parallel")


def _set_dataset_strategy(context: _Context, value: Any) -> _Context:
    strategy, layouts = nested.check_dataset_strategy(_SET, value)
    config = dataclasses.replace(context.config, dataset_strategy=strategy)
    noted = context.specified.union(["full_batch"] if isinstance(strategy, str) else [])
    return dataclasses.replace(context, config=config, layouts=layouts, specified=noted)


def _set_mode(config: ParallelConfig, value: Any) -> ParallelConfig:
    mode = one_of(*ParallelMode.MODE_LIST)(_SET, "parallel_mode", value)
    servers = SESSION.servers
    # `init` makes workers known to each other only in a parallel mode; without that each would train for itself.
    if servers is not None and servers.first_workers > 1 and SESSION.world is None and mode != ParallelMode.STAND_ALONE:
        raise SporaxRuntimeError(
            f"For '{_SET}', 'parallel_mode' comes too late: init() has joined a job with parameter servers in the mode "
            f"'{config.parallel_mode}', in which workers do not know each other, but got '{mode}'. Call it before init()."
        )
    return dataclasses.replace(config, parallel_mode=mode)


def _set_sharding_propagation(config: ParallelConfig, value: Any) -> ParallelConfig:
    kind(bool)(_SET, "sharding_propagation", value)
    if value:
        return dataclasses.replace(config, search_mode="sharding_propagation")
    # Switching it off must not change another search mode.
    return dataclasses.replace(config, search_mode=_DEFAULT_SEARCH) if config.sharding_propagation else config


def _set_accumulation(config: ParallelConfig, value: Any) -> ParallelConfig:
    number(1)(_SET, "grad_accumulation_step", value)
    if value > 1:
        raise SporaxValueError(
            f"For '{_SET}', 'grad_accumulation_step' must be 1, but got {value}. To accumulate gradients, wrap the network "
            "in nn.GradAccumulationCell."
        )
    return config


def _set_communi_mode(config: ParallelConfig, value: Any) -> ParallelConfig:
    one_of(*COMMUNI_PARALLEL_MODES)(_SET, "communi_parallel_mode", value)
    # The first mode is the default.
    if value != COMMUNI_PARALLEL_MODES[0]:
        warnings.warn(
            f"For '{_SET}', 'communi_parallel_mode' is accepted for compatibility; it is about hardware streams of MindSpore and "
            "changes nothing here.",
            stacklevel=6,
        )
    return dataclasses.replace(config, communi_parallel_mode=value)


def _set_new_interface(config: ParallelConfig, value: Any) -> ParallelConfig:
    is_on = flag(type(None), int)(_SET, "auto_parallel_new_interface", value)
    if is_on:
        warnings.warn(
            f"For '{_SET}', 'auto_parallel_new_interface' is `AutoParallel`'s own and changes nothing here.",
            stacklevel=6,
        )
    return dataclasses.replace(config, auto_parallel_new_interface=is_on)


_NONE = type(None)
_FLAGS = {
    **dict.fromkeys(("gradients_mean", "gradient_fp32_sync", "parameter_broadcast"), flag(_NONE)),
    **dict.fromkeys(("dump_local_norm", "dump_device_local_norm", "init_param_in_compile"), flag(_NONE, int)),
}
"""Settings that MindSpore takes the truth of."""
_NOTED: dict[str, Setter] = {
    "device_num": _gives_way(stored(_SET, "device_num", number(1))),
    "global_rank": stored(_SET, "global_rank", number(0, MAX_RANKS - 1)),
    "parameter_broadcast": stored(_SET, "parameter_broadcast", _FLAGS["parameter_broadcast"]),
}
"""Settings of which programs test whether they were set."""
_CHECKS: dict[str, Check] = {
    # Flags and texts without another check below.
    **{key: kind(hint) for key, hint in get_type_hints(ParallelSettings).items() if hint in (bool, str)},
    **_FLAGS,
    "recompute": one_of("", "auto"),
    "search_mode": search_name,
    "pipeline_stages": number(1),
    "pipeline_segments": number(1),
    "pipeline_schedule": kind(PipelineSchedule, type(None)),
    "all_reduce_fusion_config": nested.check_positions,
    "all_reduce_fusion_sizes": nested.check_sizes,
}
"""Settings that are fields of the config as they are."""
_ON_CONFIG: dict[str, Setter] = {
    **{key: stored(_SET, key, check) for key, check in _CHECKS.items()},
    "parallel_mode": _set_mode,
    "auto_parallel_search_mode": stored(_SET, "auto_parallel_search_mode", search_name, "search_mode"),
    "sharding_propagation": _set_sharding_propagation,
    "optimizer_weight_shard_size": nested.set_shard_size,
    "parallel_optimizer_config": nested.set_optimizer_config,
    "pipeline_config": nested.set_pipeline_config,
    "comm_fusion": nested.set_comm_fusion,
    "communi_parallel_mode": _set_communi_mode,
    "auto_parallel_new_interface": _set_new_interface,
    "strategy_ckpt_config": nested.set_strategy_files,
    "grad_accumulation_step": _set_accumulation,
}
_SETTERS: dict[str, Setter] = {
    **{key: _on_config(setter) for key, setter in _ON_CONFIG.items()},
    **{key: _on_config(setter, key) for key, setter in _NOTED.items()},
    "full_batch": _set_full_batch,
    "dataset_strategy": _set_dataset_strategy,
}

_ONLY_SET = ("pipeline_config", "parallel_optimizer_config", "pipeline_segments", "group_ckpt_save_file")
_FIELDS = {key: key for key in _SETTERS if key in ParallelConfig.__dataclass_fields__ and key not in _ONLY_SET} | {
    "full_batch": "full_batch",
    "auto_parallel_search_mode": "search_mode",
    "sharding_propagation": "sharding_propagation",
    "pipeline_interleave": "pipeline_interleave",
    "pipeline_scheduler": "pipeline_scheduler",
}
"""Attributes of the config by the keys that read them as they are."""


def _reader(field: str) -> Reader:
    return lambda context: getattr(_resolved(context), field)


def _is_specified(key: str, context: _Context) -> bool:
    return key in context.specified


_READERS: dict[str, Reader] = {
    **{key: _reader(field) for key, field in _FIELDS.items()},
    **{f"{key}_is_set": functools.partial(_is_specified, key) for key in (*_NOTED, "full_batch")},
    "dataset_strategy": lambda context: context.layouts or nested.as_lists(context.config.dataset_strategy),
    "comm_fusion": lambda context: nested.as_dict(context.config.comm_fusion),
    "all_reduce_fusion_config": lambda context: list(context.config.all_reduce_fusion_config),
    "all_reduce_fusion_sizes": lambda context: list(context.config.all_reduce_fusion_sizes),
    "strategy_ckpt_config": lambda context: {
        key: getattr(context.config, f"strategy_ckpt_{key}")
        for key in ("load_file", "save_file", "only_trainable_params")
    },
    "grad_accumulation_step": lambda context: 1,
}

_settings: Settings[_Context] = Settings("auto_parallel_context", _Context(), _SETTERS, _READERS)
