"""What a module answers to a request for a name that Sporax does not have.

A MindSpore script meets the edge of Sporax in three ways, and each gets an answer of its own with the same words:

==================================================  ==================================================================
``mindspore.nn.Foo``                                an AttributeError, so that `hasattr` works
``from mindspore.nn import Foo`` within ``try``     an ImportError: the script says that it can do without
``from mindspore.nn import Foo``                    a `Placeholder`, which raises the error when it is used: programs
                                                    import many names that a given run never needs
==================================================  ==================================================================

All of them end in the module's `__getattr__`; the instruction that the importing code executes, and its table of exception
handlers, distinguish them.

A module of the facade takes part with one line::

    answer_missing_names(__name__)

or, when it has a `__getattr__` already, by ending that function with ``return missing_name(__name__, name)``. MindSpore has
many names in several packages; a module that offers names of a layer above, or of modules that take long to load, gives a table
of these, and each is loaded when it is first used::

    answer_missing_names(__name__, homes("sporax.mindspore.train.export", "export load"))

Objects that stand for names that Sporax does not have, until a program uses them.

Importing, naming in an annotation, deriving a class, calls of `isinstance` and tests of equality are not uses: the first
three need no behaviour, and nothing is an instance of a class that does not exist, or equal to it. Calling, reading an
attribute, calculating, and making an object of a derived class are, and raise an error with the words of a failed import.
Operators of MindSpore's that are not here, in inner modules and in `REFUSED`, are made in tables, so of them only the call of
what was made is a use.
"""

from __future__ import annotations

import difflib
import importlib
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from opcode import opmap
from types import CodeType, FrameType, ModuleType
from typing import Any, NoReturn

from sporax.base.errors import SporaxAttributeError, SporaxImportError, SporaxNotImplementedError

_USES = (
    *("getitem", "setitem", "delitem", "iter", "next", "len", "bool", "contains", "enter", "exit"),
    *("lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "int", "float", "index"),
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "xor", "lshift", "rshift"),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul", "rand", "rxor", "rlshift", "rrshift"),
)
"""Special methods that are uses. Python looks them up on the class, so `__getattr__` would not catch them."""

_OPERATOR = re.compile(r"\bops\.(operations\.\w+|auto_generate(\.\w+)?)\.[A-Z]\w*$")
"""Paths of operators in MindSpore's inner modules, which programs also reach by the module, as in ``_grad_ops.TanhGrad()``;
a name of `ops` itself that is missing is misspelt."""

REFUSED: set[str] = set()
"""Full names of other operators that MindSpore has and Sporax does not offer."""


class Placeholder:
    """Stands for one name; see the module's description.

    Args:
        path: dotted name of what it stands for.
        message: text of the error that its uses raise.
    """

    __slots__ = ("_base", "_made", "_message", "_path")
    __hash__ = object.__hash__

    def __init__(self, path: str, message: str) -> None:
        self._path, self._message, self._made = path, message, False
        self._base: type | None = None

    def __repr__(self) -> str:
        return f"<placeholder of '{self._path}', which Sporax does not offer>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # read by Python itself, to learn what kind of object this is
            raise AttributeError(name)
        error = SporaxAttributeError(self._message)
        error.name = name
        raise error

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type]:
        """A base class for classes that derive from this name, of which no object can be made."""
        return (self._as_base(),)

    def __instancecheck__(self, instance: object) -> bool:
        return False

    # `issubclass` reads the class; a class that derived from the placeholder has its base among its ancestors.
    def __subclasscheck__(self, candidate: type) -> bool:
        return self._base is not None and self._base in candidate.__mro__

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007 (an annotation such as `Foo | None`)

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007 - `|` would call this method again

    def __call__(self, *arguments: object, **keywords: object) -> Placeholder:
        """Raise, unless this makes an operator."""
        if self._made or not _is_operator(self._path):
            raise SporaxNotImplementedError(self._message)
        made = Placeholder(self._path, self._message)
        made._made = True
        return made

    def _as_base(self) -> type:
        if self._base is None:
            message = self._message

            def __new__(cls: type, *arguments: Any, **keywords: Any) -> NoReturn:  # noqa: N807 (it is one)
                raise SporaxNotImplementedError(message)

            self._base = type(self._path.rpartition(".")[2], (), {"__new__": __new__, "__module__": __name__})
        return self._base


def _raising(name: str) -> Any:
    def use(self: Placeholder, *arguments: object, **keywords: object) -> NoReturn:
        raise SporaxNotImplementedError(self._message)

    use.__name__ = use.__qualname__ = name
    return use


for _use in _USES:
    setattr(Placeholder, f"__{_use}__", _raising(f"__{_use}__"))


_IMPORT_NAME, _IMPORT_FROM = opmap["IMPORT_NAME"], opmap["IMPORT_FROM"]
_EXTENDED_ARG, _WITH_EXCEPT_START = opmap["EXTENDED_ARG"], opmap["WITH_EXCEPT_START"]
_BYTES_PER_INSTRUCTION = 2
"""Bytes of one instruction since CPython 3.6: operation and argument."""
_SUPPORTED_NAMES_PAGE = "docs/api.md"
_OWN_MODULES = "sporax."
_NAMED_MODULES = "sporax.mindspore."
"""Where names that people know are looked for."""
_LEAST_SIMILARITY = 0.75
"""Similarity of `difflib`, 0 to 1: below it, a suggestion is more often wrong than helpful."""

