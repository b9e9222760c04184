"""`mindspore._extends`: the decorator that Cells of older code put on their constructors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sporax.mindspore._names.missing import missing_names


def cell_attr_register(fn: Callable[..., Any] | None = None, attrs: Iterable[str] | None = None) -> Any:
    """Decorator for constructors of Cells: the constructor itself.

    MindSpore made a key for its cache of compiled graphs of the arguments `attrs`; here programs are kept by what they
    compute, so there is nothing to register.

    Args:
        fn: the constructor; without it the decorator is returned.
        attrs: names of arguments.
    """
    return cell_attr_register if fn is None else fn


__getattr__ = missing_names(__name__)
