"""`sporax calibrate`: measure the devices at hand and write a hardware profile for the planner."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from sporax.base.errors import For, SporaxValueError
from sporax.launch.jobs.cores import simulated_devices


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add("--devices", type=int, metavar="N", help="simulate N devices on the CPU (default: the real ones)")
    add("--name", default="measured", help="name of the profile (default: measured)")
    add("--out", default="profile.json", metavar="FILE", help="file to write (default: profile.json)")


def run(arguments: argparse.Namespace) -> int:
    """Measure and write; returns the exit code.

    Raises:
        SporaxValueError: no name, a number of devices below 1, or a file that cannot be a profile.
    """
    For("sporax calibrate").refuse(not arguments.name.strip(), f"--name must be a name, but got '{arguments.name}'")
    path = Path(arguments.out).absolute()
    # Checked first, since measuring takes a while.
    if path.suffix != ".json" or path.is_dir() or not os.access(path.parent, os.W_OK):
        raise SporaxValueError(
            f"For 'sporax calibrate', --out must be a .json file in a directory that can be written, but got '{arguments.out}'."
        )
    if arguments.devices is not None:
        For("sporax calibrate").refuse(arguments.devices <= 0, "--devices must be greater than 0", arguments.devices)
        # JAX reads the number of devices once, when it starts.
        os.environ.update(simulated_devices(os.environ, arguments.devices))
    from sporax.runtime.devices.calibrate import main as measure  # here: the other commands stay without JAX

    try:
        measure(arguments.name, str(path))
    except OSError as error:
        raise SporaxValueError(
            f"For 'sporax calibrate', '{arguments.out}' must be a file that can be written, but {error.strerror}."
        ) from None
    return 0
