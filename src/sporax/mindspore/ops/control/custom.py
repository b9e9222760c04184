"""`PrimitiveWithInfer`: operators that a class of the user declares.

The class says shape and dtype of the results (`infer_shape` and `infer_dtype`, or `__infer__` for both) and how gradients pass
(`get_bprop`, or `bprop_getters.register`). What it computes is its `__call__`, of which steps are made as of any function; a
`__mindspore_signature__` is data that is not needed.

Where that is missing, or raises NotImplementedError, steps can be planned and compiled, which needs shapes alone; running one
raises. Method: in the step stands a callback (`jax.pure_callback`) with the declared results, and the call raises.

`ops.Custom`: operators that users write as Python functions of numpy arrays.

The function runs on the host, in compiled programs as a callback of the device (`jax.pure_callback`), so results depend on the
arguments alone: XLA may leave out, repeat or reorder calls. Of MindSpore's kinds of functions this is ``"pyfunc"``; the others
name compilers and libraries of other devices and are refused. What registers such kernels (`CustomRegOp`, `DataType`,
`custom_info_register`) is kept, so that programs can be imported and carry the information along.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Self

import jax
import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError
from sporax.mindspore.common.dtype import DType, TensorType, from_numpy
from sporax.mindspore.common.own_gradient import own_gradient
from sporax.mindspore.common.tensor import Tensor, wrap, wrap_numpy
from sporax.mindspore.ops._core.operator import FUNCTIONS, PRIMITIVES, Composition, Primitive

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


# MindSpore's kinds, so that a wrong word is distinguished from one that is not offered.
_KINDS = ("hybrid", "akg", "tbe", "aicpu", "aot", "pyfunc")
_Results = tuple[tuple[jax.ShapeDtypeStruct, ...], bool]


class Custom(PrimitiveWithInfer):
    """An operator made of a Python function of numpy arrays.

    Args:
        func: gets one (writable) numpy array per input and returns an array, or a tuple of arrays.
        out_shape: shape of the result, or one per result in a tuple or list; or a function of the inputs' shapes.
        out_dtype: likewise its dtype, or a function of the inputs' dtypes. None or ``()`` says that there is no result.
        func_type: ``"pyfunc"``.
        bprop: ``bprop(*inputs, out, dout)`` of Tensors gives one gradient per input.
        reg_info: kept as an attribute; pyfunc needs none.

    Raises:
        SporaxValueError: no such `func_type`.
        SporaxTypeError: `func` is not callable; at the call: shape or dtype of the results are of a wrong type.
        SporaxNotImplementedError: a `func_type` of MindSpore's other than ``"pyfunc"``.
        SporaxRuntimeError: at the call, the function's results have another shape or dtype; gradients without `bprop`.

    Example:
        >>> add = Custom(lambda x, y: x + y, lambda x, _: x, lambda x, _: x)
        >>> add(Tensor([1.0]), Tensor([2.0])).shape
        (1,)
    """

    def __init__(
        self,
        func: Callable[..., Any] | str,
        out_shape: Any = None,
        out_dtype: Any = None,
        func_type: str = "pyfunc",
        bprop: Callable[..., Any] | None = None,
        reg_info: Any = None,
    ) -> None:
        For("Custom").one_of("func_type", func_type, _KINDS)
        if func_type != "pyfunc":
            raise SporaxNotImplementedError(
                f"For 'Custom', 'func_type' must be 'pyfunc' (a Python function of numpy arrays), but got {func_type!r}, "
                "which compiles or loads a kernel of another device. Write it as a pyfunc, or with operators."
            )
        if not callable(func):
            raise For("Custom").type_error("'func' must be callable", type(func).__name__)
        # A primitive without attributes in the usual sense: they are set below.
        super().__init__("Custom")
        self.func, self.func_type, self.bprop, self.reg_info = func, func_type, bprop, reg_info
        self.out_shape, self.out_dtype = out_shape, out_dtype

    def get_bprop(self) -> Callable[..., Any] | None:
        """The function that computes gradients."""
        return self.bprop

    def _no_bprop(self, *inputs: Any) -> Any:
        raise SporaxRuntimeError("For 'Custom', 'bprop' must be given where a gradient is needed, but it is None.")

    def _compute(self, *inputs: Any) -> Any:
        structs, is_one = self._results([(each if isinstance(each, Tensor) else Tensor(each)).array for each in inputs])

        def on_host(*arrays: Any) -> tuple[np.ndarray[Any, Any], ...]:
            """Numbers among the inputs are numbers to the function, too."""
            remaining = iter(arrays)
            return self._call(structs, *(next(remaining) if isinstance(each, Tensor) else each for each in inputs))

        def run(*inputs: Any) -> Any:
            arrays = [each.array for each in inputs if isinstance(each, Tensor)]
            # With concrete inputs the function runs at once; its errors then reach the caller.
            if not any(isinstance(array, jax.core.Tracer) for array in arrays):
                return self._answer(tuple(map(wrap_numpy, on_host(*arrays))), is_one)
            # "sequential": under `vmap` the function is called for each sample, since it does not know of batches.
            results = jax.pure_callback(on_host, structs, *arrays, vmap_method="sequential")
            return self._answer(tuple(map(wrap, results)), is_one)

        return own_gradient("Custom", run, self.bprop or self._no_bprop, inputs) if structs else run(*inputs)

    @staticmethod
    def _answer(results: tuple[Tensor, ...], is_one: bool) -> Any:
        if is_one:
            return results[0] if results else None
        return results

    def _results(self, arrays: Sequence[jax.Array]) -> _Results:
        """What the results look like, and whether it is one result and no tuple."""
        shapes, dtypes = self.out_shape, self.out_dtype
        if callable(shapes):
            shapes = shapes(*(list(array.shape) for array in arrays))
        # A DType is callable as well.
        if callable(dtypes) and not isinstance(dtypes, DType):
            dtypes = dtypes(*(from_numpy(array.dtype) for array in arrays))
        For("Custom").typed("out_shape", shapes, "a tuple, list or function", tuple | list)
        if dtypes is None or dtypes == ():
            return (), True
        if not isinstance(dtypes, DType | tuple | list):
            raise SporaxTypeError(
                f"For 'Custom', 'out_dtype' must be a mindspore.dtype, tuple, list or function, but got {dtypes!r}."
            )
        is_one = isinstance(dtypes, DType)
        if is_one:
            shapes, dtypes = (shapes,), (dtypes,)
        For("Custom").refuse(
            len(shapes) != len(dtypes), "there must be a shape and a dtype for each result", shapes, dtypes
        )
        # MindSpore gives a scalar result as a tensor of one element.
        pairs = zip(shapes, dtypes, strict=True)
        return tuple(jax.ShapeDtypeStruct(tuple(shape) or (1,), dtype.np_dtype) for shape, dtype in pairs), is_one

    def _call(self, structs: Sequence[jax.ShapeDtypeStruct], *inputs: Any) -> tuple[np.ndarray[Any, Any], ...]:
        """Run the function on the host, and see that it keeps what was promised."""
        # Copies: the callback's arrays may be the device's own, and the function may write to them.
        returned = self.func(*(np.array(each) if isinstance(each, np.ndarray | jax.Array) else each for each in inputs))
        if not structs:
            return ()
        results = returned if isinstance(returned, tuple | list) else (returned,)
        if len(results) != len(structs):
            raise SporaxRuntimeError(
                f"For 'Custom', the function must return {len(structs)} results, but returned {len(results)}."
            )
        checked = tuple(map(np.asarray, results))
        for result, struct in zip(checked, structs, strict=True):
            # A number is as good as a tensor of one element.
            fits = result.shape == struct.shape or (result.size == 1 and struct.shape == (1,))
            is_number = not isinstance(returned, np.ndarray | tuple | list)
            if not fits or (result.dtype != struct.dtype and not is_number):
                raise SporaxRuntimeError(
                    f"For 'Custom', the function must return {struct.dtype}{list(struct.shape)}, but returned "
                    f"{result.dtype}{list(result.shape)}."
                )
        # Exactly what was promised to XLA.
        return tuple(a.reshape(s.shape).astype(s.dtype) for a, s in zip(checked, structs, strict=True))


class PyFunc(Custom):
    """The old form of `Custom`; its result is always a tuple.

    Args:
        fn: function of numpy arrays.
        in_types: dtypes of the inputs; those of the given Tensors count.
        in_shapes: shapes of the inputs; likewise.
        out_types: dtypes of the results.
        out_shapes: shapes of the results.
        stateful: MindSpore may compute a function without state once; here XLA may in any case.
    """

    def __init__(
        self, fn: Any, in_types: Any, in_shapes: Any, out_types: Any, out_shapes: Any, stateful: bool = True
    ) -> None:
        # Tuples, so that the result is one as well.
        super().__init__(fn, tuple(out_shapes), tuple(out_types))
        self.in_types, self.in_shapes, self.stateful = in_types, in_shapes, stateful


class CustomOpBuilder:
    """Refused: builds C++ sources against MindSpore's own libraries."""

    def __init__(
        self,
        name: str,
        sources: Any,
        backend: str | None = None,
        include_paths: Any = None,
        cflags: str | None = None,
        ldflags: str | None = None,
        **kwargs: Any,
    ) -> None:
        raise SporaxNotImplementedError(
            f"For 'CustomOpBuilder', building '{name}' is not offered: C++ sources need MindSpore's own libraries. "
            "Write the operator as ops.Custom(func, …, 'pyfunc'), or with operators."
        )


