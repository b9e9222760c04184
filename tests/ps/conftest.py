"""What scripts of these tests are run with."""

import os

import pytest


@pytest.fixture(scope="session")
def script_environ() -> dict[str, str]:
    """Variables of a job's processes: one device each, and the session's settings of the compiler."""
    flags = " ".join(flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag)
    return {**os.environ, "XLA_FLAGS": flags}
