"""What a command line runs: a script, a module or an executable, and how to run it in this process.

A script finds the world as `python script.py` would leave it: `sys.argv`, `sys.path[0]`, a `__main__` module of its own
that lives until the process ends, and tracebacks that start in the script. The one thing added is that `mindspore`
resolves to `sporax.mindspore`, by the module `PREPARATION`.

How warnings of Sporax are shown in a job: one line each, once, by rank 0.

Problem: Python prints a warning with a file and a line of source, in every process: in a job of eight ranks eight times, and the
line is often one of Sporax. Method: the messages of Sporax, which begin with ``For '…'``, are printed without source lines, once
in a process, and on rank 0 alone. Other warnings are shown as Python shows them, and with `sporax run --verbose` these are as
well, on every rank.

What goes on around a script that runs in this process: steps are recorded, and what was requested in vain is reported at its end.

The engine is named by strings: it is not loaded for scripts that do not use it.
"""

from __future__ import annotations

import builtins
import importlib
import os
import re
import runpy
import shutil
import sys
import sysconfig
import warnings
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TextIO

from msgspec import Struct

from sporax.base.errors import For, SporaxDefectError, SporaxError, SporaxValueError
from sporax.cluster.environment import PROFILE, RESUME, VERIFY_PLAN, RankEnvironment, is_verbose
from sporax.ir.variables import read

_RECORDING = "sporax.runtime.process.recording"
_SESSION = "sporax.runtime.session"


def run_recorded(run: Callable[[], int], environ: Mapping[str, str]) -> int:
    """Run a script, and record the steps that ``SPORAX_PROFILE`` requests; returns its exit code."""
    if not read(environ, PROFILE):
        return run()
    recording = importlib.import_module(_RECORDING)
    recording.begin(environ)
    try:
        return run()
    finally:
        recording.end()


_EFFECTS = {
    RESUME: (
        "looked_for_checkpoint",
        "`sporax run --resume` had no effect: nothing was resumed. The script has neither called Model.train nor loaded a "
        "checkpoint (load_checkpoint, load_distributed_checkpoint, sporax.load); a training loop of one's own loads it itself.",
    ),
    VERIFY_PLAN: (
        "verified_plan",
        "`sporax run --verify-plan` had no effect: no plan was run, or only plans of several pipeline stages, which are not "
        "compared with one device.",
    ),
}
"""What a flag requests: the attribute of the session that says it has happened, and what is reported where it has not."""


def run_and_report(run: Callable[[], int], environ: Mapping[str, str]) -> int:
    """Run a script; at its end report what `sporax run` was requested to do in vain."""
    requested = [effect for variable, effect in _EFFECTS.items() if read(environ, variable) == "1"]
    if not requested:
        return run()
    try:
        code = run()
    except SystemExit as end:
        if not end.code:
            _report(requested, environ)
        raise
    if code == 0:
        _report(requested, environ)
    return code


def _report(requested: Sequence[tuple[str, str]], environ: Mapping[str, str]) -> None:
    session = importlib.import_module(_SESSION).SESSION
    for attribute, text in requested:
        if not getattr(session, attribute) and is_first(environ):
            print(f"sporax: warning: {text}", file=sys.stderr, flush=True)


def is_first(environ: Mapping[str, str]) -> bool:
    """Whether this is rank 0, or a process that is alone or does not know its rank."""
    try:
        return not RankEnvironment.from_environ(environ).rank
    except SporaxError:  # `init` says what is wrong
        return True


PREPARATION = "sporax.mindspore._names.alias"
"""The module that prepares a process for a script, by name: it has `install` for this process, `install_for_children`,
`add_hint`, which adds a note to an exception that leaves the script where it knows more, and `write_stubs`, for editors."""
_PYTHON_NAMES = ("python", "python3")
_FRAMES_ABOVE_SCRIPT = (__name__, "runpy", "importlib._bootstrap", "importlib._bootstrap_external")

