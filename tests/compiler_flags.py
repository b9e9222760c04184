"""The session's settings of the compiler, for processes that tests start: each has as many devices as it requests."""

import os

COMPILER = " ".join(flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag)
