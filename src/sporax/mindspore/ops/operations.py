"""`mindspore.ops.operations`, which scripts import as ``P``: the primitive classes of `sporax.mindspore.ops`."""

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.ops._core.operator import PRIMITIVES

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

globals().update(PRIMITIVES)
identity = PRIMITIVES["Identity"]  # MindSpore's older name

__all__ = [*PRIMITIVES]

answer_missing_names(__name__)
