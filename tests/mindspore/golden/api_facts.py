"""Names and signatures that a framework offers, in a form two frameworks can be compared by."""

from __future__ import annotations

import importlib
import inspect
import re
import types
from typing import Any

OURS = "sporax.mindspore"
"""The package that is compared with `mindspore`."""

#: Modules whose public names are listed, below the framework's own name.
MODULES = (
    "",
    "amp",
    "common",
    "common.initializer",
    "communication",
    "communication.comm_func",
    "context",
    "dataset",
    "dataset.text",
    "dataset.transforms",
    "dataset.vision",
    "dtype",
    "experimental.optim",
    "experimental.optim.lr_scheduler",
    "log",
    "mint",
    "mint.nn",
    "mint.nn.functional",
    "mint.optim",
    "nn",
    "nn.utils",
    "numpy",
    "ops",
    "parallel",
    "parallel.auto_parallel",
    "parallel.nn",
    "runtime",
    "scipy",
    "scipy.fft",
    "scipy.linalg",
    "train",
)
#: Classes whose public attributes are listed.
CLASSES = ("Tensor", "Parameter", "ParameterTuple", "nn.Cell", "nn.Optimizer", "ops.Primitive", "train.Model")
#: What does not count in a default: where it lives, and addresses.
LOCAL = re.compile(r"\b(mindspore|sporax|numpy)\.| at 0x[0-9a-f]+")


def names(framework: str) -> dict[str, list[str]]:
    """Public names of every module that exists, and of the classes, by their dotted place."""
    actual = {}
    for place in MODULES:
        module = load(framework, place)
        if module is not None:
            actual[place] = public(module)
    for place in CLASSES:
        owner = resolve(framework, place)
        if owner is not None:
            actual[place] = sorted(name for name in dir(owner) if not name.startswith("_"))
    return actual


def load(framework: str, place: str) -> types.ModuleType | None:
    """The module at `place`, or None when the framework has none there."""
    name = f"{framework}.{place}".rstrip(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if name == error.name or name.startswith(f"{error.name}."):
            return None
        raise


def resolve(framework: str, place: str) -> Any:
    """The object at a dotted place such as "nn.Cell", or None."""
    owner: Any = importlib.import_module(framework)
    for name in place.split("."):
        owner = getattr(owner, name, None)
    return owner


def public(module: types.ModuleType) -> list[str]:
    """What `module` declares in `__all__`; for a framework itself, and without `__all__`, also what it defines."""
    root = module.__name__.partition(".")[0]
    actual = {name for name in getattr(module, "__all__", ()) if name.isidentifier()}
    if module.__name__ in (OURS, root) or not hasattr(module, "__all__"):
        actual |= {name for name, value in vars(module).items() if belongs(value, root)}
    return sorted(name for name in actual if not name.startswith("_"))


def belongs(value: Any, root: str) -> bool:
    """Whether `value` is not a module, and comes from the framework `root` (or from nowhere, like a number)."""
    home = getattr(value, "__module__", None) or root
    return not isinstance(value, types.ModuleType) and home.startswith((root, "_c"))


def signature(value: Any) -> list[str] | None:
    """Parameters in order, each as written in a `def` without annotations; None when nothing is known.

    For a class they are those of the constructor, without `self`.
    """
    target = value.__init__ if isinstance(value, type) else value
    try:
        parameters = list(inspect.signature(undecorated(target)).parameters.values())
    except (TypeError, ValueError):
        return None
    if isinstance(value, type) or (parameters and parameters[0].name == "self"):
        parameters = parameters[1:]
    texts = [text(parameter) for parameter in parameters]
    return None if texts == ["*args", "**kwargs"] else texts


def undecorated(function: Any) -> Any:
    """The function inside a decorator that hides it without `functools.wraps`, else `function` itself."""
    if "__signature__" in getattr(function, "__dict__", {}):  # it says what it takes
        return function
    cells = getattr(function, "__closure__", None) or ()
    hidden = [c.cell_contents for c in cells if isinstance(c.cell_contents, types.FunctionType)]
    name = getattr(function, "__name__", "")
    same = [inner for inner in hidden if inner.__name__ in (name, "__init__")]
    return same[0] if len(same) == 1 else function


def text(parameter: inspect.Parameter) -> str:
    """One parameter: `name`, `name=default`, `*name`, `**name`, or `*, name=default` for keyword-only ones."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**", parameter.KEYWORD_ONLY: "*, "}
    name = stars.get(parameter.kind, "") + parameter.name
    default = parameter.default
    if default is parameter.empty:
        return name
    return f"{name}={default.__name__ if isinstance(default, type) else LOCAL.sub('', repr(default))}"


def signatures(framework: str) -> dict[str, list[str]]:
    """Signatures of every public class and function, and of the methods of `CLASSES`, by dotted place."""
    actual = {}
    for place, members in names(framework).items():
        owner = resolve(framework, place) if place in CLASSES else load(framework, place)
        for name in members:
            value = getattr(owner, name, None)
            if isinstance(value, types.ModuleType) or not callable(value):
                continue
            actual[f"{place}.{name}".lstrip(".")] = signature(value)
            if isinstance(value, type) and place == "ops" and "__call__" in vars(value):
                actual[f"ops.{name}.__call__"] = signature(value.__call__)
    return {place: parameters for place, parameters in actual.items() if parameters is not None}
