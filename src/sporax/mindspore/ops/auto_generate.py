"""`mindspore.ops.auto_generate`: the operators of `ops`, and the inner primitives that MindSpore makes of a table."""

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.ops._core.operator import FUNCTIONS, PRIMITIVES
from sporax.mindspore.ops._generated import GENERATED
from sporax.mindspore.ops._inner_names import INNER

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

globals().update(FUNCTIONS)
globals().update(PRIMITIVES)
globals().update(GENERATED)
globals().update(INNER)

__all__ = [*FUNCTIONS, *PRIMITIVES, *GENERATED, *INNER]

answer_missing_names(__name__)
