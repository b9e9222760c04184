"""Redistributions executed on eight devices: values and collectives."""

import collections
import itertools
import re

import jax.numpy as jnp
import numpy as np
import pytest

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement, every_placement
from sporax.lowering.redistribute import apply_redistribution
from sporax.planner.redistribution import redistribute

SHAPE = (8, 16)
X = np.arange(SHAPE[0] * SHAPE[1], dtype=np.float32).reshape(SHAPE)
MESH = DeviceMatrix((2, 2, 2))
PLACEMENTS = list(every_placement(2, 3))
HLO = {
    "all_gather": "all-gather",
    "all_reduce": "all-reduce",
    "all_to_all": "all-to-all",
    "reduce_scatter": "reduce-scatter",
    "permute": "collective-permute",
}


def count_collectives(text):
    found = collections.Counter()
    for word in HLO.values():
        found[word] = len(re.findall(rf" {word}(?:-start)?\(", text))
    return +found


def planned(plans):
    return collections.Counter(HLO[name] for plan in plans for name in plan.collectives())


def run(devices, plans, inputs, mesh=MESH):
    """Execute many redistributions in one program; every input goes through its own plan."""
    on = devices(mesh.shape)

    def program(*slices):
        return tuple(apply_redistribution(x, plan, on.names) for x, plan in zip(slices, plans, strict=True))

    args = [on.put(x, plan.source) for x, plan in zip(inputs, plans, strict=True)]
    compiled = on.compile(program, [plan.source for plan in plans], [plan.target for plan in plans], *args)
    return compiled(*args), compiled.as_text()


@pytest.mark.parametrize("alltoall", [True, False])
@pytest.mark.parametrize("number", range(0, len(PLACEMENTS), 7))
def test_every_pair(devices, everywhere, number, alltoall):
    """Seven sources to all targets, one program."""
    pairs = list(itertools.product(PLACEMENTS[number : number + 7], PLACEMENTS))
    plans = [redistribute(SHAPE, 4, source, target, MESH, alltoall) for source, target in pairs]
    results, text = run(devices, plans, [jnp.asarray(X) + number for number in range(len(plans))])
    for offset, (result, plan) in enumerate(zip(results, plans, strict=True)):
        assert plan.exact
        everywhere(result, X + offset)
    assert count_collectives(text) == planned(plans)
