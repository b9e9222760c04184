"""Functions made of functions: maps over nested tuples, functions that choose by type, fixed arguments, and order.

Derivatives of higher order along a curve, `jet` and `derivative`: for ``x(t) = x + s1 t + s2 t²/2! + …`` the derivatives of
``fn(x(t))`` at 0 follow from forward differentiation with respect to `t`, nested once per order. The cost doubles with each
order.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Sequence
from typing import Any

import jax

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore.common import COOTensor, CSRTensor, DType, Parameter, RowTensor, Tensor
from sporax.mindspore.common.transforms import jvp
from sporax.mindspore.ops._core import FOLLOWS, FUNCTIONS, PRIMITIVES, Array, Primitive, export, operator
from sporax.mindspore.ops.control.debug import is_tensor, remember

_NUMBER = (bool, int, float)
_PYTHON_TYPES: dict[str, Any] = {
    "Tensor": Tensor,
    "TensorType": Tensor,
    "Parameter": Parameter,
    "Ref": Parameter,
    "Number": _NUMBER,
    **{kind.__name__.capitalize(): kind for kind in (bool, int, float, complex, tuple, list, slice)},
    "Dictionary": dict,
    "String": str,
    "Ellipsis": type(...),
    "None": type(None),
    "bool": bool,
    "Function": types.FunctionType,
    **{kind.__name__: kind for kind in (RowTensor, CSRTensor, COOTensor)},
    **dict.fromkeys("MapTensor Env EnvType Keyword SymbolicKeyType Problem".split(), ()),
}
"""What names of types mean; `()` for what does not exist here, so that nothing is of it."""

# Names with a number of bits behind them, such as "Int32".
_SIZED = {"Int": int, "UInt": int, "Float": float, "BFloat": float, "Complex": complex}


class MultitypeFuncGraph:
    """A function with several implementations, of which the types of the arguments choose one.

    Args:
        name: what it is called in messages.
        read_value: accepted for compatibility; Parameters are Tensors here.

    Example:
        >>> scale = ops.MultitypeFuncGraph("scale")
        >>> @scale.register("Tensor", "Number")
        ... def scale_tensor(x, factor):
        ...     return x * factor
        >>> scale(Tensor([1.0, 2.0]), 3)
    """

    def __init__(self, name: str, read_value: bool = False) -> None:
        self.name = For("MultitypeFuncGraph").typed("name", name, "a str", str)
        # In the order of registration: the first of several equally exact ones is taken.
        self._entries: list[tuple[tuple[Any, ...], Callable[..., Any]]] = []

    def register(self, *type_names: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: use the function for arguments of these types.

        Args:
            type_names: ``"Tensor"``, ``"Number"``, ``"Bool"``, ``"Int"``, ``"Float"``, ``"Tuple"``, ``"List"``, ``"String"``,
                ``"None"``, ``"Function"``, ``"RowTensor"``, …, a Python type, or a dtype.
        """
        kinds = tuple(map(_kind, type_names))

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self._entries.append((kinds, function))
            return function

        return add

    def __call__(self, *args: Any) -> Any:
        """Call the implementation whose types fit, the most exact one if several do.

        Raises:
            SporaxValueError: none does.
        """
        fitting = [
            # `-number`: of equally exact entries the earlier one.
            (sum(map(_exactness, args, kinds)), -number, function)
            for number, (kinds, function) in enumerate(self._entries)
            if len(kinds) == len(args) and all(map(_fits, args, kinds))
        ]
        if fitting:
            return max(fitting, key=lambda entry: entry[:2])[2](*args)
        names = ", ".join(type(arg).__name__ for arg in args)
        raise SporaxValueError(f"For 'MultitypeFuncGraph', '{self.name}' has no implementation for ({names}).")


def _kind(name: Any) -> Any:
    if isinstance(name, DType):
        # All dtypes of numbers are Python numbers or tensors here.
        return _NUMBER
    if not isinstance(name, str):
        return name
    base = name.rstrip("0123456789")
    if name not in _PYTHON_TYPES and base not in _SIZED:
        raise For("MultitypeFuncGraph").error(f"a type must be one of {tuple(_PYTHON_TYPES)}", repr(name))
    return _PYTHON_TYPES[name] if name in _PYTHON_TYPES else _SIZED[base]


def _fits(value: Any, kind: Any) -> bool:
    if kind is types.FunctionType:
        # Any callable but a Tensor, which may have `__call__` of its own.
        return callable(value) and not isinstance(value, Tensor)
    if kind is int and isinstance(value, bool):
        return False
    return isinstance(value, kind)


