"""Which cost model and memory limit the settings name, and which link of the hardware each mesh axis uses."""

from __future__ import annotations

import math

from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import HardwareProfile, Link
from sporax.planner.communication.moves import LinkCosts
from sporax.planner.cost.model import CostModel, Roofline
from sporax.planner.cost.symbolic import Symbolic


def link_costs(
    profile: HardwareProfile, mesh: DeviceMatrix, merging: bool = True, has_reduce_scatter: bool = True
) -> LinkCosts:
    """Costs per axis. An axis is as slow as the link that joins the devices farthest apart along it.

    Args:
        profile: the devices; consecutive ranks are close to each other.
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


def cost_model(settings: PlanSettings, mesh: DeviceMatrix, profile: HardwareProfile, merging: bool = True) -> CostModel:
    """The cost of operators and links: seconds on the devices, or MindSpore's published model where the settings request it.

    Args:
        merging: whether the compiler may merge collectives: nothing was set about fusion.
    """
    if settings.symbolic:
        recursive = settings.parallel.search_mode == "recursive_programming"
        weight_memory = settings.cost.rp_matmul_mem_coef if recursive else 0.0
        return Symbolic(settings.cost, weight_memory, settings.parallel.has_reduce_scatter, profile.platform)
    return Roofline(profile, link_costs(profile, mesh, merging, settings.parallel.has_reduce_scatter))


def device_memory(settings: PlanSettings, profile: HardwareProfile) -> int:
    """Bytes of one device: what the user set, or the profile's; the published cost model has its own default."""
    # A value that equals the default may still be the user's; only the record of changes shows it.
    is_default = "device_memory_capacity" not in settings.cost.changed
    there = profile.memory_bytes if is_default and not settings.symbolic else int(settings.cost.device_memory_capacity)
    # `max_device_memory` is a limit of the process, so the smaller one holds.
    return min(there, settings.max_device_bytes or there)
