"""Arguments of constructors: what each may be, and what an object was made with.

Arguments of a transform are fields of its class (`_declared`). Data sets of published formats have theirs in a table
(`_sources.format`).

Transforms, datasets and samplers remember the arguments they were made with, so that they can be written down and made again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from sporax.base.errors import SporaxTypeError
from sporax.mindspore._declared import Check, Declared, documented, fields_of, optional, setting as argument
from sporax.mindspore.dataset import _checks

__all__ = ["Recorded", "argument", "of", "optional", "record_constructor", "recorded_arguments"]


def of(*types: type[Any]) -> Check:
    """The check for an object of these types."""

    def check(where: str, name: str, value: Any) -> Any:
        _checks.instance(where, name, value, *types)
        return value

    return check


class Recorded(Declared):
    """Base of such objects: each class of theirs that has a constructor notes what it is called with."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            record_constructor(cls, vars(cls)["__init__"])
        elif fields := fields_of(cls):
            cls.__doc__ = documented(cls.__doc__, fields)

    def _misfit(self, owner: type, fault: TypeError) -> TypeError:
        return _misfit(type(self), fault)


def _misfit(cls: type, fault: TypeError) -> SporaxTypeError:
    """The error for a call that does not fit: in the words of `inspect`, which MindSpore calls."""
    return SporaxTypeError(f"For '{cls.__name__}', {fault}.")


def record_constructor(cls: type, constructor: Callable[..., None]) -> None:
    """Give a class a constructor that notes its arguments."""

    @functools.wraps(constructor)
    def record(self: Any, /, *arguments: Any, **options: Any) -> None:
        vars(self).setdefault("_given", {})[cls] = (arguments, options)
        try:
            constructor(self, *arguments, **options)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is None:
                try:
                    inspect.signature(constructor).bind(self, *arguments, **options)
                except TypeError as fault:
                    raise _misfit(cls, fault) from None
            raise

    type.__setattr__(cls, "__init__", record)


def recorded_arguments(made: Recorded, kind: type | None = None) -> dict[str, Any]:
    """The arguments by name, with defaults.

    Args:
        made: the object.
        kind: the class whose arguments are read; the object's own by default.
    """
    recorded: dict[type, tuple[tuple[Any, ...], dict[str, Any]]] = vars(made).get("_given", {})
    base = next((base for base in (kind or type(made)).__mro__ if base in recorded), None)
    if base is None:
        return {}
    arguments, options = recorded[base]
    bound = inspect.signature(base).bind(*arguments, **options)
    bound.apply_defaults()
    return dict(bound.arguments)
