"""Arguments of constructors: what each may be, and what an object was made with.

An argument of a transform is a field of its class: annotation, check, line of the documentation, default. The constructor follows
from the fields, base class first: its signature is that which `inspect`, `help` and type checkers see, each value is checked and
becomes the attribute of that name, and `_prepare` does what takes several of them. Data sets of published formats have theirs in
a table (`_sources.format`).

Transforms, datasets and samplers remember the arguments they were made with, so that they can be written down and made again.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from sporax.base.errors import SporaxTypeError
from sporax.mindspore.dataset import _checks

REQUIRED = inspect.Parameter.empty

Check = Callable[..., Any]
"""(API, argument, value, limits by name) -> the value in the form that is wanted; raises where it is not valid."""


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a constructor.

    Attributes:
        name: MindSpore's name for it.
        annotation: its type.
        doc: its line in the documentation; "" where the class says it.
        default: MindSpore's default, or REQUIRED.
        check: see `Check`; None where another place checks it.
    """

    name: str
    annotation: object
    doc: str
    default: object = REQUIRED
    check: Check | None = None

    def parameter(self) -> inspect.Parameter:
        """Its place in the signature."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(self.name, kind, default=self.default, annotation=self.annotation)


def argument(check: Check | None, doc: str = "", *, default: object = REQUIRED, **limits: object) -> Any:
    """The field of a transform's argument; see `Argument`, and the check for the `limits` that it takes."""
    return Argument("", "", doc, default, functools.partial(check, **limits) if check is not None and limits else check)


def of(*types: type[Any]) -> Check:
    """The check for an object of these types."""

    def check(where: str, name: str, value: Any) -> Any:
        _checks.instance(where, name, value, *types)
        return value

    return check


def optional(check: Check, instead: object = None) -> Check:
    """The check for a value that may be None, which stands for `instead`."""
    return lambda where, name, value, **limits: instead if value is None else check(where, name, value, **limits)


def fields_of(cls: type) -> tuple[Argument, ...]:
    """The arguments that the fields of a class and of its bases stand for, base first."""
    return tuple(
        {
            name: dataclasses.replace(field, name=name, annotation=vars(base)["__annotations__"][name])
            for base in reversed(cls.__mro__)
            for name, field in vars(base).items()
            if isinstance(field, Argument)
        }.values()
    )


def signature_of(arguments: Sequence[Argument], returned: object = None) -> inspect.Signature:
    """The signature of a constructor, whose annotations are types or texts."""
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
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
    """The text of a class with a line for each argument, in front of what it says of errors and examples."""
    lines = [
        textwrap.fill(f"{a.name}: {a.doc}", 116, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for a in arguments
        if a.doc
    ]
    first, *rest = inspect.cleandoc(text or "").split("\n\n")
    at = next((i for i, part in enumerate(rest) if part.startswith(("Raises:", "Example:"))), len(rest))
    section = ["\n".join(["Args:", *lines])] if lines else []
    return "\n\n".join([first, *rest[:at], *section, *rest[at:]])


class Recorded:
    """Base of such objects: each class of theirs that has a constructor notes what it is called with."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        fields = fields_of(cls)
        if any(isinstance(field, Argument) for field in vars(cls).values()):
            record_constructor(cls, _constructor(cls, fields))
        elif "__init__" in vars(cls):
            record_constructor(cls, vars(cls)["__init__"])
            return
        if fields:
            cls.__doc__ = documented(cls.__doc__, fields)

    def _prepare(self) -> None:
        """Check arguments against one another, and derive what follows from them."""


def _constructor(cls: type, fields: Sequence[Argument]) -> Callable[..., None]:
    signature = signature_of(fields, "None")

    def build(self: Recorded, /, *positional: Any, **named: Any) -> None:
        try:
            bound = signature.bind(self, *positional, **named)
        except TypeError as fault:
            raise _misfit(type(self), fault) from None
        bound.apply_defaults()
        for field in fields:
            value = bound.arguments[field.name]
            if field.check is not None:
                value = field.check(type(self).__name__, field.name, value)
            setattr(self, field.name, value)
        self._prepare()

    return published(cls, build, signature)


def _misfit(cls: type, fault: TypeError) -> SporaxTypeError:
    """The error for a call that does not fit: in the words of `inspect`, which MindSpore asks."""
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
        kind: the class whose arguments are asked for; the object's own by default.
    """
    recorded: dict[type, tuple[tuple[Any, ...], dict[str, Any]]] = vars(made).get("_given", {})
    base = next((base for base in (kind or type(made)).__mro__ if base in recorded), None)
    if base is None:
        return {}
    arguments, options = recorded[base]
    bound = inspect.signature(base).bind(*arguments, **options)
    bound.apply_defaults()
    return dict(bound.arguments)
