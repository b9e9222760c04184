"""What this process knows of its job, in one value: `SESSION`.

Problem: a process takes part in one job at a time, and facts about it are requested from everywhere: which rank it is, whether
it only simulates one, which groups there are, what the user has seeded, who listens to plans. Method: one value for all facts of
the job, made when Sporax is loaded, changed by `runtime.world` (start and stop) and by the setters of the facade, and
looked up here. Nothing else below MindSpore's names changes while the program runs, but the rules that users register, the
activities that are shown and the numbers of marks (`tests/test_module_state.py` lists them). This module does not load JAX:
`sporax plan` sets its listener before the user's script decides how JAX is loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from itertools import count
from pathlib import Path
from threading import local
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from weakref import WeakSet, WeakValueDictionary, ref

from sporax.base.lazy_members import dataclass

if TYPE_CHECKING:  # most processes never need the searches, or the watchdog of jobs
    import jax

    from sporax.cluster.membership import Membership
    from sporax.cluster.watchdog import Watchdog
    from sporax.ir.config.parallel_config import ParallelConfig
    from sporax.ir.graph import OperatorGraph
    from sporax.ir.marks import OperatorMark, Shardings
    from sporax.ir.operation import Shape
    from sporax.ps.worker.server_connection import ServerConnection
    from sporax.report.questions import Planned


T = TypeVar("T")


def _no() -> bool:
    return False


def _one() -> int:
    return 1


PlanListener = Callable[["Planned"], None]

StrategySource: TypeAlias = "Callable[[OperatorGraph, ParallelConfig], Mapping[int, Shardings]]"
"""Strategies for operators of a step in place of the program's, by number of the call."""

InputCheck: TypeAlias = "Callable[[ParallelConfig, Sequence[Shape], int], None]"
"""Checks the settings against the shapes of a step's data, over all ranks, and the number of devices of a stage."""

StepListener: TypeAlias = "Callable[[Any, Callable[[OperatorMark], bool]], None]"
"""Called with a planned step (`runtime.planned.step.PlannedStep`) and whether its plan had to keep an operator's strategy."""


class StepRecorder(Protocol):
    """Counts steps and records some of them (`runtime.process.recording`)."""

    def around(self, run: Callable[[], T], variables: Sequence[Any] = (), *, ends_step: bool = False) -> T:
        """Run a program that may be the end of a step."""

    def finish(self) -> None:
        """Write what was recorded."""


class SimulatedRank(Protocol):
    """A rank whose programs are compiled and not run (`runtime.process.dry_run`)."""

    level: int

    def add(self, lowered: jax.stages.Lowered, name: str) -> tuple[jax.stages.Compiled, Any]:
        """Compile a program and note what it needs."""

    def close(self) -> None:
        """Write what was noted."""


