"""What is said while a plan is sought: nothing of what is over soon."""

import io
import time

import pytest

from sporax.base.progress import activity, reported


class Terminal(io.StringIO):
    def isatty(self):
        return True


def wait_for(file, words):
    end = time.monotonic() + 30
    while words not in file.getvalue():
        assert time.monotonic() < end, file.getvalue()
        time.sleep(0.01)


@pytest.mark.parametrize("file", [io.StringIO(), Terminal()], ids=["lines", "terminal"])
def test_what_lasts_is_reported(file):
    with reported(file=file, delay=0.2), activity("planning a step"), activity("pricing"), activity("what fits"):
        wait_for(file, "planning a step: what fits, ")
    assert ("done in" in file.getvalue()) != file.isatty()


def test_what_is_over_soon_and_processes_without_a_voice_say_nothing():
    file = io.StringIO()
    with reported(file=file, delay=60.0), activity("planning a step"):
        pass
    with reported(speaks=False, file=file, delay=0.0), activity("planning a step"):
        pass
    assert file.getvalue() == ""


def test_one_speaks_for_those_inside_of_it():
    outer, inner = io.StringIO(), io.StringIO()
    with reported(file=outer, delay=0.2), activity("questions"), reported(file=inner, delay=0.0), activity("search"):
        wait_for(outer, "questions: search")
    assert inner.getvalue() == ""
