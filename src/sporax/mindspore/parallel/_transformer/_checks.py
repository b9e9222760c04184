"""Decorators by which layers of MindSpore 1.5 to 2.2, and those that programs derived from them, check constructors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from sporax.mindspore import _checkparam

Check = Callable[[Any, str], Any]


def _args_type_validator_check(**checks: Check) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function: each check gets the value of the argument of its name, where the caller gives one, and the name."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            values = signature.bind(*args, **kwargs).arguments
            for name, value in (values | values.get("kwargs", {})).items():
                if name in checks:
                    checks[name](value, name)
            return function(*args, **kwargs)

        return checked

    return decorated


def _valid_type_checks(types: Sequence[Any], class_name: str) -> Check:
    """A check whether the type of a value is one of `types`."""
    return lambda value, name: _checkparam.check_type_name(name, type(value), types, class_name)


def _valid_value_checks(types: Sequence[Any], class_name: str) -> Check:
    """A check whether a dtype is one of `types`."""
    return lambda value, name: _checkparam.check_type_name(name, value, types, class_name)
