"""Hardware profiles: rates of arithmetic, of memory and of the links between devices.

A profile is a JSON file. Those that come with Sporax are known by name (`known_profiles`); a path reads your own.
Numbers are nominal rates; `compute_efficiency` and `memory_efficiency` say what share of them programs reach.
"""

from __future__ import annotations

import json
import math
import reprlib
import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from sporax.ir.errors import SporaxTypeError, SporaxValueError


@dataclass(frozen=True, slots=True)
class Link:
    """One level of the network between devices.

    Attributes:
        name: what people call it.
        group: how many devices with consecutive ranks it joins; the outermost level joins all, however many.
        alpha_seconds: latency of one step to a neighbour.
        bandwidth: bytes per second that a device sends, one way.
    """

    name: str
    group: int
    alpha_seconds: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """One kind of device.

    Attributes:
        name: what people call it.
        source: where the numbers come from.
        flops: matrix multiplication, floating-point operations per second by dtype; ``"default"`` for all others.
        memory_bandwidth: bytes per second.
        memory_bytes: of one device.
        links: the innermost first.
        compute_efficiency, memory_efficiency: share of the nominal rates that programs reach.
        launch_seconds: fixed time of one kernel.
        collective_seconds: fixed time of one collective.
        overlap: share of the time of collectives in the backward pass and after it that hides behind computing.
        merged_bytes: collectives of which the compiler makes one out of several that do not need each other, and up to how many
            bytes of its result.
    """

    name: str
    source: str
    flops: Mapping[str, float] = field(hash=False)
    memory_bandwidth: float
    memory_bytes: int
    links: tuple[Link, ...]
    compute_efficiency: float = 0.7
    memory_efficiency: float = 0.7
    launch_seconds: float = 0.0
    collective_seconds: float = 0.0
    overlap: float = 0.0
    merged_bytes: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"HardwareProfile({self.name}, {self.memory_bytes / 1e9:.0f} GB)"

    def flops_per_second(self, dtype: str) -> float:
        """Reachable rate of matrix multiplication in `dtype`."""
        return self.compute_efficiency * self.flops.get(dtype, self.flops["default"])

    @property
    def bytes_per_second(self) -> float:
        """Reachable rate of reading and writing memory."""
        return self.memory_efficiency * self.memory_bandwidth

    def link_between(self, ranks: tuple[int, ...]) -> Link:
        """The innermost level that joins all of `ranks`."""
        for link in self.links[:-1]:
            if len({rank // link.group for rank in ranks}) == 1:
                return link
        return self.links[-1]

    def to_json(self) -> str:
        """The profile as a file holds it."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str, where: str = "profile") -> HardwareProfile:
        """Read a profile.

        Args:
            text: a JSON object with the attributes as keys.
            where: what messages call it.

        Raises:
            SporaxValueError: not a JSON object, a key is missing or unknown, or a value is not as it must be.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SporaxValueError(f"For 'HardwareProfile', '{where}' must be a JSON object, but {error}.") from None
        _check_keys(cls, value, where)
        links = _links(value["links"], where)
        flops = value["flops"]
        if not isinstance(flops, dict) or "default" not in flops:
            raise SporaxValueError(
                f"For 'HardwareProfile', 'flops' of '{where}' must give a rate per dtype and one called 'default', but got "
                f"{flops!r}."
            )
        merged = value.get("merged_bytes", {})
        if not isinstance(merged, dict) or not set(merged) <= _MERGED:
            raise SporaxValueError(
                f"For 'HardwareProfile', 'merged_bytes' of '{where}' must give numbers of bytes for some of {sorted(_MERGED)}, "
                f"but got {merged!r}."
            )
        for name, number in [*flops.items(), *merged.items(), *value.items()]:
            if name in ("name", "source"):
                _check_text(number, name, where)
            elif name not in ("flops", "links", "merged_bytes"):
                _check_number(number, name, where, zero=name.endswith("_seconds") or name == "overlap")
        for name in _SHARES & set(value):
            if value[name] > 1.0:
                raise SporaxValueError(
                    f"For 'HardwareProfile', '{name}' of '{where}' must be a share, 1 at most, but got {value[name]!r}."
                )
        return cls(**{**value, "links": links, "memory_bytes": int(value["memory_bytes"])})


def known_profiles() -> tuple[str, ...]:
    """Names of the profiles that come with Sporax."""
    names = (file.name for file in _folder().iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


def load_profile(name: str) -> HardwareProfile:
    """A profile by name, or from a JSON file.

    Args:
        name: one of `known_profiles`, or a path that ends in ``.json``.

    Raises:
        SporaxTypeError: not a text.
        SporaxValueError: no such profile or file, or the file is not a profile.

    Example:
        >>> load_profile("h200").memory_bytes
        141000000000
    """
    if not isinstance(name, str):
        raise SporaxTypeError(
            f"For 'hardware', the profile must be a name or the path of a JSON file, but got {name!r}."
        )
    if name in known_profiles():
        return _known_profile(name)
    path = Path(name)
    if path.suffix != ".json" or not path.is_file():
        raise SporaxValueError(
            f"For 'hardware', the profile must be one of {known_profiles()} or the path of a JSON file, but got '{name}'."
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SporaxValueError(f"For 'hardware', the file '{name}' must be readable as text, but {error}.") from None
    return HardwareProfile.from_json(text, name)


@cache
def _known_profile(name: str) -> HardwareProfile:
    return HardwareProfile.from_json((_folder() / f"{name}.json").read_text(encoding="utf-8"), name)


def _folder() -> Any:
    return resources.files("sporax.ir") / "profiles"


_MERGED = {"all_gather", "all_reduce", "reduce_scatter"}
_MOST = sys.float_info.max
_SHARES = {"compute_efficiency", "memory_efficiency", "overlap"}


def _links(value: Any, where: str) -> tuple[Link, ...]:
    """The levels of the network, each of which joins more devices than the one before."""
    if not isinstance(value, list) or not value:
        raise SporaxValueError(
            f"For 'HardwareProfile', 'links' of '{where}' must be a list, innermost first, but got {value!r}."
        )
    links = tuple(_link(entry, where) for entry in value)
    groups = [link.group for link in links]
    if groups != sorted(set(groups)):
        raise SporaxValueError(
            f"For 'HardwareProfile', 'links' of '{where}' must stand innermost first, each with a larger 'group' than the one "
            f"before, but got the groups {groups}."
        )
    return links


def _link(value: Any, where: str) -> Link:
    _check_keys(Link, value, where)
    _check_text(value["name"], "name", where)
    for name in ("group", "alpha_seconds", "bandwidth"):
        _check_number(value[name], name, where, zero=name == "alpha_seconds")
    if int(value["group"]) != value["group"]:
        raise SporaxValueError(
            f"For 'HardwareProfile', 'group' of '{where}' must be a whole number of devices, but got {value['group']!r}."
        )
    return Link(**{**value, "group": int(value["group"])})


def _check_keys(kind: type[HardwareProfile] | type[Link], value: Any, where: str) -> None:
    what = "profile" if kind is HardwareProfile else "link"
    if not isinstance(value, dict):
        raise SporaxValueError(
            f"For 'HardwareProfile', a {what} of '{where}' must be a JSON object, but got {reprlib.repr(value)}."
        )
    keys = {setting.name for setting in fields(kind)}
    needed = {
        setting.name for setting in fields(kind) if setting.default is MISSING and setting.default_factory is MISSING
    }
    missing, unknown = sorted(needed - set(value)), sorted(set(value) - keys)
    if missing or unknown:
        problems = [f"{entry} are missing" for entry in (missing,) if entry] + [
            f"{entry} are unknown" for entry in (unknown,) if entry
        ]
        raise SporaxValueError(
            f"For 'HardwareProfile', a {what} of '{where}' must have the keys {sorted(needed)} and may have "
            f"{sorted(keys - needed)}, but {' and '.join(problems)}."
        )


def _check_text(value: Any, name: str, where: str) -> None:
    if not isinstance(value, str):
        raise SporaxValueError(f"For 'HardwareProfile', '{name}' of '{where}' must be a text, but got {value!r}.")


def _check_number(value: Any, name: str, where: str, zero: bool) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and _MOST >= value > -math.inf
    if not is_number or value < 0 or (value == 0 and not zero):
        bound = ">= 0" if zero else "> 0"
        raise SporaxValueError(
            f"For 'HardwareProfile', '{name}' of '{where}' must be a number {bound}, but got {reprlib.repr(value)}."
        )
