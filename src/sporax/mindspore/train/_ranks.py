"""What training tools need to know about the other ranks of a job: who speaks, and what all agree on."""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from sporax.base.errors import SporaxRuntimeError
from sporax.cluster import RankEnvironment
from sporax.runtime import world
from sporax.runtime.ranks import collectives, groups


def rank() -> int:
    """Number of this process in its job; 0 where it is alone."""
    if jax.process_count() > 1:
        return jax.process_index()
    # In a job without collectives the environment still numbers the processes.
    return RankEnvironment.from_environ(os.environ).rank or 0


def mean_over_ranks(value: float) -> float:
    """Mean of a number that every rank has its own of. All ranks must call it."""
    # A job of one process needs no exchange.
    return float(np.mean(_gathered(value))) if jax.process_count() > 1 else value


def any_rank(flag: bool) -> bool:
    """Whether the flag is set on any rank. All ranks must call it."""
    return bool(np.any(_gathered(flag))) if jax.process_count() > 1 else flag


def common_pairs(own: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """The pairs of numbers that every rank has, in order. All ranks must call it, with the same limit to their number."""
    if jax.process_count() == 1:
        return sorted(own)
    # All ranks exchange arrays of one shape; -1 stands for "no file".
    padded = np.full((most, 2), -1, np.int32)
    padded[: len(own)] = np.asarray(own, np.int32).reshape(-1, 2)
    of_ranks = np.asarray(_gathered(padded)).reshape(-1, most, 2)
    sets = [{(int(a), int(b)) for a, b in pairs if a >= 0} for pairs in of_ranks]
    return sorted(set.intersection(*sets))


def is_on_some(array: jax.Array) -> bool:
    """Whether an array belongs to a pipeline stage that other processes take no part in."""
    if jax.process_count() == 1 or not isinstance(array.sharding, NamedSharding):
        return False
    return len(_holders(array)) < jax.process_count()


def of_stage(array: jax.Array) -> np.ndarray[Any, Any]:
    """All values of an array of a pipeline stage. All ranks must call it, also those that have no part of it."""
    holders = _holders(array)
    if jax.process_index() not in holders:
        # The broadcast needs an array of the same shape on every rank.
        own = np.zeros(array.shape, array.dtype)
    elif array.is_fully_replicated:
        own = np.asarray(array.addressable_data(0))
    else:
        own = np.asarray(array) if array.is_fully_addressable else global_array(array)
    everyone = groups.find(None)
    (values,) = collectives.run(collectives.Broadcast(everyone, min(holders)), jnp.asarray(own))
    return np.asarray(values)


def global_array(array: jax.Array) -> np.ndarray[Any, Any]:
    """All values of an array that is sharded over the devices of several ranks. All ranks that hold a part must call it.

    The exchange is one of the runtime's collectives, so it keeps its place among those of the steps around it.

    Raises:
        SporaxRuntimeError: the ranks have not been joined by `init`.
    """
    if world.world() is None:
        raise SporaxRuntimeError(
            f"For 'save_checkpoint', an array of shape {array.shape} is sharded over several processes, so the ranks must have "
            "been joined: call init() first."
        )
    indices = array.sharding.devices_indices_map(array.shape)
    # In rank order, which is the order in which the exchange gives the pieces.
    devices = sorted(indices, key=_rank_and_number)
    holders = groups.Group("holders", tuple(sorted({_rank_and_number(device)[0] for device in devices})))
    shards = sorted(array.addressable_shards, key=lambda shard: _rank_and_number(shard.device))
    own = jnp.asarray(np.stack([np.asarray(shard.data) for shard in shards]))
    pieces = np.asarray(collectives.run(collectives.AllGather(holders), own))
    result = np.empty(array.shape, pieces.dtype)
    for device, piece in zip(devices, pieces, strict=True):
        result[indices[device]] = piece
    return result


def _holders(array: jax.Array) -> set[int]:
    """The ranks on whose devices the array is."""
    return {_rank_and_number(device)[0] for device in array.sharding.device_set}


def _rank_and_number(device: jax.Device) -> tuple[int, int]:
    # Ids alone are not in rank order on all backends.
    return device.process_index, device.id


def _gathered(value: Any) -> Any:
    everyone = groups.find(None)
    return np.asarray(collectives.run(collectives.AllGather(everyone), jnp.asarray(np.asarray([value]))))
