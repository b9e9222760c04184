"""What ``MS_COMM_COMPILER_OPT`` and our own switch for repeated blocks may be."""

import warnings

import pytest

from sporax.ir.config.parallel_config import reuse_limit, wants_loops, warn_of_limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [(None, 0), ("", 0), ("-1", 1000), ("2", 2), ("3", 3), ("5000", 5000), ("0", 0), ("1", 0), ("-2", 0)],
)
def test_the_limit(text, limit):
    assert reuse_limit({} if text is None else {"MS_COMM_COMPILER_OPT": text}) == limit


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0", "0 is neither -1 nor positive"),
        ("-2", "-2 is neither -1 nor positive"),
        ("1", "1 is too few, since a subgraph has 2 calls or more"),
    ],
)
def test_numbers_that_reuse_nothing_are_reported(text, reason):
    with pytest.warns(UserWarning, match=f"For 'MS_COMM_COMPILER_OPT', {reason}: nothing is reused"):
        warn_of_limit({"MS_COMM_COMPILER_OPT": text})


@pytest.mark.parametrize("text", ["many", "1.5", "3x"])
def test_text_is_refused(text):
    for function in (reuse_limit, warn_of_limit):
        with pytest.raises(ValueError, match="For 'MS_COMM_COMPILER_OPT', the value must be -1 or a positive number"):
            function({"MS_COMM_COMPILER_OPT": text})


def test_numbers_that_reuse_something_are_not_reported():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in ("-1", "2", "1000"):
            warn_of_limit({"MS_COMM_COMPILER_OPT": text})


def test_blocks_have_a_switch_of_their_own():
    assert wants_loops({"SPORAX_REPEATED_BLOCKS": "1"})
    assert not wants_loops({"MS_COMM_COMPILER_OPT": "-1"})
    assert not wants_loops({"SPORAX_REPEATED_BLOCKS": "0"})
