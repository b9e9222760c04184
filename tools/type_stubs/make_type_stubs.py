"""Write the type stubs of modules whose names are made when they are imported.

Problem: operators get their function and class forms from tables, and top-level names are loaded when they are first used.
Type checkers and editors see neither. Method: import each module, and write a stub (``.pyi``) beside it that gives every
public name the signature it really has. Git ignores the stubs; a build of a wheel writes them (`build_hook.py`).

Run: python tools/type_stubs/make_type_stubs.py
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import keyword
import re
import sys
import typing
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import sporax.mindspore.ops  # noqa: F401 - gives Tensors their operators
from sporax.mindspore._names.missing import LISTED
from sporax.mindspore._names.module_paths import HOMES
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.ops._core.operator import Operator
from sporax.mindspore.ops._core.primitive import Primitive

MODULES = (
    "sporax.mindspore",
    "sporax.mindspore.amp",
    "sporax.mindspore.common",
    "sporax.mindspore.communication",
    "sporax.mindspore.context",
    "sporax.mindspore.dataset",
    "sporax.mindspore.dataset.audio",
    "sporax.mindspore.dataset.text",
    "sporax.mindspore.dataset.vision",
    "sporax.mindspore.experimental.optim",
    "sporax.mindspore.experimental.optim.lr_scheduler",
    "sporax.mindspore.mindrecord",
    "sporax.mindspore.nn",
    "sporax.mindspore.nn.optim",
    "sporax.mindspore.nn.probability.bnn_layers",
    "sporax.mindspore.nn.probability.distribution",
    "sporax.mindspore.ops",
    "sporax.mindspore.ops._core",
    "sporax.mindspore.parallel._transformer",
    "sporax.mindspore.runtime",
    "sporax.mindspore.train",
    "sporax.mindspore.train.callback",
    "sporax.mindspore.train.checkpoint",
    "sporax.mindspore.train.metrics",
    "sporax.mindspore.mint",
    "sporax.mindspore.mint.nn",
    "sporax.mindspore.mint.nn.functional",
    "sporax.mindspore.numpy",
)
TENSOR = "sporax.mindspore.common.tensor"

_HEAD = '''"""Made by tools/type_stubs/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

