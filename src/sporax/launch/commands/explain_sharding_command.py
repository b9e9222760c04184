"""`sporax explain-sharding train.py:step params batch`: the collectives that XLA puts into a function of a script.

The script is loaded as a module, so what it does under ``if __name__ == "__main__"`` is left out. The words behind the function
are its arguments: expressions of names in the script, such as variables, or ``name=expression`` for those by keyword.
"""

from __future__ import annotations

import argparse
import ast
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sporax
from sporax.base.errors import For, SporaxValueError, did_you_mean, named
from sporax.ir.hardware import load_profile
from sporax.launch.jobs.cores import simulated_devices
from sporax.report.resharding import ReshardingReport

_WHERE = "sporax explain-sharding"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add("--devices", type=int, metavar="N", help="simulate N devices on the CPU (default: the real ones)")
    add("--hardware", metavar="PROFILE", default="", help="times of these devices: h100, tpu-v5e, ... or a JSON file")
    add(
        "--tries", type=int, default=96, metavar="N", help="changes that are compiled at most, 0 for none (default: 96)"
    )
    add("--json", metavar="FILE", help="also write it to this file as JSON")
    add("function", metavar="SCRIPT:FUNCTION", help="a script (.py), and a function in it, jitted or not")
    add("arguments", nargs="*", metavar="EXPRESSION", help="its arguments, of names in the script; or name=expression")


def run(arguments: argparse.Namespace) -> int:
    """Print the collectives; returns the exit code.

    Raises:
        SporaxValueError: no such script or function, an expression that has no value, or a flag with a value that it cannot have.
    """
    script, _, name = arguments.function.rpartition(":")
    out = None if arguments.json is None else Path(arguments.json).absolute()
    can_be_written = out is None or (out.parent.is_dir() and not out.is_dir())
    for what, duty, got, is_right in (
        ("SCRIPT:FUNCTION", "name a script that exists", repr(arguments.function), Path(script).is_file()),
        ("--tries", "be 0 or more", arguments.tries, arguments.tries >= 0),
        ("--devices", "be greater than 0", arguments.devices, arguments.devices is None or arguments.devices > 0),
        ("--json", "be a file in a directory that exists", repr(arguments.json), can_be_written),
    ):
        if not is_right:
            raise For(_WHERE).error(f"{named(what)} must {duty}", got)
    if arguments.hardware:
        load_profile(arguments.hardware)
    if arguments.devices is not None:
        # JAX reads the number of devices once, when it starts.
        os.environ.update(simulated_devices(os.environ, arguments.devices))
    sys.path.insert(0, str(Path(script).resolve().parent))
    names = runpy.run_path(script, run_name=Path(script).stem)
    if name not in names:
        raise SporaxValueError(
            f"For '{_WHERE}', '{script}' must have '{name}', but it has not.{did_you_mean(name, names)}"
        )
    found = _explained(names[name], arguments, names)
    print(found)
    if out is not None:
        out.write_text(f"{found.to_json()}\n", encoding="utf-8")
    return 0


def _explained(function: Any, arguments: argparse.Namespace, names: Mapping[str, Any]) -> ReshardingReport:
    words = [word for word in arguments.arguments if not _is_named(word)]
    named = [word.partition("=") for word in arguments.arguments if _is_named(word)]
    return sporax.explain_resharding(
        function,
        *(_value(word, names) for word in words),
        kwargs={key: _value(word, names) for key, _, word in named},
        hardware=arguments.hardware,
        tries=arguments.tries,
    )


def _is_named(word: str) -> bool:
    key, equals, rest = word.partition("=")
    return bool(equals) and key.isidentifier() and not rest.startswith("=")


def _value(word: str, names: Mapping[str, Any]) -> Any:
    """What an expression is in the script."""
    try:
        return eval(compile(ast.parse(word, mode="eval"), "<argument>", "eval"), dict(names))
    except (SyntaxError, NameError, AttributeError) as error:
        raise SporaxValueError(
            f"For '{_WHERE}', arguments must be expressions of names in the script, but got '{word}': {error}."
        ) from None
