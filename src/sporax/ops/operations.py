"""`mindspore.ops.operations`, which scripts import as ``P``: the primitive classes of `sporax.ops`."""

from typing import TYPE_CHECKING, Any

from sporax.ir.missing import missing_names
from sporax.ops._core.operator import PRIMITIVES, operator

__path__: list[str] = []  # a package in MindSpore, see `sporax._module_paths`

_ONLY_HERE: dict[str, type[Any]] = {}


@operator("identity()", function="", composed=True, classes=_ONLY_HERE)
def _identity(x: Any) -> Any:
    """`x` itself."""
    return x


globals().update(PRIMITIVES)
globals().update(_ONLY_HERE)

__all__ = [*PRIMITIVES, *_ONLY_HERE]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
