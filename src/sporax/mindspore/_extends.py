"""`mindspore._extends`: the decorator that Cells of older code put on their constructors, and its compiler's switches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from sporax.mindspore._names.missing import missing_names

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`


def cell_attr_register(fn: Callable[..., Any] | None = None, attrs: Iterable[str] | None = None) -> Any:
    """Decorator for constructors of Cells: the constructor itself.

    MindSpore made a key for its cache of compiled graphs of the arguments `attrs`; here programs are kept by what they
    compute, so there is nothing to register.

    Args:
        fn: the constructor; without it the decorator is returned.
        attrs: names of arguments.
    """
    return cell_attr_register if fn is None else fn


class _CompileConfig:
    """Switches of MindSpore's graph compiler, such as RECURSIVE_EVAL; XLA compiles here, so setting one warns."""

    def __setattr__(self, name: str, value: Any) -> None:
        warnings.warn(
            f"For 'compile_config', '{name}' has no effect: it is a switch of MindSpore's own compiler.", stacklevel=2
        )
        super().__setattr__(name, value)


compile_config = _CompileConfig()


__getattr__ = missing_names(__name__)
