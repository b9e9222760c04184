"""Where the shardings of operators are saved to, or loaded from: `set_op_strategy_config`."""

from __future__ import annotations

import os
from typing import Any

from sporax.base.errors import SporaxKeyError, check_type
from sporax.mindspore import context


def set_op_strategy_config(mode: str = "SAVE", path: str = "") -> None:
    """Save the shardings of operators to a JSON file when a step is planned, or take them from one.

    Args:
        mode: ``"SAVE"`` or ``"LOAD"``.
        path: absolute path that ends in ``.json``.

    Raises:
        SporaxKeyError: another mode, or a path that is not absolute or does not end in ``.json``.
        SporaxTypeError: `path` is not a string.
    """
    check_operator_file("set_op_strategy_config", "path", path)
    if mode not in ("SAVE", "LOAD"):
        raise SporaxKeyError(f"For 'set_op_strategy_config', 'mode' must be 'SAVE' or 'LOAD', but got {mode!r}.")
    if mode == "SAVE":
        context.set_auto_parallel_context(op_strategy_save_file=path)
    else:
        context.set_auto_parallel_context(op_strategy_load_file=path)


def check_operator_file(function: str, name: str, path: Any) -> str:
    """An absolute path of a JSON file.

    Raises:
        SporaxKeyError: not absolute, or another ending.
        SporaxTypeError: not a string.
    """
    check_type(function, name, path, "a string", str)
    if not os.path.isabs(path) or not path.endswith(".json"):
        raise SporaxKeyError.must(function, name, "be an absolute path ending in '.json'", f"'{path}'")
    return path
