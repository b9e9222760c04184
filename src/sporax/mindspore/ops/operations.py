"""`mindspore.ops.operations`, which scripts import as ``P``: the primitive classes of `sporax.mindspore.ops`."""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.ops._core.operator import PRIMITIVES

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

globals().update(PRIMITIVES)
identity = PRIMITIVES["Identity"]  # MindSpore's older name

__all__ = [*PRIMITIVES]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
