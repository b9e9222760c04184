"""What a module answers when it is asked for a name that Sporax does not have.

A MindSpore script meets the edge of Sporax in two ways: `from mindspore.nn import Foo` and `mindspore.nn.Foo`. Both end
in the module's `__getattr__`, which must raise an AttributeError for the second (so that `hasattr` works) and would,
for the first, have its message replaced by Python's own "cannot import name". An error that is not an AttributeError
passes through a from-import unchanged, so the two are told apart by the instruction that the caller is executing, and
each gets an error of its own kind with the same words.

A module of the facade takes part with one line::

    __getattr__ = missing_names(__name__)

or, when it has a `__getattr__` already, by ending that function with ``raise missing_name(__name__, name)``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from opcode import opmap
from types import FrameType
from typing import NoReturn

from sporax.ir.errors import SporaxAttributeError, SporaxImportError

_IMPORT_FROM = opmap["IMPORT_FROM"]
_SUPPORTED_NAMES_PAGE = "docs/api.md"


class SporaxModuleNotFoundError(SporaxImportError, ModuleNotFoundError):  # type: ignore[misc]  # two uses of `path`
    """A module of MindSpore's that Sporax does not have."""


def missing_name(module: str, name: str) -> SporaxAttributeError | SporaxImportError:
    """The error for a name that `module` does not have; to be raised by that module's `__getattr__`, and only there.

    Args:
        module: dotted name of the module that was asked.
        name: the name it does not have.

    Returns:
        A SporaxImportError when the caller of `__getattr__` executes ``from module import name``, else a
        SporaxAttributeError.
    """
    message = (
        f"For '{module}', the name must be one that Sporax offers, but got '{name}'. "
        f"{_SUPPORTED_NAMES_PAGE} lists the names that are there."
    )
    is_submodule = f"{module}.{name}" in sys.modules  # then Python goes on and finds it, after an AttributeError
    if not is_submodule and _is_from_import(sys._getframe(2)):
        failed_import = SporaxImportError(message)
        failed_import.name = module
        return failed_import
    failed_access = SporaxAttributeError(message)
    failed_access.name = name
    return failed_access


def missing_names(module: str) -> Callable[[str], NoReturn]:
    """A module-level `__getattr__` for the module called `module`."""

    def __getattr__(name: str) -> NoReturn:  # noqa: N807 (it is one)
        raise missing_name(module, name)

    return __getattr__


def missing_module(name: str) -> SporaxModuleNotFoundError:
    """The error for importing the module `name`, which Sporax does not have."""
    error = SporaxModuleNotFoundError(
        f"For 'import', the module must be one that Sporax offers, but got '{name}'. "
        f"{_SUPPORTED_NAMES_PAGE} lists the modules and names that are there."
    )
    error.name = name
    return error


def _is_from_import(frame: FrameType) -> bool:
    """Whether `frame` stands at the instruction that takes a name out of a module for `from … import …`."""
    return frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM
