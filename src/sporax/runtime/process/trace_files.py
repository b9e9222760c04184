"""JAX's profiler, and the files that a recording leaves.

In the folder of a recording each process has one of its own:

| file | what it is for |
|---|---|
| ``rank_<R>/step_times.json`` | `sporax profile DIR`: totals per Cell path and kind of work |
| ``rank_<R>/perfetto.json.gz`` | https://ui.perfetto.dev: operators with their Cell paths, collectives, tasks of a pipeline |
| ``rank_<R>/plugins/profile/…`` | TensorBoard and XProf: JAX's own files |

Python frames are not recorded: a training step has hundreds of thousands, which slow it down and hide the rest.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import jax
import msgspec

from sporax.base.atomic_file import atomic_write
from sporax.report.render.step_times import perfetto, text
from sporax.report.view.step_times import StepTimes, step_times
from sporax.runtime.process.recorded_operators import STEP, TASK, read_recording

TIMES_FILE, PERFETTO_FILE = "step_times.json", "perfetto.json.gz"
_PRINTED_ROWS = 12


def start(directory: Path) -> None:
    """Begin a recording in this process's folder of a directory."""
    start_profiler(folder_of_rank(directory))


def start_profiler(directory: Path, *, python_frames: bool = False) -> None:
    """Start JAX's profiler.

    Args:
        directory: where its files go.
        python_frames: record calls of Python functions, too.

    Raises:
        RuntimeError: it is running already.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = int(python_frames)
    jax.profiler.start_trace(str(directory), profiler_options=options)


def step_annotation(number: int) -> Any:
    """A context that is a step in the recording."""
    return jax.profiler.StepTraceAnnotation(f"{STEP}{number}", step_num=number)


def task_annotation(task: object) -> Any:
    """A context in which the host starts a task of a pipeline."""
    return jax.profiler.TraceAnnotation(f"{TASK}{task}")


def wait_for(values: Any) -> None:
    """Wait until devices have computed these."""
    jax.block_until_ready(values)


def finish(directory: Path, first: int, num_steps: int, seconds: float) -> StepTimes:
    """End the recording, and write its files; rank 0 prints where the time went.

    Args:
        directory: of all ranks.
        first: number of the first step.
        num_steps: how many.
        seconds: they took.
    """
    folder = folder_of_rank(directory)
    times = stop_profiler(folder, first, num_steps, seconds)
    if jax.process_index() == 0:
        print(
            f"sporax: {text(times, _PRINTED_ROWS)}\nsporax: all of it: sporax profile {directory}\n"
            f"sporax: a timeline: open {folder / PERFETTO_FILE} at https://ui.perfetto.dev",
            file=sys.stderr,
            flush=True,
        )
    return times


def stop_profiler(folder: Path, first: int, num_steps: int, seconds: float) -> StepTimes:
    """End JAX's recording; write one for Perfetto, with Cell paths, and the totals."""
    jax.profiler.stop_trace()
    newest = max(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime_ns)
    recorded = read_recording(newest)
    trace = perfetto(recorded.runs, recorded.host, jax.process_index())
    with atomic_write(folder / PERFETTO_FILE) as file:
        file.write(gzip.compress(trace.encode()))
    times = step_times(recorded.runs, first, num_steps, seconds, jax.process_index(), jax.process_count())
    with atomic_write(folder / TIMES_FILE) as file:
        file.write(msgspec.json.encode(times))
    return times


def folder_of_rank(directory: Path) -> Path:
    """The folder of this process in that of a recording."""
    return directory / f"rank_{jax.process_index()}"
