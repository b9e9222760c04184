"""Process-wide settings of the input pipeline: `mindspore.dataset.config`.

Pipelines read these when an iterator is made, so a change affects the iterators made after it. Settings of MindSpore
that steer its C++ runtime (NUMA, autotune, shared memory, offload, watchdog, …) do not exist here; asking for one is an
AttributeError rather than a setting without effect.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sporax.dataset._checks import INT32_MAX, check_int
from sporax.ir.missing import missing_names

__all__ = [
    "set_seed",
    "get_seed",
    "set_num_parallel_workers",
    "get_num_parallel_workers",
    "set_prefetch_size",
    "get_prefetch_size",
    "set_callback_timeout",
    "get_callback_timeout",
]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)

DEFAULT_SEED = 5489
"""The seed reported, and used for sharded shuffles, when none was set."""

UINT32_MAX = 2**32 - 1


def _inherited_seed() -> int | None:
    """The seed of an earlier `mindspore.set_seed`, which could not reach this module before it was imported."""
    common = sys.modules.get("sporax.common.seed")
    seed = common.get_seed() if common is not None else None
    return None if seed is None else seed & UINT32_MAX


@dataclass(slots=True)
class _Settings:
    """The present settings; what each means is at its setter."""

    seed: int | None = field(default_factory=_inherited_seed)
    num_parallel_workers: int = min(8, os.cpu_count() or 1)
    prefetch_size: int = 16
    callback_timeout_seconds: int = 60


_settings = _Settings()


def set_seed(seed: int) -> None:
    """Fix the shuffles and random transforms of all iterators made from now on.

    Args:
        seed: int in [0, 2**32 - 1].

    Raises:
        SporaxTypeError: `seed` is not an int.
        SporaxValueError: `seed` is out of range.
    """
    _settings.seed = check_int("set_seed", "seed", seed, 0, UINT32_MAX)


def get_seed() -> int:
    """The seed of the pipeline; 5489 when it was never set."""
    return DEFAULT_SEED if _settings.seed is None else _settings.seed


def is_seed_set() -> bool:
    """Whether `set_seed` (here or `mindspore.set_seed`) was called."""
    return _settings.seed is not None


def set_num_parallel_workers(num: int) -> None:
    """Set how many threads prepare rows when an operation does not say it.

    More threads than cores are allowed, so that a script written for a large machine runs on a small one.
    """
    _settings.num_parallel_workers = check_int("set_num_parallel_workers", "num", num, 1, INT32_MAX)


def get_num_parallel_workers() -> int:
    """The default number of threads that prepare rows."""
    return _settings.num_parallel_workers


def set_prefetch_size(size: int) -> None:
    """Set how many rows (batches, after `batch`) an iterator prepares ahead of its user."""
    _settings.prefetch_size = check_int("set_prefetch_size", "size", size, 1, INT32_MAX)


def get_prefetch_size() -> int:
    """How many rows an iterator prepares ahead of its user."""
    return _settings.prefetch_size


def set_callback_timeout(timeout: int) -> None:
    """Set for how many seconds rows wait for `sync_update` and for a `WaitedDSCallback`."""
    _settings.callback_timeout_seconds = check_int("set_callback_timeout", "timeout", timeout, 1, INT32_MAX)


def get_callback_timeout() -> int:
    """For how many seconds rows wait for `sync_update` and for a `WaitedDSCallback`."""
    return _settings.callback_timeout_seconds
