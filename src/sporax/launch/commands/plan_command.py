"""`sporax plan`: run a script up to its first training step, or step that is sharded over devices, show the plan, and stop.

A training step of a script that names no parallel mode is planned in automatic parallelism. Nothing is trained, and no
checkpoint, summary or strategy file is written.

The script runs in this process as `sporax run` would run it. It builds its network and reads its first batch. A listener of the
session (`sporax.runtime.session`) receives the plan of every step, before anything of it is compiled or trained, and ends the
script with the last plan that is requested. Before that, a step has zeros for its results. Errors on the way are reported
in one message with the script's line, and no traceback: it is mostly a flag of this command.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from sporax.base import progress
from sporax.base.errors import For, SporaxError, SporaxValueError
from sporax.base.units import parse_bytes
from sporax.ir.config.plan_settings import DEVICES, HARDWARE, MEMORY, MODE, PLAN_MODES, SCHEDULE, STAGES, plan_mode
from sporax.ir.hardware import SYMBOLIC, load_profile, profile_name
from sporax.launch import target
from sporax.launch.jobs.cores import only_process
from sporax.planner.pipeline.generators import SCHEDULES
from sporax.runtime.session import SESSION

WRONG_INPUT = 2
"""Exit code for arguments, or files that the script names, with a value that they cannot have."""
NO_PLAN = 3
"""Exit code of a script that came to its end without such a step."""

_FLAGS = {
    f"--{name}": name for name in "compare devices json out html hardware mode memory schedule stages steps".split()
}
_OF_PIPELINES = ("--schedule", "--stages")
"""Flags that are for pipelines only."""
_OF_SCRIPTS = ("--out",)
"""Flags that many scripts have, too: behind the name of a script they are the script's."""
_NUMBERS = ("--steps",)
_SHARED = ("--mode", "--memory", "--schedule", "--stages")
"""Flags that all plans of a comparison have."""
_VARIABLES = {"hardware": HARDWARE, "mode": MODE, "memory": MEMORY, "schedule": SCHEDULE, "stages": STAGES}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add("-m", "--module", action="store_true", help="the target is a module, as in `python -m`")
    add(
        "--devices",
        metavar="N,...",
        help="simulate N devices on the CPU (default: the real ones); a plan for each of several numbers, in one table",
    )
    add("--compare", metavar="PROFILE,...", help="a plan for each of these kinds of hardware, in one table")
    add("--hardware", metavar="PROFILE", help="plan for these devices: h100, tpu-v5e, ... or a JSON file; or symbolic")
    add("--mode", metavar="MODE", help=f"whatever the script says, one of {', '.join(PLAN_MODES)}")
    add(
        "--schedule",
        metavar="NAME",
        help="of pipelines: also simulate this schedule, or all of them, and say which is best",
    )
    add("--stages", choices=("auto",), help="of pipelines: let the planner choose the stage of every operator")
    add("--memory", metavar="SIZE", help="memory of one device, as in 80GB")
    add(
        "--steps",
        type=int,
        metavar="N",
        help="show the plans of N steps (default: 1); none of them runs, results are zeros",
    )
    add(
        "--json",
        metavar="FILE",
        help="also write the table, or why there is none, to this file as JSON; of step 2 with -2 in its name, and so on",
    )
    add("--html", metavar="FILE", help="also write a page for a browser: operators, layouts, costs, memory")
    add(
        "--out",
        metavar="FILE",
        help="as --json or --html, by the end of the name; of several plans the table, with a plot; before the target only",
    )
    add("target", help="script (.py), or module after -m; or plans (.json) that were written before")
    add(
        "target_arguments",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="flags may also come first here; the rest, or all after --, are arguments of the target",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the target until a step is planned and show the plan; returns the exit code.

    Raises:
        SporaxValueError: no such target, a target that is not Python, a flag with a value that it cannot have, or a file that
            cannot be written.
    """
    words = _take_flags(arguments)
    out, counts = _out(arguments.out), _counts(arguments.devices)
    if arguments.target.endswith(".json"):
        code: int = _plans().show_saved([arguments.target, *words], out)
        return code
    if arguments.compare is not None or len(counts) > 1:
        return _compare(arguments, words, counts, out)
    program = target.resolve(arguments.target, words, as_module=arguments.module)
    if program.kind is target.TargetKind.EXECUTABLE:
        raise For("sporax plan").error("the target must be a Python script or module", f"'{program.name}'")
    for count in counts:
        # JAX reads the number of devices once, when it starts.
        os.environ.update(only_process(os.environ, count))
        os.environ[DEVICES] = str(count)
    steps = 1 if arguments.steps is None else arguments.steps
    For("sporax plan").refuse(steps < 1, "--steps must be 1 or more", steps)
    files = {".json": _file("--json", arguments.json), ".html": _file("--html", arguments.html)}
    if out is not None:
        files[out.suffix] = files[out.suffix] or out
    show = Show(files[".json"], files[".html"], steps, str(program))
    show.of_pipelines = [flag for flag in _OF_PIPELINES if getattr(arguments, _FLAGS[flag]) is not None]
    _say(arguments)
    return _plan(program, show)


def _plans() -> ModuleType:
    """What shows plans."""
    from sporax.launch.commands import plan_comparison  # here: other commands stay without the planner

    return plan_comparison


def _counts(text: str | None) -> tuple[int, ...]:
    """The numbers of devices that ``--devices`` names."""
    counts = []
    for word in () if text is None else text.split(","):
        if not word.strip().removeprefix("-").isdecimal():
            raise SporaxValueError(f"For 'sporax plan', --devices must be a number, but got '{word}'.")
        For("sporax plan").refuse(int(word) < 2, "--devices must be 2 or more for a plan to shard anything", word)
        counts.append(int(word))
    return tuple(counts)


def _out(name: str | None) -> Path | None:
    """Where ``--out`` writes."""
    if name is not None and not name.endswith((".json", ".html")):
        raise SporaxValueError(f"For 'sporax plan', --out must end in .json or .html, but got '{name}'.")
    return _file("--out", name)


def _compare(arguments: argparse.Namespace, words: Sequence[str], counts: Sequence[int], out: Path | None) -> int:
    """Plans for several kinds or numbers of devices."""
    one = {"--json": arguments.json, "--html": arguments.html, "--steps": arguments.steps}
    for flag, value in one.items():
        For("sporax plan").refuse(value is not None, f"{flag} is for one plan; of several, --out writes the table")
    if arguments.compare is not None and arguments.hardware is not None:
        raise For("sporax plan").error("--compare and --hardware name the same; only one of them may be set")
    named = arguments.compare or arguments.hardware
    hardware = [] if named is None else [profile_name(name) for name in named.split(",")]
    for name in hardware:
        if name != SYMBOLIC:
            load_profile(name)
    shared = {flag: getattr(arguments, _FLAGS[flag]) for flag in _SHARED}
    command = [word for flag, value in shared.items() if value is not None for word in (flag, value)]
    command += ["-m"] if arguments.module else []
    code: int = _plans().compare(command, [arguments.target, "--", *words], hardware, counts, out)
    return code


def _say(arguments: argparse.Namespace) -> None:
    """Give the script's plans the settings that they are made under."""
    if arguments.mode is not None:
        arguments.mode = plan_mode(arguments.mode, "For 'sporax plan', --mode")
    if arguments.schedule is not None and arguments.schedule not in ("all", *SCHEDULES):
        raise SporaxValueError(
            f"For 'sporax plan', --schedule must be 'all' or one of {[*SCHEDULES]}, but got '{arguments.schedule}'."
        )
    if arguments.stages not in (None, "auto"):
        raise SporaxValueError(f"For 'sporax plan', --stages must be 'auto', but got '{arguments.stages}'.")
    if arguments.memory is not None:
        parse_bytes(arguments.memory, "For 'sporax plan', --memory")
    if arguments.hardware is not None:
        arguments.hardware = profile_name(arguments.hardware)
    if arguments.hardware not in (None, SYMBOLIC):
        load_profile(arguments.hardware)
    # By the environment, since the script's plans are made deep inside of its own calls.
    for name, variable in _VARIABLES.items():
        if getattr(arguments, name) is not None:
            os.environ[variable] = getattr(arguments, name)


def _take_flags(arguments: argparse.Namespace) -> Sequence[str]:
    """Flags of this command at the head of the target's arguments become its own; returns the other arguments."""
    words: list[str] = list(arguments.target_arguments)
    while words:
        # Flags may come behind the script's name, where people often type them.
        flag, equals, value = words[0].partition("=")
        if flag not in _FLAGS or (flag in _OF_SCRIPTS and not arguments.target.endswith(".json")):
            break
        For("sporax plan").refuse(not equals and len(words) < 2, f"{flag} must have a value, but it is the last word")
        value = value if equals else words[1]
        if flag in _NUMBERS and not value.removeprefix("-").isdecimal():
            raise SporaxValueError(f"For 'sporax plan', {flag} must be a number, but got '{value}'.")
        setattr(arguments, _FLAGS[flag], int(value) if flag in _NUMBERS else value)
        del words[: 1 if equals else 2]
    return words[1:] if words[:1] == ["--"] else words


def _file(flag: str, name: str | None) -> Path | None:
    """Where a flag's file will be, whatever directory the target goes to."""
    if name is None:
        return None
    path = Path(name).absolute()
    if not path.parent.is_dir() or path.is_dir():
        raise For("sporax plan").error(f"{flag} must be a file in a directory that exists, but got '{name}'")
    return path


class Show:
    """Listens to plans: shows all but the last one, and ends the script with that.

    Args:
        json_file, html_file: also written, if not None; of further steps next to them.
        steps: how many plans are requested.
        script: what is planned.

    Attributes:
        of_pipelines: flags of the command line that only plans of pipelines read.
        last: the last plan that is requested, once it is made. It is shown when the script has ended, so that a handler of the
            script's own cannot catch what goes wrong with its files.
    """

    def __init__(self, json_file: Path | None, html_file: Path | None, steps: int = 1, script: str = "") -> None:
        self.files = json_file, html_file
        self.steps, self.script = steps, script
        self.of_pipelines: list[str] = []
        self.count = 0
        self.last: Any = None
        self.has_wrong_input = False

    def __call__(self, planned: Any) -> None:
        """A plan was made."""
        if self.count + 1 < self.steps:
            self.show(planned)
            # Only the plans before the last one are shown here; the last one ends the script.
            return
        self.last = self.last or planned
        sys.exit(0)

    def show(self, planned: Any) -> None:
        """Print a plan and write its files."""
        self.count += 1
        json_file, html_file = self.files
        if self.count > 1:
            json_file, html_file = (file and file.with_stem(f"{file.stem}-{self.count}") for file in self.files)
        for flag in self.of_pipelines:
            _warn_unread(flag, planned)
        _show(planned, self.script, json_file, html_file, f"Step {self.count}" if self.steps > 1 else "")

    def report(self, kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        """Report what left the script."""
        # Wrong values are the user's input; other errors of Sporax are failures.
        self.has_wrong_input = isinstance(error, SporaxError) and isinstance(error, ValueError | TypeError)
        if isinstance(error, SporaxError) and self.files[0] is not None and not self.count:
            refused = {"refused": str(error), "needed_bytes": getattr(error, "needed_bytes", None)}
            self.files[0].write_text(f"{json.dumps(refused)}\n", encoding="utf-8")
        _report(kind, error, frames)


def _warn_unread(flag: str, planned: Any) -> None:
    """Say that a flag for pipelines has no effect on this plan, where that is so."""
    pipeline = getattr(planned, "pipeline", None)
    if pipeline is None:
        why = "the step is no pipeline, which needs 'pipeline_stages' above 1"
    elif flag == "--schedule" and not pipeline.micro.trains:
        why = "a pipeline that does not train has no schedule to compare"
    else:
        return
    print(f"sporax plan: {flag} has no effect: {why}.", file=sys.stderr)


def _plan(program: target.Target, show: Show) -> int:
    SESSION.plan_listeners.append(show)
    # Steps give zeros, so a script goes on to its next step without computing.
    SESSION.plan_only = SESSION.plans_all = True
    sys.excepthook = show.report
    try:
        code: object = target.execute(program)
    except SystemExit as end:
        code = end.code
    if code in (0, None) and show.last is None:
        code = _plan_rest(show) or code
    # A plan was made, whatever the script did afterwards.
    if show.last is not None:
        show.show(show.last)
        return 0
    if code in (0, None) and show.count:
        print(f"sporax plan: '{program}' has ended with {show.count} of {show.steps} steps planned.", file=sys.stderr)
        return 0
    if code in (0, None):
        message = (
            f"'{program}' has ended without a step that is sharded over devices: nothing in it computes gradients of Parameters, "
            "runs in 'parallel_mode' 'semi_auto_parallel' or 'auto_parallel', or calls sporax.plan()."
        )
        print(f"sporax plan: {message} {_misspelt(program)}".rstrip(), file=sys.stderr)
        return NO_PLAN
    # Python prints other exit values as a message.
    if not isinstance(code, int):
        print(code, file=sys.stderr)
    if _misspelt(program):
        print(f"sporax plan: {_misspelt(program)}", file=sys.stderr)
    if show.has_wrong_input:
        return WRONG_INPUT
    return code if isinstance(code, int) else 1


def _plan_rest(show: Show) -> int:
    """Plan gradients with which the script has called no optimizer; returns the exit code."""
    rest = [waiting for waiting in SESSION.deferred_gradients if not waiting.taken]
    if not rest:
        return 0
    try:
        rest[0].plan_alone()  # one plan
    except SystemExit:
        return 0
    except SporaxError as error:
        show.report(type(error), error, error.__traceback__)
        return 1
    return 0


def _misspelt(program: target.Target) -> str:
    """What to say of arguments of the script that look like flags of this command; "" where none does."""
    for word in program.arguments:
        flag = word.partition("=")[0]
        # Similar words are most likely misspelled flags of this command.
        near = difflib.get_close_matches(flag, _FLAGS, 1, cutoff=0.8)
        if flag in _FLAGS:
            return f"'{word}' was handed on to the script; flags of this command stand before the script's own."
        if near and word.startswith("--"):
            return f"'{word}' was handed on to the script; should it be '{near[0]}'?"
    return ""


def _report(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Report what left the script: what Sporax refuses in one message, everything else as Python does."""
    if not isinstance(error, SporaxError):
        sys.__excepthook__(kind, error, frames)
        return
    mine = target.frames_of_user(frames)[0]
    where = f"{os.path.relpath(mine[-1].tb_frame.f_code.co_filename)}, line {mine[-1].tb_lineno}: " if mine else ""
    print(f"sporax plan: {where}{error}", file=sys.stderr)


def _show(planned: Any, script: str, json_file: Path | None, html_file: Path | None, title: str = "") -> None:
    with progress.reported(), progress.activity("summing up the plan"):
        summary = planned.summary().of_script(script)
        # A plan by hand has no search that knows the limit; stages of pipelines have one each.
        if os.environ.get(MEMORY):
            summary = summary.under(parse_bytes(os.environ[MEMORY], "For 'sporax plan', --memory"))
    if title:
        print(title)
    _plans().show_plan(summary)
    try:
        if json_file is not None:
            json_file.write_text(f"{summary.to_json()}\n", encoding="utf-8")
        if html_file is not None:
            with progress.reported(), progress.activity("drawing the plan"):
                html_file.write_text(summary.to_html(), encoding="utf-8")
    except OSError as error:
        raise SporaxValueError(
            f"For 'sporax plan', '{error.filename}' must be a file that can be written, but {error.strerror}."
        ) from None
