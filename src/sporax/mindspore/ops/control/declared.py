"""`PrimitiveWithInfer`: operators that a class of the user declares.

The class says shape and dtype of the results (`infer_shape` and `infer_dtype`, or `__infer__` for both) and how gradients pass
(`get_bprop`, or `bprop_getters.register`). What it computes is its `__call__`, of which steps are made as of any function; a
`__mindspore_signature__` is data that is not needed.

Where that is missing, or raises NotImplementedError, steps can be planned and compiled, which needs shapes alone; running one
raises. Method: in the step stands a callback (`jax.pure_callback`) with the declared results, and the call raises.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import jax

from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError
from sporax.mindspore.common.dtype import DType, TensorType
from sporax.mindspore.common.gradient_hooks import own_gradient
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.ops._core.operator import PRIMITIVES, Composition, Primitive

_Bprop = Callable[..., Any]


class _BpropGetters:
    """Functions that make the gradient functions of declared operators, by the operators' names."""

    def __init__(self) -> None:
        self.by_name: dict[str, Callable[[Any], _Bprop]] = {}

    def register(self, prim: type | str) -> Callable[[Callable[[Any], _Bprop]], Callable[[Any], _Bprop]]:
        """Decorator for a function that gets the primitive and returns its ``bprop(*inputs, out, dout)``.

        Raises:
            SporaxNotImplementedError: for an operator of `ops`, whose gradient is derived.
        """
        name = prim if isinstance(prim, str) else prim.__name__
        if name in PRIMITIVES:
            raise SporaxNotImplementedError(
                f"For 'bprop_getters.register', 'prim' must be a PrimitiveWithInfer of your own, but got '{name}', whose "
                "gradient is derived."
            )
        return lambda getter: self.by_name.setdefault(name, getter)


bprop_getters = _BpropGetters()


def _says_nothing(self: Primitive, *inputs: Any) -> NoReturn:
    raise NotImplementedError


class PrimitiveWithInfer(Primitive):
    """Base of operators that the user declares; see the module.

    Args:
        name: of the operator, in messages.

    Raises:
        SporaxTypeError: at the call, what `infer_shape` or `infer_dtype` gives is no shape or dtype.
        SporaxNotImplementedError: at the call, or when a compiled step runs: there is no `__call__`.
    """

    _run: Callable[..., Any] = _says_nothing

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        # Made per object: what it computes is part of it.
        self.operator = Composition(name, self._compute)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Keep the user's `__call__` as what the operator computes; calls get marks as those of all operators."""
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls):
            cls._run = vars(cls)["__call__"]
            del cls.__call__

    def get_bprop(self) -> _Bprop | None:
        """The function that computes gradients."""
        getter = bprop_getters.by_name.get(type(self).__name__)
        return getter and getter(self)

    def infer_shape(self, *shapes: Any) -> Any:
        """Shape of the result, or a tuple of shapes, from the inputs' shapes."""

    def infer_dtype(self, *dtypes: Any) -> Any:
        """Dtype of the result, or a tuple of dtypes, from the inputs' dtypes."""

    def __infer__(self, *inputs: dict[str, Any]) -> dict[str, Any]:
        """Shape and dtype of the result, from those of the inputs."""
        return {kind: getattr(self, f"infer_{kind}")(*(entry[kind] for entry in inputs)) for kind in ("dtype", "shape")}

    def _compute(self, *inputs: Any) -> Any:
        if not any(isinstance(value, Tensor) and isinstance(value.array, jax.core.Tracer) for value in inputs):
            try:
                return self._run(*inputs)
            except NotImplementedError as error:
                self._refuse(error)
        bprop = self.get_bprop()
        return own_gradient(self.name, self._traced, bprop, inputs) if bprop else self._traced(*inputs)

    def _traced(self, *inputs: Any) -> Any:
        try:
            return self._run(*inputs)
        except NotImplementedError as error:
            structs, is_one = self._declared(inputs)
            arrays = [value.array for value in inputs if isinstance(value, Tensor)]
            refuse = functools.partial(self._refuse, error.with_traceback(None))
        results = tuple(map(wrap, jax.pure_callback(refuse, structs, *arrays, vmap_method="sequential")))
        return results[0] if is_one else results

    def _refuse(self, error: NotImplementedError, *arrays: Any) -> NoReturn:
        raise SporaxNotImplementedError(
            f"For '{self.name}', its class must say in '__call__' what it computes where it is run, but "
            f"{str(error) or 'it does not'}; 'infer_shape' and 'infer_dtype' are enough for `compile` alone."
        ) from error

    def _declared(self, inputs: tuple[Any, ...]) -> tuple[tuple[jax.ShapeDtypeStruct, ...], bool]:
        """What the results look like, and whether it is one result and no tuple."""
        described = [
            {"shape": list(value.shape), "dtype": TensorType(value.dtype), "value": None}
            if isinstance(value, Tensor)
            else {"shape": [], "dtype": type(value), "value": value}
            for value in inputs
        ]
        answer = self.__infer__(*described)
        shapes, dtypes = answer["shape"], answer["dtype"]
        is_one = not isinstance(dtypes, tuple)
        if is_one:
            shapes, dtypes = (shapes,), (dtypes,)
        elements: list[Any] = [dtype.dtype if isinstance(dtype, TensorType) else dtype for dtype in dtypes]
        fits = isinstance(shapes, tuple | list) and len(shapes) == len(elements)
        if not fits or not all(isinstance(shape, tuple | list) for shape in shapes):
            raise SporaxTypeError(
                f"For '{self.name}', 'infer_shape' must give a shape for each of {len(elements)} results, but gave {shapes!r}."
            )
        if not all(isinstance(dtype, DType) for dtype in elements):
            raise SporaxTypeError(f"For '{self.name}', 'infer_dtype' must give dtypes, but gave {answer['dtype']!r}.")
        pairs = zip(shapes, elements, strict=True)
        return tuple(jax.ShapeDtypeStruct(tuple(shape), dtype.np_dtype) for shape, dtype in pairs), is_one


