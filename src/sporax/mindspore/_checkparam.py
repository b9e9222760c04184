"""Checks of arguments, under the names of MindSpore's `mindspore._checkparam`, which scripts import as ``Validator``.

Problem: user-made Cells check their arguments with MindSpore's own helpers. Method: relations and ranges are tables of
predicates; a check is one line that names its type and its relation. Messages begin as MindSpore's do.
"""

from __future__ import annotations

import enum
import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.common.dtype import DType

EQ, NE, LT, LE, GT, GE = range(1, 7)
INC_NEITHER, INC_LEFT, INC_RIGHT, INC_BOTH = range(7, 11)
IN, NOT_IN = 11, 12

_RELATIONS: dict[int, tuple[str, Callable[[Any, Any], Any]]] = {
    EQ: ("=", operator.eq),
    NE: ("!=", operator.ne),
    LT: ("<", operator.lt),
    LE: ("<=", operator.le),
    GT: (">", operator.gt),
    GE: (">=", operator.ge),
}
_RANGES: dict[int, tuple[str, Callable[[Any, Any, Any], bool]]] = {
    INC_NEITHER: ("({}, {})", lambda value, low, high: low < value < high),
    INC_LEFT: ("[{}, {})", lambda value, low, high: low <= value < high),
    INC_RIGHT: ("({}, {}]", lambda value, low, high: low < value <= high),
    INC_BOTH: ("[{}, {}]", lambda value, low, high: low <= value <= high),
}
_FILE_NAME = r"^[0-9a-zA-Z@\_\-\.\:\/\\]+$"
Name = str | None


def _the(arg_name: Name, prim_name: Name) -> str:
    """`For 'MatMul', the 'axis'`, as far as the names are known."""
    what = f"'{arg_name}'" if arg_name else "input value"
    return f"For '{prim_name}', the {what}" if prim_name else f"The {what}"


def _typed(value: Any, kind: type, arg_name: Name, prim_name: Name) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise SporaxTypeError(f"{_the(arg_name, prim_name)} must be {kind.__name__}, but got '{type(value).__name__}'.")
    return value


def check_number(arg_name: str, arg_value: object, value: object, rel: int, prim_name: Name) -> Any:
    """`arg_value`, which must be in the relation `rel` to `value`."""
    sign, holds = _RELATIONS[rel]
    if not holds(arg_value, value):
        raise SporaxValueError(f"{_the(arg_name, prim_name)} must {sign} {value}, but got {arg_value}.")
    return arg_value


def check(
    arg_name: str, arg_value: object, value_name: str, value: object, rel: int = EQ, prim_name: Name = None,
    excp_cls: type[Exception] = SporaxValueError,
) -> Any:  # fmt: skip
    """`arg_value`, which must be in the relation `rel` to `value`, called `value_name`; or be in it (`IN`, a range)."""
    if rel in _RELATIONS:
        sign, holds = _RELATIONS[rel]
        good, expected = holds(arg_value, value), f"{sign} {value_name}: {value}"
    elif rel in _RANGES:
        text, within = _RANGES[rel]
        good, expected = within(arg_value, *value), f"in range of {text.format(*value)}"
    else:
        good, expected = (arg_value in value) == (rel == IN), f"{'in' if rel == IN else 'not in'} {value_name}: {value}"
    if not good:
        raise excp_cls(f"{_the(arg_name, prim_name)} should be {expected}, but got {arg_value}.")
    return arg_value


def _related(kind: type, arg_value: Any, value: Any, rel: int, arg_name: Name, prim_name: Name) -> Any:
    sign, holds = _RELATIONS[rel]
    text = f"{_the(arg_name, prim_name)} must be {kind.__name__} and must {sign} {value}, but got"
    if not isinstance(arg_value, kind) or (isinstance(arg_value, bool) and kind is not bool):
        raise SporaxTypeError(f"{text} '{arg_value}' with type '{type(arg_value).__name__}'.")
    if not holds(arg_value, value):
        raise SporaxValueError(f"{text} '{arg_value}' with type '{type(arg_value).__name__}'.")
    return arg_value


def check_int(arg_value: object, value: int, rel: int, arg_name: Name = None, prim_name: Name = None) -> int:
    """`arg_value`, which must be an int in the relation `rel` to `value`."""
    return int(_related(int, arg_value, value, rel, arg_name, prim_name))


