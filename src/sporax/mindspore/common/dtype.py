"""Data types under MindSpore's names.

A `DType` is a small value that compares, hashes and prints as MindSpore's do and knows its numpy counterpart
(bfloat16 comes from ml_dtypes, which JAX brings along).
"""

from __future__ import annotations

import enum
from inspect import isfunction
from typing import Any

import ml_dtypes
import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError, SporaxTypeError


class DType:
    """A tensor's element type, e.g. `mindspore.float32`.

    Attributes:
        name: MindSpore's name, e.g. ``Float32``.
        np_dtype: the numpy dtype with the same layout.
    """

    __slots__ = ("name", "np_dtype")

    def __init__(self, name: str, np_dtype: Any) -> None:
        self.name = name
        self.np_dtype = np.dtype(np_dtype)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"mindspore.{self.np_dtype.name}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            # By layout: `mindspore.float` and `mindspore.float32` are one dtype.
            return self.np_dtype == other.np_dtype
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.np_dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled by name, since copies must stay equal to the constants of this module.
        return to_dtype, (self.np_dtype.name,)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.np_dtype.itemsize

    @property
    def is_floating_point(self) -> bool:
        """Whether this is one of the real floating point types."""
        return self in float_type

    @property
    def is_complex(self) -> bool:
        """Whether this is one of the complex types."""
        return self in complex_type

    @property
    def is_signed(self) -> bool:
        """Whether elements may be negative."""
        # bool has no sign, and is no unsigned integer either.
        return self not in uint_type and self != bool_


bool_ = DType("Bool", np.bool_)
int8 = DType("Int8", np.int8)
int16 = DType("Int16", np.int16)
int32 = DType("Int32", np.int32)
int64 = DType("Int64", np.int64)
uint8 = DType("UInt8", np.uint8)
uint16 = DType("UInt16", np.uint16)
uint32 = DType("UInt32", np.uint32)
uint64 = DType("UInt64", np.uint64)
float16 = DType("Float16", np.float16)
float32 = DType("Float32", np.float32)
float64 = DType("Float64", np.float64)
bfloat16 = DType("BFloat16", ml_dtypes.bfloat16)
complex64 = DType("Complex64", np.complex64)
complex128 = DType("Complex128", np.complex128)

# Narrow types, for storage: few operators compute in them.
qint4x2 = DType("Int4", ml_dtypes.int4)
float8_e4m3fn = DType("Float8E4M3FN", ml_dtypes.float8_e4m3fn)
float8_e5m2 = DType("Float8E5M2", ml_dtypes.float8_e5m2)

# MindSpore's further names of the same types.
byte, short, int_, long = int8, int16, int64, int64
ubyte, ushort, uint, ulong = uint8, uint16, uint32, uint64
half, float_, single, double = float16, float32, float32, float64
intc, intp, uintc, uintp, cfloat, cdouble = int32, int64, uint32, uint64, complex64, complex128

int_type = (int8, int16, int32, int64)
uint_type = (uint8, uint16, uint32, uint64)
float_type = (float16, float32, float64, bfloat16)
complex_type = (complex64, complex128)
number_type = (*int_type, *uint_type, *float_type, *complex_type)
all_types = (bool_, *number_type)
narrow_types = (qint4x2, float8_e4m3fn, float8_e5m2)


class OtherType:
    """A type of MindSpore's that is none of tensor elements, such as `string`. Values of it say what an object is.

    Args:
        name: how it prints.
        alias: how its `repr` ends.
    """

    __slots__ = ("alias", "name")

    def __init__(self, name: str, alias: str) -> None:
        self.name, self.alias = name, alias

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"mindspore.{self.alias}"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash((type(self), self.name))


class Tuple(OtherType):
    """The type of tuples."""


class List(OtherType):
    """The type of lists."""


class String(OtherType):
    """The type of strings."""


