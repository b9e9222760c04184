"""`mindspore.ops.auto_generate`: the operators of `ops`, and the inner primitives that MindSpore makes of a table."""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.ops._core.operator import FUNCTIONS, PRIMITIVES
from sporax.mindspore.ops._generated import GENERATED
from sporax.mindspore.ops._inner_names import INNER

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

globals().update(FUNCTIONS)
globals().update(PRIMITIVES)
globals().update(GENERATED)
globals().update(INNER)

__all__ = [*FUNCTIONS, *PRIMITIVES, *GENERATED, *INNER]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