SUBMODULES: set[str] = set()
"""Full names of modules that are imported when they are read from their package, as MindSpore's packages have them at once."""

LISTED: dict[str, Mapping[str, str]] = {}
"""Full names of packages that load names when they are first used (`doors`), and where each name is defined."""


class MissingNameError(SporaxAttributeError):
    """A module does not have a name.

    The message is made when it is read: `hasattr` and `getattr` with a default come often and read none, and finding the
    nearest name compares it with all that there are.
    """

    def __init__(self, module: str, name: str, reason: str | None = None) -> None:
        AttributeError.__init__(self, module, name, reason)
        self.name = name
        self.cell_path = ()

    @cached_property
    def message(self) -> str:  # type: ignore[override]  # made when it is read, unless it was set
        """What was requested, where to look, and the nearest name that is there."""
        return _message(*self.args)


class SporaxModuleNotFoundError(SporaxImportError, ModuleNotFoundError):
    """A module of MindSpore's that Sporax does not have."""


def missing_name(module: str, name: str, reason: str | None = None) -> Any:
    """Answer for a name that `module` does not have; to be returned by that module's `__getattr__`, and only there.

    Args:
        module: dotted name of the module that was read.
        name: the name it does not have.
        reason: a sentence of its own for the message: why it is not there, and what to use instead.

    Returns:
        A module of `SUBMODULES`. Else a `Placeholder` (typed as Any, as all attributes of a module with a `__getattr__`
        are), where the caller of `__getattr__` executes ``from module import name``, or requests an operator of an inner module.

    Raises:
        MissingNameError: the caller executes anything else; an AttributeError.
        SporaxImportError: the from-import is in a ``try`` or ``with``, or in Sporax itself.
    """
    if f"{module}.{name}" in SUBMODULES and f"{module}.{name}" not in sys.modules:
        return importlib.import_module(f"{module}.{name}")
    # One frame up: the module's own `__getattr__` has called this function.
    importer = _importer(sys._getframe(1))
    is_submodule = f"{module}.{name}" in sys.modules  # then Python goes on and finds it, after an AttributeError
    if is_submodule or name.startswith("__") or (importer is None and not _is_operator(f"{module}.{name}")):
        raise MissingNameError(module, name, reason)
    message = _message(module, name, reason)
    if importer is None:
        return Placeholder(f"{module}.{name}", message)
    if _handles_errors(importer) or _is_own(importer):
        failed_import = SporaxImportError(message)
        failed_import.name = module
        raise failed_import
    return Placeholder(f"{module}.{name}", message)


def _is_operator(path: str) -> bool:
    return path in REFUSED or _OPERATOR.search(path) is not None


