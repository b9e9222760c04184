"""Looking at values from inside a program: printed, dumped, put aside for `SummaryRecord`; and gradients at a place of it.

Same as MindSpore: summary operators give nothing back, the last value of a name counts, and `SummaryRecord.record` (or
`SummaryCollector`) writes it. They work in both modes, and inside gradients. Compiled steps hand values over by a callback while
they run, so who reads them waits for the callbacks first.

The register of overflows that step classes for Ascend read: allocated, cleared and read as tensors.

Problem: such steps read from a hardware register whether anything overflowed since it was cleared. XLA has none. What they read
about is written in the program all the same, because the order is fixed with `depend`::

    status = ops.NPUAllocFloatStatus()()
    status = ops.depend(status, grads)            # after the gradients …
    read = ops.NPUGetFloatStatus()(status)        # … read the register
    status = ops.depend(status, read)
    overflow = status.sum() > 0

Method: `depend` remembers with a tensor of the register's size what it waits for; reading looks for values among these
that are not finite. An overflow whose infinity has gone by then (``1 / inf``) is not seen.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxRuntimeError
from sporax.mindspore.common.gradient_hooks import watched
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.ops._core import PRIMITIVES, Array, Primitive, export, known, operator


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
            raise For("TensorDump").error("'input_output' must be 'in' or 'out'", repr(input_output))
        self._mark = "in_" if input_output == "in" else ""

    def __call__(self, file: str, input_x: Tensor) -> None:
        """Save `input_x`, bfloat16 as float32; numbers go on through the process.

        Raises:
            SporaxTypeError: `file` is no string, or `input_x` no Tensor.
        """
        For("TensorDump").typed("file", file, "a string", str)
        For("TensorDump").typed("input_x", input_x, "a Tensor", Tensor)

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
    For("Assert").typed("summarize", summarize, "an int", int, takes_bool=False)
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
        For("HookBackward").refuse_type(not callable(hook_fn), "'hook_fn' must be a function", type(hook_fn).__name__)
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
        For("InsertGradientOf").refuse_type(not callable(f), "'f' must be a function", type(f).__name__)
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
        For(kind).typed("name", name, "a string", str)
        For(kind).refuse(not name, "'name' must not be empty", repr(name))
        # Numbers and arrays of numpy are refused, as in MindSpore.
        For(kind).typed("value", value, "a Tensor", Tensor)
        wrong = value.ndim not in self.dims or (plugin == "scalar" and value.size != 1)
        For(kind).refuse(wrong, f"'value' must have {self.fits}", f"shape {value.shape}")
        # No gradient flows through: looking must not change what is computed.
        jax.debug.callback(functools.partial(keep, plugin, name), jax.lax.stop_gradient(value.array))


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


REGISTER_SIZE = 8
"""Elements of the tensor that stands for the register; the first says whether there was an overflow."""


class StatusTensor(Tensor):
    """A tensor of the register's size, with what has been computed before it.

    Attributes:
        watched: tensors that `depend` was given.
    """

    __slots__ = ("watched",)

    watched: tuple[Tensor, ...]


def is_tensor(value: object) -> bool:
    """Whether `value` is a Tensor; for `jax.tree.leaves`."""
    return isinstance(value, Tensor)


def remember(value: Tensor, expr: Any) -> Tensor:
    """`value`, the result of `depend`, with the tensors of `expr` where it may stand for the register."""
    if value.shape != (REGISTER_SIZE,):
        return value
    status = StatusTensor(value)
    status.watched = tuple(leaf for leaf in jax.tree.leaves(expr, is_leaf=is_tensor) if isinstance(leaf, Tensor))
    return status


@operator(function="")
def _overflow(inputs: tuple[Array, ...]) -> Array:
    """1.0 where any element of any of the tensors is not finite, else 0.0. Float32 of shape (1,)."""
    floating = [value for value in inputs if jnp.issubdtype(value.dtype, jnp.inexact)]
    bad = [jnp.any(~jnp.isfinite(value)) for value in floating] or [jnp.asarray(False)]
    return jnp.any(jnp.stack(bad)).astype(jnp.float32).reshape(1)


@operator("FloatStatus()", function="")
def float_status(x: Array) -> Array:
    """1.0 where any element is infinite or not a number, else 0.0. Float32 of shape (1,)."""
    return jnp.any(~jnp.isfinite(x)).astype(jnp.float32).reshape(1)


class NPUAllocFloatStatus(Primitive):
    """Makes the tensor that stands for the register: zeros of shape (8,)."""

    def __call__(self) -> Tensor:
        """Float32 zeros."""
        # A Tensor: zero everywhere says no overflow.
        return Tensor([0.0] * REGISTER_SIZE)


class NPUClearFloatStatus(Primitive):
    """Forgets overflows so far."""

    def __call__(self, status: Tensor) -> Tensor:
        """Zeros of shape (8,); `status` is zeros as well.

        Raises:
            SporaxTypeError, SporaxValueError: `status` is not a tensor of shape (8,).
        """
        return _write("NPUClearFloatStatus", status, lambda: jnp.zeros_like(status.array))


class NPUGetFloatStatus(Primitive):
    """Reads whether what `status` depends on overflowed."""

    def __call__(self, status: Tensor) -> Tensor:
        """(1, 0, …) of shape (8,) after an overflow, else zeros; `status` gets the same values.

        Raises:
            SporaxTypeError, SporaxValueError: `status` is not a tensor of shape (8,).
        """

        def register() -> jax.Array:
            watched = getattr(status, "watched", ())
            # Without `depend` in front nothing is known to have been computed.
            if not watched:
                return status.array
            flag = _overflow(watched).array.astype(status.array.dtype)
            return jnp.concatenate([flag, jnp.zeros(REGISTER_SIZE - 1, flag.dtype)])

        return _write("NPUGetFloatStatus", status, register)


def _write(name: str, status: Any, register: Callable[[], jax.Array]) -> Tensor:
    For(name).typed("the input", status, "a Tensor", Tensor)
    For(name).refuse(status.shape != (REGISTER_SIZE,), f"the input's shape must be ({REGISTER_SIZE},)", status.shape)
    values = register()
    # Read or cleared: earlier tensors do not count any more.
    if isinstance(status, StatusTensor):
        status.watched = ()
    # MindSpore's operators write to their argument as well.
    status._replace(values)
    return wrap(values)


PRIMITIVES.update(
    NPUAllocFloatStatus=NPUAllocFloatStatus,
    NPUClearFloatStatus=NPUClearFloatStatus,
    NPUClearFloatStatusV2=NPUClearFloatStatus,
    NPUGetFloatStatus=NPUGetFloatStatus,
    NPUGetFloatStatusV2=NPUGetFloatStatus,
)
