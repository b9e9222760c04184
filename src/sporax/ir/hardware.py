"""Hardware profiles: rates of arithmetic, of memory and of the links between devices.

A profile is a JSON file. Those that come with Sporax are known by name (`known_profiles`); a path reads your own.
Numbers are nominal rates; `compute_efficiency`, `memory_efficiency` and `link_efficiency` say what share of them programs
reach. The shares in the package come from published runs (`benchmarks/published_runs.py --fit`): few constants that all chips
share, with factors per chip that are pulled to 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from sporax.base.documents import MalformedError, NotJsonError, decode
from sporax.base.errors import For, SporaxValueError, did_you_mean

SYMBOLIC = "symbolic"
"""Is in the place of a profile for MindSpore's published cost model, which knows no hardware."""
_LARGEST = 1e30
"""Largest rate, size or time in a profile: far above those of every device, and below infinity."""
_NARROW = re.compile(r"u?(float|int)([1-8])(?![0-9])")
"""Types of at most eight bits, which have several layouts and one rate."""
_Positive = Annotated[float, Meta(gt=0, le=_LARGEST)]
_Seconds = Annotated[float, Meta(ge=0, le=_LARGEST)]
_Share = Annotated[float, Meta(gt=0, le=1)]
if TYPE_CHECKING:
    _Bytes = int
else:
    _Bytes = _Positive  # files may write bytes as 141e9
_MAX_BYTES = 1 << 20
"""Bytes of a profile, 1 MiB; those that come with Sporax have 2 kB."""


Overlap = Literal["weights", "gradients", "asynchronous"]
"""Kinds of transfers by what they may hide behind: weights gathered ahead, gradients reduced behind, collectives between products
that are divided to be asynchronous."""


class Link(Struct, frozen=True, forbid_unknown_fields=True):
    """One level of the network between devices.

    Attributes:
        name: what people call it.
        group: how many devices with consecutive ranks it joins; the outermost level joins all, however many.
        alpha_seconds: latency of one step to a neighbour.
        bandwidth: bytes per second that a device sends, one way.
        axes: of a torus, how many rings a collective may use at the same time; `bandwidth` is that of one.
    """

    name: str
    group: Annotated[int, Meta(gt=0)]
    alpha_seconds: _Seconds
    bandwidth: _Positive
    axes: Annotated[int, Meta(ge=1, le=8)] = 1


class HardwareProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of device.

    Attributes:
        name: what people call it.
        source: where the numbers come from.
        flops: matrix multiplication, operations per second by dtype; ``"float8"``, ``"int8"`` and ``"int4"`` are for all layouts
            of so many bits, ``"default"`` for all others.
        memory_bandwidth: bytes per second.
        memory_bytes: of one device.
        links: the innermost first.
        compute_efficiency, memory_efficiency, link_efficiency: share of the nominal rates that programs reach.
        attention: share of the 16-bit rate that kernels of attention reach, by their name, forward and backward together;
            ``"default"`` for the one that the compiler or its libraries take. Empty where none is fused: scores are written.
        attention_efficiency: share of that rate that programs reach.
        launch_seconds: fixed time of one kernel.
        collective_seconds: fixed time of one collective.
        overlap: share of the time of collectives in the backward pass and after it that searches hide behind computing.
        hidden: by kind of transfer, the share of computing behind which well-tuned programs hide it; none by default. Predicted
            times of plans have weights and gradients; ``"asynchronous"`` is of runs in `benchmarks/published_runs.py`.
        host_bandwidth: bytes per second between a device and its host, one way; 0 where unknown. Used there alone, too.
        merged_bytes: collectives of which the compiler makes one out of several that do not need each other, and up to how many
            bytes of its result.
        platform: JAX's name of such devices, ``"cpu"``, ``"gpu"`` or ``"tpu"``; "" where it has none. It decides how memory is
            predicted, and whether a program that is compiled here needs as much there.
    """

    name: str
    source: str
    flops: Mapping[str, _Positive]
    memory_bandwidth: _Positive
    memory_bytes: _Bytes
    links: Annotated[tuple[Link, ...], Meta(min_length=1)]
    compute_efficiency: _Share = 0.7
    memory_efficiency: _Share = 0.7
    link_efficiency: _Share = 1.0
    attention: Mapping[str, _Share] = {}
    attention_efficiency: _Share = 1.0
    launch_seconds: _Seconds = 0.0
    collective_seconds: _Seconds = 0.0
    overlap: Annotated[float, Meta(ge=0, le=1)] = 0.0
    hidden: Mapping[Overlap, Annotated[float, Meta(ge=0, le=1)]] = {}
    host_bandwidth: Annotated[float, Meta(ge=0, le=_LARGEST)] = 0.0
    merged_bytes: Mapping[Literal["all_gather", "all_reduce", "reduce_scatter"], _Positive] = {}
    platform: Literal["", "cpu", "gpu", "tpu"] = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "memory_bytes", int(self.memory_bytes))
        if "default" not in self.flops:
            raise ValueError(f"must have a rate called 'default' in 'flops', but has {sorted(self.flops)}")
        groups = [link.group for link in self.links]
        # Equal or falling groups would make a level that no ranks can use.
        if groups != sorted(set(groups)):
            raise ValueError(
                "must have 'links' that stand innermost first, each with a larger 'group' than the one before, but has the "
                f"groups {groups}"
            )

    def __hash__(self) -> int:
        return hash((self.name, self.memory_bandwidth, self.links))

    def __str__(self) -> str:
        return f"HardwareProfile({self.name}, {self.memory_bytes / 1e9:.0f} GB)"

    def nominal_flops(self, *dtypes: str) -> float:
        """Nominal rate of products of such operands: of several dtypes the lowest, since compilers convert to the widest."""
        return min((self.flops[self.rate_name(dtype)] for dtype in dtypes), default=self.flops["default"])

    def flops_per_second(self, *dtypes: str) -> float:
        """Reachable rate of products of such operands."""
        return self.compute_efficiency * self.nominal_flops(*dtypes)

    def rate_name(self, dtype: str) -> str:
        """The entry of `flops` for a dtype: its own, or that of the next wider one, as ``"float8"`` and ``"bfloat16"`` are for
        ``"float8_e4m3fn"``.
        """
        narrow = _NARROW.match(dtype)
        bits = () if narrow is None else (size for size in ("4", "8") if size >= narrow[2])
        wider = (*(f"{narrow[1]}{size}" for size in bits), "bfloat16") if narrow else ()
        return next((name for name in (dtype, *wider) if name in self.flops), "default")

    def attention_flops_per_second(self, kernel: str = "default") -> float:
        """Reachable rate of the products of attention in one kernel, in 16 bits; that of products where none is fused."""
        share = self.attention.get(kernel, self.attention.get("default", 0.0)) * self.attention_efficiency
        return (share or self.compute_efficiency) * max(
            self.flops.get(name, 0.0) for name in ("bfloat16", "float16", "default")
        )

    @property
    def compiler(self) -> str:
        """What decides how memory is predicted: the platform, or ``"written"`` where no kernel of attention is there."""
        return self.platform if self.attention or self.platform == "cpu" else "written"

    @property
    def bytes_per_second(self) -> float:
        """Reachable rate of reading and writing memory."""
        return self.memory_efficiency * self.memory_bandwidth

    def link_between(self, ranks: tuple[int, ...]) -> Link:
        """The innermost level that joins all of `ranks`."""
        for link in self.links[:-1]:
            # Groups are of consecutive ranks, so ranks of one group have one quotient.
            if len({rank // link.group for rank in ranks}) == 1:
                return link
        return self.links[-1]

    def borrowed_rate(self, dtype: str) -> str:
        """The entry of `flops` that is taken for a type of at most eight bits without one of its own; "" for all others."""
        name = self.rate_name(dtype)
        return name if _NARROW.match(dtype) and not dtype.removeprefix("u").startswith(name) else ""

    def to_json(self) -> str:
        """The profile as a file holds it."""
        return json.dumps(msgspec.to_builtins(self), indent=2)

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
            return decode(text, cls, _MAX_BYTES)
        except NotJsonError as problem:
            raise SporaxValueError(
                f"For 'HardwareProfile', '{where}' must be a JSON object, but {problem.reason}."
            ) from None
        except MalformedError as problem:
            subject = f"'{problem.where}' of '{where}'" if problem.where else f"'{where}'"
            raise SporaxValueError(f"For 'HardwareProfile', {subject} {problem.reason}.") from None


def known_profiles() -> tuple[str, ...]:
    """Names of the profiles that come with Sporax."""
    names = (file.name for file in _folder().iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


def profile_name(name: str) -> str:
    """A name of a known profile, or ``"symbolic"``, in its own letters; any other text as it is."""
    lower = name.lower()
    return lower if lower in (*known_profiles(), SYMBOLIC) else name


def load_profile(name: str) -> HardwareProfile:
    """A profile by name, or from a JSON file.

    Args:
        name: one of `known_profiles` in letters of any case, or a path that ends in ``.json``.

    Raises:
        SporaxTypeError: not a text.
        SporaxValueError: no such profile or file, or the file is not a profile.

    Example:
        >>> load_profile("h200").memory_bytes
        150754820096
    """
    if not isinstance(name, str):
        raise For("hardware").type_error("the profile must be a name or the path of a JSON file", repr(name))
    name = profile_name(name)
    if name in known_profiles():
        return _known_profile(name)
    path = Path(name)
    if path.suffix != ".json" or not path.is_file():
        raise SporaxValueError(
            f"For 'hardware', the profile must be one of {known_profiles()} or the path of a JSON file, but got '{name}'."
            f"{did_you_mean(name, known_profiles())}"
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
