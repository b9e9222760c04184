"""`mindspore.Profiler` and `mindspore.profiler`: where the time of a run goes, recorded by the JAX profiler.

A recording is a folder that TensorBoard (with its profile plugin), XProf and Perfetto show. MindSpore's own files, for
MindInsight and MindStudio, are not written.
"""

from __future__ import annotations

import enum
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import jax

from sporax import log
from sporax.ir.errors import SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError
from sporax.ir.missing import missing_names

__path__: list[str] = []  # a package in MindSpore, see `sporax._module_paths`

__all__ = ["Profiler", "ProfilerActivity", "ProfilerLevel"]

if not TYPE_CHECKING:  # checkers shall see a missing name themselves
    __getattr__ = missing_names(__name__)

_SETTINGS = frozenset(
    """
    activities aic_metrics aicore_metrics data_process data_simplification env_enable hbm_ddr host_stack host_sys l2_cache
    mstx mstx_domain_exclude mstx_domain_include op_time parallel_strategy pcie profile_communication profile_framework
    profile_memory profiler_level record_shapes schedule sync_enable timeline_limit with_stack
    """.split()
)
"""MindSpore's arguments: what its recordings have beyond or besides those of JAX."""


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


class Profiler:
    """Records what host and devices do, from here or from `start` on until `stop` or `analyse`.

    Args:
        output_path: folder of the recording; ``./data`` by default.
        start_profile: begin at once.
        settings: MindSpore's further arguments. JAX records everything that it can, so they have no effect; each one given
            is named by a warning in the log.

    Raises:
        SporaxTypeError: an argument is not valid or not MindSpore's.
        SporaxRuntimeError: another profiler is recording.

    Example:
        >>> with Profiler(output_path="recording"):
        ...     model.train(1, dataset)
    """

    def __init__(self, output_path: str = "./data", start_profile: bool = True, **settings: Any) -> None:
        if not isinstance(output_path, (str, os.PathLike)):
            raise SporaxTypeError(f"For 'Profiler', 'output_path' must be a str, but got {output_path!r}.")
        if not isinstance(start_profile, bool):
            raise SporaxTypeError(f"For 'Profiler', 'start_profile' must be a bool, but got {start_profile!r}.")
        unknown = sorted(set(settings) - _SETTINGS)
        if unknown:
            raise SporaxTypeError(f"For 'Profiler', there is no argument {unknown[0]!r}.")
        if callable(settings.get("on_trace_ready")) or settings.get("schedule") is not None:
            raise SporaxNotImplementedError("For 'Profiler', 'schedule' is not offered; call 'start' and 'stop'.")
        for name in sorted(settings):
            log.warning("For 'Profiler', '%s' has no effect: JAX records everything that it can.", name)
        self.output_path = Path(output_path)
        self._is_recording = False
        if start_profile:
            self.start()

    def __enter__(self) -> Self:
        if not self._is_recording:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.analyse()

    def start(self) -> None:
        """Begin recording.

        Raises:
            SporaxRuntimeError: this or another profiler is recording.
        """
        if self._is_recording:
            raise SporaxRuntimeError("For 'Profiler.start', the profiler must not be recording, but it is.")
        try:
            jax.profiler.start_trace(str(self.output_path))
        except RuntimeError as error:
            raise SporaxRuntimeError(f"For 'Profiler.start', no other profiler must be recording: {error}") from error
        self._is_recording = True

    def stop(self) -> None:
        """End recording and write the files.

        Raises:
            SporaxRuntimeError: the profiler is not recording.
        """
        if not self._is_recording:
            raise SporaxRuntimeError("For 'Profiler.stop', the profiler must be recording, but it is not.")
        self._is_recording = False
        jax.profiler.stop_trace()

    def analyse(
        self, offline_path: None = None, pretty: bool = False, step_list: None = None, mode: str = "sync"
    ) -> None:
        """End recording, if it has not ended; the files need no further step.

        Raises:
            SporaxNotImplementedError: `offline_path` or `step_list` is given.
        """
        for name, value in (("offline_path", offline_path), ("step_list", step_list)):
            if value is not None:
                raise SporaxNotImplementedError(f"For 'Profiler.analyse', '{name}' is not offered, but got {value!r}.")
        if self._is_recording:
            self.stop()

    def step(self) -> None:
        """Refused: recording in parts of a schedule is not offered.

        Raises:
            SporaxNotImplementedError: always.
        """
        raise SporaxNotImplementedError("For 'Profiler.step', schedules are not offered; call 'start' and 'stop'.")

    def op_analyse(self, op_name: str | list[str], device_id: int | None = None) -> None:
        """Refused: look at the recording with TensorBoard or Perfetto.

        Raises:
            SporaxNotImplementedError: always.
        """
        raise SporaxNotImplementedError(
            f"For 'Profiler.op_analyse', tables of operators are not offered; show {str(self.output_path)!r} with TensorBoard."
        )
