"""Objects that stand for names that Sporax does not have, until a program uses them.

Importing, naming in an annotation, deriving a class, asking `isinstance` and asking for equality are not uses: the first
three need no behaviour, and nothing is an instance of a class that does not exist, or equal to it. Calling, reading an
attribute, calculating, and making an object of a derived class are, and raise an error with the words of a failed import.
"""

from __future__ import annotations

import typing
from typing import Any, NoReturn

from sporax.base.errors import SporaxAttributeError, SporaxNotImplementedError

_USES = (
    *("call", "getitem", "setitem", "delitem", "iter", "next", "len", "bool", "contains", "enter", "exit"),
    *("lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "int", "float", "index"),
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "xor", "lshift", "rshift"),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul", "rand", "rxor", "rlshift", "rrshift"),
)
"""Special methods that are uses. Python looks them up on the class, so `__getattr__` would not catch them."""


class Placeholder:
    """Stands for one name; see the module's description.

    Args:
        path: dotted name of what it stands for.
        message: text of the error that its uses raise.
    """

    __slots__ = ("_base", "_message", "_path")
    __hash__ = object.__hash__

    def __init__(self, path: str, message: str) -> None:
        self._path, self._message = path, message
        self._base: type | None = None

    def __repr__(self) -> str:
        return f"<placeholder of '{self._path}', which Sporax does not offer>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # asked by Python itself, to learn what kind of object this is
            raise AttributeError(name)
        error = SporaxAttributeError(self._message)
        error.name = name
        raise error

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type]:
        """A base class for classes that derive from this name, of which no object can be made."""
        return (self._as_base(),)

    def __instancecheck__(self, instance: object) -> bool:
        return False

    # `issubclass` asks the class; a class that derived from the placeholder has its base among its ancestors.
    def __subclasscheck__(self, candidate: type) -> bool:
        return self._base is not None and self._base in candidate.__mro__

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007 (an annotation such as `Foo | None`)

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007 - `|` would call this method again

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
