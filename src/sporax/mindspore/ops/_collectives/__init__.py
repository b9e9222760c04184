"""Communication operators: collectives, messages between two ranks, pending requests."""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names
from sporax.mindspore.ops._collectives import messages, primitives

if TYPE_CHECKING:
    from sporax.mindspore.ops._collectives import point_to_point

if not TYPE_CHECKING:  # most programs exchange nothing
    __getattr__ = lazy_names(__name__)
