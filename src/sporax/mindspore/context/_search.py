"""Settings of the search for plans: `set_algo_parameters`, and the cost model behind it."""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import Any

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.search_config import CostModelConfig, SearchConfig
from sporax.mindspore.context._settings import Check, Setter, Settings, kind, number, stored

_SET_ALGO = "set_algo_parameters"
_SET_COST = "set_cost_model_context"


def set_algo_parameters(**kwargs: Any) -> None:
    """Change settings of the search for plans. Same as MindSpore, with one more setting.

    Args:
        kwargs: ``fully_use_devices``, ``elementwise_op_strategy_follow``, ``tensor_slice_align_enable``,
            ``tensor_slice_align_size`` (1 to 1024), ``enable_algo_approxi``, ``algo_approxi_epsilon`` (in (0, 1]);
            ``recursive_keeps_strategies``, which MindSpore does not have: recursive programming keeps `shard`'s strategies.

    Raises:
        SporaxValueError: unknown setting, or a size outside its range.
        SporaxRuntimeError: an epsilon outside its range.
        SporaxTypeError: a value of the wrong type.
    """
    _algo.set(kwargs)


def get_algo_parameters(attr_key: str) -> Any:
    """The present value of one setting of the search.

    Raises:
        SporaxValueError: unknown setting.
    """
    return _algo.get(attr_key)


def reset_algo_parameters() -> None:
    """Bring the settings of the search back to their defaults."""
    _algo.reset()


def set_cost_model_context(**kwargs: Any) -> None:
    """Change numbers of the cost model. Same as MindSpore; `CostModelConfig` lists them.

    Raises:
        SporaxValueError: unknown setting, or an int outside its range.
        SporaxRuntimeError: a float outside its range.
        SporaxTypeError: a value of the wrong type.
    """
    _cost_model.set(kwargs)


def get_cost_model_context(attr_key: str) -> Any:
    """The present value of one number of the cost model.

    Raises:
        SporaxValueError: unknown setting.
    """
    return _cost_model.get(attr_key)


def reset_cost_model_context() -> None:
    """Bring the cost model back to its defaults."""
    _cost_model.reset()


def search_snapshot() -> tuple[SearchConfig, CostModelConfig]:
    """The present settings of the search and of the cost model, for a step that is being planned."""
    # Both are frozen, so a plan that takes long sees no later change.
    return _algo.current, _cost_model.current


def _real(high: float | None = None, *, above: bool = False) -> Check:
    """A float of at least 0 (more with `above`); another one is a RuntimeError, as in MindSpore."""
    return number(0, high, types=(float,), above=above, error=SporaxRuntimeError)


_algo: Settings[SearchConfig] = Settings(
    "algo_parameters",
    SearchConfig(),
    {
        **{
            field.name: stored(_SET_ALGO, field.name, kind(bool))
            for field in dataclasses.fields(SearchConfig)
            if isinstance(field.default, bool)
        },
        "tensor_slice_align_size": stored(_SET_ALGO, "tensor_slice_align_size", number(1, 1024)),
        "algo_approxi_epsilon": stored(_SET_ALGO, "algo_approxi_epsilon", _real(1, above=True)),
    },
    {field.name: attrgetter(field.name) for field in dataclasses.fields(SearchConfig)},
)

# The kind of a number follows from its default; those with other bounds come after.
_COST_CHECKS: dict[str, Check] = {
    **{
        field.name: _real() if isinstance(field.default, float) else kind(type(field.default))
        for field in dataclasses.fields(CostModelConfig)
    },
    # 0 would mean that memory or communication costs nothing.
    **dict.fromkeys(["device_memory_capacity", "costmodel_alpha", "costmodel_beta"], _real(above=True)),
    "costmodel_gamma": _real(1),
    "run_phase": number(0, 1),
    "costmodel_allreduce_fusion_algorithm": number(0, 2),
    "costmodel_allreduce_fusion_times": number(0),
    "costmodel_allreduce_fusion_tail_percent": _real(1),
}
_COST_SETTERS: dict[str, Setter] = {key: stored(_SET_COST, key, check) for key, check in _COST_CHECKS.items()}

_cost_model: Settings[CostModelConfig] = Settings(
    "cost_model_context", CostModelConfig(), _COST_SETTERS, {key: attrgetter(key) for key in _COST_SETTERS}
)
