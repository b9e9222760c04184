"""Which link of a hardware profile each mesh axis uses."""

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import load_profile
from sporax.planner.cost.link_rates import link_costs

PROFILE = load_profile("h100")


def test_an_axis_is_as_slow_as_the_link_between_its_farthest_devices():
    costs = link_costs(PROFILE, DeviceMatrix((2, 8)))
    inner, outer = PROFILE.links
    assert costs.axis_alpha == (outer.alpha_seconds, inner.alpha_seconds)
    assert costs.axis_beta == (1 / outer.bandwidth, 1 / inner.bandwidth)


def test_collectives_are_not_merged_where_the_user_decided_about_fusion():
    mesh = DeviceMatrix((8,))
    assert link_costs(PROFILE, mesh).merged == tuple(sorted(PROFILE.merged_bytes.items()))
    assert link_costs(PROFILE, mesh, merging=False).merged == ()
