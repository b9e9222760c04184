import pytest

from sporax.base.errors import SporaxTypeError, check_type


def test_types_of_arguments_are_checked_and_bools_count_where_they_may():
    check_type("Net", "size", 3, "an int", int, takes_bool=False)
    check_type("Net", "flag", True, "a number", bool | float)
    for value, types in (("3", int), (2.0, (int, str)), (True, int), (True, int | float)):
        with pytest.raises(SporaxTypeError) as caught:
            check_type("Net", "size", value, "an int", types, takes_bool=False)
        assert str(caught.value) == f"For 'Net', 'size' must be an int, but got {type(value).__name__}."


def test_an_error_says_what_an_argument_must_be():
    error = SporaxTypeError.must("Net", "size", "be an int", repr("3"))
    assert isinstance(error, TypeError)
    assert str(error) == "For 'Net', 'size' must be an int, but got '3'."
    phrase = SporaxTypeError.must("Net", "the input", "be a Tensor", "int")
    assert str(phrase) == "For 'Net', the input must be a Tensor, but got int."
