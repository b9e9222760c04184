"""Facts about the devices of a job, which the runtime hands to the planner: it never queries them itself."""

from __future__ import annotations

from dataclasses import dataclass

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import HardwareProfile, load_profile
from sporax.ir.placement import prime_mesh


def fitting_hardware(platform: str) -> str:
    """The hardware profile that fits devices of a kind best: ``"cpu"``, ``"gpu"``, ``"tpu"``."""
    # One profile stands for each kind of device; a profile of the user's, or a measured one, is more precise.
    return {"gpu": "h100", "tpu": "tpu-v5e"}.get(platform, "cpu")


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of a job.

    Attributes:
        count: how many all processes have together.
        platform: their kind, ``"cpu"``, ``"gpu"`` or ``"tpu"``.
        num_processes: how many processes drive them.
    """

    count: int
    platform: str = "cpu"
    num_processes: int = 1

    def check(self, needed: int) -> None:
        """Raise a SporaxRuntimeError if a run on `needed` devices finds fewer, or others in processes that run none of it."""
        if needed > self.count or (needed != self.count and self.num_processes > 1):
            raise SporaxRuntimeError(
                f"For 'set_auto_parallel_context', 'device_num' is {needed}, but there are {self.count} devices. Start the "
                f"script with `sporax run --local_devices {needed}` to simulate them on a CPU, or leave 'device_num' out."
            )

    def mesh(self, config: ParallelConfig) -> DeviceMatrix:
        """The devices of a run, with axes of prime sizes.

        Raises:
            SporaxRuntimeError: there are fewer devices, or a number of them that parallel modes do not take.
        """
        needed = config.device_num
        self.check(needed)
        # MindSpore accepts only these numbers of devices in its parallel modes.
        if needed not in (1, 2, 4) and needed % 8:
            raise SporaxRuntimeError(
                f"For 'parallel_mode' {config.parallel_mode}, the number of devices must be 1, 2, 4 or a multiple of 8, but "
                f"got {needed}."
            )
        return prime_mesh(DeviceMatrix((needed,)))

    def profile(self, settings: PlanSettings) -> HardwareProfile:
        """The hardware that the settings name, or that fits these devices.

        Raises:
            SporaxValueError: no such profile.
        """
        return load_profile(settings.profile or fitting_hardware(self.platform))
