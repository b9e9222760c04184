"""What the ranks of a test's job get of this process's environment."""

import os

from compiler_flags import COMPILER

_OF_THIS_PROCESS = ("MS_", "RANK_", "LOCAL_RANK", "DEVICE_ID", "OMPI_", "XLA_FLAGS", "JAX_PLATFORMS")


def job_environment() -> dict[str, str]:
    """The environment without what is about this process and its simulated devices.

    The session's settings of the compiler stay: ranks compile small programs, too.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THIS_PROCESS)}
    return {**kept, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": COMPILER}
