"""Arguments of constructors, declared: what each is called, may be and means, in one line.

An argument is a field of its class: annotation, check, line of the documentation, default. The constructor follows from the
fields, base class first: its signature is that which `inspect`, `help` and type checkers see, each value is checked and becomes
the attribute of that name, and `_prepare` does what takes several of them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from sporax.base.lazy_members import dataclass

REQUIRED = inspect.Parameter.empty
_BEHIND = ("Args:", "Attributes:", "Raises:", "Example:")
"""Sections of a docstring, in the order in which they stand."""

Check = Callable[..., object]
"""(API, argument, value, limits by name) -> the value as it is stored; raises where it is not valid."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a constructor.

    Attributes:
        name: MindSpore's name for it.
        annotation: its type.
        doc: its line in the documentation; "" where the class says it.
        default: MindSpore's default, or REQUIRED.
        check: see `Check`; None where another place checks it.
        attribute: whether it becomes an attribute; the others are handed to `_prepare` by name.
        kind: how it is given: by position or name, by name alone, or all others by name, as a dict.
        is_last: whether it stands behind those of derived classes.
    """

    name: str
    annotation: object
    doc: str
    default: object = REQUIRED
    check: Check | None = None
    attribute: bool = True
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    is_last: bool = False

    def __get__(self, owner: object, kind: type) -> Argument:
        """The field, of the class alone: an object has the value, or no attribute of that name."""
        if owner is None:
            return self
        raise AttributeError(self.name)

    def checked(self, where: str, value: object) -> object:
        """A value as it is stored."""
        return value if self.check is None else self.check(where, self.name, value)

    def parameter(self) -> inspect.Parameter:
        """Its place in the signature."""
        return inspect.Parameter(self.name, self.kind, default=self.default, annotation=self.annotation)


def setting(
    check: Check | None = None,
    doc: str = "",
    *,
    default: object = REQUIRED,
    attribute: bool = True,
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD,
    is_last: bool = False,
    **limits: object,
) -> Any:
    """The field of an argument; see `Argument`, and the check for the `limits` that it takes."""
    limited = functools.partial(check, **limits) if check is not None and limits else check
    return Argument("", "", doc, default, limited, attribute, kind, is_last)


def optional(check: Check, instead: object = None) -> Check:
    """The check for a value that may be None, which stands for `instead`."""
    return lambda where, name, value, **limits: instead if value is None else check(where, name, value, **limits)


def fields_of(cls: type) -> tuple[Argument, ...]:
    """The arguments that the fields of a class and of its bases stand for, base first."""
    fields = {
        name: dataclasses.replace(field, name=name, annotation=vars(base)["__annotations__"][name])
        for base in reversed(cls.__mro__)
        for name, field in vars(base).items()
        if isinstance(field, Argument)
    }
    return tuple(sorted(fields.values(), key=lambda field: field.is_last))


def signature_of(arguments: Sequence[Argument], returned: object = None) -> inspect.Signature:
    """The signature of a constructor, whose annotations are types or texts."""
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Signature([this, *(argument.parameter() for argument in arguments)], return_annotation=returned)


def published(cls: type, constructor: Callable[..., None], signature: inspect.Signature) -> Callable[..., None]:
    """A constructor as the one that is written in its class."""
    constructor.__name__, constructor.__module__ = "__init__", cls.__module__
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    constructor.__doc__ = "See the class for what the arguments mean."
    constructor.__annotations__ = {p.name: p.annotation for p in [*signature.parameters.values()][1:]} | {
        "return": None
    }
    # `vars`, since the type checker knows no such attribute of functions.
    vars(constructor)["__signature__"] = signature
    return constructor


def documented(text: str | None, arguments: Sequence[Argument]) -> str:
    """The text of a class with a line for each argument, in front of what it says of errors and examples.

    Lines of its own, such as those for several arguments together, stand where the first of them is in the signature.
    """
    text = inspect.cleandoc(text or "")
    lines = {
        a.name: textwrap.fill(f"{a.name}: {a.doc}", 116, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for a in arguments
        if a.doc
    }
    if not lines:
        return text
    first, *rest = text.split("\n\n")
    at = next((i for i, part in enumerate(rest) if part.startswith(_BEHIND)), len(rest))
    if rest[at : at + 1] and rest[at].startswith("Args:"):
        entries = re.findall(r"^    (\w+)(.*\n?(?:     .*\n?)*)", rest.pop(at), re.MULTILINE)
        lines |= {name: f"    {name}{more}".rstrip() for name, more in entries}
    order = [argument.name for argument in arguments]
    section = "\n".join(["Args:", *(lines[name] for name in sorted(lines, key=order.index))])
    return "\n\n".join([first, *rest[:at], section, *rest[at:]])


class Declared:
    """Base of classes with such fields. One that only has them for others, ``fields_only``, gets no constructor of its own."""

    def __init_subclass__(cls, *, fields_only: bool = False, **options: object) -> None:
        super().__init_subclass__(**options)
        if any(isinstance(field, Argument) for field in vars(cls).values()) and not fields_only:
            fields = fields_of(cls)
            type.__setattr__(cls, "__init__", _constructor(cls, fields))
            cls.__doc__ = documented(cls.__doc__, fields)

    def _begin(self, values: dict[str, object]) -> None:
        """What comes before the first attribute; takes out of `values` what a base class makes of them."""

    def _prepare(self) -> None:
        """Check arguments against one another, and derive what follows from them."""

    def _misfit(self, owner: type, fault: TypeError) -> TypeError:
        """The error for a call that does not fit the constructor of `owner`: Python's, which begins with the name."""
        return TypeError(f"{owner.__qualname__}.__init__() {fault}")


def _constructor(cls: type, fields: Sequence[Argument]) -> Callable[..., None]:
    signature = signature_of(fields, "None")

    def build(self: Declared, /, *positional: object, **named: object) -> None:
        try:
            bound = signature.bind(self, *positional, **named)
        except TypeError as fault:
            raise self._misfit(cls, fault) from None
        bound.apply_defaults()
        _, *values = bound.arguments.items()
        begun = dict(values)
        self._begin(begun)
        for field in fields:
            value = field.checked(type(self).__name__, bound.arguments[field.name])
            if field.name in begun:
                begun[field.name] = value
                if field.attribute:
                    setattr(self, field.name, value)
        self._prepare(**{field.name: begun[field.name] for field in fields if not field.attribute})

    return published(cls, build, signature)
