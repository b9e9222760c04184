"""What a user may say about the fusion of collectives, and how it becomes a `CommFusion`."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from sporax.base.errors import SporaxKeyError, SporaxTypeError, SporaxValueError
from sporax.ir.config.parallel_config import CommFusion, FusionRule, ParallelConfig

_MODES = {
    "allreduce": ("auto", "size", "index"),
    "allgather": ("auto", "size"),
    "reducescatter": ("auto", "size"),
}


def set_comm_fusion(config: ParallelConfig, value: Any, function: str = "set_auto_parallel_context") -> ParallelConfig:
    """`config` with the rules of the dict `value`; kinds it does not name keep theirs. Without 'openstate', fusion is open.

    Raises:
        SporaxTypeError: something that must be a dict, bool, int or list is not.
        SporaxKeyError: unknown kind or mode, or a rule without 'mode' or 'config'.
        SporaxValueError: a negative size, or positions that are empty, repeated or not ascending.
    """
    _require(function, "comm_fusion", value, dict)
    # MindSpore opens fusion as soon as a rule is given.
    changes: dict[str, Any] = {"openstate": True}
    for kind, setting in value.items():
        if kind == "openstate":
            changes[kind] = _require(function, "comm_fusion['openstate']", setting, bool)
        elif kind in _MODES:
            changes[kind] = _rule(function, kind, setting)
        else:
            raise SporaxKeyError(
                f"For '{function}', the keys of 'comm_fusion' are {['openstate', *_MODES]}, but got {kind!r}."
            )
    changed = dataclasses.replace(config, comm_fusion=dataclasses.replace(config.comm_fusion, **changes))
    # The positions are also a setting of their own, as in MindSpore.
    positions = changed.comm_fusion.allreduce.config
    if "allreduce" in changes and isinstance(positions, tuple):
        changed = dataclasses.replace(changed, all_reduce_fusion_config=positions)
    return changed


def as_dict(fusion: CommFusion) -> dict[str, Any]:
    """The dict that `get_auto_parallel_context("comm_fusion")` gives."""
    rules = {kind: getattr(fusion, kind) for kind in _MODES}
    return {"openstate": fusion.openstate} | {
        # Lists, as the user gave them: the config holds tuples so that it can be hashed.
        kind: {"mode": rule.mode, "config": list(rule.config) if isinstance(rule.config, tuple) else rule.config}
        for kind, rule in rules.items()
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
        raise SporaxValueError.must(function, key, "be a list of ascending positions >= 0, not empty", value)
    return tuple(value)


def check_sizes(function: str, key: str, value: Any) -> tuple[int, ...]:
    """Sizes in bytes at which AllReduce is split: a list of ints above 0.

    Raises:
        SporaxTypeError: not a list of ints.
        SporaxValueError: a size that is not above 0.
    """
    _require(function, key, value, list)
    sizes = tuple(_require(function, f"an element of {key}", size, int) for size in value)
    if any(size <= 0 for size in sizes):
        raise SporaxValueError(f"For '{function}', '{key}' must be a list of sizes above 0, but got {value}.")
    return sizes


def _rule(function: str, kind: str, setting: Any) -> FusionRule:
    name = f"comm_fusion['{kind}']"
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
    if mode not in _MODES[kind]:
        raise SporaxKeyError(f"For '{function}', the mode of '{name}' must be one of {_MODES[kind]}, but got {mode!r}.")
    if mode == "auto":
        # "auto" takes its size from the system; what 'config' says has no meaning then.
        return FusionRule(configured=True)
    if mode == "index":
        return FusionRule("index", check_positions(function, f"{name}['config']", value), configured=True)
    if _require(function, f"{name}['config']", value, int) < 0:
        raise SporaxValueError(
            f"For '{function}', '{name}['config']' is a size in MB and must be >= 0, but got {value}."
        )
    return FusionRule("size", value, configured=True)


def _require(function: str, what: str, value: Any, kind: type) -> Any:
    # bool is an int in Python, but no size or position.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise SporaxTypeError(f"For '{function}', {what} must be {kind.__name__}, but got {type(value).__name__}.")
    return value