_NOT_THE_USERS = ("<", str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
"""How files begin whose frames are not the user's."""
_NOTE_OF_JAX = "JAX has removed its internal frames"


class TargetKind(Enum):
    """How a target is run."""

    SCRIPT = "script"  # Python source, run in this process
    MODULE = "module"  # `python -m`, run in this process
    EXECUTABLE = "executable"  # anything else: this process becomes it


class Target(Struct, frozen=True):
    """Something to run.

    Attributes:
        kind: how it is run.
        name: the script's path as it was typed, the module's dotted name, or the executable's path.
        arguments: its own command line.
    """

    kind: TargetKind
    name: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        module_flag = ["-m"] if self.kind is TargetKind.MODULE else []
        return " ".join([*module_flag, self.name, *self.arguments])


def resolve(name: str, arguments: Sequence[str], *, as_module: bool = False) -> Target:
    """Decide what the words of a command line mean.

    Args:
        name: path of a script, name of a command on PATH, or (with `as_module`) a module's dotted name.
        arguments: the words after it.
        as_module: whether `-m` was given.

    Returns:
        The target. A Python script among this environment's commands (`pytest`) is a script, so that it runs in this
        process with `mindspore` resolving to `sporax`; `python` is this interpreter.

    Raises:
        SporaxValueError: there is no such script, module or command.
    """
    words = tuple(arguments)
    if as_module:
        return Target(TargetKind.MODULE, name, words)
    if name in _PYTHON_NAMES:
        return Target(TargetKind.EXECUTABLE, sys.executable, words)
    if os.path.isfile(name):
        # A file without .py that can be executed and is no Python source.
        foreign = not name.endswith(".py") and os.access(name, os.X_OK) and not _is_python_script(name)
        return Target(TargetKind.EXECUTABLE if foreign else TargetKind.SCRIPT, name, words)
    command = None if name.endswith(".py") or os.path.isdir(name) else _find_command(name)
    if command is None:
        raise SporaxValueError(
            f"For 'target', it must be a script, a command on PATH or (after -m) a module that exists, "
            f"but got '{name}' in directory '{os.getcwd()}'."
        )
    ours = _is_python_script(command) and Path(command).parent == Path(sys.executable).parent
    return Target(TargetKind.SCRIPT if ours else TargetKind.EXECUTABLE, command, words)


def execute(target: Target) -> int:
    """Run `target` in this process and return its exit code; an executable replaces the process and never returns.

    An exception that leaves the script is printed as Python prints it, from the script's own frames on. SystemExit and
    KeyboardInterrupt pass through, as they would end `python script.py`.

    Raises:
        SporaxRuntimeError: the real MindSpore is already imported in this process.
    """
    if target.kind is TargetKind.EXECUTABLE:
        _prepare_children()
        # Buffers of this process are lost when it becomes another program.
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(target.name, [target.name, *target.arguments])
    importlib.import_module(PREPARATION).install()
    install_warning_lines(os.environ)
    run = _run_module if target.kind is TargetKind.MODULE else _run_script
    return run_and_report(lambda: run_recorded(lambda: run(target), os.environ), os.environ)


def _run_script(target: Target) -> int:
    """Run a Python file as `__main__`.

    `runpy.run_path` would take `__main__` away again when the script's last line is done, while its threads and
    `atexit` functions still run, and would not keep the relative `sys.argv[0]` next to an absolute `__file__`.
    """
    path = os.path.abspath(target.name)
    loader = SourceFileLoader("__main__", path)
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=path, __builtins__=builtins, __cached__=None, __loader__=loader, __package__=None, __spec__=None
    )
    # Pickles of the script's classes look for `__main__`.
    sys.modules["__main__"] = main
    _set_command_line(target, first_path=os.path.dirname(os.path.realpath(path)))

    def run() -> None:
        exec(loader.source_to_code(loader.get_data(path), path), main.__dict__)

    return _with_own_traceback(run)


def _run_module(target: Target) -> int:
    """Run a module as `python -m` does."""
    _set_command_line(target, first_path=os.getcwd())
    problem = "not found"
    try:
        exists = find_spec(target.name) is not None
    except ModuleNotFoundError as error:  # a package above it, or something that package needs
        exists, problem = False, str(error)
    if not exists:
        raise For("target").error("the module after -m must be importable", f"'{target.name}' ({problem})")
    return _with_own_traceback(lambda: runpy.run_module(target.name, run_name="__main__", alter_sys=True))


def _set_command_line(target: Target, first_path: str) -> None:
    """Set `sys.argv` and `sys.path[0]`, and prepare the environment of child processes."""
    sys.argv = [target.name, *target.arguments]
    if not sys.flags.safe_path:
        # As Python does: the script's own directory, or the current one for modules.
        sys.path[0] = first_path
    _prepare_children()


def _prepare_children() -> None:
    """Let processes that the script starts be prepared as this one is."""
    importlib.import_module(PREPARATION).install_for_children(os.environ)


