"""How far the quick searches are from the optimum: five kinds of networks, one- and two-dimensional meshes, less memory."""

from functools import cache

import networks
import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.budget import Budget
from sporax.planner.cost import Roofline, link_costs
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.plan_check import check_plan
from sporax.planner.search import SearchOptions, dynamic, ilp, propagation, recursive, repeated

MESHES = [DeviceMatrix((8,)), DeviceMatrix((2, 4))]
NETWORKS = {
    "mlp": networks.mlp(4, 64, 256),
    "transformer": networks.transformer(1, 8, 16, 64, 8),
    "mixture of experts": networks.mixture(16, 64, 64, 8, 128),
    "residual": networks.residual(16, 32, 8, 1),
    "recommendation": networks.recommendation(256, 4096),
}
QUICK = [recursive, propagation]
BUSY = SearchOptions(fully_use_devices=True)


def model(mesh):
    return Roofline(load_profile("h200"), link_costs(load_profile("h200"), mesh))


@cache
def optimum(name, mesh, limit=None):
    options = SearchOptions(fully_use_devices=True, memory_bytes=limit)
    return ilp(NETWORKS[name].graph, mesh, model(mesh), options, budget=Budget.of(120))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mesh", MESHES, ids=["8", "2x4"])
@pytest.mark.parametrize("name", NETWORKS)
def test_searches_come_near_the_proven_optimum(name, mesh):
    graph, best = NETWORKS[name].graph, optimum(name, mesh)
    exact = dynamic(graph, mesh, model(mesh), BUSY)

    assert best.optimal
    assert best.cost_seconds == pytest.approx(cost_of(graph, best.plan, model(mesh)).seconds, rel=1e-3)
    assert exact.optimal
    assert exact.cost_seconds == pytest.approx(best.cost_seconds, rel=1e-9)
    for search in QUICK:
        actual = search(graph, mesh, model(mesh), BUSY)
        check_plan(graph, actual.plan)
        assert actual.cost_seconds <= 1.05 * best.cost_seconds, search.__name__
        assert actual.bound_seconds is None


@pytest.mark.full
@pytest.mark.parametrize("name", ["mlp", "mixture of experts"])
def test_gaps_with_less_memory(name):
    mesh, graph = MESHES[0], NETWORKS[name].graph
    limit = int(0.85 * memory_of(graph, optimum(name, mesh).plan, XLA_CPU).peak_bytes)
    best = optimum(name, mesh, limit)
    options = SearchOptions(fully_use_devices=True, memory_bytes=limit)
    for search in (*QUICK, dynamic, repeated):
        actual = search(graph, mesh, model(mesh), options)
        check_plan(graph, actual.plan)
        assert memory_of(graph, actual.plan, XLA_CPU).peak_bytes <= limit, search.__name__
        assert actual.cost_seconds <= 1.05 * best.cost_seconds, search.__name__
        assert not actual.optimal or actual.cost_seconds <= best.cost_seconds * (1 + 1e-9), search.__name__
        if best.bound_seconds is not None:
            assert actual.cost_seconds >= best.bound_seconds * (1 - 1e-9), search.__name__


@pytest.mark.parametrize("search", [*QUICK, dynamic, repeated])
@pytest.mark.sampled(1)
def test_a_limit_that_nothing_fits_names_the_least_budget_and_what_helps(search):
    graph = networks.mlp(2, 64, 64).graph
    with pytest.raises(SporaxRuntimeError, match=r"1 kB per device, but .* is the smallest plan .* more devices share"):
        search(graph, MESHES[0], model(MESHES[0]), SearchOptions(memory_bytes=1000))
