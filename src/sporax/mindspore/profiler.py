"""`mindspore.Profiler` and `mindspore.profiler`: where the time of a run goes, recorded by the JAX profiler.

A recording is a folder that TensorBoard (with its profile plugin) and XProf show; ``perfetto.json.gz`` in it has the operators
with their Cell paths for Perfetto, and `sporax profile` prints where the time went. MindSpore's own files, for MindInsight and
MindStudio, are not written.

With a `schedule`, a call of `step` after each training step decides what happens next: ``NONE → WARM_UP → RECORD …
RECORD_AND_SAVE``, over and over. JAX needs no warming up, so nothing happens there; each cycle is a recording of its own
in the folder, and `on_trace_ready` is called with the profiler when it is written.
"""

from __future__ import annotations

import enum
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import jax

from sporax.base.errors import For, SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import log
from sporax.mindspore._names.missing import answer_missing_names
from sporax.runtime.process import recorded_operators

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = """
    AicoreMetrics ExportType HostSystem Profiler ProfilerAction ProfilerActivity ProfilerLevel Schedule
    _ExperimentalConfig analyse mstx profile schedule tensorboard_trace_handler
""".split()

answer_missing_names(__name__)

_SETTINGS = frozenset(
    """
    activities aic_metrics aicore_metrics data_process data_simplification env_enable hbm_ddr host_stack host_sys l2_cache
    mstx mstx_domain_exclude mstx_domain_include op_time parallel_strategy pcie profile_communication profile_framework
    experimental_config export_type profile_memory profiler_level record_shapes sync_enable sys_interconnection sys_io
    timeline_limit
    """.split()
)
"""MindSpore's arguments: what its recordings have beyond or besides those of JAX."""

_METADATA_FILE = "profiler_metadata.json"


class ProfilerLevel(enum.Enum):
    """How much MindSpore records."""

    LevelNone = "LevelNone"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class ProfilerActivity(enum.Enum):
    """What MindSpore records."""

    CPU = "CPU"
    GPU = "GPU"
    NPU = "NPU"


class AicoreMetrics(enum.Enum):
    """What MindSpore counts on Ascend's cores."""

    AiCoreNone = "AiCoreNone"
    ArithmeticUtilization = "ArithmeticUtilization"
    PipeUtilization = "PipeUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    ResourceConflictRatio = "ResourceConflictRatio"
    MemoryUB = "MemoryUB"
    L2Cache = "L2Cache"
    MemoryAccess = "MemoryAccess"


class ExportType(enum.Enum):
    """Form of MindSpore's files."""

    Db = "db"
    Text = "text"


class HostSystem(enum.Enum):
    """What MindSpore records of the host."""

    CPU = "cpu"
    MEM = "mem"
    DISK = "disk"
    NETWORK = "network"
    OSRT = "osrt"


class ProfilerAction(enum.Enum):
    """What a profiler with a schedule does during a step."""

    NONE = 0
    WARM_UP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3

    @staticmethod
    def get_by_value(value: int) -> ProfilerAction | None:
        """The action with this number, or None."""
        return next((action for action in ProfilerAction if action.value == value), None)


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class Schedule:
    """Cycles of steps: `wait` without a recording, `warmup`, `active` with one; `mindspore.profiler.schedule`.

    Same as MindSpore: a number that is not valid is reset to 0 (`active`: 1), with a warning in the log.

    Args:
        wait: steps of each cycle before the warming up.
        active: recorded steps of each cycle.
        warmup: steps between these.
        repeat: number of cycles; 0 for as many as there are.
        skip_first: steps before the first cycle.

    Example:
        >>> schedule(wait=1, active=2, repeat=1)(1)
        <ProfilerAction.RECORD: 2>
    """

    def __init__(self, *, wait: int, active: int, warmup: int = 0, repeat: int = 0, skip_first: int = 0) -> None:
        self.wait = self._checked("wait", wait, 0)
        self.active = self._checked("active", active, 1)
        self.warmup = self._checked("warmup", warmup, 0)
        self.repeat = self._checked("repeat", repeat, 0)
        self.skip_first = self._checked("skip_first", skip_first, 0)

    @staticmethod
    def _checked(name: str, value: Any, least: int) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        log.warning(
            "For 'schedule', '%s' must be an int >= %d, but got %r; it is reset to %d.", name, least, value, least
        )
        return least

    def __call__(self, step: int) -> ProfilerAction:
        """The action of a step, counted from 0.

        Raises:
            SporaxValueError: the number is negative.
        """
        For("schedule").refuse(step < 0, "'step' must be >= 0", step)
        cycle, place = divmod(step - self.skip_first, self.wait + self.warmup + self.active)
        if step < self.skip_first or (self.repeat and cycle >= self.repeat) or place < self.wait:
            return ProfilerAction.NONE
        if place < self.wait + self.warmup:
            return ProfilerAction.WARM_UP
        is_last = place == self.wait + self.warmup + self.active - 1
        return ProfilerAction.RECORD_AND_SAVE if is_last else ProfilerAction.RECORD

    def to_dict(self) -> dict[str, int]:
        """The settings by name."""
        return dict(vars(self))

    def __repr__(self) -> str:
        names = ("wait", "active", "warmup", "repeat", "skip_first")
        return f"Schedule({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


