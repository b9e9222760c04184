"""How an operator is made: kernel, primitive class, Tensor method, argument checks, promotion, marks."""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.mindspore.ops._core import placed_calls

if not TYPE_CHECKING:  # most programs exchange nothing
    __getattr__ = lazy_names(__name__)
