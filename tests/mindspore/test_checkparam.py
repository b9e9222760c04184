"""Messages are those of MindSpore 2.10, up to quotation marks of types."""

import pytest

import sporax.mindspore as ms
from sporax.mindspore import _checkparam as validator

GOOD = [
    (lambda: validator.check_int(5, 5, validator.GE, "a", "P"), 5),
    (lambda: validator.check_positive_int(1), 1),
    (lambda: validator.check_int_range(1, 1, 5, validator.INC_LEFT), 1),
    (lambda: validator.check_string("a", ["a", "b"]), "a"),
    (lambda: validator.check_value_type("v", 3, (int, str)), 3),
    (lambda: validator.check_value_type("v", True, [bool]), True),
    (lambda: validator.check_axis_in_range(-1, 3), 2),
    (lambda: validator.check("x", 2, "y", (1, 3), validator.INC_NEITHER), 2),
    (lambda: validator.check_type_name("x", ms.float32, [ms.float32, ms.float16], "P"), ms.float32),
    (lambda: validator.check_positive_int_sequence([1, 2]), None),
    (lambda: validator.check_file_name_by_regular("a/b_1.ckpt"), True),
    (lambda: validator.check_subclass("x", ms.int32, (ms.int32, ms.int64), "P"), None),
]


@pytest.mark.parametrize(("call", "value"), GOOD)
def test_good_values_are_given_back(call, value):
    assert call() == value


BAD = [
    (
        lambda v: v.check_int(3, 5, v.GE, "a", "P"),
        ValueError,
        "For 'P', the 'a' must be int and must >= 5, but got '3'",
    ),
    (lambda v: v.check_int(True, 1, v.GE), TypeError, "The input value must be int and must >= 1, but got 'True'"),
    (
        lambda v: v.check_positive_int(-1, "a", "P"),
        ValueError,
        "For 'P', the 'a' must be int and must > 0, but got '-1'",
    ),
    (
        lambda v: v.check_non_negative_float(-1.0, "a"),
        ValueError,
        "The 'a' must be float and must >= 0, but got '-1.0'",
    ),
    (
        lambda v: v.check_int_range(9, 1, 5, v.INC_LEFT, "a", "P"),
        ValueError,
        r"'a' must be in range of \[1, 5\), but got 9",
    ),
    (
        lambda v: v.check_float_range(1.5, 0.0, 1.0, v.INC_BOTH, "f"),
        ValueError,
        r"in range of \[0.0, 1.0\], but got 1.5",
    ),
    (
        lambda v: v.check_string("x", ["a", "b"], "m", "P"),
        ValueError,
        r"the 'm' must be str and must be in '\['a', 'b'\]'",
    ),
    (
        lambda v: v.check_value_type("v", 3, [float, str], "P"),
        TypeError,
        r"type of 'v' should be one of '\['float', 'str'\]'",
    ),
    (
        lambda v: v.check_value_type("v", True, [int], "P"),
        TypeError,
        "type of 'v' should be 'int', but got type 'bool'",
    ),
    (lambda v: v.check_bool(1, "b", "P"), TypeError, "For 'P', the 'b' must be a bool, but got int."),
    (lambda v: v.check_isinstance("n", 3, (str,)), ValueError, "The parameter 'n' must be isinstance of"),
    (lambda v: v.check("x", 3, "y", 4, v.EQ, "P"), ValueError, "For 'P', the 'x' should be = y: 4, but got 3."),
    (lambda v: v.check("x", 3, "y", (1, 2), v.IN, "P"), ValueError, "the 'x' should be in y"),
    (lambda v: v.check_number("x", 3, 4, v.GT, "P"), ValueError, "'x' must > 4, but got 3."),
    (
        lambda v: v.check_subclass("x", ms.float32, ms.int32, "P"),
        TypeError,
        "element of 'x' must be Int32, but got Float32",
    ),
    (
        lambda v: v.check_type_name("x", ms.float32, [ms.int32], "P"),
        TypeError,
        "the 'x' should be Int32, but got 'Float32'",
    ),
    (lambda v: v.check_is_float(1, "a", "P"), TypeError, "For 'P', the type of 'a' must be 'float', but got 'int'."),
    (lambda v: v.check_is_int(1.0, "a"), TypeError, "The type of 'a' must be 'int', but got 'float'."),
    (lambda v: v.check_axis_in_range(5, 3), ValueError, r"The 'axis' must be in the range of \[-3, 3\), but got 5."),
    (lambda v: v.check_positive_int_sequence([1, -2], "s", "P"), ValueError, r"the 's\[1\]' must be int and must > 0"),
    (lambda v: v.check_file_name_by_regular("a/b*"), ValueError, "is illegal, it must be match regular"),
    (
        lambda v: v.check_tensors_dtypes_same_and_valid({"a": ms.int32, "b": ms.int64}, (ms.int32, ms.int64), "P"),
        TypeError,
        "the 'b' must have the dtype of 'a', Int32, but got Int64",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_bad_values_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call(validator)


def test_the_class_of_former_releases_has_the_checks():
    from sporax.mindspore._checkparam import Rel, Validator

    assert Validator.check_float_range(0.5, 0, 1, Rel.INC_NEITHER, "keep", "Dropout") == 0.5
    assert Validator.check_integer("size", 3, 2, Rel.GE, "Net") == 3
    assert Validator().check_bool(True, "flag")
    with pytest.raises(TypeError, match="For 'Net', the 'size' must be int and must >= 2, but got '3.0'"):
        Validator.check_integer("size", 3.0, 2, Rel.GE, "Net")
    with pytest.raises(ValueError, match="For 'Dropout', the 'keep'"):
        Validator.check_float_range(1.5, 0, 1, Rel.INC_BOTH, "keep", "Dropout")