class DataType:
    """Pairs of a dtype and a format, such as ``F32_Default``, for `CustomRegOp.dtype_format`."""


_DTYPES = {
    "BOOL": "bool", "I8": "int8", "U8": "uint8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16",
    "C64": "complex64", "C128": "complex128",
}  # fmt: skip
_FORMATS = {
    "None": "", "Default": "DefaultFormat", "5HD": "NC1HWC0", "FracZ": "FRACTAL_Z", "FracNZ": "FRACTAL_NZ",
    "C1HWNCoC0": "C1HWNCoC0", "NCHW": "NCHW", "NHWC": "NHWC", "HWCN": "HWCN", "NDHWC": "NDHWC", "NCDHW": "NCDHW",
    "DHWCN": "DHWCN", "NC1HWC0": "NC1HWC0", "NDC1HWC0": "NDC1HWC0", "FRACTAL_Z_3D": "FRACTAL_Z_3D",
    "FracZNLSTM": "FRACTAL_ZN_LSTM", "FracZNRNN": "FRACTAL_ZN_RNN", "ND_RNNBIAS": "ND_RNN_BIAS",
    "ChannelLast": "ChannelLast",
}  # fmt: skip
for _name, _pair in {"None_None": ("", ""), "None_Default": ("", "DefaultFormat")}.items():
    setattr(DataType, _name, _pair)
