"""Every recorded behaviour of MindSpore, replayed.

`facts.json` holds what the MindSpore wheel gave for the cases under `cases/`; each runs here under Sporax and must give
the same values, dtypes, shapes, nesting and names, or an exception of the same builtin kind (messages are ours).
`deviations.py` lists where we differ on purpose. A case that needs a name of MindSpore's which we do not offer is
skipped.
"""

import functools
import json
import math
from pathlib import Path

import deviations
import fact_format
import jax
import promotion_facts
import pytest
from absent_names import absent

import sporax.mindspore as ms

HERE = Path(__file__).parent
FACTS = json.loads((HERE / "facts.json").read_text())["facts"]
PROMOTION = json.loads((HERE / "promotion.json").read_text())["promotion"]
TOPICS = {topic.name: topic for topic in fact_format.topics()}
RELATIVE, ABSOLUTE = 1e-5, 1e-6
#: Statistics of random draws agree within this share of the largest of them.
STATISTICAL = 0.05

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def agree(expected, actual, slack=0.0):
    """Whether two descriptions say the same; `slack` is an absolute tolerance for floats on top of rounding."""
    if isinstance(expected, dict) and "error" in expected:
        return isinstance(actual, dict) and actual.get("error") == expected["error"]
    if type(expected) is not type(actual):
        return False
    if isinstance(expected, float):
        return math.isclose(expected, actual, rel_tol=RELATIVE, abs_tol=max(ABSOLUTE, slack))
    if isinstance(expected, dict):
        return expected.keys() == actual.keys() and all(agree(expected[key], actual[key], slack) for key in expected)
    if isinstance(expected, list):
        return len(expected) == len(actual) and all(agree(a, b, slack) for a, b in zip(expected, actual, strict=True))
    return expected == actual


def magnitude(outcome):
    """Largest float in a description."""
    if isinstance(outcome, dict):
        return max(map(magnitude, outcome.values()), default=0.0)
    if isinstance(outcome, list):
        return max(map(magnitude, outcome), default=0.0)
    return abs(outcome) if isinstance(outcome, float) else 0.0


@functools.cache
def names(topic):
    return fact_format.namespace(ms, TOPICS[topic].prelude)


@pytest.fixture(autouse=True)
def _context():
    """Leave the mode and the parallel context as they were."""
    before = ms.get_context("mode")
    yield
    ms.set_context(mode=before)
    ms.reset_auto_parallel_context()


def cases():
    for topic, facts in FACTS.items():
        for number, (case, expected) in enumerate(facts.items()):
            if expected != {"unsupported": True}:
                yield pytest.param(topic, case, id=f"{topic}-{number}")


@pytest.mark.sampled(600)
@pytest.mark.parametrize(("topic", "case"), list(cases()))
def test_fact(topic, case):
    ms.set_context(mode=ms.GRAPH_MODE if TOPICS[topic].in_graph_mode else ms.PYNATIVE_MODE)
    if missing := list(absent(case)):
        pytest.skip(f"not offered: {', '.join(missing)}")
    expected = FACTS[topic][case]
    if topic == "statistics":
        ms.set_seed(0)  # largest values of other draws differ by more than the slack, once in hundreds of runs
    actual = fact_format.outcome(ms, case, names(topic))
    slack = STATISTICAL * magnitude(expected) if topic == "statistics" else 0.0
    why = deviations.reason(deviations.FACTS, case)
    if why is None:
        assert agree(expected, actual, slack), f"\n{case}\n  MindSpore: {expected}\n  Sporax:    {actual}"
    else:
        assert not agree(expected, actual, slack), f"no longer deviates ({why}): {case}"


def test_every_case_is_recorded():
    """A case added without recording it again under MindSpore tests nothing."""
    assert {name: set(facts) for name, facts in FACTS.items()} == {t.name: set(t.cases) for t in TOPICS.values()}


def test_every_deviation_names_a_case():
    reference = {case for facts in FACTS.values() for case in facts}
    assert {case for entries in deviations.FACTS.values() for case in entries} <= reference


@pytest.mark.parametrize("name", PROMOTION)
def test_promotion(name):
    """The dtype of every pairing of types; pairings without a kernel in the CPU wheel are not compared.

    Traced, not run: a dtype needs no compiled program.
    """
    error = lambda exception: fact_format.describe_error(exception)["error"]
    ours = {}

    def trace(*ones):
        by_dtype = dict(zip(promotion_facts.DTYPES, ones, strict=True))
        ours.update(promotion_facts.rows(promotion_facts.OPERATORS[name], by_dtype, error))

    jax.eval_shape(trace, *(ms.Tensor([[1, 1], [1, 1]], getattr(ms, dtype)) for dtype in promotion_facts.DTYPES))
    wrong = {
        f"{left} {name} {right}: MindSpore {golden}, Sporax {actual}"
        for left, row in PROMOTION[name].items()
        for right, golden, actual in zip(promotion_facts.DTYPES, row, ours[left], strict=True)
        if golden not in (None, actual) and not deviations.reason(deviations.PROMOTION, f"{left} {name} {right}")
    }
    assert not wrong, "\n".join(sorted(wrong))
