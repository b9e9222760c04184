import pytest

from sporax.base.errors import SporaxTypeError, check_type, did_you_mean


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


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("h10", " Did you mean 'h100'?"),
        ("H100", " Did you mean 'h100'?"),
        ("TPU_V5E", " Did you mean 'tpu-v5e'?"),
        ("abacus", ""),
        ("", ""),
        (7, ""),
    ],
)
def test_the_most_similar_name_or_nothing(word, expected):
    assert did_you_mean(word, ["h100", "h200", "tpu-v5e"]) == expected


def test_initials_stand_for_a_name():
    assert did_you_mean("lr", ["lars", "learning_rate", "loss"]) == " Did you mean 'learning_rate'?"
    assert did_you_mean("p", ["params"]) == ""
