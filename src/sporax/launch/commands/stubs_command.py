"""`sporax stubs [DIR]`: stub files by which editors and type checkers find `import mindspore`."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from sporax.launch.target import PREPARATION


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the folder."""
    parser.add_argument(
        "directory", nargs="?", default="typings", metavar="DIR", help="where the stubs go (default: typings)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the stubs; returns the exit code."""
    folder = Path(arguments.directory)
    count = importlib.import_module(PREPARATION).write_stubs(folder)
    print(
        f"{count} stubs are in {folder}. Pyright and Pylance read 'typings' by themselves (switch off reportMissingModuleSource "
        f"there); for mypy set MYPYPATH={folder}."
    )
    return 0
