"""The `sporax` command: one word chooses a module, and only that module is imported.

A command is a module with `add_arguments(parser)` and `run(arguments) -> exit code`. A user's mistake, raised as a
SporaxError by either, becomes one message on standard error and exit code 2; errors of the user's own script are
reported by the command that runs it and never pass through here.

The parser of every command: short messages, and flags as people type them.

`argparse` prints the usage, 20 lines for `sporax run`, in front of one wrong flag, and offers no similar name. Here a mistake is
one message. A dash in a flag may stand for an underscore, and the other way round (``--worker-num``).
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

from sporax._version import __version__
from sporax.base.errors import SporaxError, did_you_mean
from sporax.launch.job_file import from_file

_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")
_UNKNOWN = "unrecognized arguments: "


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` for commands of Sporax; its sub-commands have the same class."""

    def parsed(self, args: Sequence[str]) -> argparse.Namespace:
        """As `parse_args`; a flag with other dashes and underscores than its own counts as that flag.

        Of a command with `--config`, flags begin with what the file says.

        Raises:
            SporaxValueError: the file is none of flags.
        """
        chosen = self._respelt(args, argparse.Namespace())
        path = getattr(chosen, "config", None)
        return chosen if path is None else self._respelt(args, from_file(path, self._actions))

    def _respelt(self, args: Sequence[str], values: argparse.Namespace) -> argparse.Namespace:
        words = list(args)
        by_letters = {_plain(flag): flag for flag in self._flags()}
        while True:
            chosen, unknown = self.parse_known_args(words, argparse.Namespace(**vars(values)))
            # Words of the target come last and are not looked at, so the first such word is the one that was not known.
            respelt = [word for word in unknown if _respelt(word, by_letters) is not None]
            if not respelt:
                break
            words[words.index(respelt[0])] = str(_respelt(respelt[0], by_letters))
        if unknown:
            self.error(f"{_UNKNOWN}{' '.join(unknown)}")
        return chosen

    def error(self, message: str) -> NoReturn:
        """Print one message, with the name that was probably meant, and end the process with exit code 2."""
        found = _CHOICE.search(message)
        hint = ""
        if found:
            hint = did_you_mean(found[1], (name.strip(" '") for name in found[2].split(",")))
        elif message.startswith(_UNKNOWN):
            hint = did_you_mean(message.removeprefix(_UNKNOWN).split()[0].partition("=")[0], self._flags())
        self.exit(2, f"{self.prog}: error: {message}.{hint} `{self.prog} --help` shows what there is.\n")

    def _flags(self) -> list[str]:
        return list(dict.fromkeys(_FLAG.findall(self.format_usage())))


def _plain(flag: str) -> str:
    return flag.replace("-", "_")


def _respelt(word: str, by_letters: dict[str, str]) -> str | None:
    """A word with a flag in its own spelling; None where it is no flag, or is spelt so already."""
    flag, equals, value = word.partition("=")
    known = by_letters.get(_plain(flag)) if flag.startswith("--") else None
    return None if known in (None, flag) else f"{known}{equals}{value}"


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