schedule = Schedule


class _ExperimentalConfig:
    """MindSpore's settings for recordings on Ascend. JAX records everything that it can, so they have no effect.

    Raises:
        SporaxTypeError: a setting that is none of MindSpore's.
    """

    def __init__(
        self,
        profiler_level: ProfilerLevel = ProfilerLevel.Level0,
        aic_metrics: AicoreMetrics = AicoreMetrics.AiCoreNone,
        l2_cache: bool = False,
        mstx: bool = False,
        data_simplification: bool = True,
        export_type: list[ExportType] | None = None,
        **settings: Any,
    ) -> None:
        unknown = sorted(set(settings) - _SETTINGS)
        if unknown:
            raise SporaxTypeError(f"For '_ExperimentalConfig', there is no argument {unknown[0]!r}.")
        self.settings = {
            "profiler_level": profiler_level, "aic_metrics": aic_metrics, "l2_cache": l2_cache, "mstx": mstx,
            "data_simplification": data_simplification, "export_type": export_type, **settings,
        }  # fmt: skip


def tensorboard_trace_handler(
    dir_name: str | None = None, worker_name: str | None = None, analyse_flag: bool = True, async_mode: bool = False
) -> Callable[[Any], None]:
    """What to give as `on_trace_ready`, so that recordings go to a folder of their own.

    Args:
        dir_name: the folder; that of the profiler by default.
        worker_name: a folder in it for this process.
        analyse_flag: accepted; the files need no further step.
        async_mode: likewise.
    """

    def handler(profiler: Any) -> None:
        log.info("The recording is in %s.", profiler.output_path)

    folder = Path(dir_name or "./data")
    if dir_name or worker_name:
        handler.output_path = folder / worker_name if worker_name else folder  # type: ignore[attr-defined]
    return handler


class mstx:  # noqa: N801 - MindSpore's name
    """Marks of the user's own in a recording: ranges by name."""

    _ranges: dict[int, Any] = {}

    @staticmethod
    def mark(message: str, stream: Any = None, domain: str = "default") -> None:
        """A mark without duration."""
        with jax.profiler.TraceAnnotation(message):
            pass

    @classmethod
    def range_start(cls, message: str, stream: Any = None, domain: str = "default") -> int:
        """Begin a range; returns its number for `range_end`."""
        number = max(cls._ranges, default=0) + 1
        annotation = jax.profiler.TraceAnnotation(message)
        annotation.__enter__()
        cls._ranges[number] = annotation
        return number

    @classmethod
    def range_end(cls, range_id: int, domain: str = "default") -> None:
        """End the range with this number; others are ignored, as in MindSpore."""
        annotation = cls._ranges.pop(range_id, None)
        if annotation is not None:
            annotation.__exit__(None, None, None)