def check_float(arg_value: object, value: float, rel: int, arg_name: Name = None, prim_name: Name = None) -> float:
    """`arg_value`, which must be a float in the relation `rel` to `value`."""
    return float(_related(float, arg_value, value, rel, arg_name, prim_name))


def _against_zero(kind: type, rel: int, name: str) -> Callable[..., Any]:
    def check_sign(arg_value: Any, arg_name: Name = None, prim_name: Name = None) -> Any:
        return _related(kind, arg_value, kind(0) if kind is int else 0, rel, arg_name, prim_name)

    check_sign.__name__ = check_sign.__qualname__ = name
    check_sign.__doc__ = f"`arg_value`, which must be of the type {kind.__name__} and {_RELATIONS[rel][0]} 0."
    return check_sign


check_positive_int = _against_zero(int, GT, "check_positive_int")
check_negative_int = _against_zero(int, LT, "check_negative_int")
check_non_positive_int = _against_zero(int, LE, "check_non_positive_int")
check_non_negative_int = _against_zero(int, GE, "check_non_negative_int")
check_positive_float = _against_zero(float, GT, "check_positive_float")
check_negative_float = _against_zero(float, LT, "check_negative_float")
check_non_positive_float = _against_zero(float, LE, "check_non_positive_float")
check_non_negative_float = _against_zero(float, GE, "check_non_negative_float")


def _for_sequences(check_one: Callable[..., Any], name: str) -> Callable[..., Any]:
    def check_all(sequence: Iterable[Any], arg_name: Name = None, prim_name: Name = None) -> None:
        for index, value in enumerate(sequence):
            check_one(value, f"{arg_name or 'arg_name'}[{index}]", prim_name)

    check_all.__name__ = check_all.__qualname__ = name
    check_all.__doc__ = f"As `{check_one.__name__}`, for every element of a sequence."
    return check_all


check_positive_int_sequence = _for_sequences(check_positive_int, "check_positive_int_sequence")
check_non_negative_int_sequence = _for_sequences(check_non_negative_int, "check_non_negative_int_sequence")
check_positive_float_sequence = _for_sequences(check_positive_float, "check_positive_float_sequence")


def check_equal_int(arg_value: object, value: int, arg_name: Name = None, prim_name: Name = None) -> int:
    """`arg_value`, which must be the int `value`."""
    return check_int(arg_value, value, EQ, arg_name, prim_name)


def check_is_number(arg_value: object, arg_type: type, arg_name: Name = None, prim_name: Name = None) -> Any:
    """`arg_value`, which must be a finite number of the type `arg_type`."""
    text = _the(arg_name, prim_name).replace("the '", "the type of '").replace("The '", "The type of '")
    if not isinstance(arg_value, arg_type) or (isinstance(arg_value, bool) and arg_type is not bool):
        raise SporaxTypeError(f"{text} must be '{arg_type.__name__}', but got '{type(arg_value).__name__}'.")
    if isinstance(arg_value, float) and not np.isfinite(arg_value):
        raise SporaxValueError(f"{_the(arg_name, prim_name)} must be finite, but got {arg_value}.")
    return arg_value


def check_is_int(arg_value: object, arg_name: Name = None, prim_name: Name = None) -> int:
    """`arg_value`, which must be an int."""
    return int(check_is_number(arg_value, int, arg_name, prim_name))


def check_is_float(arg_value: object, arg_name: Name = None, prim_name: Name = None) -> float:
    """`arg_value`, which must be a float."""
    return float(check_is_number(arg_value, float, arg_name, prim_name))


def check_bool(arg_value: object, arg_name: Name = None, prim_name: Name = None) -> bool:
    """`arg_value`, which must be a bool."""
    if not isinstance(arg_value, bool):
        raise SporaxTypeError(f"{_the(arg_name, prim_name)} must be a bool, but got {type(arg_value).__name__}.")
    return arg_value


def check_number_range(
    arg_value: object, lower_limit: object, upper_limit: object, rel: int, value_type: type, arg_name: Name = None,
    prim_name: Name = None,
) -> Any:  # fmt: skip
    """`arg_value`, which must be of the type `value_type` and be in a range; `rel` says which ends belong to it."""
    text, within = _RANGES[rel]
    _typed(arg_value, value_type, arg_name, prim_name)
    if not within(arg_value, lower_limit, upper_limit):
        raise SporaxValueError(
            f"{_the(arg_name, prim_name)} must be in range of {text.format(lower_limit, upper_limit)}, but got {arg_value} with "
            f"type '{type(arg_value).__name__}'."
        )
    return arg_value


