"""Which cost model and which memory limit the settings ask for."""

from __future__ import annotations

from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import HardwareProfile
from sporax.planner.cost.link_rates import link_costs
from sporax.planner.cost.model import CostModel, Roofline
from sporax.planner.cost.symbolic import Symbolic


def cost_model(settings: PlanSettings, mesh: DeviceMatrix, profile: HardwareProfile, merging: bool = True) -> CostModel:
    """The cost of operators and links: seconds on the devices, or MindSpore's published model where the settings ask for it.

    Args:
        settings: the user's.
        mesh: the devices.
        profile: their hardware.
        merging: whether the compiler may merge collectives: nothing was set about fusion.
    """
    if settings.symbolic:
        recursive = settings.parallel.search_mode == "recursive_programming"
        weight_memory = settings.cost.rp_matmul_mem_coef if recursive else 0.0
        return Symbolic(settings.cost, weight_memory, settings.parallel.has_reduce_scatter, profile.platform)
    return Roofline(profile, link_costs(profile, mesh, merging, settings.parallel.has_reduce_scatter))


def device_memory(settings: PlanSettings, profile: HardwareProfile) -> int:
    """Bytes of one device: what the user set, or the profile's; the published cost model has its own default."""
    # A value that equals the default may still be the user's; only the record of changes tells.
    is_default = "device_memory_capacity" not in settings.cost.changed
    there = profile.memory_bytes if is_default and not settings.symbolic else int(settings.cost.device_memory_capacity)
    # `max_device_memory` is a limit of the process, so the smaller one holds.
    return min(there, settings.max_device_bytes or there)
