"""Which link of a hardware profile each mesh axis uses."""

from dataclasses import replace

import pytest

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost.chosen_model import link_costs

PROFILE = load_profile("h100")


def test_an_axis_is_as_slow_as_the_link_between_its_farthest_devices():
    costs = link_costs(PROFILE, DeviceMatrix((2, 8)))
    inner, outer = PROFILE.links
    assert costs.axis_alpha == (outer.alpha_seconds, inner.alpha_seconds)
    share = PROFILE.link_efficiency
    assert costs.axis_beta == (1 / (share * outer.bandwidth), 1 / (share * inner.bandwidth))


def rate(profile, shape, axes):
    """Bytes that a device gets per second when it gathers 2 GiB over axes of a mesh."""
    links = replace(link_costs(profile, DeviceMatrix(shape)), launch_seconds=0.0)
    sizes, members = [shape[axis] for axis in axes], 1
    for size in sizes:
        members *= size
    return 2**31 * (members - 1) / members / links.gather(axes, sizes, 2**31 / members)


def test_members_of_a_node_use_all_its_network_cards():
    inner, outer = (PROFILE.link_efficiency * link.bandwidth for link in PROFILE.links)
    twos = (2, 2, 2, 2, 2)
    assert rate(PROFILE, twos, (2, 3, 4)) == pytest.approx(inner, rel=0.01)
    # Four nodes: eight members behind each network; one member a node has the rate of its own card.
    assert rate(PROFILE, twos, (0, 1, 2, 3, 4)) == pytest.approx(min(inner, 8 * outer), rel=0.01)
    assert rate(PROFILE, twos, (0, 1, 4)) == pytest.approx(2 * outer, rel=0.01)
    assert rate(PROFILE, twos, (0, 1)) == pytest.approx(outer, rel=0.01)


def test_a_torus_is_gathered_over_several_rings():
    profile = load_profile("tpu-v5p")
    assert [
        rate(profile, (2,) * 6, axes) / rate(profile, (2,) * 6, (5,)) for axes in ((4, 5), (3, 4, 5), (2, 3, 4, 5))
    ] == (pytest.approx([2, 3, 3], rel=0.01))


@pytest.mark.parametrize(("devices", "inside"), [(64, 64), (144, 72), (256, 64), (2048, 64)])
def test_jobs_take_equal_shares_of_their_domains(devices, inside):
    costs = link_costs(load_profile("gb200"), DeviceMatrix((devices // inside, inside)))
    assert costs.axis_alpha[1] == load_profile("gb200").links[0].alpha_seconds


def test_collectives_are_not_merged_where_the_user_decided_about_fusion():
    mesh = DeviceMatrix((8,))
    assert link_costs(PROFILE, mesh).merged == tuple(sorted(PROFILE.merged_bytes.items()))
    assert link_costs(PROFILE, mesh, merging=False).merged == ()
