"""Which strategies are accepted and which are refused, on 3 to 96 devices, against MindSpore's compiler.

`strategy_answers.json` holds drawn strategies for the operators of `strategy_recipes`, with the answers that
`tools/golden/make_strategy_answers.py` recorded.
"""

import json
from pathlib import Path

import pytest
from strategy_recipes import inputs_of, net_of

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore import context
from sporax.mindspore.communication import init
from sporax.planner.devices import Devices
from sporax.runtime.planned import step_passes

ANSWERS = json.loads((Path(__file__).parent / "strategy_answers.json").read_text())["answers"]

ACCEPTED_HERE = {
    "a number among the inputs needs no entry": ("Pow", "MulS", "Lerp", "LerpS"),
    "rows may be sharded where windows do not overlap": ("Conv2DT",),
}
"""What MindSpore refuses: reason → operators. Checked from both sides."""
DEPARTING = frozenset(name for names in ACCEPTED_HERE.values() for name in names)


class Planned(BaseException):
    """There is a plan, and its devices are requested."""


def planned(*_):
    raise Planned


@pytest.fixture(autouse=True)
def _many_devices(monkeypatch):
    monkeypatch.setattr(step_passes, "devices_here", lambda: Devices(96))
    monkeypatch.setattr(step_passes, "sharding_of", planned)
    mode = context.get_context("mode")
    context.set_context(mode=context.GRAPH_MODE)
    init()
    yield
    context.set_context(mode=mode)
    context.set_world(1, 0)
    context.reset_auto_parallel_context()


def accepts(name, devices, further, strategy):
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(device_num=devices, parallel_mode="semi_auto_parallel", full_batch=True)
    try:
        net_of(ms, name, further, tuple(map(tuple, strategy))).program.plan(*inputs_of(ms, name))
    except Planned:
        return True
    except SporaxRuntimeError:
        return False
    raise AssertionError("the plan requested no device")


@pytest.mark.parametrize("operator", sorted({name for name, *_ in ANSWERS}))
def test_strategies_are_accepted_and_refused_as_by_mindspore(operator):
    wrong = [(*case, theirs) for *case, theirs in ANSWERS if case[0] == operator and accepts(*case) != theirs]
    assert bool(wrong) == (operator in DEPARTING), wrong
    assert not any(theirs for *_, theirs in wrong)
