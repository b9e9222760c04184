"""Ranks of a job without a job: one process with eight simulated devices, and ranks that are threads."""

import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import local

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from sporax.runtime.ranks import exchanges, groups, joint_arrays
from sporax.runtime.ranks.collective_order import AXIS, in_order
from sporax.runtime.session import SESSION, World
from sporax.runtime.state import frames as state

sys.path.insert(0, str(Path(__file__).parent / "ranks"))  # `local_rank_recipes`


@pytest.fixture
def join(monkeypatch):
    """``join(rank, size)``: this process takes itself for one rank of a job, whose devices are all its own."""
    monkeypatch.setattr(SESSION, "groups", {})
    monkeypatch.setattr(SESSION, "world", SESSION.world)  # so that it is restored

    def take_place(rank=0, size=8):
        SESSION.world = World(rank, size, rank, size, tuple(jax.devices()[:size]))
        return SESSION.world

    return take_place


@pytest.fixture
def on_ranks(join):
    """``on_ranks(function, *stacked, rank=0)``: `function` in one program of eight ranks.

    Row k of each array is what rank k has, and row k of each result is rank k's. Every rank runs the program of `rank`, so what
    depends on the rank itself is right in row `rank` alone.
    """

    def run(function, *stacked, rank=0):
        join(rank)

        def program(zero, *rows):
            with in_order(zero), state.Frame(compiled=True):
                results = function(*(row[0] for row in rows))
            return jax.tree.map(lambda result: result[None], results)

        mapped = jax.shard_map(
            program,
            mesh=joint_arrays.mesh(SESSION.world.devices),
            in_specs=(PartitionSpec(), *(PartitionSpec(AXIS) for _ in stacked)),
            out_specs=PartitionSpec(AXIS),
            check_vma=False,
        )
        return jax.device_get(jax.jit(mapped)(jnp.int32(0), *stacked))

    return run


@pytest.fixture
def traced(join):
    """``traced(function, *args, rank=0)``: the jaxpr of a rank's program, and the frame in which it was traced."""

    def trace(function, *args, rank=0):
        join(rank)
        frames = []

        def program(zero, *args):
            with in_order(zero), state.Frame(compiled=True) as frame:
                frames.append(frame)
                return function(*args)

        closed = jax.make_jaxpr(program, axis_env=[(AXIS, 8)])(jnp.int32(0), *args)
        return closed, frames[0]

    return trace


@pytest.fixture
def as_threads(monkeypatch, join):
    """``as_threads(function, ranks)``: ``function(rank)`` on every rank, each with a program and a thread of its own.

    Permutations carry arrays between the threads, so ranks may run different programs, as those of a job do.
    """
    join()
    here, mail = local(), defaultdict(SimpleQueue)

    def permute(array, pairs):
        for source, target in pairs:
            if source == here.rank:
                mail[source, target].put(array)
        sources = [source for source, target in pairs if target == here.rank]
        return mail[sources[0], here.rank].get(timeout=60) if sources else jnp.zeros_like(array)

    def run_one(function, rank):
        here.rank = rank
        with state.Frame(compiled=True):
            return function(rank)

    def run(function, ranks):
        for pair in ((source, target) for source in ranks for target in ranks):
            _ = mail[pair]  # all boxes are there before threads look for them
        with ThreadPoolExecutor(len(ranks)) as threads:
            return list(threads.map(partial(run_one, function), ranks))

    monkeypatch.setattr(exchanges, "permute", permute)
    monkeypatch.setattr(groups, "this_rank", lambda: here.rank)
    return run
