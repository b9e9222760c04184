"""Looking at values from inside a program."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxValueError, check_type
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core.check import known
from sporax.mindspore.ops._core.operator import PRIMITIVES, export, operator


class Print:
    """Prints tensors and strings to standard output, one per line, when the program runs, compiled or not."""

    def __call__(self, *args: Any) -> None:
        """Print `args`: Tensors, strings, numbers."""

        def show(*arrays: Any) -> None:
            remaining = iter(arrays)
            # Only tensors go through the callback; all else is known when the program is traced.
            print(*(next(remaining) if isinstance(value, Tensor) else value for value in args), sep="\n")

        # `jax.debug` and not `pure_callback`: XLA may not leave it out.
        jax.debug.callback(show, *(value.array for value in args if isinstance(value, Tensor)))


def print_(*input_x: Any) -> None:
    """Functional form of `Print`."""
    Print()(*input_x)


PRIMITIVES["Print"] = Print


export(print_)


class TensorDump:
    """Saves a Tensor as `file`_`dtype`_`number`.npy when the program runs, compiled or not, whole where a plan shards it.

    Args:
        input_output: ``"out"``; with ``"in"`` the name is `file`_in_`dtype`_`number`.npy, and the values are the same, since
            values are whole.
    """

    _numbers = itertools.count()

    def __init__(self, input_output: str = "out") -> None:
        if input_output not in ("in", "out"):
            raise SporaxValueError.must("TensorDump", "input_output", "be 'in' or 'out'", repr(input_output))
        self._mark = "in_" if input_output == "in" else ""

    def __call__(self, file: str, input_x: Tensor) -> None:
        """Save `input_x`, bfloat16 as float32; numbers go on through the process.

        Raises:
            SporaxTypeError: `file` is no string, or `input_x` no Tensor.
        """
        check_type("TensorDump", "file", file, "a string", str)
        check_type("TensorDump", "input_x", input_x, "a Tensor", Tensor)

        def save(array: jax.Array) -> None:
            values = np.asarray(array, np.float32) if array.dtype.name == "bfloat16" else np.asarray(array)
            path = Path(f"{file.removesuffix('.npy')}_{self._mark}{array.dtype}_{next(self._numbers)}.npy")
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, values)

        jax.debug.callback(save, input_x.array)


def tensordump(file_name: str, tensor: Tensor, mode: str = "out") -> None:
    """Functional form of `TensorDump`."""
    TensorDump(mode)(file_name, tensor)


PRIMITIVES["TensorDump"] = TensorDump


export(tensordump)


# ------------------------------------------------------------------------------------------------------------- assertions


@operator("CheckNumerics()", function="", composed=True)
def _check_numerics(x: Any) -> Any:
    """The tensor itself, if all its elements are finite.

    The values must be known, so this cannot be part of a compiled step.

    Raises:
        SporaxRuntimeError: there is an infinity or a NaN.
    """
    values = known("CheckNumerics", "x", x)
    # float64, so that float16 infinities of the input are seen and integers are allowed.
    if np.isnan(values.astype(np.float64)).any() or np.isinf(values.astype(np.float64)).any():
        raise SporaxRuntimeError("For 'CheckNumerics', all elements must be finite, but there is an Inf or a NaN.")
    return x


@operator("Assert(summarize)", function="", composed=True)
def _assert(condition: Any, input_data: Any, summarize: int = 3) -> None:
    """Raise unless `condition` holds, and show the first `summarize` elements of each of `input_data`.

    The condition must be known, so this cannot be part of a compiled step.

    Raises:
        SporaxRuntimeError: `condition` is false.
    """
    holds = known("Assert", "condition", condition).all() if isinstance(condition, Tensor) else condition
    check_type("Assert", "summarize", summarize, "an int", int, takes_bool=False)
    if not holds:
        printed = [tensor.asnumpy().ravel()[:summarize].tolist() for tensor in input_data]
        raise SporaxRuntimeError(f"For 'Assert', the condition must hold, but it is false. Input data: {printed}.")
