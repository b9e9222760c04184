"""How a table of operators that work element by element becomes operators.

A row of such a table gives the name, the function on arrays and what the parameters are called; the checks, the dtype
conversion and the broadcasting are the same for all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from sporax.base.errors import SporaxTypeError
from sporax.mindspore.common.dtype import from_numpy
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import check, promotion as promote
from sporax.mindspore.ops._core.operator import Array, Operator, operator
from sporax.mindspore.ops._core.parameters import with_signature

Convert = Callable[[str, Any], Array]


def same(_: str, value: Any) -> Array:
    """The value in its own dtype."""
    return value


def inexact(_: str, value: Any) -> Array:
    """The value in a floating dtype: integers and bools become float32."""
    return promote.inexact(value)


def integral(name: str, value: Any) -> Array:
    """The value, which has to be of an integer or bool dtype.

    Raises:
        SporaxTypeError: it is not.
    """
    if jnp.issubdtype(value.dtype, jnp.inexact):
        raise SporaxTypeError(f"For '{name}', the input must be integers or bools, but got {from_numpy(value.dtype)}.")
    return value


def pointwise(
    primitive: str | None,
    compute: Callable[..., Array],
    doc: str,
    *,
    function: str,
    parameters: tuple[str, ...] = ("input",),
    convert: Convert = inexact,
    method: str | None = None,
    mint: str | None = None,
) -> Operator[Tensor]:
    """Make an operator of a function on one array, or on several that are broadcast and brought to one dtype.

    Args:
        primitive: name of the class form, None for none.
        compute: the function on arrays of equal dtype.
        doc: what it computes.
        function: name in `sporax.mindspore.ops`, "" for none.
        parameters: names of the operands.
        convert: applied to each operand, with the operator's name for messages.
        method, mint: as for `operator`.
    """
    # Without a class form the function's name opens messages.
    name = primitive or function
    signature = inspect.Signature(
        [
            inspect.Parameter(
                parameter,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                # A single operand has to be a tensor; one of several may be a number.
                annotation="Array" if len(parameters) == 1 else "Operand",
            )
            for parameter in parameters
        ],
        return_annotation="Array",
    )

    def kernel(*args: Any, **kwargs: Any) -> Array:
        # `bind`, so that names work as well as places.
        operands = signature.bind(*args, **kwargs).args
        return compute(*(convert(name, operand) for operand in _agreed(name, operands)))

    # What the operator's other forms, `help` and tracebacks show.
    kernel.__name__, kernel.__doc__, kernel.__module__ = function or name, doc, compute.__module__ or __name__
    register = operator(primitive, function=function, method=method, mint=mint)
    return register(with_signature(kernel, signature))


def _agreed(name: str, operands: tuple[Any, ...]) -> tuple[Array, ...]:
    """Operands that broadcast, in one dtype; a single operand has to be a tensor."""
    if len(operands) == 1:
        check.tensor(name, input=operands[0])
        return operands
    # Shapes before dtypes, so that of two mistakes MindSpore's first one is named.
    check.broadcast(name, *operands)
    return promote.pair(name, *operands)
