"""Communication costs of a mesh from a hardware profile: the link that each mesh axis uses."""

from __future__ import annotations

import math

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import HardwareProfile, Link
from sporax.planner.communication.moves import LinkCosts


def link_costs(
    profile: HardwareProfile, mesh: DeviceMatrix, merging: bool = True, has_reduce_scatter: bool = True
) -> LinkCosts:
    """Costs per axis. An axis is as slow as the link that joins the devices farthest apart along it.

    Args:
        profile: the devices; consecutive ranks are close to each other.
        mesh: how they are arranged.
        merging: whether the compiler may merge what it likes: nothing was said about fusion.
        has_reduce_scatter: whether the devices scatter sums by one collective.
    """
    links = [_farthest(profile, mesh, axis) for axis in mesh.device_axes]
    return LinkCosts(
        alpha_seconds=profile.links[0].alpha_seconds,
        beta_seconds_per_byte=1 / (profile.link_efficiency * profile.links[0].bandwidth),
        launch_seconds=profile.collective_seconds,
        # A copy reads each byte and writes it.
        copy_seconds_per_byte=2 / profile.bytes_per_second,
        axis_alpha=tuple(link.alpha_seconds for link in links),
        axis_beta=tuple(1 / (profile.link_efficiency * link.bandwidth) for link in links),
        axis_rings=tuple(link.axes for link in links) if any(link.axes > 1 for link in links) else (),
        merged=tuple(sorted(profile.merged_bytes.items())) if merging else (),
        has_reduce_scatter=has_reduce_scatter,
    )


def _farthest(profile: HardwareProfile, mesh: DeviceMatrix, axis: int) -> Link:
    """The link between the devices farthest apart along an axis: a collective waits for its slowest group."""
    if mesh.ranks != range(mesh.num_devices):
        return max((profile.link_between(group) for group in mesh.groups((axis,))), key=lambda link: link.group)
    # Blocks of consecutive ranks between which the axis never leads. Jobs take equal shares of the domains that they need.
    block = math.prod(mesh.device_shape[axis:])
    for link in profile.links[:-1]:
        sizes = range(min(link.group, mesh.num_devices), 0, -1)
        if next(size for size in sizes if mesh.num_devices % size == 0) % block == 0:
            return link
    return profile.links[-1]
