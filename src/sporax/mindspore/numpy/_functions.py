"""How a function of `jax.numpy` becomes one of `sporax.mindspore.numpy`: an operator with MindSpore's signature.

A definition is a line of text, ``mean(a, axis=None, keepdims=False, dtype=None)``. Parameters without a default are handed on
by position, the others by name. What a parameter may be, its annotation says, or else its name
(`_ARRAYS`, `_OPERANDS`); any other is a constant of the program. `dtype` casts the result where JAX's function has none.

JAX computes with 64 bits here (see `sporax.mindspore.common.tensor`); results have them only if a Tensor among the arguments has.

Mathematics, logic, and what changes shapes.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxError, SporaxTypeError, SporaxValueError
from sporax.mindspore.common.dtype import DType, from_numpy, to_dtype
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.ops._core import extremes
from sporax.mindspore.ops._core.operator import Composition, Operator
from sporax.mindspore.ops.linalg.norms import length, matrix_norm_of

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

# JAX runs with 64 bits here, MindSpore's `numpy` gives 32 by default.
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


FUNCTIONS: dict[str, Callable[..., Any]] = {}

# Functions of ``x`` and ``dtype``, which need no line of their own.
_UNARY = """
    abs absolute arccosh arcsin arcsinh arctan arctanh bitwise_not cbrt ceil cos cosh deg2rad exp exp2 expm1 fabs floor invert
    isfinite isinf isnan log log10 log1p log2 rad2deg radians reciprocal rint sign signbit sin sinh sqrt square tan tanh trunc
"""
# Functions of ``x1``, ``x2`` and ``dtype``, likewise.
_BINARY = """
    add arctan2 bitwise_and bitwise_or bitwise_xor copysign divide divmod equal float_power floor_divide fmod gcd greater
    greater_equal heaviside hypot lcm less less_equal logaddexp logaddexp2 logical_and logical_or logical_xor matmul maximum
    minimum mod multiply not_equal power remainder subtract true_divide
"""
_LINES = """
    append(arr, values, axis=None)
    arccos(input, dtype=None)
    argmax(a, axis=None)
    argmin(a, axis=None)
    array_equal(a1, a2, equal_nan=False)
    array_equiv(a1, a2)
    array_split(x, indices_or_sections, axis=0)
    atleast_1d(*arys)
    atleast_2d(*arys)
    atleast_3d(*arys)
    average(x, axis=None, weights=None, returned=False)
    broadcast_arrays(*args)
    broadcast_to(array, shape)
    choose(a, choices, mode='clip')
    clip(x, xmin, xmax, dtype=None)
    column_stack(tup)
    concatenate(arrays, axis=0)
    convolve(a, v, mode='full')
    corrcoef(x, y=None, rowvar=True, dtype=None)
    correlate(a, v, mode='valid')
    count_nonzero(x, axis=None, keepdims=False)
    cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, dtype=None)
    cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None)
    cumprod(a, axis=None, dtype=None)
    cumsum(a, axis=None, dtype=None)
    diag(v, k=0)
    diagflat(v, k=0)
    diagonal(a, offset=0, axis1=0, axis2=1)
    diff(a, n=1, axis=-1, prepend=None, append=None)
    digitize(x, bins, right=False)
    around(a, decimals=0)
    dot(a, b)
    dsplit(x, indices_or_sections)
    dstack(tup)
    ediff1d(ary, to_end=None, to_begin=None)
    expand_dims(a, axis)
    fix = trunc(x)
    flip(m, axis=None)
    fliplr(m)
    flipud(m)
    gradient(f, *varargs, axis=None, edge_order=1)
    histogram(a, bins=10, range=None, weights=None, density=False)
    histogram_bin_edges(a, bins=10, range=None, weights=None)
    hsplit(x, indices_or_sections)
    hstack(tup)
    in1d = isin(ar1, ar2, invert=False)
    inner(a, b)
    interp(x, xp, fp, left=None, right=None)
    isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False)
    isin(element, test_elements, invert=False)
    isneginf(x)
    isposinf(x)
    ix_(*args)
    kron(a, b)
    logical_not(a, dtype=None)
    mean(a, axis=None, keepdims=False, dtype=None)
    meshgrid(*xi, sparse=False, indexing='xy')
    moveaxis(a, source, destination)
    nancumsum(a, axis=None, dtype=None)
    nanmean(a, axis=None, dtype=None, keepdims=False)
    nanstd(a, axis=None, dtype=None, ddof=0, keepdims=False)
    nansum(a, axis=None, dtype=None, keepdims=False)
    nanvar(a, axis=None, dtype=None, ddof=0, keepdims=False)
    negative(a, dtype=None)
    outer(a, b)
    pad(arr, pad_width, mode='constant', stat_length=None, constant_values=0, end_values=0, reflect_type='even')
    polyadd(a1, a2)
    polyder(p, m=1)
    polyint(p, m=1, k=None)
    polymul(a1, a2)
    polysub(a1, a2)
    polyval(p, x: Operand)
    positive(a, dtype=None)
    ravel(x)
    ravel_multi_index(multi_index, dims, mode='clip', order='C')
    reshape(x, new_shape)
    roll(a, shift, axis=None)
    round = around(a, decimals=0)
    rollaxis(x, axis, start=0)
    rot90(a, k=1, axes=(0, 1))
    searchsorted(a, v, side='left', sorter=None)
    select(condlist, choicelist, default=0)
    sometrue = any(a, axis=None, keepdims=False)
    split(x, indices_or_sections, axis=0)
    squeeze(a, axis=None)
    stack(arrays, axis=0)
    std(x, axis=None, ddof=0, keepdims=False)
    sum(a, axis=None, dtype=None, keepdims=False, initial=None)
    swapaxes(x, axis1, axis2)
    take(a, indices, axis=None, mode='clip')
    take_along_axis(arr, indices, axis)
    tensordot(a, b, axes=2)
    tile(a, reps)
    trace(a, offset=0, axis1=0, axis2=1, dtype=None)
    transpose(a, axes=None)
    trapz = trapezoid(y, x=None, dx=1.0, axis=-1)
    tril(m, k=0)
    triu(m, k=0)
    unravel_index(indices, shape, order='C')
    unwrap(p, discont=3.141592653589793, axis=-1)
    vander(x, N=None, increasing=False)
    var(x, axis=None, ddof=0, keepdims=False)
    vsplit(x, indices_or_sections)
    vstack(tup)
    where(condition, x: Operand=None, y: Operand=None)
