"""`sporax info`: what is installed here and which devices JAX sees. The text to paste into a bug report."""

from __future__ import annotations

import argparse
import platform
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version

from sporax._version import __version__

_PACKAGE = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_CORE = "required"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`sporax info` takes no flags."""


def run(arguments: argparse.Namespace) -> int:
    """Print the report; returns 0, or 1 when JAX finds no device to run on."""
    print(f"sporax {__version__}, python {platform.python_version()}, {platform.platform()}")
    for group, packages in packages_by_group(_requirements()).items():
        print(f"{group if group == _CORE else f'extra [{group}]'}: {', '.join(map(_with_version, packages))}")
    try:
        lines = list(_device_lines())
    except RuntimeError as problem:
        print(f"devices: none, because JAX says: {problem}")
        return 1
    print("\n".join(lines))
    return 0


def packages_by_group(requirements: Iterable[str]) -> Mapping[str, list[str]]:
    """Sort a distribution's requirement lines by the extra that asks for them.

    Args:
        requirements: lines such as ``'pytest>=8.2; extra == "test"'``.

    Returns:
        Package names by extra; those that are always required under ``"required"``, first.
    """
    groups: dict[str, list[str]] = {_CORE: []}
    for line in requirements:
        package, extra = _PACKAGE.match(line), _EXTRA.search(line)
        # The extra is a marker at the end of the line.
        if package is not None:
            groups.setdefault(extra.group(1) if extra else _CORE, []).append(package.group())
    return groups


def _requirements() -> list[str]:
    """What Sporax's installed metadata asks for; nothing when it runs from a bare source tree."""
    try:
        return requires("sporax") or []
    except PackageNotFoundError:
        return []


def _with_version(package: str) -> str:
    """`numpy 2.1.0`, or `numpy missing`."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} missing"


def _device_lines() -> Iterator[str]:
    """One line for the devices of each kind; raises RuntimeError where JAX cannot start any backend."""
    import jax  # here: only this command wants JAX

    kinds = Counter((device.platform, device.device_kind) for device in jax.devices())
    for (device_platform, kind), count in kinds.items():
        yield f"devices: {count} x {kind} (platform {device_platform})"
    own = len(jax.local_devices())
    if own > 1:
        yield f"  one process uses all {own} in data, semi-automatic and automatic parallelism, and one in STAND_ALONE"
    if jax.default_backend() == "cpu":
        yield "  `sporax run --local_devices 8 script.py` simulates eight devices on this CPU"
