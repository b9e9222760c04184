"""`sporax info`: what is installed here and which devices are really usable. The text to paste into a bug report.

JAX reaches an accelerator through a plugin, a package of its own: what is missing may be the plugin, the driver or the device.
The report names each of them, what ranks exchange data with, and what to install.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from glob import glob
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from importlib.util import find_spec

from msgspec import Struct

from sporax._version import __version__

_PACKAGE = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_CORE = "required"
_COLLECTIVES = {"cpu": "gloo", "gpu": "NCCL", "tpu": "the TPUs' own links"}
"""What ranks exchange data with, by the platform of their devices."""


class Accelerator(Struct, frozen=True):
    """A kind of device that JAX reaches through a plugin.

    Attributes:
        name: as ``JAX_PLATFORMS`` and the extras of ``jax`` call it.
        platforms: its names in ``JAX_PLATFORMS``.
        platform: as JAX's devices call it.
        plugin: the installed plugin; None where there is none.
        driver: the device file that shows a driver; None where there is none.
        install: the command that installs the plugin.
    """

    name: str
    platforms: tuple[str, ...]
    platform: str
    plugin: str | None
    driver: str | None
    install: str

    def missing(self) -> str:
        """What keeps JAX from using it, and what to do; "" where plugin and driver are there."""
        if self.plugin is None and self.driver is None:
            return f"no plugin and no device of this machine; where there is one: {self.install}"
        if self.plugin is None:
            return f"there is a device ({self.driver}), but no plugin: {self.install}"
        if self.driver is None:
            return (
                f"the plugin {self.plugin} is installed, but this machine shows no device: its driver must be installed"
            )
        return ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`sporax info` takes no flags."""


def run(arguments: argparse.Namespace) -> int:
    """Print the report; returns 0, or 1 when JAX finds no device to run on."""
    print(f"sporax {__version__}, python {platform.python_version()}, {platform.platform()}")
    for group, packages in packages_by_group(_requirements()).items():
        _show([f"{group if group == _CORE else f'extra [{group}]'}: {', '.join(map(_with_version, packages))}"])
    found = accelerators()
    try:
        lines, used = list(_device_lines()), _used_platforms()
    # JAX asserts that a backend has started where a platform that it was set to use has no plugin.
    except (RuntimeError, AssertionError) as problem:
        _show(_nothing_lines(found, os.environ.get("JAX_PLATFORMS", ""), str(problem)))
        return 1
    _show((*lines, *accelerator_lines(found, used)))
    return 0


def _show(lines: Iterable[str]) -> None:
    """Print lines, none wider than the terminal; what goes on is indented."""
    width = shutil.get_terminal_size().columns
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        print(
            textwrap.fill(
                line, width, subsequent_indent=f"{indent}    ", break_long_words=False, break_on_hyphens=False
            )
        )


def accelerators() -> tuple[Accelerator, ...]:
    """The kinds of devices that JAX has plugins for, with what is found of them on this machine."""
    names = sorted(point.name for point in entry_points(group="jax_plugins"))
    cuda = next((name for name in names if "cuda" in name), None)
    tpu = "libtpu" if find_spec("libtpu") is not None else None
    return (
        Accelerator(
            "cuda", ("cuda", "gpu"), "gpu", cuda, _first_file("/dev/nvidia[0-9]*"), "pip install 'sporax[cuda]'"
        ),
        Accelerator(
            "tpu", ("tpu",), "tpu", tpu, _first_file("/dev/accel*", "/dev/vfio/[0-9]*"), "pip install 'jax[tpu]'"
        ),
    )


def accelerator_lines(found: Iterable[Accelerator], used: Iterable[str]) -> Iterator[str]:
    """One line per kind of accelerator, and what ranks exchange data with.

    Args:
        found: what was found of each kind.
        used: platforms of the devices that JAX uses, as its devices call them.
    """
    used = tuple(used)
    for each in found:
        unused = each.missing() or f"the plugin {each.plugin} is installed, but JAX uses no device of it"
        yield f"{each.name}: {f'usable (plugin {each.plugin})' if each.platform in used else unused}"
    for each_platform in used:
        library = _COLLECTIVES.get(each_platform, "what its plugin has")
        yield f"collectives between processes on {each_platform}: {library}"


def _nothing_lines(found: Iterable[Accelerator], names: str, problem: str) -> Iterator[str]:
    """What to say where JAX can start no backend: what is missing of the platforms that it was set to use."""
    yield f"devices: none, because {f'JAX says: {problem}' if problem else f'JAX_PLATFORMS={names} leaves no usable platform'}"
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = [each for each in found if not wanted or set(wanted) & set(each.platforms)]
    for each in known:
        yield f"{each.name}: {each.missing() or f'the plugin {each.plugin} could not start'}"
    strange = set(wanted) - {"cpu"} - {name for each in known for name in each.platforms}
    if strange:
        yield f"JAX_PLATFORMS names {', '.join(sorted(strange))}; a list of cpu, cuda and tpu is what Sporax runs on"
    if names:
        yield "without JAX_PLATFORMS, JAX uses the best platform that it finds; JAX_PLATFORMS=cpu is the CPU"


def _first_file(*patterns: str) -> str | None:
    return next((name for pattern in patterns for name in sorted(glob(pattern))), None)


def _used_platforms() -> list[str]:
    import jax  # here: only this command wants JAX

    return sorted({device.platform for device in jax.devices()})


def packages_by_group(requirements: Iterable[str]) -> Mapping[str, list[str]]:
    """Sort a distribution's requirement lines by the extra that requires them.

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
    """What Sporax's installed metadata requires; nothing when it runs from a bare source tree."""
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
