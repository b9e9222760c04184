"""Alpa's closed forms: the plan costs that are stated, and a compiled program with the collectives that they are made of."""

import os
import subprocess
import sys

import alpa_networks
import jax
import networks
import pytest
from alpa import AlpaLinks
from planner_graphs import CommunicationOnly
from program_text import read_collectives
from running import arguments_of, compiled

from sporax.ir.device_matrix import DeviceMatrix
from sporax.planner.communication.transfers import collective_bytes, schedule
from sporax.planner.plan_check import check_plan
from sporax.planner.search import ilp
from sporax.planner.search.space.problem import SearchOptions

WEIGHT, BATCH = 128 * 128 * 4, 1024 * 128 * 4
"""Bytes of a weight and of a layer's result in the two-dimensional cases."""


def mlp(layers, batch, width):
    return networks.mlp(layers, batch, width, with_loss=False)


CASES = {  # network, mesh, betas of its axes, stated cost, collectives in bytes where the plan is the stated one
    "mlp 2, data": (mlp, (2, 1024, 128), (4,), (), 196_610.02, {"all_reduce": 2 * WEIGHT}),
    "mlp 2, tensor": (mlp, (2, 128, 1024), (4,), (), 786_433.01, {"all_reduce": BATCH}),
    "mlp 12, data": (mlp, (12, 1024, 128), (4,), (), 1_179_660.12, {"all_reduce": 12 * WEIGHT}),
    "mlp 12, tensor": (mlp, (12, 128, 1024), (4,), (), 8_650_763.11, {"all_reduce": 11 * BATCH}),
    "biased mlp, tensor": (alpa_networks.biased_mlp, (6, 32, 256), (4,), (), 245_765.05, {"all_reduce": 5 * 32768}),
    "biased mlp, data": (alpa_networks.biased_mlp, (6, 256, 32), (4,), (), 38_028.12, {"all_reduce": 6 * (4096 + 128)}),
    "biased mlp, two axes": (alpa_networks.biased_mlp, (6, 256, 32), (2, 2), (1.0, 0.1), 21_265.17, None),
    "bert": (alpa_networks.bert, (2, 8, 8, 128, 8), (4,), (), 344_071.07, {"all_reduce": 7 * 32768}),
    "bert, three products": (
        alpa_networks.bert,
        (2, 8, 8, 128, 8, False),
        (4,),
        (),
        344_071.07,
        {"all_reduce": 7 * 32768},
    ),
    "tied embedding": (alpa_networks.tied_embedding, (1024, 8, 8, 8), (2, 2), (), 18_693.05, None),
    "mixture": (
        alpa_networks.mixture,
        (64, 16, 64, 16, 16, 32),
        (4,),
        (),
        893_965.094,
        {"all_to_all": 4 * 131072, "all_reduce": 71680},
    ),
    "convolutions": (alpa_networks.convolutions, (4, 4, 8, 64), (4,), (), 294_915.03, {"all_reduce": 3 * 65536}),
}
MANY_DEVICES = {  # the form of a large tensor has its bytes in whole numbers: up to one more for every activation
    "mlp 2 on 4 x 8": (
        mlp,
        (2, 1024, 128),
        (4, 8),
        (1.0, 0.01),
        26_872.03 + 1,
        {"all_reduce": WEIGHT // 4 + BATCH // 4},
    ),
    "mlp 2 on 8 x 4": (
        mlp,
        (2, 1024, 128),
        (8, 4),
        (1.0, 0.01),
        58_330.03 + 1,
        {"all_reduce": WEIGHT // 2 + BATCH // 8},
    ),
    "mlp 12 on 4 x 8": (mlp, (12, 1024, 128), (4, 8), (1.0, 0.01), 172_702.23 + 11, None),
    "mlp 12 on 8 x 4": (mlp, (12, 1024, 128), (8, 4), (1.0, 0.01), 354_900.23 + 11, None),
    "mlp 2 on 3 x 4": (mlp, (2, 1024, 128), (3, 4), (1.0, 0.01), 46_314.03, None),
    "mlp 12 on 3 x 4": (mlp, (12, 1024, 128), (3, 4), (1.0, 0.01), 290_994.23, None),
    "attention on 4 x 4": (networks.attention, (4, 128, 2048, 16), (4, 4), (), 1_572_865.01, None),
}


def check(make, sizes, mesh, betas, stated, moved):
    step = make(*sizes)
    model = CommunicationOnly(AlpaLinks(axis_beta=betas))
    actual = ilp(step.graph, DeviceMatrix(mesh), model, SearchOptions(fully_use_devices=True))
    check_plan(step.graph, actual.plan)
    assert actual.optimal
    assert actual.cost_seconds <= stated + 5e-3
    planned = collective_bytes(list(schedule(step.graph, actual.plan)))
    if moved is not None:
        assert planned == moved
    program = compiled(step, actual.plan).lower(*arguments_of(step)).compile()
    there = read_collectives(program.as_text())
    assert there.keys() == planned.keys()
    for kind, size in planned.items():  # XLA makes one of two that gather the same
        assert (there[kind] == size) if moved is not None else (0 < there[kind] <= size)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.sampled(6)
def test_costs_are_met_and_compiled(case):
    check(*CASES[case])


@pytest.mark.full
def test_costs_on_many_devices_are_met_and_compiled():
    """In a process of its own, with 32 simulated devices."""
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=32",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, __file__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    jax.config.update("jax_disable_most_optimizations", True)
    for case in MANY_DEVICES.values():
        check(*case)