class Profiler:
    """Records what host and devices do, from here or from `start` on until `stop` or `analyse`.

    Args:
        output_path: folder of the recording; ``./data`` by default.
        start_profile: begin at once.
        schedule: says for the number of a step what to do in it, see `Schedule`; `step` counts.
        on_trace_ready: is called with the profiler whenever a recording was written.
        with_stack: record calls of Python functions, too, which slows the program down.
        settings: MindSpore's further arguments. JAX records everything that it can, so they have no effect; each one given
            is named by a warning in the log.

    Raises:
        SporaxTypeError: an argument is not valid or not MindSpore's.
        SporaxRuntimeError: another profiler is recording.

    Example:
        >>> with Profiler(output_path="recording"):
        ...     model.train(1, dataset)
    """

    def __init__(
        self,
        output_path: str = "./data",
        start_profile: bool = True,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], None] | None = None,
        with_stack: bool = False,
        **settings: Any,
    ) -> None:
        if not isinstance(with_stack, bool):
            raise SporaxTypeError(f"For 'Profiler', 'with_stack' must be a bool, but got {with_stack!r}.")
        if not isinstance(output_path, (str, os.PathLike)):
            raise SporaxTypeError(f"For 'Profiler', 'output_path' must be a str, but got {output_path!r}.")
        if not isinstance(start_profile, bool):
            raise SporaxTypeError(f"For 'Profiler', 'start_profile' must be a bool, but got {start_profile!r}.")
        unknown = sorted(set(settings) - _SETTINGS)
        if unknown:
            raise SporaxTypeError(f"For 'Profiler', there is no argument {unknown[0]!r}.")
        for name, value in (("schedule", schedule), ("on_trace_ready", on_trace_ready)):
            if value is not None and not callable(value):
                raise SporaxTypeError(f"For 'Profiler', '{name}' must be callable, but got {value!r}.")
        for name in sorted(settings):
            log.warning("For 'Profiler', '%s' has no effect: JAX records everything that it can.", name)
        self.output_path = Path(getattr(on_trace_ready, "output_path", output_path))
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.step_num = 0
        self._with_stack = with_stack
        self._first_step = 0
        self._began = 0.0
        self._metadata: dict[str, Any] = {}
        self._is_recording = False
        self._is_started = False
        if start_profile:
            self.start()

    def __enter__(self) -> Self:
        if not self._is_started:
            self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._is_started:
            self.stop()

    def start(self) -> None:
        """Begin recording, or with a schedule begin to follow it.

        Raises:
            SporaxRuntimeError: this or another profiler is recording.
        """
        For("Profiler.start").refuse_state(self._is_started, "the profiler must not be recording, but it is")
        if self.schedule is None or self.schedule(self.step_num) in _RECORDING:
            self._record()
        self._is_started = True

    def _record(self) -> None:
        try:
            recorded_operators.start_profiler(self._folder, python_frames=self._with_stack)
        except RuntimeError as error:
            raise SporaxRuntimeError(f"For 'Profiler.start', no other profiler must be recording: {error}") from error
        self._is_recording = True
        self._first_step, self._began = self.step_num, time.perf_counter()

    @property
    def _folder(self) -> Path:
        """Where the files of this process go: ranks must not write over each other's."""
        return recorded_operators.folder_of_rank(self.output_path) if jax.process_count() > 1 else self.output_path

    def _save(self) -> None:
        """End the recording, and say so."""
        self._is_recording = False
        num_steps = 0 if self.schedule is None else self.step_num - self._first_step + 1
        recorded_operators.stop_profiler(self._folder, self._first_step, num_steps, time.perf_counter() - self._began)
        if self._metadata:
            (self.output_path / _METADATA_FILE).write_text(json.dumps(self._metadata), encoding="utf-8")
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def stop(self) -> None:
        """End recording and write the files.

        Raises:
            SporaxRuntimeError: the profiler is not recording.
        """
        For("Profiler.stop").refuse_state(not self._is_started, "the profiler must be recording, but it is not")
        self._is_started = False
        if self._is_recording:
            self._save()

    def analyse(
        self, offline_path: None = None, pretty: bool = False, step_list: None = None, mode: str = "sync", **_: Any
    ) -> None:
        """End recording, if it has not ended; the files need no further step.

        Raises:
            SporaxNotImplementedError: `offline_path` or `step_list` is given.
        """
        for name, value in (("offline_path", offline_path), ("step_list", step_list)):
            if value is not None:
                raise SporaxNotImplementedError(f"For 'Profiler.analyse', '{name}' is not offered, but got {value!r}.")
        if self._is_started and self.schedule is None:
            self.stop()

    def step(self) -> None:
        """End a step and do what the schedule says for the next one.

        Raises:
            SporaxRuntimeError: there is no schedule, or the profiler was not started.
        """
        if self.schedule is None or not self._is_started:
            raise SporaxRuntimeError(
                "For 'Profiler.step', there must be a 'schedule' and the profiler must be started, but "
                f"'schedule' is {self.schedule!r} and it is {'' if self._is_started else 'not '}started."
            )
        if self.schedule(self.step_num) is ProfilerAction.RECORD_AND_SAVE and self._is_recording:
            self._save()
        self.step_num += 1
        if self.schedule(self.step_num) in _RECORDING and not self._is_recording:
            self._record()

    def add_metadata(self, key: str, value: str) -> None:
        """Keep a text with the recording, in ``profiler_metadata.json``.

        Raises:
            SporaxTypeError: key or value is no string.
        """
        if not isinstance(key, str) or not isinstance(value, str):
            raise SporaxTypeError(f"For 'Profiler.add_metadata', both must be strings, but got {key!r} and {value!r}.")
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Keep what a JSON text says with the recording.

        Raises:
            SporaxTypeError: key or value is no string.
            SporaxValueError: `value` is no JSON.
        """
        self.add_metadata(key, value)
        try:
            self._metadata[key] = json.loads(value)
        except ValueError as error:
            del self._metadata[key]
            raise SporaxValueError(f"For 'Profiler.add_metadata_json', 'value' must be JSON: {error}.") from None

    def op_analyse(self, op_name: str | list[str], device_id: int | None = None) -> None:
        """Refused: `sporax profile` prints where the time of a recording went.

        Raises:
            SporaxNotImplementedError: always.
        """
        raise SporaxNotImplementedError(
            "For 'Profiler.op_analyse', tables of single operators are not offered: `sporax profile "
            f"{self.output_path}` prints those of Cells."
        )


class profile(Profiler):  # noqa: N801 - MindSpore's name
    """`Profiler` with MindSpore's newer signature.

    Args:
        activities: with the other settings: JAX records everything that it can, so they have no effect.
        with_stack: record calls of Python functions, too.
        profile_memory, data_process, parallel_strategy, hbm_ddr, pcie, sync_enable, record_shapes: as `activities`.
        start_profile: begin at once.
        schedule: says for the number of a step what to do in it, see `Schedule`; `step` counts.
        on_trace_ready: is called with the profiler whenever a recording was written; see `tensorboard_trace_handler`.
        experimental_config: likewise without effect.

    Example:
        >>> with profile(schedule=schedule(wait=1, active=2), on_trace_ready=tensorboard_trace_handler("data")) as prof:
        ...     for batch in batches:
        ...         train(batch)
        ...         prof.step()
    """

    def __init__(
        self,
        activities: Iterable[ProfilerActivity] | None = None,
        with_stack: bool = False,
        profile_memory: bool = False,
        data_process: bool = False,
        parallel_strategy: bool = False,
        start_profile: bool = True,
        hbm_ddr: bool = False,
        pcie: bool = False,
        sync_enable: bool = True,
        record_shapes: bool = False,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], None] | None = None,
        experimental_config: _ExperimentalConfig | None = None,
    ) -> None:
        options = {
            "activities": activities, "profile_memory": profile_memory, "pcie": pcie,
            "data_process": data_process, "parallel_strategy": parallel_strategy, "hbm_ddr": hbm_ddr,
            "record_shapes": record_shapes, "experimental_config": experimental_config,
        }  # fmt: skip
        settings: dict[str, Any] = {name: value for name, value in options.items() if value}
        if not sync_enable:
            settings["sync_enable"] = False
        super().__init__("./data", start_profile, schedule, on_trace_ready, with_stack, **settings)


def analyse(
    profiler_path: str, max_process_number: int = 1, pretty: bool = False, step_list: Any = None,
    data_simplification: bool = True,
) -> None:  # fmt: skip
    """Check that a folder holds recordings; they need no further step.

    Raises:
        SporaxNotImplementedError: `step_list` is given.
        SporaxValueError: there is no recording.
    """
    if step_list is not None:
        raise SporaxNotImplementedError(f"For 'analyse', 'step_list' is not offered, but got {step_list!r}.")
    if not any(Path(profiler_path).rglob("*.xplane.pb")):
        raise For("analyse").error(f"there must be a recording in 'profiler_path', but got {profiler_path!r}")