def _with_own_traceback(run: Callable[[], object]) -> int:
    """Call `run`; report an exception without the frames that lead up to the script. Returns the exit code."""
    try:
        run()
    except SystemExit as end:
        if end.code:
            _note_uncaught(end)
        raise
    except Exception as error:
        error.__traceback__ = _script_frames(error.__traceback__)
        explains_itself = isinstance(error, SporaxError) and not isinstance(error, SporaxDefectError)
        is_shorter = explains_itself and shorten(error)
        importlib.import_module(PREPARATION).add_hint(error, error.__traceback__)
        _note_uncaught(error)
        # Before the traceback, so that the message stands last; other hooks show no frames, or their own way.
        if is_shorter and sys.excepthook is sys.__excepthook__:
            print(
                "`sporax run --verbose`, or SPORAX_VERBOSE=1, shows the frames of Sporax and JAX, too.", file=sys.stderr
            )
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _note_uncaught(error: BaseException) -> None:
    """Set what Python sets for errors that are not caught, and not for SystemExit; exit handlers of Sporax read it."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__


def _script_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The part of `traceback` below this module and Python's own machinery."""
    while traceback is not None and traceback.tb_frame.f_globals.get("__name__") in _FRAMES_ABOVE_SCRIPT:
        traceback = traceback.tb_next
    return traceback


_CALLS = re.compile(r"\nPython Call Stack:\n(?:Traceback .*\n)?(?:  .*\n)+.*\n?")
"""What errors of the user's functions in data sets say of their calls, in MindSpore's form."""


def shorten(error: BaseException) -> bool:
    """Leave an error the frames of the user's files alone, unless ``SPORAX_VERBOSE=1``: a message of Sporax explains itself.
    Returns whether it has fewer now.
    """
    if is_verbose(os.environ):
        return False
    own, count = frames_of_user(error.__traceback__)
    if not own:
        return False
    error.__traceback__ = _chained(own)
    if isinstance(error, SporaxError):
        error.message = _CALLS.sub(". ", error.message).rstrip()
    # JAX's note about frames that it has left out.
    error.__notes__ = [note for note in getattr(error, "__notes__", []) if _NOTE_OF_JAX not in note]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and not isinstance(cause, SporaxError):
        # Mostly the message says what it was; where it comes from is one line.
        if str(cause) not in str(error):
            error.add_note(f"  because of {type(cause).__name__}: {str(cause).partition(chr(10))[0]}")
        frames = frames_of_user(cause.__traceback__)[0]
        code = frames[-1].tb_frame.f_code if frames else None
        if code is not None and frames[-1].tb_frame is not own[-1].tb_frame:
            error.add_note(f"  in {code.co_name}, {code.co_filename}, line {frames[-1].tb_lineno}")
        error.__cause__, error.__suppress_context__, count = None, True, count + 1
    return len(own) < count


def frames_of_user(entry: TracebackType | None) -> tuple[list[TracebackType], int]:
    """The frames of the user's files, and the number of all."""
    own, count = [], 0
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            own.append(entry)
        entry, count = entry.tb_next, count + 1
    return own, count


def _chained(frames: Sequence[TracebackType]) -> TracebackType | None:
    after: TracebackType | None = None
    for entry in reversed(frames):
        after = TracebackType(after, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return after


def _find_command(name: str) -> str | None:
    """Path of the command `name`: among this interpreter's own commands first, then on PATH."""
    own_commands = str(Path(sys.executable).parent)
    # The commands of this environment come first, as in an activated one.
    return shutil.which(name, path=own_commands) or shutil.which(name)


def _is_python_script(path: str) -> bool:
    """Whether an executable file is Python source: its first lines (`#!`, or the shell trick pip uses) name Python."""
    with open(path, "rb") as file:
        head = file.read(512)
    return head.startswith(b"#!") and any(b"python" in line for line in head.splitlines()[:2])


_OURS = "For '"


def install_warning_lines(environ: Mapping[str, str]) -> None:
    """Show warnings of this process so from now on; nothing is changed with ``SPORAX_VERBOSE=1``."""
    if is_verbose(environ):
        return
    before, printed = warnings.showwarning, set[str]()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = str(message)
        if category is not UserWarning or not text.startswith(_OURS):
            before(message, category, filename, lineno, file, line)
        elif text not in printed and is_first(environ):
            printed.add(text)
            print(f"sporax: warning: {text}", file=file or sys.stderr, flush=True)

    warnings.showwarning = show
