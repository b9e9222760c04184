"""How a function of `jax.numpy` becomes one of `sporax.mindspore.numpy`: an operator with MindSpore's signature.

A definition is a line of text, ``mean(a, axis=None, keepdims=False, dtype=None)``. Parameters without a default are handed on
by position, the others by name. What a parameter may be, its annotation says, or else its name
(`_ARRAYS`, `_OPERANDS`); any other is a constant of the program. `dtype` casts the result where JAX's function has none.

JAX computes with 64 bits here (see `sporax.mindspore.common.tensor`); results have them only if a Tensor among the arguments has.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxError, SporaxTypeError, SporaxValueError
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core.operator import Composition, Operator

Function = Callable[..., Any]

# Names of parameters that are Tensors wherever they occur: numpy uses the same names throughout.
_ARRAYS = frozenset("a arr array ary f input m p x xp fp y".split())
# Names of parameters that are Tensors or numbers.
_OPERANDS = frozenset(
    """
    x1 x2 a1 a2 ar1 ar2 b v xi xmin xmax condition element test_elements weights prepend append values to_begin to_end
    choices multi_index indices
    """.split()
)
_WIDE = frozenset(["argmax", "argwhere", "sum", "trace"])
"""Their integers have 64 bits, as in MindSpore."""

_NEUTRAL = frozenset(["edge_order", "where"])
"""Their defaults change nothing, and are None in JAX."""

# JAX runs with 64 bits here, MindSpore's `numpy` gives 32 unless asked.
_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}


def offer(lines: str, module: Any = jnp) -> Iterator[tuple[str, Operator[Any]]]:
    """Operators by name.

    Args:
        lines: one definition a line; ``name = other(…)`` where JAX calls it otherwise.
        module: the module that has JAX's functions.
    """
    for line in filter(None, map(str.strip, lines.splitlines())):
        head, _, parameters = line.partition("(")
        name, _, other = head.partition(" = ")
        yield name, define(name, f"({parameters}", getattr(module, other or name))


def define(name: str, parameters: str, function: Function) -> Operator[Any]:
    """The operator with these parameters, as text, that computes what `function` does."""
    signature = _signature(parameters)
    declared = inspect.signature(function).parameters
    # MindSpore has `dtype` on functions where JAX has none; then the result is cast.
    casts = "dtype" in signature.parameters and "dtype" not in declared
    positional = [parameter.name for parameter in signature.parameters.values() if parameter.default is parameter.empty]
    # ``*args`` comes last by position, behind all other arrays.
    several = next(
        (parameter.name for parameter in signature.parameters.values() if parameter.kind is parameter.VAR_POSITIONAL),
        None,
    )

    def is_handed_on(key: str, value: Any) -> bool:
        # What equals its default is left out, since JAX may know no such parameter; if it knows it, the value is handed
        # on, for JAX's own default may be another.
        changed = value is not signature.parameters[key].default
        return changed or (key in declared and key not in _NEUTRAL and value is not None)

    # JAX has made some parameters positional only, whatever MindSpore calls them.
    positional_only = [key for key, parameter in declared.items() if parameter.kind is parameter.POSITIONAL_ONLY]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        # Defaults of the signature are MindSpore's; those of JAX may differ.
        bound.apply_defaults()
        arguments = {key: _plain(value) for key, value in bound.arguments.items()}
        dtype = arguments.pop("dtype") if casts else None
        values = [arguments.pop(key) for key in positional if key != several] + list(arguments.pop(several or "", ()))
        named = {key: value for key, value in arguments.items() if is_handed_on(key, value)}
        by_position = [key for key in named if key in positional_only]
        result = function(*values, *(named.pop(key) for key in by_position), **named)
        # Decided from the arguments as given, since inside JAX all Python numbers are wide.
        result = result if name in _WIDE else narrow(result, (args, kwargs))
        return result if dtype is None else jax.tree.map(lambda array: array.astype(dtype), result)

    return _named(_NumpyOperator, name, kernel, signature)


class _NumpyOperator(Operator[Any]):
    """An operator that takes lists of numbers for Tensors where numbers are welcome."""

    def _sort(self, where: int | str, arg: Any, arrays: list[Any]) -> Any:
        plain = isinstance(arg, list | tuple) and not any(isinstance(item, Tensor) for item in arg)
        # Lists become operands here, before `Operator` would take them for constants and compile once per content.
        if plain and where in self.operands:
            arg = Tensor(narrowed(np.asarray(arg)))
        return super()._sort(where, arg, arrays)

    def _explain(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SporaxError:
        """JAX refuses shapes with TypeErrors, too; types have been checked by then."""
        text = super()._explain(error, args, kwargs)
        # Only texts of JAX itself are translated; a type error of the facade stays one.
        shapes = isinstance(error, TypeError) and isinstance(text, SporaxTypeError) and str(error) in str(text)
        return SporaxValueError(str(text)) if shapes else text


def by_value(name: str, parameters: str, function: Function) -> Composition[Any]:
    """As `define`, of numpy's `function`, for results whose shape depends on values."""
    signature = _signature(parameters)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        # Values leave the device here, so a compiled step stops with the usual message.
        values = jax.tree.map(_numpy, (args, kwargs), is_leaf=lambda leaf: isinstance(leaf, Tensor))
        result = function(*values[0], **values[1])
        result = result if name in _WIDE else narrow(result, values)
        return jax.tree.map(lambda leaf: Tensor(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf, result)

    composition = _named(Composition, name, kernel, signature)
    assert isinstance(composition, Composition)
    return composition


def narrow(result: Any, arguments: Any) -> Any:
    """Arrays of 32 bits in place of 64, unless an array among the arguments has 64."""
    # Python's numbers (weak types) do not make a result wide.
    arrays = [leaf for leaf in jax.tree.leaves(arguments) if not getattr(leaf, "weak_type", False)]
    wide = any(str(getattr(leaf, "dtype", "")) in _NARROW for leaf in arrays)
    return result if wide else jax.tree.map(narrowed, result)


def narrowed(leaf: Any) -> Any:
    """An array of 64-bit numbers with 32 bits; anything else as it is."""
    dtype = _NARROW.get(str(getattr(leaf, "dtype", "")))
    return leaf if dtype is None else leaf.astype(dtype)


def _named(kind: type[Operator[Any]], name: str, kernel: Any, signature: inspect.Signature) -> Operator[Any]:
    # For tracebacks, `help` and the name of the inner `jit`.
    kernel.__name__, kernel.__module__, kernel.__signature__ = name, "sporax.mindspore.numpy", signature
    kernel.__doc__ = f"`numpy.{name}` of Tensors. Raises SporaxTypeError, SporaxValueError: arguments that do not fit."
    return kind(f"numpy.{name}", kernel)


def _signature(parameters: str) -> inspect.Signature:
    """The signature of ``(a, b=0, *c)``, with annotations by the names."""
    # Python's own parser reads the parameters, so the definitions have the syntax of `def`.
    function = ast.parse(f"def f{parameters}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments, kind = function.args, inspect.Parameter
    # Defaults belong to the last parameters.
    first = len(arguments.args) - len(arguments.defaults)
    entries = [
        kind(
            argument.arg,
            kind.POSITIONAL_OR_KEYWORD,
            default=kind.empty if number < first else ast.literal_eval(arguments.defaults[number - first]),
            annotation=ast.unparse(argument.annotation)
            if argument.annotation
            else _annotation(argument.arg, number < first),
        )
        for number, argument in enumerate(arguments.args)
    ]
    if arguments.vararg:
        entries.append(kind(arguments.vararg.arg, kind.VAR_POSITIONAL, annotation="Operand"))
    entries += [
        kind(argument.arg, kind.KEYWORD_ONLY, default=ast.literal_eval(default), annotation="Any")
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is not None
    ]
    return inspect.Signature(entries)


def _annotation(name: str, needed: bool) -> str:
    kind = "Array" if name in _ARRAYS else "Operand" if name in _OPERANDS else "Any"
    return kind if needed or kind == "Any" else f"{kind} | None"


def _plain(value: Any) -> Any:
    return value.np_dtype if isinstance(value, DType) else value


def _numpy(leaf: Any) -> Any:
    return leaf.asnumpy() if isinstance(leaf, Tensor) else _plain(leaf)
