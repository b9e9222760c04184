"""How one observed behaviour is executed and written down, the same way for every framework.

A *case* is a short piece of Python text that uses `ms`, `nn`, `ops`, `np`, `Tensor` and `Parameter`. Running it gives
an *outcome*: a JSON description of the value of its last expression, or of the exception it raised. The recorder runs
the cases under the MindSpore wheel, the replay test runs the same text under Sporax, and the two descriptions are
compared.
"""

from __future__ import annotations

import ast
import linecache
import math
import re
import sys
import types
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

#: Exceptions are identified by the most specific of these builtins that they inherit from.
BUILTIN_ERRORS = (
    IndexError,
    KeyError,
    NotImplementedError,
    ImportError,
    AttributeError,
    NameError,
    UnboundLocalError,
    TypeError,
    ValueError,
    RuntimeError,
)
#: The head of a message, enough to see which two values it names.
MESSAGE_LIMIT = 160
#: What differs between two runs or two machines: addresses, counters, places of files.
VOLATILE = re.compile(r"0x[0-9a-f]+|(?<=Parameter#)\d+|In file \S+")
CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Topic:
    """One file of cases: a prelude that all of them share, and the cases, each the text of a small program."""

    name: str
    prelude: str
    cases: tuple[str, ...]

    @property
    def in_graph_mode(self) -> bool:
        """Whether the cases run in GRAPH_MODE (PYNATIVE_MODE otherwise)."""
        return self.name.endswith("_graph")


def topics() -> list[Topic]:
    """Every topic under `cases/`, by name; a file `x_both` is two topics, one per mode."""
    return [
        parse(name, path.read_text())
        for path in sorted(CASES.glob("*.cases"))
        for name in (
            [f"{path.stem[:-5]}_{mode}" for mode in ("graph", "pynative")]
            if path.stem.endswith("_both")
            else [path.stem]
        )
    ]


def parse(name: str, text: str) -> Topic:
    """Read a file of cases: the prelude up to the line `---`, then one case a line.

    A case that opens with a class, a function or a decorator goes on to the first line after its body.
    """
    prelude, _, body = text.partition("---\n")
    cases: list[str] = []
    block: list[str] = []
    for line in body.splitlines():
        block.append(line)
        if line.strip() and not line.startswith(("class ", "def ", "@", " ")):
            cases.append("\n".join(block))
            block.clear()
    return Topic(name, prelude, tuple(cases))


def namespace(ms: Any, prelude: str = "") -> dict[str, Any]:
    """Names a case may use, with the topic's prelude already executed.

    The names live in a registered module and its text in the line cache, because graph mode reads sources back.
    """
    module = types.ModuleType("fact_case")
    sys.modules[module.__name__] = module
    names = vars(module)
    names.update(ms=ms, nn=ms.nn, ops=ms.ops, np=np, Tensor=ms.Tensor, Parameter=ms.Parameter)
    # A file for each prelude: tests of several topics take turns in a process.
    evaluate(prelude or "None", names, f"<prelude-{zlib.crc32(prelude.encode())}>")
    return names


def outcome(ms: Any, code: str, names: dict[str, Any]) -> Any:
    """Run `code` and describe the value of its last expression, or the exception it raised."""
    try:
        return describe(ms, evaluate(code, dict(names)))
    except Exception as error:
        return describe_error(error)


def evaluate(code: str, names: dict[str, Any], filename: str = "<case>") -> Any:
    """Execute `code`; the value is that of its last statement if that is an expression, else None."""
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, filename, "exec"), names)
    return eval(compile(ast.Expression(last.value), filename, "eval"), names) if last else None


def describe_error(error: Exception) -> dict[str, str]:
    """The builtin kind of an exception and the head of its message (the message is for readers, never compared)."""
    kind = next((kind for kind in BUILTIN_ERRORS if isinstance(error, kind)), type(error))
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("---")]
    text = VOLATILE.sub("?", " ".join(lines).partition("- C++ Call Stack")[0])
    return {"error": kind.__name__, "message": text[:MESSAGE_LIMIT].strip()}


def describe(ms: Any, value: Any) -> Any:
    """A JSON value that has everything a user can rely on about `value`."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return VOLATILE.sub("?", value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, ms.Tensor):
        return describe_tensor(ms, value)
    if isinstance(value, (tuple, list)):
        return {type(value).__name__ if type(value) in (tuple, list) else "tuple": [describe(ms, v) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[describe(ms, k), describe(ms, v)] for k, v in value.items()]}
    if isinstance(value, (np.ndarray, np.generic)):
        return {"ndarray": str(value.dtype), "shape": list(value.shape), "values": numbers(value)}
    if isinstance(value, complex):
        return {"complex": [number(value.real), number(value.imag)]}
    if isinstance(value, (type, types.FunctionType)):
        return {"name": value.__name__}
    if is_dtype(ms, value):
        return {"dtype": str(value)}
    return {"object": type(value).__name__}


def is_dtype(ms: Any, value: Any) -> bool:
    """Whether `value` is one of the framework's dtype objects."""
    return any(
        value is candidate or value == candidate
        for candidate in vars(ms.dtype).values()
        if type(candidate) is type(value)
    )


def describe_tensor(ms: Any, tensor: Any) -> dict[str, Any]:
    """Dtype, shape and values, and for a Parameter its name."""
    dtype = str(tensor.dtype)
    array = (tensor.astype(ms.float32) if dtype == "BFloat16" else tensor).asnumpy()
    facts = {"tensor": dtype, "shape": list(tensor.shape), "values": numbers(array)}
    return {"parameter": VOLATILE.sub("?", tensor.name), **facts} if isinstance(tensor, ms.Parameter) else facts


def numbers(array: Any) -> Any:
    """Nested lists of plain numbers; nan and infinities become text."""
    array = np.asarray(array)
    if array.dtype.kind == "c":
        return {"real": numbers(array.real), "imag": numbers(array.imag)}
    if array.ndim:
        return [numbers(item) for item in array]
    return number(array.item()) if array.dtype.kind == "f" else array.item()


def number(value: float) -> float | str:
    """A float with nine significant digits, or text when it is not finite."""
    return float(f"{value:.9g}") if math.isfinite(value) else str(value)
