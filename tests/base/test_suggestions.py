"""What someone meant."""

import pytest

from sporax.base.suggestions import did_you_mean


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
