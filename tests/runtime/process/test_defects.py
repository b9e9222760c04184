"""Internal errors are reported in our words, with what was planned, where, and how to go on."""

import numpy as np
import pytest

import sporax
import sporax.mindspore as ms
from sporax.base.errors import SporaxDefectError, SporaxValueError
from sporax.lowering.execute import local_equations
from sporax.mindspore import Tensor, context, nn, ops
from sporax.planner.propagation import propagate
from sporax.planner.search.space import problem
from sporax.runtime.process.defects import report_internal_errors

X = np.ones((8, 4), np.float32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = ms.Parameter(Tensor(np.ones((4, 4), np.float32)), name="weight")
        self.softmax = ops.Softmax()

    def construct(self, x):
        return self.softmax(ops.matmul(x, self.weight)).sum()


@pytest.fixture(autouse=True)
def _parallel():
    mode = context.get_context("mode")
    context.set_context(mode=context.GRAPH_MODE)
    yield
    context.set_context(mode=mode)
    context.reset_auto_parallel_context()


def broken(*args, **kwargs):
    raise KeyError("reduce_max")


def trained(mode, **settings):
    context.set_auto_parallel_context(parallel_mode=mode, device_num=8, **settings)
    net = Net()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1)).set_train()
    return step(Tensor(X))


def message_of(monkeypatch, module, name, mode, **settings):
    monkeypatch.setattr(module, name, broken)
    with pytest.raises(SporaxDefectError, match="defect of Sporax and not of your program") as caught:
        trained(mode, **settings)
    assert isinstance(caught.value.__cause__, KeyError)
    return str(caught.value)


def test_while_a_search_runs(monkeypatch):
    message = message_of(monkeypatch, problem, "find_decisions", "auto_parallel", search_mode="dynamic_programming")
    assert "planning the step in 'auto_parallel' (8 devices, search_mode 'dynamic_programming')" in message
    assert "KeyError: 'reduce_max'" in message
    assert "'recursive_programming' or 'sharding_propagation'" in message
    assert "'semi_auto_parallel'" in message


def test_while_placements_are_propagated(monkeypatch):
    message = message_of(monkeypatch, propagate, "propagate", "semi_auto_parallel")
    assert "in 'semi_auto_parallel' (8 devices)" in message
    assert "at the operator 'dot_general' of 'TrainOneStepCell.network'" in message
    assert "(planner/propagation/propagate.py, line " in message
    assert "leave out the strategy" in message


def test_while_the_program_of_a_device_is_made(monkeypatch):
    message = message_of(monkeypatch, local_equations, "run", "semi_auto_parallel")
    assert "For 'TrainOneStepCell', lowering the step" in message


def test_other_errors_stay_what_they_are():
    for error in (SporaxValueError("For 'X', no."), FileNotFoundError("plan.json"), MemoryError()):
        with pytest.raises(type(error)) as caught, report_internal_errors("planning", "step"):
            raise error
        assert caught.value is error


def test_a_plain_function_that_cannot_be_planned(monkeypatch):
    monkeypatch.setattr(problem, "find_decisions", broken)
    with pytest.raises(SporaxDefectError, match="For 'plan', planning the step failed inside of Sporax"):
        sporax.plan(lambda x: x + 1, X, devices=2)
