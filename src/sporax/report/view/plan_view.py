"""The view model of a plan: what people see of it, as plain values. Every renderer shows these values and computes none.

`report.summarize` makes a `PlanView` in one place; `report.render` shows it as text, as a page, and as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

VERSION = 1
"""Version of the JSON form; goes up where a key changes its meaning."""


@dataclass(frozen=True, slots=True)
class Headline:
    """What one reads first of a plan. A figure that nothing is known of is None, a name "".

    Attributes:
        script: the program that was planned.
        hardware: name of the devices' profile.
        seconds: predicted time of a step, in `unit`.
        unit: ``"s"``; another one where a cost model without hardware gave the prediction.
        bound: no plan of the same search space is faster than this.
        samples, tokens: of one step on all devices.
        samples_per_second, tokens_per_second: the same over the predicted time.
        mfu: share of the devices' nominal rate that products and convolutions use.
        peak_bytes: predicted memory of one device.
        compiled_bytes: memory of one device that the compiled plan needs, where the limit had it compiled.
        limit_bytes: what the plan may use of one device: the limit that was set, or the memory that the hardware has.
        remark: what the figures mean, where that needs a word.
        gathered: which data every device gathers, though it is sharded.
        hidden: seconds of transfers that programs on such hardware hide behind computing.
    """

    script: str = ""
    hardware: str = ""
    seconds: float | None = None
    unit: str = "s"
    bound: float | None = None
    samples: int | None = None
    tokens: int | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None
    peak_bytes: int = 0
    compiled_bytes: int | None = None
    limit_bytes: int | None = None
    remark: str = ""
    gathered: str = ""
    hidden: float = 0.0


@dataclass(frozen=True, slots=True)
class TimePart:
    """A part of the predicted time of a step.

    Attributes:
        name: kind of work, or of collective.
        seconds: in the unit of the headline.
        hidden_seconds: those of them that programs on such hardware hide behind computing.
    """

    name: str
    seconds: float
    hidden_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Memory of one device while the step runs.

    Attributes:
        num_operators: of the step, its loops written out.
        backward: position of the first operator of the backward pass; None without one.
        steps: numbers of operators that have run, and bytes by use from there on; -1 is the start.
        moments: when these begin and when the step ends, in the unit of the headline; loops take as long as all their rounds. ()
            where no cost is known.
    """

    num_operators: int
    backward: int | None
    steps: tuple[tuple[int, Mapping[str, int]], ...]
    moments: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class EqualCollectives:
    """Equal collectives of one operator.

    Attributes:
        kind: ``"all_reduce"``, ``"all_gather"``, ``"reduce_scatter"``, ``"all_to_all"`` or ``"permute"``.
        ranks: how many take part in one.
        num_bytes: what one rank brings into one.
        count: how many there are per step.
    """

    kind: str
    ranks: int
    num_bytes: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One call of one operator that the user wrote, in one phase of the step.

    Attributes:
        path, name: where it is and what it is; the name is "" for what stands outside of such operators.
        phase: ``"forward"``, ``"backward"`` or ``"update"``.
        strategy: numbers of slices per dimension of each input.
        given: whether the user said so.
        inputs, results: layouts at its entrance and exit; in the backward phase, those of the cotangents.
        collectives: what is communicated for it.
        flops: floating-point operations of one device.
        flops_share: their share of the step's.
        seconds: predicted time with the transfers that it needs, in the unit of the headline; 0 where no cost model is known.
        moved_bytes: what a rank brings into collectives on tensors without an arrow: those inside of it, and the step's inputs
            and results.
        times: how many operators the row stands for, where equal layers are one; the figures are those of one.
        paths: of all of them; "" for one alone.
    """

    path: str
    name: str
    phase: str
    strategy: tuple[tuple[int, ...], ...]
    given: bool
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    collectives: tuple[EqualCollectives, ...]
    flops: float
    flops_share: float
    seconds: float = 0.0
    moved_bytes: int = 0
    times: int = 1
    paths: str = ""


@dataclass(frozen=True, slots=True)
class Arrow:
    """Tensors that go from one operator to another.

    Attributes:
        source, target: positions of their rows.
        num_tensors: how many.
        moved: bytes that a rank brings into collectives on them, by kind.
        times: how many arrows it stands for, where equal layers are one.
    """

    source: int
    target: int
    num_tensors: int = 0
    moved: Mapping[str, int] = field(default_factory=dict, hash=False)
    times: int = 1

    @property
    def moved_bytes(self) -> int:
        """Of all kinds."""
        return sum(self.moved.values())


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One input of the step.

    Attributes:
        name: the Parameter's, or ``"input 0"``.
        role: ``"parameter"`` for what is trained (in steps that train nothing, every Parameter), ``"state"`` for other
            variables (moments, counters, running statistics), ``"data"``.
        dtype: of its elements.
        shape, slice_shape: of the whole, and of what a device keeps.
        layout: how operators have it.
        kept_as: its sharding between steps; differs from `layout` with optimizer parallelism.
        num_bytes: of one device.
    """

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    slice_shape: tuple[int, ...]
    layout: str
    kept_as: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """All collectives of one kind in a step.

    Attributes:
        kind: as in `EqualCollectives`.
        count: how many one rank takes part in.
        num_bytes: what it brings into them.
    """

    kind: str
    count: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a step, of one device.

    Attributes:
        parameter_bytes, state_bytes, data_bytes: of the inputs by role.
        whole_parameter_bytes, whole_state_bytes: the same whole: what a single device would hold.
        peak_bytes: predicted most memory in use, by the lives of tensors.
        peak_uses: what it is made of, as pairs of a use and bytes.
        flops: floating-point operations.
        traffic: communication by kind.
    """

    parameter_bytes: int
    state_bytes: int
    data_bytes: int
    whole_parameter_bytes: int
    whole_state_bytes: int
    peak_bytes: int
    peak_uses: tuple[tuple[str, int], ...]
    flops: float
    traffic: tuple[Traffic, ...]


@dataclass(frozen=True, slots=True)
class SearchRow:
    """How the plan was found.

    Attributes:
        method: the search.
        predicted_seconds: of one step as the search left it; optimizer parallelism and fusion come after it.
        bound_seconds: no plan of the same search space is faster than this; None when nothing was proven.
        optimal: the prediction is the least of the search space.
        search_seconds: what the search took.
        unit: of the prediction and the bound; another one than seconds where a model without hardware gave them.
    """

    method: str
    predicted_seconds: float
    bound_seconds: float | None
    optimal: bool
    search_seconds: float
    unit: str = "s"


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan for people.

    Attributes:
        num_devices: how many there are.
        axes: name and size of each axis as shown, outermost first.
        headline: what one reads first.
        operators: in the order in which they run.
        arrows: the tensors between them.
        tensors: inputs of the step.
        totals: sums.
        memory: over time.
        notes: what one should know: operators that could not be sharded, and why.
        search: how the plan was found; None where the user's shardings decided.
        warnings: what makes the plan worse than it need be, or leaves something out of it; they stand at its head.
        parts: where the time goes, most first; () where no cost is known.
        version: of the JSON form.
    """

    num_devices: int
    axes: tuple[tuple[str, int], ...]
    headline: Headline
    operators: tuple[OperatorRow, ...]
    arrows: tuple[Arrow, ...]
    tensors: tuple[TensorRow, ...]
    totals: Totals
    memory: MemoryCurve
    notes: tuple[str, ...]
    search: SearchRow | None = None
    warnings: tuple[str, ...] = ()
    parts: tuple[TimePart, ...] = ()
    version: int = VERSION