for _short, _dtype in _DTYPES.items():
    for _name, _format in _FORMATS.items():
        setattr(DataType, f"{_short}_{_name}", (_dtype, _format))
    for _name in ("Tuple", "List"):
        setattr(DataType, f"{_short}_Default_{_name}", (_dtype, "DefaultFormat", _name.lower()))


class CustomRegOp:
    """Collects what MindSpore's compilers read about a kernel; `get_op_info` gives it as a dict.

    Args:
        op_name: name of the kernel.
    """

    def __init__(self, op_name: str = "Custom") -> None:
        For("CustomRegOp").refuse(not isinstance(op_name, str), "'op_name' must be a string", op_name, show=repr)
        self._info: dict[str, Any] = {
            "op_name": op_name, "inputs": [], "outputs": [], "attr": [], "fusion_type": "", "dtype_format": [],
        }  # fmt: skip
        self._target = "UnKnown"

    def input(
        self, index: int | None = None, name: str | None = None, param_type: str = "required", **kwargs: Any
    ) -> Self:
        """Describe an input."""
        return self._add("inputs", kwargs, index=index, name=name, paramType=param_type)

    def output(
        self, index: int | None = None, name: str | None = None, param_type: str = "required", **kwargs: Any
    ) -> Self:
        """Describe an output."""
        return self._add("outputs", kwargs, index=index, name=name, paramType=param_type)

    def attr(
        self,
        name: str | None = None,
        param_type: str | None = None,
        value_type: str | None = None,
        default_value: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Describe an attribute."""
        return self._add("attr", kwargs, name=name, paramType=param_type, type=value_type, defaultValue=default_value)

    def _add(self, what: str, more: dict[str, Any], **entries: Any) -> Self:
        for key, value in entries.items():
            kind = int if key == "index" else str
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                raise SporaxTypeError(
                    f"For 'CustomRegOp', '{key}' of {what} must be {kind.__name__} or None, but got {value!r}."
                )
        self._info[what].append({key: value for key, value in {**entries, **more}.items() if value is not None})
        return self

    def dtype_format(self, *args: Any) -> Self:
        """One dtype and format for each input and output.

        Raises:
            SporaxValueError: not as many as there are inputs and outputs.
        """
        count = len(self._info["inputs"]) + len(self._info["outputs"])
        For("CustomRegOp.dtype_format").refuse(
            len(args) != count, f"there must be one pair for each of {count} inputs and outputs", len(args)
        )
        self._info["dtype_format"].append(args)
        return self

    def target(self, target: str | None = None) -> Self:
        """The device."""
        self._target = target or self._target
        return self

    def get_op_info(self) -> dict[str, Any]:
        """Everything as a dict."""
        return {**self._info, "target": self._target}


def custom_info_register(*reg_info: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that keeps `reg_info` as an attribute of the function."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            return func(*args, **kwargs)

        call.reg_info = list(reg_info)  # type: ignore[attr-defined]
        return call

    return decorate


PRIMITIVES.update(
    Custom=Custom, PyFunc=PyFunc, CustomOpBuilder=CustomOpBuilder, CustomRegOp=CustomRegOp, DataType=DataType
)
FUNCTIONS["custom_info_register"] = custom_info_register
