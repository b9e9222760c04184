"""The `sporax` command: one word chooses a module, and only that module is imported.

A command is a module with `add_arguments(parser)` and `run(arguments) -> exit code`. A user's mistake, raised as a
SporaxError by either, becomes one message on standard error and exit code 2; errors of the user's own script are
reported by the command that runs it and never pass through here.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from sporax._version import __version__
from sporax.base.errors import SporaxError
from sporax.launch.flags import Parser

USAGE_ERROR = 2

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("sporax.launch.commands.run", "run a script, module or executable, as one rank or as many"),
    "msrun": ("sporax.launch.commands.msrun", "the same with msrun's defaults: eight workers, in the background"),
    "plan": (
        "sporax.launch.commands.plan_command",
        "show how a script's training step is sharded over devices, without training",
    ),
    "explain-sharding": (
        "sporax.launch.commands.explain_sharding_command",
        "list the collectives that XLA puts into a JAX program of yours, and what removes them",
    ),
    "check": ("sporax.mindspore._names.check", "list what a program uses of MindSpore that is not offered here"),
    "stubs": ("sporax.launch.commands.stubs_command", "write stubs by which editors find `import mindspore`"),
    "calibrate": (
        "sporax.launch.commands.calibrate_command",
        "measure the devices at hand and write their hardware profile",
    ),
    "profile": (
        "sporax.launch.commands.profile_command",
        "show where the time of steps went that `sporax run --profile` has recorded",
    ),
    "info": ("sporax.launch.commands.info", "show versions, devices and optional packages"),
    "k8s": ("sporax.k8s.k8s_command", "run jobs (MSJob) on Kubernetes; install and run the operator"),
    "logs": (
        "sporax.launch.commands.logs_command",
        "show the logs of all machines of a job, those of the rank that failed first",
    ),
    "ps": ("sporax.launch.commands.ps_command", "look at a job with parameter servers, change its size, make its keys"),
    "checkpoint": (
        "sporax.mindspore.train.checkpoint.command",
        "convert, inspect and compare checkpoints of distributed jobs",
    ),
    "completion": ("sporax.launch.commands.completion", "print a script that completes commands and flags in a shell"),
}


class Command(Protocol):
    """What a module must offer to be a command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's flags."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do the work; returns the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: this process's); returns the exit code."""
    # Two parsers: flags belong to the command, whose module is loaded only when it is chosen.
    chosen = top_level_parser().parse_args(argv)
    try:
        command = load_command(chosen.command)
        parser = command_parser(chosen.command, command)
        return command.run(parser.parsed(chosen.arguments))
    except SporaxError as mistake:
        print(f"sporax {chosen.command}: {mistake}", file=sys.stderr)
        return USAGE_ERROR


def top_level_parser() -> argparse.ArgumentParser:
    """The parser of `sporax` itself: `--version` and the choice of a command."""
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items())
    parser = Parser(
        prog="sporax",
        description="MindSpore's distributed training, on JAX.",
        epilog=f"commands:\n{listing}\n\n`sporax COMMAND --help` shows the flags of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="version", version=f"sporax {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of the commands below")
    # Everything behind the command is left to its own parser.
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="what the command takes")
    return parser


def load_command(name: str) -> Command:
    """Import the module of the command called `name`."""
    module, _ = COMMANDS[name]
    return cast("Command", importlib.import_module(module))


def command_parser(name: str, command: Command) -> Parser:
    """The parser of one command, with the flags that its module declares."""
    _, summary = COMMANDS[name]
    parser = Parser(prog=f"sporax {name}", description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False)
    command.add_arguments(parser)
    return parser