def prim_attr_register(fn: Callable[..., None]) -> Callable[..., None]:
    """Decorator for `__init__` of a primitive: makes the base, and keeps the arguments as attributes."""

    @functools.wraps(fn)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        PrimitiveWithInfer.__init__(self, getattr(type(self), "substitute_name", type(self).__name__))
        bound = inspect.signature(fn).bind(self, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(list(bound.arguments.items())[1:])
        # Past the checks of marks, which these are not.
        self.__dict__.update(arguments, init_attrs=arguments)
        self.attrs.update(arguments)
        fn(self, *args, **kwargs)

    return init


class sig_dtype(enum.IntEnum):  # noqa: N801  # MindSpore\'s name
    """A group of arguments of one dtype."""

    T, T1, T2, T3, T4, T5, T6, T7, T8, T9, T_EMPTY_DEFAULT_VALUE = range(11)


class sig_rw(enum.IntEnum):  # noqa: N801  # MindSpore\'s name
    """Whether an argument is written."""

    RW_READ, RW_WRITE, RW_REF, RW_EMPTY_DEFAULT_VALUE = range(4)


class sig_kind(enum.IntEnum):  # noqa: N801  # MindSpore\'s name
    """How an argument is passed."""

    KIND_POSITIONAL_KEYWORD, KIND_VAR_POSITIONAL, KIND_KEYWORD_ONLY, KIND_VAR_KEYWARD, KIND_EMPTY_DEFAULT_VALUE = range(
        5
    )


class make_sig(NamedTuple):  # noqa: N801  # MindSpore\'s name
    """An argument: its name, whether it is written, how it is passed, its default, and the group of its dtype."""

    name: str = "var"
    rw: Any = sig_rw.RW_READ
    kind: Any = sig_kind.KIND_POSITIONAL_KEYWORD
    default: Any = sig_kind.KIND_EMPTY_DEFAULT_VALUE
    dtype: Any = sig_dtype.T_EMPTY_DEFAULT_VALUE
