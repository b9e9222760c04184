"""Compiled programs that outlive the process: JAX's persistent compilation cache, on unless the user turns it off.

A second run of a script finds its programs and starts at once; plans are stored next to them (`runtime.devices.agreed_plan`).
Programs are kept per user and per kind of processor: code
compiled for one processor may not run on another. Nothing is kept in dry runs and of programs that compile in a moment.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from pathlib import Path

import jax

from sporax.cluster.environment import NO_CACHE
from sporax.ir.variables import read

_LEAST_SECONDS = 0.3  # reading a file takes about a tenth of that


@functools.cache  # once per process: later changes of JAX's settings are the user's
def turn_on() -> None:
    """Use the cache from now on, unless the environment or the user's own settings of JAX say otherwise."""
    # A directory that the user has chosen for JAX stays.
    chosen = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # JAX makes its settings' attributes itself
    if read(os.environ, NO_CACHE) == "1" or chosen is not None:
        return
    directory = _directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to: everything works without
        return
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _LEAST_SECONDS)


def plans_directory() -> Path | None:
    """Where plans are stored, next to compiled programs; None where the user has turned the cache off."""
    if read(os.environ, NO_CACHE) == "1":
        return None
    chosen = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # as above
    # A directory of the user's has everything in it; our own is for one kind of processor, on which plans do not depend.
    return _home() / "plans" if chosen in (None, str(_directory())) else Path(chosen) / "sporax-plans"


def _directory() -> Path:
    return _home() / f"programs-{_processor()}"


def _home() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "sporax"


def _processor() -> str:
    """A short name for what this processor can do."""
    # The line is called "flags" on x86 and "Features" on ARM.
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    able = next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())
    return hashlib.sha256(able.encode()).hexdigest()[:12]