@dataclass(frozen=True, slots=True)
class World:
    """All ranks of the job, seen from one of them.

    Attributes:
        rank, size: this rank, and how many there are.
        local_rank, local_size: the same among the ranks of this machine.
        devices: the device of each rank, in rank order.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    devices: tuple[jax.Device, ...] = field(default=(), repr=False)


class Turn(local):
    """What keeps the joint programs that a thread starts in order (`runtime.ranks.joint_arrays`).

    Attributes:
        zero: a number that is 0 and goes from one program to the next; None before the first.
        devices: of the last program.
    """

    zero: jax.Array | None = None
    devices: tuple[jax.Device, ...] = ()

    def finish(self) -> None:
        """Wait for the end of the last joint program, before programs that `zero` does not keep in order."""
        if self.zero is not None:
            self.zero.block_until_ready()


class Tracing(local):
    """The contexts that are open around what a thread traces now.

    Attributes:
        frame: the innermost frame (`runtime.state.frames.Frame`); None outside every transformation.
        zero: an input, which is 0, of the joint program that is traced; None outside of one.
        latest: for each trace in progress, its state and one element of the result of its last collective.
        forward_mode: exchanges of data are refused because what contains them is differentiated in forward mode.
        refused: what refuses exchanges of data, for messages; "" where they are allowed.
        one_rank: what runs is one rank's part of a step, in a process that acts for several.
        owner: the worker whose placed call is traced; None outside of one.
        texts: what stands in texts for tensors whose values are not known yet: the tensor, and how it is written.
    """

    frame: Any = None
    zero: jax.Array | None = None
    latest: tuple[tuple[object, jax.Array], ...] = ()
    forward_mode: bool = False
    refused: str = ""
    one_rank: bool = False
    owner: int | None = None

    def __init__(self) -> None:
        self.texts: dict[str, tuple[Any, Callable[..., str]]] = {}


@contextmanager
def assigned(target: Session | Tracing, **values: object) -> Iterator[None]:
    """Context in which attributes have these values."""
    before = {name: getattr(target, name) for name in values}
    try:
        for name, value in values.items():
            setattr(target, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)


@dataclass(slots=True)
class Session:
    """The state of this process.

    Attributes:
        world: the ranks; None before `init`.
        membership: this process's connection to the scheduler.
        watchdog: notices ranks that are lost; None where there is only one.
        groups: ranks of the groups that the user has created, by name.
        dry_run: the rank that this process only simulates; None in a real job.
        simulating: what is traced now computes one rank's part, without the others.
        servers: this worker's connection to parameter servers; None in other jobs.
        version: grows whenever configuration changes that a trace may depend on.
        job: number of ranks and own rank, as the parallel context sees them.
        acts_for: for how many ranks all processes of the job act; the parallel context knows it.
        by_rank: whether each rank runs a step of its own batch; the parallel context knows it.
        sharded_over: over how many devices steps of the global view are sharded, 1 elsewhere; the parallel context knows it.
        reported_size: the number of ranks that the script has read; None before.
        turn: the order of joint programs.
        tracing: the contexts of traces, for each thread.
        holders: types that are pytree nodes of one array, stored in ``raw``: arguments of such types need no flattening
            where their ``static_part``, what a program knows of them but their array, is None.
        started_as_globals: by code, local variables that start with the values of global ones
            (`mindspore.common._assigned_globals`).
        saved_norms: how often norms of gradients were saved, by folder.
        files: folders in which variables are stored between steps, by their settings.
        deferred_gradients: calls of gradients that wait for their optimizer; those that are not `taken` can be planned alone.
        checks: by number the errors of conditions in a program that has run, None where none was raised; callbacks note them in
            threads of XLA.
        check_numbers: for the conditions of programs, in the order in which they are checked.
        seed: the global seed; None when it was never set.
        agreed: by identity the Parameters that have begun with rank 0's values.
        fed_network: the network whose inputs data sets prepare: the last with a layout of its inputs.
        plan_listeners: called in order with every plan that this process makes, before anything of it is compiled.
        strategy_sources: give strategies before a step is planned; the later ones win.
        input_checks: called before a step with data is planned.
        step_listeners: called in order with every step that is planned to run.
        plan_only: steps are planned and not run: variables keep their values, results are zeros.
        remarks: what the heads of plans say that are made now.
        reported_float16: a warning has said what float16 costs on a CPU, or need not.
        looked_for_checkpoint: something of this process has loaded a checkpoint, or would have if there were one.
        verified_plan: a plan was compared with one device, as the user requests it.
        compile_seconds: spent on tracing, planning and compiling programs.
        recording: counts steps and records some of them; None where the user does not request it.
        executables: compiled programs, whose texts say what recorded operators belong to.
        plans_all: training steps that the script does not shard are planned as well, in automatic parallelism, and nothing is
            trained or written: the process is there for its plans.
    """

    world: World | None = None
    membership: Membership | None = None
    watchdog: Watchdog | None = None
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    dry_run: SimulatedRank | None = None
    simulating: bool = False
    servers: ServerConnection | None = None
    version: int = 0
    job: tuple[int, int] = (1, 0)
    acts_for: Callable[[], int] = _one
    by_rank: Callable[[], bool] = _no
    sharded_over: Callable[[], int] = _one
    reported_size: int | None = None
    turn: Turn = field(default_factory=Turn)
    tracing: Tracing = field(default_factory=Tracing)
    holders: set[type] = field(default_factory=set)
    started_as_globals: dict[CodeType, frozenset[str]] = field(default_factory=dict)
    saved_norms: Counter[Path] = field(default_factory=Counter)
    files: dict[str, Any] = field(default_factory=dict)
    deferred_gradients: list[Any] = field(default_factory=list)
    checks: dict[int, BaseException | None] = field(default_factory=dict)
    check_numbers: Iterator[int] = field(default_factory=count)
    seed: int | None = None
    agreed: WeakValueDictionary[int, Any] = field(default_factory=WeakValueDictionary)
    fed_network: ref[Any] | None = None
    plan_listeners: list[PlanListener] = field(default_factory=list)
    strategy_sources: list[StrategySource] = field(default_factory=list)
    input_checks: list[InputCheck] = field(default_factory=list)
    step_listeners: list[StepListener] = field(default_factory=list)
    plan_only: bool = False
    plans_all: bool = False
    remarks: tuple[str, ...] = ()
    reported_float16: bool = False
    looked_for_checkpoint: bool = False
    verified_plan: bool = False
    compile_seconds: float = 0.0
    recording: StepRecorder | None = None
    executables: WeakSet[Any] = field(default_factory=WeakSet)

    def announce(self, planned: Planned) -> None:
        """Call all listeners with a new plan. An exception of theirs reaches the caller of the step."""
        for listener in self.plan_listeners:
            listener(planned)

    def strategies_for(self, graph: OperatorGraph, config: ParallelConfig) -> dict[int, Shardings]:
        """What all sources have for operators of a step, by number of the call. Their exceptions reach the caller of the step."""
        return {
            number: strategy for source in self.strategy_sources for number, strategy in source(graph, config).items()
        }

    def check_inputs(self, config: ParallelConfig, shapes: Sequence[Shape], num_devices: int) -> None:
        """Check settings against the data of a step, with all checks. Their exceptions reach the caller of the step.

        Args:
            shapes: of the data, over all ranks.
            num_devices: of one stage.
        """
        for check in self.input_checks:
            check(config, shapes, num_devices)

    def announce_step(self, step: Any, keeps: Callable[[OperatorMark], bool]) -> None:
        """Call all listeners with a planned step. An exception of theirs reaches the caller of the step.

        Args:
            keeps: whether its plan had to keep the user's strategy of an operator.
        """
        for listener in self.step_listeners:
            listener(step, keeps)


# All facts of this process's job.
SESSION = Session()
"""Of this process."""
