"""What training tools need to know about the other ranks of a job: who speaks, and what all agree on."""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.launch.environment import RankEnvironment
from sporax.runtime import collectives, groups


def rank() -> int:
    """Number of this process in its job; 0 where it is alone."""
    if jax.process_count() > 1:
        return jax.process_index()
    return RankEnvironment.from_environ(os.environ).rank or 0


def mean_over_ranks(value: float) -> float:
    """Mean of a number that every rank has its own of. All ranks must call it."""
    return float(np.mean(_gathered(value))) if jax.process_count() > 1 else value


def any_rank(flag: bool) -> bool:
    """Whether the flag is set on any rank. All ranks must call it."""
    return bool(np.any(_gathered(flag))) if jax.process_count() > 1 else flag


def _gathered(value: Any) -> Any:
    everyone = groups.find(None)
    return np.asarray(collectives.run(collectives.AllGather(everyone), jnp.asarray(np.asarray([value]))))
