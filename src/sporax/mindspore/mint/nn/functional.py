"""Functions of `mindspore.mint.nn.functional`."""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.mint.nn import _functions  # noqa: F401  (registers its functions)
from sporax.mindspore.ops._core.operator import MINT

_PREFIX = "nn.functional."

globals().update({name.removeprefix(_PREFIX): function for name, function in MINT.items() if name.startswith(_PREFIX)})

__all__ = [name.removeprefix(_PREFIX) for name in MINT if name.startswith(_PREFIX)]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