def _exactness(value: Any, kind: Any) -> int:
    """How closely a type describes a value that fits it."""
    # From "anything" to the exact type.
    return 0 if kind is object else 1 if isinstance(kind, tuple) else 3 if type(value) is kind else 2


class HyperMap:
    """Applies a function to the elements of sequences, however deeply they are nested.

    Args:
        ops: the function; None: the first argument of the call is.
        reverse: accepted for compatibility; the order of the calls makes no difference to functions of Tensors.
    """

    nested = True

    def __init__(self, ops: Callable[..., Any] | None = None, reverse: bool = False) -> None:
        if ops is not None and not callable(ops):
            raise SporaxTypeError(f"For '{type(self).__name__}', 'ops' must be callable, but got {type(ops).__name__}.")
        self.ops = ops

    def __call__(self, *args: Any) -> Any:
        """Map over sequences of one length; returns a tuple (a list for lists)."""
        function, sequences = (args[0], args[1:]) if self.ops is None else (self.ops, args)
        # HyperMap applies to single elements too; Map needs sequences.
        if self.nested and sequences and not any(isinstance(sequence, tuple | list) for sequence in sequences):
            return function(*sequences)
        if not sequences or not isinstance(sequences[0], tuple | list):
            raise SporaxTypeError(f"For '{type(self).__name__}', the arguments must be tuples or lists of one length.")
        return self._apply(function, sequences)

    def _apply(self, function: Callable[..., Any], sequences: Sequence[Any]) -> Any:
        first = sequences[0]
        lengths = {len(sequence) for sequence in sequences if isinstance(sequence, tuple | list)}
        if len(lengths) != 1 or not all(isinstance(sequence, tuple | list) for sequence in sequences):
            raise SporaxValueError(
                f"For '{type(self).__name__}', all sequences must have one length, but got lengths {sorted(lengths)}."
            )
        rows = zip(*sequences, strict=True)
        results = [
            self._apply(function, row) if self.nested and isinstance(row[0], tuple | list) else function(*row)
            for row in rows
        ]
        # MindSpore's result has the type of the first argument.
        return results if isinstance(first, list) else tuple(results)


class Map(HyperMap):
    """Applies a function to the elements of sequences; nested sequences are elements."""

    nested = False


class Partial(Primitive):
    """Fixes the first arguments of a function: ``ops.Partial()(fn, a)(b)`` is ``fn(a, b)``."""

    def __call__(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """The function with these arguments fixed.

        Raises:
            SporaxTypeError: `func` is not callable.
        """
        For("Partial").refuse_type(not callable(func), "'func' must be callable", type(func).__name__)
        return functools.partial(func, *args, **kwargs)


def partial(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """The function with these arguments fixed."""
    return Partial()(func, *args, **kwargs)


@operator(function="")
def _after(value: Array, expr: Array) -> Array:
    """`value`, computed after `expr`."""
    # XLA must not move one before the other, nor drop `expr`.
    return jax.lax.optimization_barrier((value, expr))[0]


@operator("Depend()", function="depend", composed=True, dims=FOLLOWS)
def depend(value: Any, expr: Any) -> Any:
    """`value`, with the promise that `expr` has been computed before it is used.

    Args:
        value: Tensor, or anything else, which is returned as it is: a Parameter stays one that can be assigned to, and is read
            later than `expr` in any case.
        expr: Tensor, or containers of Tensors; anything else has happened by now.
    """
    tensors = tuple(leaf for leaf in jax.tree.leaves(expr, is_leaf=is_tensor) if isinstance(leaf, Tensor))
    # Tensors of the register of overflows remember what they wait for.
    waits = isinstance(value, Tensor) and not isinstance(value, Parameter)
    return remember(_after(value, tensors), expr) if waits and tensors else value


def constexpr(
    fn: Callable[..., Any] | None = None,
    get_instance: bool = True,
    name: str | None = None,
    reuse_result: bool = True,
    check: bool = True,
) -> Any:
    """Decorator for functions of constants that MindSpore's compiler runs while it compiles; the function itself.

    Here all Python runs while a step is being compiled, so there is nothing to mark, and the settings have no meaning.

    Args:
        fn: the function; without it the decorator is returned.
        get_instance, name, reuse_result, check: see above.

    Raises:
        SporaxTypeError: `fn` is not callable.
    """
    if fn is None:
        return constexpr
    For("constexpr").refuse_type(not callable(fn), "'fn' must be callable", type(fn).__name__)
    return fn


def _primexpr(
    fn: Callable[..., Any] | None = None, get_instance: bool = True, name: str | None = None, reuse_result: bool = True
) -> Any:
    """As `constexpr`, for functions of values that need not be constant."""
    return constexpr(fn)


for _class in (MultitypeFuncGraph, HyperMap, Map, Partial):
    PRIMITIVES[_class.__name__] = _class
export(partial, constexpr, _primexpr)


def jet(fn: Callable[..., Any], primals: Any, series: Any) -> tuple[Any, Any]:
    """The value of `fn`, and the derivatives of orders 1 to n along a curve.

    Args:
        fn: function or Cell of Tensors.
        primals: the point, a Tensor or a tuple of Tensors.
        series: the derivatives of the curve there, (n, …) for each of the primals.

    Returns:
        The value, and its derivatives stacked in the same form; tuples of them when `fn` returns a tuple.
    """
    points, curves = _as_tuple("jet", "primals", primals), _as_tuple("jet", "series", series)
    For("jet").refuse(
        len(points) != len(curves), "'primals' and 'series' must have the same length", len(points), len(curves)
    )
    for point, curve in zip(points, curves, strict=True):
        if curve.shape[1:] != point.shape or not curve.shape[0]:
            raise For("jet").error("'series' must have shape (orders, *primals.shape)", curve.shape, point.shape)
    orders = curves[0].shape[0]
    values = _along(fn, points, curves, orders)
    if isinstance(values[0], tuple):
        return values[0], tuple(FUNCTIONS["stack"](parts, 0) for parts in zip(*values[1:], strict=True))
    return values[0], FUNCTIONS["stack"](tuple(values[1:]), 0)


def derivative(fn: Callable[..., Any], primals: Any, order: int) -> tuple[Any, Any]:
    """The value of `fn`, and its derivative of one order with all inputs moving at speed 1.

    Args:
        fn: function or Cell of Tensors.
        primals: the point, a Tensor or a tuple of Tensors.
        order: of the derivative, at least 1.
    """
    For("derivative").typed("order", order, "an int", int, takes_bool=False)
    For("derivative").refuse(order < 1, "'order' must be >= 1", order)
    points = _as_tuple("derivative", "primals", primals)
    speeds = tuple(FUNCTIONS["ones_like"](point).expand_dims(0) for point in points)
    values = _along(fn, points, speeds, order)
    return values[0], values[-1]


def linearize(fn: Callable[..., Any], inputs: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of `fn`, and the linear function of directions that is its derivative there.

    Args:
        fn: function or Cell of Tensors.
        inputs: the point, a Tensor or a tuple of Tensors.
    """
    points = _as_tuple("linearize", "inputs", inputs)

    def along(*directions: Any) -> Any:
        tangents = tuple(directions[0]) if len(directions) == 1 and isinstance(directions[0], tuple) else directions
        return jvp(fn, points, tangents)[1]

    return fn(*points), along


def _along(fn: Callable[..., Any], points: Sequence[Tensor], curves: Sequence[Tensor], orders: int) -> list[Any]:
    """The value and the derivatives of orders 1 to `orders` of `fn` along curves."""

    def at(t: Tensor) -> Any:
        positions = []
        for point, curve in zip(points, curves, strict=True):
            place = point
            for order in range(1, min(curve.shape[0], orders) + 1):
                # Taylor's coefficients: the order's factorial divides.
                place = place + curve[order - 1] * (t**order / math.factorial(order)).astype(point.dtype)
            positions.append(place)
        return fn(*positions)

    origin, one = Tensor(0.0, points[0].dtype), Tensor(1.0, points[0].dtype)
    # Nested once per order: the slope of the slope.
    functions: list[Callable[[Tensor], Any]] = [at]
    for _ in range(orders):
        functions.append(_slope(functions[-1], one))
    # All functions at the origin, since each is the derivative of the one before.
    return [function(origin) for function in functions]


def _slope(function: Callable[[Tensor], Any], one: Tensor) -> Callable[[Tensor], Any]:
    return lambda t: jvp(function, (t,), (one,))[1]


def _as_tuple(name: str, what: str, value: Any) -> tuple[Tensor, ...]:
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    for item in values:
        if not isinstance(item, Tensor):
            raise SporaxTypeError(f"For '{name}', '{what}' must be a Tensor or a tuple of them, but got {item!r}.")
    return values


FUNCTIONS.update(jet=jet, derivative=derivative, linearize=linearize)