def check_int_range(
    arg_value: object, lower_limit: int, upper_limit: int, rel: int, arg_name: Name = None, prim_name: Name = None
) -> int:
    """`arg_value`, which must be an int in a range."""
    return int(check_number_range(arg_value, lower_limit, upper_limit, rel, int, arg_name, prim_name))


def check_float_range(
    arg_value: object, lower_limit: float, upper_limit: float, rel: int, arg_name: Name = None, prim_name: Name = None
) -> float:
    """`arg_value`, which must be a float in a range."""
    return float(check_number_range(arg_value, lower_limit, upper_limit, rel, float, arg_name, prim_name))


def check_string(arg_value: object, valid_values: Sequence[str], arg_name: Name = None, prim_name: Name = None) -> str:
    """`arg_value`, which must be one of the strings `valid_values`."""
    if not isinstance(arg_value, str) or arg_value not in valid_values:
        raise SporaxValueError(
            f"{_the(arg_name, prim_name)} must be str and must be in '{list(valid_values)}', but got '{arg_value}'."
        )
    return arg_value


def check_str_by_regular(target: str, reg: str | None = None, flag: int = re.ASCII, prim_name: Name = None) -> bool:
    """Whether `target` matches; True or an error."""
    pattern = reg or r"^\w+[0-9a-zA-Z\_\.]*$"
    if re.match(pattern, target, flag) is None:
        opening = f"For '{prim_name}', the" if prim_name else "The"
        raise SporaxValueError(f"{opening} '{target}' is illegal, it must be match regular '{pattern}'.")
    return True


def check_file_name_by_regular(target: object, reg: str | None = None, prim_name: Name = None) -> bool:
    """Whether `target` is a file name of letters, digits and ``@_-.:/\\``; True or an error."""
    if not isinstance(target, str):
        raise SporaxValueError(f"{_the('target', prim_name)} must be str, but got {type(target).__name__}.")
    return check_str_by_regular(target, reg or _FILE_NAME, re.ASCII, prim_name)


def check_value_type(arg_name: str, arg_value: object, valid_types: object, prim_name: Name = None) -> Any:
    """`arg_value`, which must be of one of the types; a bool counts as one where bool is named."""
    types = (
        tuple(valid_types)
        if isinstance(valid_types, Iterable) and not isinstance(valid_types, type)
        else (valid_types,)
    )
    if isinstance(arg_value, types) and (bool in types or not isinstance(arg_value, bool)):
        return arg_value
    names = [kind.__name__ for kind in types]
    expected = f"one of '{names}'" if len(names) > 1 else f"'{names[0]}'"
    opening = f"For '{prim_name}', the" if prim_name else "The"
    raise SporaxTypeError(
        f"{opening} type of '{arg_name}' should be {expected}, but got type '{type(arg_value).__name__}'."
    )


def check_isinstance(arg_name: str, arg_value: object, classes: object) -> Any:
    """`arg_value`, which must be of one of the classes; ValueError where it is not, as in MindSpore."""
    if not isinstance(arg_value, classes):
        raise SporaxValueError(f"The parameter '{arg_name}' must be isinstance of {classes}, but got {arg_value}.")
    return arg_value


def check_type_name(arg_name: str, arg_type: object, valid_types: object, prim_name: Name) -> Any:
    """The dtype or type `arg_type`, which must be one of `valid_types`."""
    types = valid_types if isinstance(valid_types, (list, tuple, set, frozenset)) else [valid_types]
    if arg_type not in types:
        names = [_name_of(kind) for kind in types]
        expected = f"one of {names}" if len(names) > 1 else names[0]
        raise SporaxTypeError(f"{_the(arg_name, prim_name)} should be {expected}, but got '{_name_of(arg_type)}'.")
    return arg_type


def check_subclass(
    arg_name: str, type_: object, template_types: object, prim_name: Name, addition_error_info: Name = None
) -> None:
    """See that the dtype `type_` is one of `template_types`, or the class a subclass of one."""
    types = template_types if isinstance(template_types, (list, tuple, set, frozenset)) else [template_types]
    for kind in types:
        both_classes = isinstance(type_, type) and isinstance(kind, type)
        if type_ == kind or (both_classes and issubclass(type_, kind)):
            return
    names = [_name_of(kind) for kind in types]
    opening = f"For '{prim_name}', the" if prim_name else "The"
    expected = f"one of {names}" if len(names) > 1 else names[0]
    raise SporaxTypeError(
        f"{opening} element of '{arg_name}' must be {expected}, but got {_name_of(type_)}.{addition_error_info or ''}"
    )


