import pytest

from sporax.base.errors import (
    For,
    SporaxKeyError,
    SporaxRuntimeError,
    SporaxTypeError,
    SporaxValueError,
    check_type,
    did_you_mean,
)


def test_types_of_arguments_are_checked_and_bools_count_where_they_may():
    check_type("Net", "size", 3, "an int", int, takes_bool=False)
    check_type("Net", "flag", True, "a number", bool | float)
    for value, types in (("3", int), (2.0, (int, str)), (True, int), (True, int | float)):
        with pytest.raises(SporaxTypeError) as caught:
            check_type("Net", "size", value, "an int", types, takes_bool=False)
        assert str(caught.value) == f"For 'Net', 'size' must be an int, but got {type(value).__name__}."


def test_an_argument_is_named_in_quotes_and_a_phrase_as_it_is():
    for_net = For("Net")
    with pytest.raises(TypeError, match=r"^For 'Net', 'size' must be an int, but got str\.$"):
        for_net.typed("size", "3", "an int", int)
    with pytest.raises(TypeError, match=r"^For 'Net', the input must be a Tensor, but got int\.$"):
        for_net.typed("the input", 3, "a Tensor", str)


def test_a_condition_raises_where_it_holds_and_shows_the_value_only_then():
    def shown(value: object) -> str:
        raise AssertionError("a value that is right need not be shown")

    For("Net").refuse(False, "'size' must be > 0", 3, show=shown)
    with pytest.raises(ValueError, match=r"^For 'Net', 'size' must be > 0, but got -1\.$"):
        For("Net").refuse([-1], "'size' must be > 0", -1)
    with pytest.raises(TypeError, match=r"^For 'Net', the mode must be a word, but got 'a\\nb'\.$"):
        For("Net").refuse_type(True, "the mode must be a word", "a\nb", show=repr)
    with pytest.raises(KeyError, match="the mode must be known"):
        For("Net").refuse(True, "the mode must be known", kind=SporaxKeyError)


def test_a_choice_is_one_of_those_there_are():
    For("Net").one_of("mode", "same", ["same", "valid"])
    for kind in (SporaxValueError, SporaxKeyError, SporaxTypeError):
        with pytest.raises(kind, match=r"^For 'Net', 'mode' must be one of \('same', 'valid'\), but got 'pad'\."):
            For("Net").one_of("mode", "pad", ["same", "valid"], kind)


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


@pytest.mark.parametrize(
    ("got", "text"),
    [
        ((), "For 'Net', 'size' must be > 0."),
        ((-1,), "For 'Net', 'size' must be > 0, but got -1."),
        (((1, 2), None), "For 'Net', 'size' must be > 0, but got (1, 2) and None."),
        ((1, 2.5, "a"), "For 'Net', 'size' must be > 0, but got 1, 2.5 and a."),
    ],
)
def test_an_error_is_a_sentence_of_its_api_with_what_was_found(got, text):
    assert str(For("Net").error("'size' must be > 0", *got)) == text


def test_each_error_is_of_the_class_that_its_method_names():
    net = For("Net")
    assert type(net.error("no")) is SporaxValueError
    assert type(net.type_error("no")) is SporaxTypeError
    assert type(net.state_error("no")) is SporaxRuntimeError
    missing = net.fault(SporaxKeyError, "there must be a key", "a\nb", show=repr)
    assert isinstance(missing, KeyError)
    assert str(missing) == "For 'Net', there must be a key, but got 'a\\nb'."


@pytest.mark.parametrize(
    ("refuse", "kind"),
    [(For("Net").refuse, ValueError), (For("Net").refuse_type, TypeError), (For("Net").refuse_state, RuntimeError)],
)
def test_what_is_wrong_is_refused_and_the_value_becomes_text_only_then(refuse, kind):
    def never(value: object) -> str:
        raise AssertionError("the text of a value that is right is not needed")

    refuse(False, "'size' must be > 0", 3, show=never)
    refuse([], "'size' must be > 0", 3, show=never)
    with pytest.raises(kind, match=r"^For 'Net', 'size' must be > 0, but got 'x'\.$"):
        refuse([-1], "'size' must be > 0", "x", show=repr)
