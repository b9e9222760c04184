"""Looking at values from inside a program: printed, dumped, put aside for `SummaryRecord`; and gradients at a place of it.

Same as MindSpore: summary operators give nothing back, the last value of a name counts, and `SummaryRecord.record` (or
`SummaryCollector`) writes it. They work in both modes, and inside gradients. Compiled steps hand values over by a callback while
they run, so who reads them waits for the callbacks first.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common.gradient_hooks import watched
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core.check import known
from sporax.mindspore.ops._core.operator import PRIMITIVES, Primitive, export, operator
from sporax.mindspore.ops.control import debug


class Print(Primitive):
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


class TensorDump(Primitive):
    """Saves a Tensor as `file`_`dtype`_`number`.npy when the program runs, compiled or not, whole where a plan shards it.

    Args:
        input_output: ``"out"``; with ``"in"`` the name is `file`_in_`dtype`_`number`.npy, and the values are the same, since
            values are whole.
    """

    _numbers = itertools.count()

    def __init__(self, input_output: str = "out") -> None:
        super().__init__()
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


@operator("CheckNumerics()", function="", composed=True)
def _check_numerics(x: object) -> Any:
    """The tensor itself, if all its elements are finite.

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

    Raises:
        SporaxRuntimeError: `condition` is false.
    """
    holds = known("Assert", "condition", condition).all() if isinstance(condition, Tensor) else condition
    check_type("Assert", "summarize", summarize, "an int", int, takes_bool=False)
    if not holds:
        printed = [tensor.asnumpy().ravel()[:summarize].tolist() for tensor in input_data]
        raise SporaxRuntimeError(f"For 'Assert', the condition must hold, but it is false. Input data: {printed}.")


class HookBackward(Primitive):
    """Gives its inputs back; in the backward pass ``hook_fn(gradients)``, a tuple, runs and may replace them.

    Args:
        hook_fn: the hook; None keeps the gradients.
        cell_id: as in MindSpore, a name that hooks do not see here.

    Raises:
        SporaxTypeError: `hook_fn` is not callable.
    """

    def __init__(self, hook_fn: Callable[[tuple[Tensor, ...]], Any], cell_id: str = "") -> None:
        if not callable(hook_fn):
            raise SporaxTypeError.must("HookBackward", "hook_fn", "be a function", type(hook_fn).__name__)
        super().__init__()
        self.hook_fn = hook_fn
        self.cell_id = cell_id

    def __call__(self, *inputs: Tensor) -> Any:
        """The inputs: one as it is, several as a tuple."""

        def on_gradient(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            replaced = self.hook_fn(gradients)
            # None keeps the gradients, as for hooks of Cells.
            if replaced is None:
                return gradients
            return tuple(replaced) if isinstance(replaced, tuple | list) else (replaced,)

        outputs: tuple[Tensor, ...] = watched(inputs, on_gradient)
        return outputs[0] if len(outputs) == 1 else outputs


class InsertGradientOf(Primitive):
    """Gives its input back; in the backward pass its gradient is ``f(gradient)``.

    Raises:
        SporaxTypeError: `f` is not callable.
    """

    def __init__(self, f: Callable[[Tensor], Tensor]) -> None:
        SporaxTypeError.raise_if(not callable(f), "InsertGradientOf", "f", "be a function", type(f).__name__)
        super().__init__()
        self.f = f

    def __call__(self, x: Tensor) -> Tensor:
        """`x`."""
        # A tuple, as hooks of several inputs give.
        return watched(x, lambda gradients: (self.f(gradients[0]),))


class DumpGradient(Primitive):
    """Gives its input back; in the backward pass its gradient is saved as by `TensorDump`."""

    def __call__(self, path: str, x: Tensor, input_output: str) -> Tensor:
        """`x`, whose gradient goes to `path`; `input_output` as for `TensorDump`."""
        dump = TensorDump(input_output)

        def save(gradient: Tensor) -> Tensor:
            dump(path, gradient)
            return gradient

        return InsertGradientOf(save)(x)


for _class in (HookBackward, InsertGradientOf, DumpGradient):
    PRIMITIVES[_class.__name__] = _class


class _Summary(Primitive):
    """Puts `value` aside under `name`."""

    dims: Container[int] = ()
    fits = ""

    def __call__(self, name: str, value: Any) -> None:
        """Put a value aside.

        Args:
            name: what the curve, image or distribution is called; not empty.
            value: Tensor.

        Raises:
            SporaxTypeError: `name` is no string, or `value` no Tensor.
            SporaxValueError: `name` is empty, or the number of dimensions does not fit.
        """
        kind = type(self).__name__
        plugin = kind.removesuffix("Summary").lower()
        check_type(kind, "name", name, "a string", str)
        SporaxValueError.raise_if(not name, kind, "name", "not be empty", repr(name))
        # Numbers and arrays of numpy are refused, as in MindSpore.
        check_type(kind, "value", value, "a Tensor", Tensor)
        wrong = value.ndim not in self.dims or (plugin == "scalar" and value.size != 1)
        SporaxValueError.raise_if(wrong, kind, "value", f"have {self.fits}", f"shape {value.shape}")
        # No gradient flows through: looking must not change what is computed.
        jax.debug.callback(functools.partial(debug.keep, plugin, name), jax.lax.stop_gradient(value.array))


# Class: numbers of dimensions, these in words, and what it puts aside
_SUMMARIES: dict[str, tuple[Container[int], str, str]] = {
    "ScalarSummary": ((0, 1), "one element", "a number; `SummaryRecord` writes it as a point of a curve"),
    "ImageSummary": ((4,), "4 dimensions", "images [N, C, H, W]"),
    "TensorSummary": (range(1, 64), "at least 1 dimension", "a tensor, which TensorBoard shows as a distribution"),
    "HistogramSummary": (range(1, 64), "at least 1 dimension", "a tensor, which TensorBoard shows as a distribution"),
}
for _kind, (_dims, _fits, _what) in _SUMMARIES.items():
    PRIMITIVES[_kind] = type(
        _kind,
        (_Summary,),
        {"__doc__": f"Puts aside {_what}.", "__module__": "sporax.mindspore.ops", "dims": _dims, "fits": _fits},
    )


_stored: dict[tuple[str, str], np.ndarray[Any, Any]] = {}


def keep(plugin: str, name: str, value: np.ndarray[Any, Any]) -> None:
    """Put a value aside; the last one of a name counts."""
    _stored[plugin, name] = np.asarray(value)


def take() -> dict[tuple[str, str], np.ndarray[Any, Any]]:
    """What was put aside since the last time."""
    # Callbacks of a step may still be on their way when its results are there.
    jax.effects_barrier()
    taken = dict(_stored)
    _stored.clear()
    return taken