"""

# From `ops._core.extremes`, since JAX's gradient of an extreme may become 0/0 when XLA fuses it.
_EXTREMES = """
    amax = largest(a, axis=None, keepdims=False, initial=None, where: Array=True)
    amin = smallest(a, axis=None, keepdims=False, initial=None, where: Array=True)
    max = largest(a, axis=None, keepdims=False, initial=None, where: Array=True)
    min = smallest(a, axis=None, keepdims=False, initial=None, where: Array=True)
    nanmax = largest_number(a, axis=None, dtype=None, keepdims=False)
    nanmin = smallest_number(a, axis=None, dtype=None, keepdims=False)
    ptp = spread(x, axis=None, keepdims=False)
"""

FUNCTIONS |= {
    name: numpy_function
    for names, parameters in ((_UNARY, "(x, dtype=None)"), (_BINARY, "(x1, x2, dtype=None)"))
    for name, numpy_function in offer("\n".join(name + parameters for name in names.split()))
}
FUNCTIONS |= dict(offer(_LINES))
# After `_LINES`, in a module of its own, since `offer` looks a name up in one module.
FUNCTIONS |= dict(offer(_EXTREMES, extremes))


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """`jnp.linalg.norm`, its extremes with the gradients of `ops`."""
    axes = (axis,) if isinstance(axis, int) else tuple(range(x.ndim)) if axis is None else tuple(axis)
    # Only vector norms with one axis and matrix norms with two pass through extremes.
    if ord in (math.inf, -math.inf) and len(axes) == 1:
        return length(x, ord, axes, keepdims)
    if ord in (1, -1, math.inf, -math.inf) and len(axes) == 2:
        return matrix_norm_of(x, ord, axes, keepdims)
    # Other norms select no element, so JAX's gradients are sound.
    return jnp.linalg.norm(x, ord, axis, keepdims)


def _repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    # The number of repeats decides the shape, so it must be a constant of the step.
    return jnp.repeat(a, np.asarray(repeats), axis)


FUNCTIONS["repeat"] = define("repeat", "(a, repeats, axis=None)", _repeat)
FUNCTIONS["norm"] = define("norm", "(x, ord=None, axis=None, keepdims=False)", _norm)
FUNCTIONS |= dict(offer("multi_dot(arrays)", jnp.linalg))
# The size of these results depends on values, which XLA cannot compile.
FUNCTIONS |= {
    name: by_value(name, parameters, getattr(np, name))
    for name, parameters in {
        "argwhere": "(a)",
        "intersect1d": "(ar1, ar2, assume_unique=False, return_indices=False)",
        "setdiff1d": "(ar1, ar2, assume_unique=False)",
    }.items()
}


def _bincount(x: Any, weights: Any = None, minlength: int = 0, length: int | None = None) -> Any:
    counts = np.bincount(x, weights, minlength).astype(np.float32)
    return counts if length is None else np.pad(counts, (0, max(0, length - counts.size)))[:length]


def _unique(x: Any, return_inverse: bool = False) -> Any:
    """In the order of their first places, as MindSpore gives them."""
    # numpy sorts; MindSpore keeps the order of first occurrence, so places are sorted back.
    values, positions, inverse = np.unique(x, return_index=True, return_inverse=True)
    order = np.argsort(positions)
    # `argsort` of a permutation is its inverse: it maps numpy's numbers to the new ones.
    return (values[order], np.argsort(order)[inverse]) if return_inverse else values[order]


def _histogram2d(*args: Any) -> Any:
    return tuple(np.asarray(array, np.float32) for array in np.histogram2d(*args))


def _histogramdd(*args: Any) -> Any:
    counts, edges = np.histogramdd(*args)
    return counts.astype(np.float32), tuple(np.asarray(edge, np.float32) for edge in edges)


FUNCTIONS |= {
    "bincount": by_value("bincount", "(x, weights=None, minlength=0, length=None)", _bincount),
    "unique": by_value("unique", "(x, return_inverse=False)", _unique),
    "histogram2d": by_value("histogram2d", "(x, y, bins=10, range=None, weights=None, density=False)", _histogram2d),
    "histogramdd": by_value("histogramdd", "(sample, bins=10, range=None, weights=None, density=False)", _histogramdd),
}


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`func1d`, from a Tensor of one dimension to a Tensor, of every slice of `arr` along `axis`."""

    def on_array(values: Any) -> Any:
        return func1d(wrap(values), *args, **kwargs).array

    # JAX vectorizes the function, so it meets tracers, which `wrap` makes Tensors of.
    return wrap(jnp.apply_along_axis(on_array, axis, arr.array))