'''
_ALIASES = {"Array": "Tensor", "Operand": "Tensor | builtins.float | builtins.bool | builtins.complex"}
_SAFE = {"int", "float", "bool", "str", "None", "complex", "tuple", "list", "dict", "bytes", "object", "slice"}
_KNOWN = {"Tensor", "DType", "Any", "Literal", "Callable", "Sequence"}
_WORD = re.compile(r"'[^']*'|[A-Za-z_][\w.]*")


def main() -> None:
    """Write the stubs that are not there or out of date."""
    for name, text in stubs().items():
        path = Path(str(sys.modules[name].__file__)).with_suffix(".pyi")
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def stubs() -> dict[str, str]:
    """The text of every stub by the name of its module."""
    return {name: module_stub(importlib.import_module(name)) for name in MODULES} | {TENSOR: tensor_stub()}


def module_stub(module: ModuleType) -> str:
    """The stub of one module: every public name, with where it comes from or with its signature."""
    names = {*(getattr(module, "__all__", ()) or _public(module)), *getattr(module, "_OURS", ())}
    names = [name for name in sorted(names) if name.isidentifier()]
    imports, values, definitions = [], [], []
    for name in names:
        if keyword.iskeyword(name):
            continue
        value = getattr(module, name)
        home = getattr(value, "__module__", None)
        listed, _, attribute = LISTED.get(module.__name__, {}).get(name, "").partition(":")
        if attribute and listed.startswith(f"{module.__name__}."):
            imports.append(f"from {listed} import {attribute} as {name}")
        elif isinstance(value, ModuleType):
            # A path of MindSpore's is no file: checkers find the module that has its names.
            owner, _, leaf = HOMES.get(value.__name__, value.__name__).rpartition(".")
            if value.__name__ == f"{module.__name__}.{name}":
                imports.append(f"from {owner} import {leaf} as {name}")
            else:
                package, _, leaf = value.__name__.rpartition(".")
                imports.append(f"from {package} import {leaf} as {name}")
        elif isinstance(value, Operator):
            definitions.append(_function(name, value, _globals(value)))
        elif isinstance(value, type) and issubclass(value, Primitive) and home == "sporax.mindspore.ops":
            definitions.append(_primitive(name, value))
        elif isinstance(value, type | FunctionType) and _is_there(home, name, value) and home != module.__name__:
            imports.append(f"from {home} import {name} as {name}")
        elif isinstance(value, FunctionType):
            definitions.append(_function(name, value, value.__globals__))
        else:
            values.append(f"{name}: {_kind(value)}")
    imports += [
        "from sporax.mindspore.common.dtype import DType as _DType",
        "from sporax.mindspore.common.tensor import Tensor as Tensor",
    ]
    return _HEAD + "\n".join((*sorted(set(imports)), "", *values, "", *definitions)) + "\n"


def _public(module: ModuleType) -> list[str]:
    return [name for name in vars(module) if not name.startswith("_")]


def _is_there(home: Any, name: str, value: Any) -> bool:
    """Whether a module has this under this name, in its source and not made later."""
    module = sys.modules.get(str(home))
    if module is None or getattr(module, name, None) is not value:
        return False
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    return re.search(rf"^(class|def) {name}\b", source, re.MULTILINE) is not None


def _kind(value: Any) -> str:
    if isinstance(value, DType):
        return "_DType"
    if isinstance(value, tuple):
        return "tuple[Any, ...]"
    if type(value) in (int, str, float, bool):
        return type(value).__name__
    return "type[Any]" if isinstance(value, type) else "Any"


def _globals(operator: Operator) -> dict[str, Any]:
    kernel = getattr(operator, "kernel", None)
    return getattr(inspect.unwrap(kernel), "__globals__", {}) if callable(kernel) else {}


def _names_of_method(value: Any) -> dict[str, Any]:
    """What the annotations of a Tensor method mean: those of an operator are in its kernel's module."""
    target = inspect.unwrap(value)
    names = getattr(target, "__globals__", {})
    while isinstance(target, FunctionType):
        held = inspect.getclosurevars(target).nonlocals
        target = held.get("target", held.get("function"))
    return {**names, **(_globals(target) if isinstance(target, Operator) else {})}


def _function(name: str, value: Any, names: dict[str, Any], indent: str = "") -> str:
    signature = inspect.signature(value)
    result = _annotation(signature.return_annotation, names)
    return f"{indent}def {name}({_parameters(signature, names)}) -> {result}: ..."


def _primitive(name: str, kind: type[Any]) -> str:
    names: dict[str, Any] = {}
    for base in kind.__mro__:
        names |= vars(sys.modules.get(base.__module__, builtins))
    operator = getattr(kind, "operator", None)
    names |= _globals(operator) if isinstance(operator, Operator) else {}
    settings = _parameters(inspect.signature(kind), names)
    call = inspect.signature(kind.__call__)
    inputs = _parameters(call.replace(parameters=list(call.parameters.values())[1:]), names)
    result = inspect.signature(operator).return_annotation if isinstance(operator, Operator) else call.return_annotation
    lines = (
        f"class {name}(Primitive):",
        f"    def __init__(self{', ' if settings else ''}{settings}) -> None: ...",
        f"    def __call__(self{', ' if inputs else ''}{inputs}) -> {_annotation(result, names)}: ...",
    )
    return "\n".join(lines)


def _parameters(signature: inspect.Signature, names: dict[str, Any]) -> str:
    words: list[str] = []
    starred = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        starred = starred or star == "*"
        kind = _annotation(parameter.annotation, names)
        default = "" if parameter.default is parameter.empty or star else " = ..."
        words.append(f"{star}{parameter.name}: {kind}{default}")
    return ", ".join(words)


def _annotation(annotation: Any, names: dict[str, Any]) -> str:
    """An annotation in words that the stub knows; Any where it has none."""
    if annotation is inspect.Signature.empty:
        return "Any"
    text = annotation if isinstance(annotation, str) else _spelled(annotation)
    text = text.replace("tuple[Array, ...]", "Sequence[Array]")
    try:
        return _WORD.sub(lambda word: _translated(word.group(), names), text)
    except KeyError:
        return "Any"


def _spelled(annotation: Any) -> str:
    if annotation is None:
        return "None"
    text = annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(annotation)
    return text.replace("typing.", "").replace("collections.abc.", "").replace("NoneType", "None")


def _translated(word: str, names: dict[str, Any]) -> str:
    if word.rpartition(".")[2] == "DType":
        return "_DType"  # there is an operator of this name
    if word.startswith("'") or word in _KNOWN:
        return word
    if word in _SAFE:
        return f"builtins.{word}" if word in ("float", "int", "bool", "slice", "complex") else word
    if names.get("__name__") == TENSOR and word.rpartition(".")[2] == "Array":
        return "jax.Array"  # what a Tensor wraps; in the kernels of operators the word stands for a Tensor
    if word in _ALIASES:
        return _ALIASES[word]
    if word.rpartition(".")[2] in _ALIASES or word.endswith(".Array"):
        return "Tensor"
    if word.endswith(".Tensor"):
        return "Tensor"
    alias = names[word]
    if isinstance(alias, type) and not typing.get_args(alias):
        raise KeyError(word)
    return _WORD.sub(lambda inner: _translated(inner.group(), {}), _spelled(alias))


def tensor_stub() -> str:
    """The stub of the module with `Tensor`: its own members, and the operators and methods that the families give it."""
    module = importlib.import_module(TENSOR)
    tensor: Any = module.Tensor
    for name in [*vars(tensor)]:
        getattr(tensor, name)  # methods of operators are made when they are first used
    lines = ["class Tensor:"]
    skipped = {"__module__", "__doc__", "__slots__", "__annotations__", "__weakref__", "__getattr__", "__reduce__"}
    for name, value in sorted(vars(tensor).items()):
        if value is None or type(value).__name__ == "member_descriptor":
            if name not in skipped:
                lines.append(f"    {name}: Any")
            continue
        private = name.startswith("_") and not name.startswith("__")
        if name in skipped or (private and getattr(value, "__module__", None) != TENSOR):
            continue
        if isinstance(value, property):
            result = inspect.signature(value.fget).return_annotation if value.fget else Any
            kind = _annotation(result, getattr(value.fget, "__globals__", {}))
            lines += ["    @property", f"    def {name}(self) -> {kind}: ..."]
            if value.fset is not None:
                lines += [f"    @{name}.setter", f"    def {name}(self, value: Any) -> None: ..."]
        elif isinstance(value, classmethod):
            text = _function(name, value.__func__, value.__func__.__globals__, "    ")
            lines += ["    @classmethod", text.replace("(cls: Any", "(cls").replace("(self: Any", "(cls")]
        elif callable(value) and not isinstance(value, type):
            text = _function(name, value, _names_of_method(value), "    ")
            first = next(iter(inspect.signature(value).parameters), "self")
            text = re.sub(rf"\({first}: [^,)]*", "(self", text, count=1)
            result = {"__eq__": "Tensor", "__ne__": "Tensor"}.get(name)
            if result:
                text = f"    def {name}(self, other: Any) -> Tensor: ..."
            if re.fullmatch(
                r"__[ri]?(add|sub|mul|truediv|floordiv|mod|pow|matmul|and|or|xor)__|__(lt|le|gt|ge)__", name
            ):
                text = f"    def {name}(self, other: Any) -> Tensor: ..."
            if name in ("__getitem__", "__neg__", "__abs__", "__invert__", "__pos__"):
                text = text.rpartition("->")[0] + "-> Tensor: ..."
            lines.append(text)
    functions = [
        _function(name, value, value.__globals__)
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == TENSOR and not name.startswith("_")
    ]
    return (
        _HEAD
        + "import jax\n\nfrom sporax.mindspore.common.dtype import DType as _DType\n\n"
        + "\n".join((*lines, "", *functions))
        + "\n"
    )


if __name__ == "__main__":
    main()