def missing_names(module: str, elsewhere: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """A module-level `__getattr__` for the module called `module`.

    Args:
        module: dotted name of the module.
        elsewhere: names that it offers too and that other modules define: name → ``"module:attribute"``, or ``"module"``.
    """
    home_of = elsewhere or {}

    def __getattr__(name: str) -> Any:  # noqa: N807 (it is one)
        return resolved(home_of[name]) if name in home_of else missing_name(module, name)

    return __getattr__


def answer_missing_names(module: str, elsewhere: Mapping[str, str] | None = None, listed: bool = False) -> None:
    """Give a module the `__getattr__` of `missing_names`; type checkers do not see it, as they should report missing names.

    `listed`: `dir` has the names that are elsewhere, too.
    """
    own = vars(sys.modules[module])
    own["__getattr__"] = missing_names(module, elsewhere)
    if listed:
        own["__dir__"] = lambda: sorted({*own, *(elsewhere or ())})


def homes(module: str, names: str) -> dict[str, str]:
    """Where some names are defined, given with spaces between: all of them in `module`."""
    return {name: f"{module}:{name}" for name in names.split()}


def homes_in(package: str, table: str) -> dict[str, str]:
    """Where the names of a package are defined, from a text with ``module: name name`` for each of its modules.

    ``name=other`` is a name that the module calls `other`.
    """
    found, module = {}, ""
    for word in table.split():
        if word.endswith(":"):
            module = word[:-1]
        else:
            name, _, attribute = word.partition("=")
            found[name] = f"{package}.{module}:{attribute or name}"
    return found


def resolved(home: str) -> Any:
    """The module, or the attribute of a module, that ``"module"`` or ``"module:attribute"`` names, imported now."""
    module, _, attribute = home.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def late(home: str) -> Callable[..., Any]:
    """A function that calls the one at ``"module:attribute"``, and imports its module no sooner."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return resolved(home)(*args, **kwargs)

    return call


def missing_module(name: str) -> SporaxModuleNotFoundError:
    """The error for importing the module `name`, which Sporax does not have."""
    error = SporaxModuleNotFoundError(
        f"For 'import', the module must be one that Sporax offers, but got '{name}'. "
        f"{_SUPPORTED_NAMES_PAGE} lists the modules and names that are there."
    )
    error.name = name
    return error


def placeholder_module(name: str) -> ModuleType:
    """A module that stands for `name`: importing from it gives placeholders, its attributes are errors."""
    module = ModuleType(name, f"Sporax has no module of the name `{name}`.")
    module.__path__ = []
    module.__dict__["__getattr__"] = missing_names(name)
    return module


def is_plain_import_of(name: str) -> bool:
    """Whether the code that runs now executes an import statement for the module `name`, outside ``try`` and ``with``.

    False as well when the module is tried as one name of ``from package import name``, or by `importlib.import_module`.
    """
    frame: FrameType | None = sys._getframe(1)
    # The import system's own frames lie between the statement and the finder that calls.
    finders = ("importlib", "sporax.mindspore._names.alias")
    while frame is not None and frame.f_globals.get("__name__", "").startswith(finders):
        frame = frame.f_back
    if frame is None or _handles_errors(frame) or _is_own(frame):
        return False
    imported = _imported_module(frame)
    return imported is not None and (imported == name or imported.startswith(f"{name}."))


def _message(module: str, name: str, reason: str | None) -> str:
    """What was requested, and why it is not there; or where to look, and the nearest name that is there."""
    if reason:
        return f"For '{module}', '{name}' is not offered: {reason}"
    return (
        f"For '{module}', the name must be one that Sporax offers, but got '{name}'. "
        f"{_SUPPORTED_NAMES_PAGE} lists the names that are there.{suggestion(module, name)}"
    )


def suggestion(module: str, name: str) -> str:
    """` Did you mean ...?`, with the same name in another package or a similar one in the same; else nothing."""
    elsewhere = sorted(
        path
        for path, other in list(sys.modules.items())
        # The original only: the same module may be registered under several names.
        if path.startswith(_NAMED_MODULES) and "._" not in path and other.__name__ == path
        if name in vars(other) or name in LISTED.get(path, ())
    )
    if elsewhere and not name.startswith("_"):
        return f" Did you mean '{elsewhere[0]}.{name}'?"
    offered = sys.modules.get(module)
    near = difflib.get_close_matches(name, dir(offered) if offered else (), n=1, cutoff=_LEAST_SIMILARITY)
    return f" Did you mean '{near[0]}'?" if near else ""


def _importer(frame: FrameType | None) -> FrameType | None:
    """The frame that executes ``from … import …``, below the `__getattr__` functions that led here; None if none does."""
    # Lazy modules chain their `__getattr__` functions.
    while frame is not None and frame.f_code.co_name == "__getattr__" and not _executes(frame, _IMPORT_FROM):
        frame = frame.f_back
    return frame if frame is not None and _executes(frame, _IMPORT_FROM) else None


def _executes(frame: FrameType, operation: int) -> bool:
    """Whether `frame` is at an instruction of the kind `operation`."""
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == operation


def _imported_module(frame: FrameType) -> str | None:
    """Name of the module that `frame` imports at this moment; None when it does something else."""
    if not _executes(frame, _IMPORT_NAME):
        return None
    code, place = frame.f_code.co_code, frame.f_lasti
    # Arguments above 255 are written in prefixes, most significant first.
    index, shift = code[place + 1], 8
    while place >= _BYTES_PER_INSTRUCTION and code[place - _BYTES_PER_INSTRUCTION] == _EXTENDED_ARG:
        place -= _BYTES_PER_INSTRUCTION
        index |= code[place + 1] << shift
        shift += 8
    return frame.f_code.co_names[index]


def _is_own(frame: FrameType) -> bool:
    """Whether the code belongs to Sporax, where a wrong name is a mistake of ours and must show at once."""
    return str(frame.f_globals.get("__name__", "")).startswith(_OWN_MODULES)


def _handles_errors(frame: FrameType) -> bool:
    """Whether the current instruction of `frame` is inside a ``try`` or a ``with`` of the same function."""
    place = frame.f_lasti // _BYTES_PER_INSTRUCTION
    code = frame.f_code.co_code
    for start, length, handler, is_cleanup in _exception_table(frame.f_code):
        if start <= place < start + length:
            second = code[(handler + 1) * _BYTES_PER_INSTRUCTION]
            if not is_cleanup or second == _WITH_EXCEPT_START:  # an `except` body has a cleanup handler of its own
                return True
    return False


def _exception_table(code: CodeType) -> Iterator[tuple[int, int, int, bool]]:
    """First instruction, number of instructions, handler and whether it restores the place, for each protected range.

    The format is described in CPython's `Objects/exception_handling_notes.txt`: numbers of six bits per byte, the
    highest first, with bit 6 set where another byte follows.
    """
    table = iter(code.co_exceptiontable)

    def number(byte: int) -> int:
        # Six bits per byte; bit 6 says that another byte follows.
        value = byte & 63
        while byte & 64:
            byte = next(table)
            value = value << 6 | byte & 63
        return value

    for byte in table:
        start, length, handler, depth = number(byte), number(next(table)), number(next(table)), number(next(table))
        yield start, length, handler, bool(depth & 1)