def apply_over_axes(func: Callable[..., Any], a: Tensor, axes: int | tuple[int, ...]) -> Tensor:
    """``func(a, axis)`` for one axis after another; dimensions that it removes stay, with size 1."""
    for axis in axes if isinstance(axes, tuple | list) else (axes,):
        result = func(a, axis)
        # As in numpy: what a reduction removes comes back with size 1, so the next axis keeps its number.
        a = result if result.ndim == a.ndim else result.expand_dims(axis)
    return a


def piecewise(x: Tensor, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Tensor:
    """Each element by the function (or number) whose condition holds, the last one where none does."""

    def on_array(function: Any) -> Any:
        return (lambda values: function(wrap(values), *args, **kw).array) if callable(function) else function

    conditions = [condition.array if isinstance(condition, Tensor) else condition for condition in condlist]
    return wrap(jnp.piecewise(x.array, conditions, list(map(on_array, funclist))))


def isscalar(element: Any) -> bool:
    """Whether `element` is a number or a string, and not a Tensor."""
    return bool(np.isscalar(element))


def size(a: Any, axis: int | None = None) -> int:
    """The number of elements, of all or along `axis`."""
    # `np.shape` would fetch a Tensor's values.
    shape = np.shape(a) if not isinstance(a, Tensor) else a.shape
    return int(np.prod(shape)) if axis is None else shape[axis]


def array_str(a: Tensor) -> str:
    """The elements as text."""
    return np.array_str(a.asnumpy())


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that an operation on these Tensors, numbers and dtypes would have."""
    if not arrays_and_dtypes:
        raise SporaxTypeError("For 'numpy.result_type', at least one Tensor or dtype must be given, but got none.")
    operands = [dtype.np_dtype if isinstance(dtype, DType) else dtype for dtype in arrays_and_dtypes]
    return from_numpy(jnp.result_type(*(item.array if isinstance(item, Tensor) else item for item in operands)))


def promote_types(type1: Any, type2: Any) -> DType:
    """The smallest dtype that both can be cast to."""
    return from_numpy(jnp.promote_types(to_dtype(type1).np_dtype, to_dtype(type2).np_dtype))


FUNCTIONS |= {
    numpy_function.__name__: numpy_function
    for numpy_function in (
        apply_along_axis,
        apply_over_axes,
        array_str,
        isscalar,
        piecewise,
        promote_types,
        result_type,
        size,
    )
}
