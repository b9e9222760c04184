"""Prices of moves beside the search for the cheapest way."""

import itertools

import pytest

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Placement
from sporax.planner.communication.moves import LinkCosts
from sporax.planner.communication.resharding import redistribute
from sporax.planner.communication.shortest_path import least_seconds
from sporax.planner.search.space.operator_rules import placements_of
from sporax.planner.search.space.resharding_cost import ReshardingCosts

MESH = DeviceMatrix((2, 4))
LINKS = LinkCosts()
SPEC = TensorSpec((64, 128))
COMPLETE = list(placements_of(SPEC.shape, MESH, ((0,), (1,))))
PARTS = [Placement(((), ()), (0, 1)), Placement(((0,), ()), (1,)), Placement(((), (1,)), (0,))]


def cheapest(source, target):
    return redistribute(SPEC.shape, SPEC.itemsize, source, target, MESH, True, LINKS).seconds


def pairs():
    return itertools.product([*COMPLETE, *PARTS], COMPLETE)


def test_prices_are_those_of_the_cheapest_way():
    resharding_costs = ReshardingCosts(MESH, LINKS)
    exact = [resharding_costs.seconds(SPEC, a, b) == pytest.approx(cheapest(a, b), rel=1e-6) for a, b in pairs()]

    assert sum(exact) >= 0.9 * len(exact)
    assert all(resharding_costs.seconds(SPEC, a, b) <= 1.4 * cheapest(a, b) for a, b in pairs())


def test_a_price_in_a_hurry_is_of_a_way_that_exists():
    resharding_costs = ReshardingCosts(MESH, LINKS, approximate=True)
    for a, b in pairs():
        assert resharding_costs.seconds(SPEC, a, b) >= 0.5 * cheapest(a, b)
        assert resharding_costs.seconds(SPEC, a, b) <= 5 * cheapest(a, b)


def test_without_all_to_all_axes_are_gathered():
    rows, columns = Placement(((1,), ())), Placement(((), (1,)))
    size = SPEC.num_bytes // 4

    assert ReshardingCosts(MESH, LINKS).seconds(SPEC, rows, columns) == LINKS.all_to_all((1,), [4], size)
    assert ReshardingCosts(MESH, LINKS, alltoall=False).seconds(SPEC, rows, columns) > LINKS.gather((1,), [4], size)


def test_tables_have_one_entry_per_pair():
    resharding_costs = ReshardingCosts(MESH, LINKS)
    table = resharding_costs.table(SPEC, [*COMPLETE, COMPLETE[0]], COMPLETE)

    assert table.shape == (len(COMPLETE) + 1, len(COMPLETE))
    assert (table[-1] == table[0]).all()
    assert (table.diagonal() == 0).all()


@pytest.mark.parametrize("approximate", [False, True])
def test_dimensions_that_are_never_sharded_do_not_matter(approximate):
    resharding_costs = ReshardingCosts(MESH, LINKS, approximate=approximate)
    turned = TensorSpec((128, 1, 64))

    def in_between(placement):
        rows, columns = placement.dims
        return Placement((columns, (), rows), placement.partial, placement.reduction)

    for a, b in pairs():
        assert resharding_costs.seconds(SPEC, a, b) == resharding_costs.seconds(turned, in_between(a), in_between(b))


CUBE = DeviceMatrix((2, 2, 2), ("replica", "data", "model"))
UNEQUAL = LinkCosts(axis_alpha=(1e-5, 1e-6, 1e-6), axis_beta=(1e-10, 1e-11, 1e-11))
FASTER = LinkCosts(axis_alpha=(1e-6, 1e-6, 1e-6), axis_beta=(1e-11, 1e-11, 1e-11))


def everywhere(spec):
    complete = list(placements_of(spec.shape, CUBE, ((0,), (1,), (2,))))
    return [*complete, *(Placement(((), *rest), axes) for axes, *rest in (entry.dims for entry in complete) if axes)]


def num_searches(links, specs):
    """Of how many pairs the least time is queried, and how many searches that takes."""
    places, costs = everywhere(SPEC), ReshardingCosts(CUBE, links)
    least_seconds.cache_clear()
    for spec in specs:
        costs.table(spec, places, places)
    return len(specs) * len(places) ** 2, least_seconds.cache_info().misses


def test_equal_axes_are_searched_once():
    requested, searches = num_searches(LINKS, [SPEC])

    assert requested == 2116
    assert searches <= 262
    # With one slower axis the others are still equal, and what differs is searched anew.
    assert searches < num_searches(UNEQUAL, [SPEC])[1] <= 570
    # The same bytes in another shape need nothing new.
    assert num_searches(LINKS, [SPEC, TensorSpec((128, 64))])[1] == searches


@pytest.mark.parametrize("links", [LINKS, FASTER, UNEQUAL])
def test_searches_of_equal_axes_find_what_each_would(links):
    costs, places = ReshardingCosts(CUBE, links), everywhere(SPEC)
    pairs = [*itertools.product(places, places)][::7]
    best = [redistribute(SPEC.shape, SPEC.itemsize, a, b, CUBE, True, links).seconds for a, b in pairs]
    found = [costs.seconds(SPEC, a, b) for a, b in pairs]

    assert found == pytest.approx(best)


def test_nothing_is_sent_of_a_tensor_without_elements():
    table = ReshardingCosts(CUBE, LINKS).table(TensorSpec((0, 8)), [Placement(((0, 1), ()))], [Placement(((), (1, 0)))])

    assert table == 0
