"""What Sporax offers under a MindSpore name can be called the way MindSpore's is.

For every name that both have, our parameters begin with theirs: same names, same order, same defaults. We may add
more behind them.
"""

import json
from pathlib import Path

import api_facts
import deviations
import pytest

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "signatures.json").read_text())["signatures"]
OURS = api_facts.signatures(api_facts.OURS)


@pytest.mark.parametrize("place", sorted(GOLDEN.keys() & OURS.keys()))
def test_signature(place):
    theirs, ours = GOLDEN[place], OURS[place]
    fits = parameters_fit(theirs, ours)
    why = deviations.reason(deviations.SIGNATURES, place)
    if why is None:
        assert fits, f"{place}\n  MindSpore: ({', '.join(theirs)})\n  Sporax:    ({', '.join(ours)})"
    else:
        assert not fits, f"no longer deviates ({why}): {place}"


def parameters_fit(theirs, ours):
    """Positional parameters match as a prefix; keyword-only ones are there, in any order, or may be passed by place."""
    positional = [p for p in theirs if not p.startswith("*")]
    keywords = {p.removeprefix("*, ") for p in theirs if p.startswith("*, ")}
    available = {p.removeprefix("*, ") for p in ours}
    return ours[: len(positional)] == positional and keywords <= available


def test_the_rule_itself():
    assert parameters_fit(["x", "axis=0"], ["x", "axis=0", "extra=None"])
    assert parameters_fit(["x", "*, dtype=None"], ["x", "*, more=1", "*, dtype=None"])
    assert not parameters_fit(["x", "axis=0"], ["x", "axis=1"])
    assert not parameters_fit(["x", "axis=0"], ["axis=0", "x"])
    assert not parameters_fit(["x", "*, dtype=None"], ["x"])


def test_enough_is_compared():
    """An empty intersection would pass in silence."""
    assert len(GOLDEN.keys() & OURS.keys()) > 200
