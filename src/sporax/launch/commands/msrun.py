"""`sporax msrun`: `sporax run` with the defaults of MindSpore's launcher, for command lines that exist already."""

from __future__ import annotations

import argparse

from sporax.launch import options
from sporax.launch.commands.run import launch_or_execute


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare msrun's flags with msrun's defaults."""
    options.add_arguments(parser, options.MSRUN_DEFAULTS)


def run(arguments: argparse.Namespace) -> int:
    """Launch the job; returns the exit code."""
    return launch_or_execute(options.checked(arguments, options.MSRUN_DEFAULTS))
