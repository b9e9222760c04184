"""Every recorded value of MindSpore's operators, replayed.

`recorded.json` holds what the MindSpore wheel gave for the cases under `cases/` (see tools/golden/make_operator_values.py);
each runs here and must give the same values, dtypes, shapes and nesting, or an exception of the same builtin kind.
"""

import json
import math
from pathlib import Path

import fact_format
import pytest

import sporax.mindspore as ms

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "recorded.json").read_text())["facts"]
TOPICS = {
    path.stem: fact_format.parse(path.stem, path.read_text()) for path in sorted((HERE / "cases").glob("*.cases"))
}
RELATIVE, ABSOLUTE = 2e-5, 2e-6

#: Where we differ on purpose: reason → cases. Every entry is checked from both sides.
DEVIATIONS: dict[str, tuple[str, ...]] = {
    "MindSpore's gradient of SeLU is not its derivative: it is negative at -0.93": ("grad(ops.SeLU())(X(4))",),
    "MindSpore looks the weights of bicubic interpolation up in a table; ours are exact (difference 5e-4)": (
        "ops.ResizeBicubic(False,True)(R(1,1,4,4),(6,6))",
        "ops.ResizeBicubic(True)(R(1,1,4,4),(6,6))",
        "ops.interpolate(R(1,1,4,4),size=(5,5),mode='bicubic')",
    ),
    "more is offered than MindSpore's kernels take": (
        "ops.interpolate(R(1,1,2,2),scale_factor=(2.,2.),mode='bilinear',align_corners=True)",
        "ops.logspace(0,2,3)",
        "ops.adaptive_avg_pool1d(X(1,1,5),2)",
    ),
    "as documented, x · log(y) is 0 where x is 0": ("ops.Xlogy()(R(3),R(3))",),
    "MindSpore leaves something in the gradients of time steps behind the end of a sequence; ours are zero": (
        "ops.CTCLoss()(X(5, 2, 4), Tensor([[0, 0], [0, 1], [1, 0]], ms.int64), I(0, 2, 1), I(5, 4))",
    ),
    "MindSpore's kernels ignore `unpack_pivots` and `update_slots`": (
        "ops.LuUnpack(True, False)(Tensor([[2.0, 1, 1], [0.5, 1, 1.5]], ms.float32), I(2, 2))",
        "stepped(ops.ApplyAdagrad(False), 2, lambda f, *s: f(*s, 0.1, g))",
    ),
    "positions out of range are left out, as on accelerators; finding them would mean to wait for the values": (
        "ops.tensor_scatter_add(R(2,2),Tensor([[1,1],[5,0]],ms.int32),R(2)+1)",
    ),
}


def agree(expected, actual):
    """Whether two descriptions say the same, up to rounding."""
    if isinstance(expected, dict) and "error" in expected:
        return isinstance(actual, dict) and actual.get("error") == expected["error"]
    if isinstance(expected, bool) or type(expected) is not type(actual):
        return expected == actual and type(expected) is type(actual)
    if isinstance(expected, float):
        return math.isclose(expected, actual, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(expected, dict):
        return expected.keys() == actual.keys() and all(agree(expected[key], actual[key]) for key in expected)
    if isinstance(expected, list):
        return len(expected) == len(actual) and all(map(agree, expected, actual))
    return expected == actual


def cases():
    for topic, facts in RECORDED.items():
        for case, expected in facts.items():
            if expected != {"unsupported": True}:
                yield pytest.param(topic, case, id=case)


@pytest.mark.sampled(130)
@pytest.mark.parametrize(("topic", "case"), list(cases()))
def test_a_call_gives_what_mindspore_gave(topic, case):
    expected = RECORDED[topic][case]
    actual = fact_format.outcome(ms, case, fact_format.namespace(ms, TOPICS[topic].prelude))
    why = next((why for why, entries in DEVIATIONS.items() if case in entries), None)
    if why is None:
        assert agree(expected, actual), f"\n{case}\n  MindSpore: {expected}\n  Sporax:    {actual}"
    else:
        assert not agree(expected, actual), f"no longer deviates ({why}): {case}"


def test_every_case_is_recorded():
    """A case added without recording it again under MindSpore tests nothing."""
    assert {name: set(facts) for name, facts in RECORDED.items()} == {t.name: set(t.cases) for t in TOPICS.values()}


def test_every_deviation_names_a_case():
    reference = {case for facts in RECORDED.values() for case in facts}
    assert {case for entries in DEVIATIONS.values() for case in entries} <= reference