def check_tensor_dtype_valid(arg_name: str, arg_type: object, valid_dtypes: object, prim_name: Name) -> Any:
    """The dtype of a tensor, which must be one of `valid_dtypes`."""
    check_subclass(arg_name, arg_type, valid_dtypes, prim_name)
    return arg_type


def check_tensors_dtypes_same_and_valid(args: dict[str, Any], valid_dtypes: object, prim_name: Name) -> None:
    """See that the dtypes of several tensors are one of `valid_dtypes` and the same."""
    (first_name, first), *others = args.items()
    check_tensor_dtype_valid(first_name, first, valid_dtypes, prim_name)
    for name, dtype in others:
        if dtype != first:
            raise SporaxTypeError(
                f"{_the(name, prim_name)} must have the dtype of '{first_name}', {_name_of(first)}, but got {_name_of(dtype)}."
            )


check_types_same_and_valid = check_tensors_dtypes_same_and_valid


def check_axis_in_range(axis: int, ndim: int) -> int:
    """`axis` counted from the front, for a tensor with `ndim` dimensions."""
    _typed(axis, int, "axis", None)
    if not -ndim <= axis < ndim:
        raise SporaxValueError(f"The 'axis' must be in the range of [{-ndim}, {ndim}), but got {axis}.")
    return axis % ndim


def check_element_type_of_iterable(
    arg_name: str, arg_value: Iterable[Any], valid_types: object, prim_name: Name = None
) -> None:
    """See that every element has one of the types."""
    for index, value in enumerate(arg_value):
        check_value_type(f"{arg_name}[{index}]", value, valid_types, prim_name)


def check_integer(arg_name: str, arg_value: object, value: int, rel: int, prim_name: Name = None) -> int:
    """`arg_value`, an int in the relation `rel` to `value`; MindSpore's order of arguments before 1.0."""
    return check_int(arg_value, value, rel, arg_name, prim_name)


def twice(value: Any) -> tuple[int, ...]:
    """An int as a pair of it, and a pair of ints as it is.

    Raises:
        SporaxTypeError: neither.
    """
    pair = value if isinstance(value, tuple) else (value, value)
    if len(pair) != 2 or any(isinstance(item, bool) or not isinstance(item, int) for item in pair):
        raise SporaxTypeError(
            f"When expanding an int number to tuple, the input must be an int or 2 ints, but got {value!r}."
        )
    return pair


def args_type_check(*types: Any, **named_types: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that sees that arguments, unless they are None, have the types given for them.

    Args:
        types: type, or tuple of types, of each argument by position.
        named_types: the same by name.

    Raises:
        SporaxTypeError: (when the function is called) an argument has another type.

    Example:
        >>> @args_type_check(path=str)
        ... def read(path): ...
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        annotated = signature.bind_partial(*types, **named_types).arguments
        annotated = annotated.get("kwargs", annotated)

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(*args, **kwargs).arguments
            for name, value in arguments.get("kwargs", arguments).items():
                if name in annotated and value is not None and not isinstance(value, annotated[name]):
                    raise For(function.__name__).type_error(
                        f"the argument '{name}' must be {_kinds(annotated[name])}, but got {type(value).__name__}"
                    )
            return function(*args, **kwargs)

        return checked

    return decorated


def _kinds(types: Any) -> str:
    return " or ".join(map(_name_of, types if isinstance(types, tuple) else (types,)))


def _name_of(kind: Any) -> str:
    return str(kind) if isinstance(kind, DType) else getattr(kind, "__name__", str(kind))


class Rel(enum.IntEnum):
    """The relations and ranges of the checks, as MindSpore before 2.0 calls them: ``Rel.GE`` is `GE`."""

    EQ, NE, LT, LE, GT, GE = range(1, 7)
    INC_NEITHER, INC_LEFT, INC_RIGHT, INC_BOTH = range(7, 11)
    IN, NOT_IN = 11, 12


Validator: Any = type(
    "Validator",
    (),
    {
        "__doc__": "The checks of this module as static methods: MindSpore before 2.0 has them in a class.",
        **{name: staticmethod(check_) for name, check_ in list(globals().items()) if name.startswith("check")},
    },
)

__getattr__ = missing_names(__name__)
