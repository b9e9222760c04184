"""Settings of the whole test session: eight simulated CPU devices in every process, set before JAX starts."""

import os

_FLAG = "--xla_force_host_platform_device_count"
_flags = os.environ.get("XLA_FLAGS", "")
if _FLAG not in _flags:
    os.environ["XLA_FLAGS"] = f"{_flags} {_FLAG}=8".strip()
