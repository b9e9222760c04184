"""What the ranks of a test's job get of this process's environment."""

import os

_OF_THIS_PROCESS = ("MS_", "RANK_", "LOCAL_RANK", "DEVICE_ID", "OMPI_", "XLA_FLAGS", "JAX_PLATFORMS")
_COMPILER = " ".join(flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag)


def job_environment() -> dict[str, str]:
    """The environment without what is about this process and its simulated devices.

    The session's settings of the compiler stay: ranks compile small programs, too.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THIS_PROCESS)}
    return {**kept, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": _COMPILER}
