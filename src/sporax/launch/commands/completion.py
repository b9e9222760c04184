"""`sporax completion SHELL`: a script that completes commands and flags in bash, zsh or fish.

    source <(sporax completion bash)          in ~/.bashrc; with zsh in ~/.zshrc
    sporax completion fish > ~/.config/fish/completions/sporax.fish

The words come from the parsers of the commands, so that no list is kept. A command whose packages are not installed has no flags.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from sporax.launch import cli


class CommandWords(Struct, frozen=True):
    """What may follow a command.

    Attributes:
        name, summary: the command, and what it does.
        actions: its own commands (`sporax ps status`).
        flags: long flags of all of them, with their help.
    """

    name: str
    summary: str
    actions: tuple[str, ...]
    flags: Mapping[str, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the shell."""
    parser.add_argument("shell", choices=tuple(_WRITERS), help="the shell that reads the script")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(_WRITERS[arguments.shell](list(_commands())), end="")
    return 0


def _commands() -> Iterator[CommandWords]:
    for name, (_, summary) in cli.COMMANDS.items():
        try:
            parser = cli.command_parser(name, cli.load_command(name))
        except ImportError:  # an extra that is not installed
            yield CommandWords(name, summary, (), {})
            continue
        subs = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        inner = {key: one for action in subs for key, one in action.choices.items()}
        yield CommandWords(
            name,
            summary,
            tuple(inner),
            {**_flags(parser), **{k: v for one in inner.values() for k, v in _flags(one).items()}},
        )


def _flags(parser: argparse.ArgumentParser) -> dict[str, str]:
    return {
        flag: (action.help or "").replace("%%", "%").split(";")[0]
        for action in parser._actions
        for flag in action.option_strings
        if flag.startswith("--")
    }


def _bash(commands: list[CommandWords]) -> str:
    cases = "\n".join(
        f"        {one.name}) flags={shlex.quote(' '.join(one.flags))}; actions={shlex.quote(' '.join(one.actions))} ;;"
        for one in commands
    )
    names = " ".join(one.name for one in commands)
    return f"""# Completion of sporax for bash: source <(sporax completion bash)
_sporax() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" flags='' actions=''
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W '{names} --help --version' -- "$current"))
    elif [[ "$current" == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$current"))
    elif (( COMP_CWORD == 2 )) && [[ -n "$actions" ]]; then
        COMPREPLY=($(compgen -W "$actions" -- "$current"))
    else
        COMPREPLY=($(compgen -f -- "$current"))
    fi
}}
complete -o filenames -F _sporax sporax
"""


def _zsh(commands: list[CommandWords]) -> str:
    cases = "\n".join(
        f"        {one.name}) flags=({' '.join(one.flags)}); actions=({' '.join(one.actions)}) ;;" for one in commands
    )
    names = " ".join(shlex.quote(f"{one.name}:{one.summary.replace(':', ' ')}") for one in commands)
    return f"""#compdef sporax
# Completion of sporax for zsh: source <(sporax completion zsh)
_sporax() {{
    local -a flags actions names
    case "$words[2]" in
{cases}
    esac
    names=({names})
    if (( CURRENT == 2 )); then
        _describe command names
    elif [[ "$PREFIX" == -* ]]; then
        compadd -- $flags
    elif (( CURRENT == 3 && $#actions )); then
        compadd -- $actions
    else
        _files
    fi
}}
compdef _sporax sporax
"""


def _fish(commands: list[CommandWords]) -> str:
    lines = ["# Completion of sporax for fish: sporax completion fish > ~/.config/fish/completions/sporax.fish"]
    for one in commands:
        lines.append(f"complete -c sporax -n __fish_use_subcommand -f -a {one.name} -d {shlex.quote(one.summary)}")
        seen = shlex.quote(f"__fish_seen_subcommand_from {one.name}")
        lines += [
            f"complete -c sporax -n {seen} -l {flag[2:]} -d {shlex.quote(text)}" for flag, text in one.flags.items()
        ]
        lines += [f"complete -c sporax -n {seen} -a {action}" for action in one.actions]
    return "\n".join(lines) + "\n"


_WRITERS: Mapping[str, Callable[[list[CommandWords]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