class TensorType(OtherType):
    """The type of Tensors, of all or of those of one dtype: ``TensorType(float32)``."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: DType | None = None) -> None:
        self.dtype = dtype
        name = "" if dtype is None else f"[{dtype}]"
        super().__init__(f"Tensor{name}", f"tensor{name.lower()}")

    def element_type(self) -> DType | None:
        """The dtype; None for all."""
        return self.dtype


tensor_type, string, tuple_, list_ = (
    TensorType(),
    String("String", "string_"),
    Tuple("Tuple", "tuple_"),
    List("List", "list_"),
)
type_none, type_type, _null = (
    OtherType("None", "type_none"),
    OtherType("TypeType", "type_type"),
    OtherType("Null", "Null"),
)
number, function = OtherType("Number", "number"), OtherType("Func", "function")
symbolic_key = OtherType("Object:SymbolicKey", "symbolic_key")
env_type, type_refkey = OtherType("Object:EnvType", "env_type"), OtherType("Object:RefKey", "type_refkey")


class _Kind(type):
    """A class whose objects are some of the dtypes, so that `isinstance(x.dtype, mstype.Float)` works."""

    members: tuple[DType, ...]

    def __new__(mcs, name: str, members: tuple[DType, ...]) -> _Kind:
        return super().__new__(mcs, name, (), {"members": members, "__doc__": f"The dtypes of the kind {name}."})

    def __init__(cls, name: str, members: tuple[DType, ...]) -> None:
        super().__init__(name, (), {})

    def __instancecheck__(cls, instance: object) -> bool:
        if isinstance(instance, OtherType):
            # Types that are no dtypes belong to the most general kind only.
            return cls.__name__ == "Type"
        return isinstance(instance, DType) and instance in cls.members


Type, Number = _Kind("Type", all_types), _Kind("Number", (bool_, *number_type))
Bool, Int, UInt = _Kind("Bool", (bool_,)), _Kind("Int", int_type), _Kind("UInt", uint_type)
# The last of `float_type` is bfloat16, which is a kind of its own.
Float, BFloat, Complex = _Kind("Float", float_type[:-1]), _Kind("BFloat", (bfloat16,)), _Kind("Complex", complex_type)

_BY_NUMPY = {dtype.np_dtype: dtype for dtype in (*all_types, *narrow_types)}
_BY_PYTHON = {bool: bool_, int: int64, float: float32, complex: complex128}


def from_numpy(np_dtype: Any) -> DType:
    """The `DType` of a numpy dtype.

    Raises:
        SporaxTypeError: MindSpore has no such type (e.g. strings or objects).
    """
    try:
        return _BY_NUMPY[np_dtype]
    except KeyError:
        raise SporaxTypeError(f"For 'dtype', {np_dtype} has no counterpart among {list(_BY_NUMPY.values())}.") from None


def to_dtype(value: Any) -> DType:
    """The `DType` meant by a DType, a numpy dtype, a Python type or a name such as ``"float32"``.

    Raises:
        SporaxTypeError: nothing of that kind exists.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in _BY_PYTHON:
        return _BY_PYTHON[value]
    try:
        # numpy knows "bool" only.
        return from_numpy(np.dtype("bool" if value == "bool_" else value))
    except TypeError:
        raise For("dtype").type_error(
            "the value must be a sporax dtype, a numpy dtype, a Python type or a name of one", repr(value)
        ) from None


def dtype_to_nptype(type_: DType) -> type[Any]:
    """numpy's scalar type for `type_`."""
    return to_dtype(type_).np_dtype.type


def type_size_in_bytes(dtype: DType) -> int:
    """Bytes of one element.

    Raises:
        SporaxTypeError: `dtype` is none.
    """
    For("type_size_in_bytes").typed("dtype", dtype, "a dtype", DType)
    return dtype.np_dtype.itemsize


def pytype_to_dtype(obj: type) -> DType:
    """The `DType` that holds every value of a Python or numpy scalar type; `float` needs 64 bits."""
    # A Python float has 64 bits, though a Tensor made of it has 32.
    return float64 if obj is float else to_dtype(obj)


def dtype_to_pytype(type_: DType) -> type:
    """The Python scalar type that holds elements of `type_`."""
    kind = to_dtype(type_)
    if kind == bool_:
        return bool
    if kind in float_type:
        return float
    return complex if kind in complex_type else int


def get_py_obj_dtype(obj: Any) -> DType | OtherType:
    """The type of MindSpore's that describes an object: a Tensor, a number, a type, a function, a string, a tuple, None, …

    Raises:
        SporaxNotImplementedError: there is none.
    """
    # Tensors, without an import that would be circular.
    if isinstance(getattr(obj, "dtype", None), DType) and hasattr(obj, "shape"):
        return TensorType(obj.dtype)
    if isinstance(obj, DType | OtherType):
        return type_type
    # Cells, functions and MindSpore's primitives are all functions to its compiler.
    if hasattr(obj, "construct") or isfunction(obj) or hasattr(obj, "attribute_names"):
        return function
    kind = obj if isinstance(obj, type) else type(obj)
    fixed: dict[type, OtherType] = {str: string, tuple: tuple_, list: list_, type(None): type_none}
    if kind in fixed:
        return fixed[kind]
    try:
        return pytype_to_dtype(kind)
    except SporaxTypeError as error:
        raise SporaxNotImplementedError(str(error)) from None


def _issubclass_(type_: Any, dtype: DType | OtherType) -> bool:
    """Whether `type_` is `dtype` or a kind of it: every dtype is one of `number`, every ``TensorType(…)`` of `tensor_type`."""
    if dtype == number and isinstance(type_, DType):
        return True
    if dtype == tensor_type:
        return isinstance(type_, TensorType)
    return isinstance(type_, DType | OtherType) and bool(type_ == dtype)


issubclass_ = _issubclass_


class QuantDtype(enum.Enum):
    """Integer types of 1 to 16 bits, for tools that quantize; Tensors cannot have them."""

    # MindSpore's numbers.
    INT1, INT2, INT3, INT4, INT5, INT6, INT7, INT8 = range(8)
    INT9, INT10, INT11, INT12, INT13, INT14, INT15, INT16 = range(8, 16)
    UINT1, UINT2, UINT3, UINT4, UINT5, UINT6, UINT7, UINT8 = range(100, 108)
    UINT9, UINT10, UINT11, UINT12, UINT13, UINT14, UINT15, UINT16 = range(108, 116)
