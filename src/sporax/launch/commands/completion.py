"""`sporax completion SHELL`: a script that completes commands and flags in bash, zsh, fish and other shells.

    source <(sporax completion bash)          in ~/.bashrc; with zsh in ~/.zshrc
    sporax completion fish > ~/.config/fish/completions/sporax.fish

shtab writes it from the parsers of the commands, so that no list is kept. A command whose packages are missing has no flags.
"""

from __future__ import annotations

import argparse

import shtab

from sporax.launch import cli


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the shell."""
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="the shell that reads the script")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(shtab.complete(_parser(), arguments.shell))
    return 0


def _parser() -> argparse.ArgumentParser:
    """One parser of all commands; each has its own otherwise, which only its call loads."""
    parser = argparse.ArgumentParser("sporax", description="MindSpore's distributed training, on JAX.")
    parser.add_argument("-V", "--version", action="version", version="")
    commands = parser.add_subparsers()
    for name, (_, summary) in cli.COMMANDS.items():
        try:
            parents = [cli.command_parser(name, cli.load_command(name))]
        except ImportError:  # an extra that is not installed
            parents = []
        command = commands.add_parser(name, help=summary, parents=parents, add_help=not parents)
        for action in command._actions:
            if not action.option_strings and action.choices is None:
                vars(action)["complete"] = shtab.FILE
    return parser
