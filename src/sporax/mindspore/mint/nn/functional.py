"""Functions of `mindspore.mint.nn.functional`."""

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.mint.nn import _functions  # noqa: F401  (registers its functions)
from sporax.mindspore.ops._core.operator import MINT

_PREFIX = "nn.functional."

globals().update({name.removeprefix(_PREFIX): function for name, function in MINT.items() if name.startswith(_PREFIX)})

__all__ = [name.removeprefix(_PREFIX) for name in MINT if name.startswith(_PREFIX)]

answer_missing_names(__name__)
