"""The examples of the reference give what they say, and nearly every name has one; those without have a reason."""

import importlib
import math
import re
import sys
from pathlib import Path

import pytest

import sporax.mindspore as ms

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
try:
    reference, shell = (importlib.import_module(name) for name in ("_reference", "_examples"))
finally:
    sys.path.remove(str(TOOLS))

PARTS = 40
LEAST_SHARE = 0.95
MEMBERS = {page: reference.members(page) for page in shell.PAGES}
_NUMBER = re.compile(r"-?\b\d+\.?\d*(?:e[+-]?\d+)?")


def same(expected: str, actual: str) -> bool:
    """Whether texts are equal up to rounding, and up to how numbers are aligned."""
    if re.sub(r"[\s.]", "", _NUMBER.sub("#", expected)) != re.sub(r"[\s.]", "", _NUMBER.sub("#", actual)):
        return False
    pairs = zip(_NUMBER.findall(expected), _NUMBER.findall(actual), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-4, abs_tol=1e-5) for a, b in pairs)


@pytest.fixture
def at_a_shell():
    before = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_calls_give_what_the_examples_say(part, at_a_shell):
    every = [(page, name, text) for page in shell.PAGES for name, text in shell.examples(page).items()]
    for page, name, text in every[part::PARTS]:
        now = shell.run(text)
        assert same(text, now), f"{page}.{name} gives now\n{now}\nand the example says\n{text}"


@pytest.mark.parametrize("page", shell.PAGES)
def test_nearly_every_name_has_an_example(page):
    written, members = shell.examples(page), MEMBERS[page]
    assert set(written) <= set(members), "an example of a name that is not there"
    without = {
        name
        for name, value in members.items()
        if name not in written and not reference.has_example(value.__doc__ or "")
    }
    reasons = {name for names in shell.WITHOUT.get(page, {}).values() for name in names.split()}
    assert without == reasons, "a new name needs its call in tools/examples, or a reason in tools/_examples.py"
    assert len(without) <= (1 - LEAST_SHARE) * len(members)


def test_functions_of_ops_have_entries_with_their_examples():
    text = reference.entry("abs", MEMBERS["sporax.mindspore.ops"]["abs"], ">>> print(ops.abs(Tensor([-1.0])))\n[1.]")
    assert text.startswith("## abs\n\n```python\nabs(input: Array)")
    assert text.endswith("**Example**\n\n```python\n>>> print(ops.abs(Tensor([-1.0])))\n[1.]\n```\n")
    assert not any(name.startswith("_") for members in MEMBERS.values() for name in members)


@pytest.mark.parametrize("page", shell.PAGES)
def test_lines_end_where_the_page_ends(page):
    signatures = (reference.signature(name, value) for name, value in MEMBERS[page].items())
    wide = [line for text in (*signatures, *shell.examples(page).values()) for line in text.splitlines()]
    assert [line for line in wide if len(line) > reference.WIDTH] == []
