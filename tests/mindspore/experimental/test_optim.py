"""Optimizers of `experimental.optim` give what MindSpore's give, and their settings may change between steps."""

import json
from pathlib import Path

import numpy as np
import optim_recipes as recipes
import optimizer_recipes
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import Parameter, Tensor, mint, nn, ops
from sporax.mindspore.experimental import optim

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())


def weights(*values):
    return [Parameter(Tensor(value), name=f"w{index}") for index, value in enumerate(values)]


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE], ids=["pynative", "graph"])
@pytest.mark.parametrize("name", recipes.OPTIMIZERS)
@pytest.mark.sampled(26)
def test_ten_steps_are_as_in_mindspore(name, mode):
    ms.set_context(mode=mode)
    trained = recipes.train(ms, recipes.OPTIMIZERS[name], optimizer_recipes.start(), optimizer_recipes.gradients)
    expected = RECORDED["optimizers"][name]
    assert trained.keys() == expected.keys()
    for state, values in expected.items():
        np.testing.assert_allclose(trained[state], values, rtol=2e-5, atol=2e-6, err_msg=state)


def test_everything_recorded_is_compared():
    assert RECORDED["optimizers"].keys() == recipes.OPTIMIZERS.keys()


@pytest.mark.parametrize("kind", [optim.AdamW, optim.Adam, mint.optim.AdamW, nn.LazyAdam, nn.MaxPool2d])
def test_a_call_that_does_not_fit_names_the_constructor(kind):
    # Some of them take the signature of another class, and read as if they had written it themselves.
    with pytest.raises(TypeError, match=rf"{kind.__name__}\.__init__\(\) got an unexpected keyword argument 'nothing'"):
        kind(nothing=1, **({} if kind is nn.MaxPool2d else {"params": weights([1.0])}))


def test_amsgrad_keeps_the_largest_moment_where_mindspore_ignores_it():
    (plain,), (largest,) = weights([1.0]), weights([1.0])
    first, second = optim.Adam([plain], 0.1, (0.5, 0.5)), optim.Adam([largest], 0.1, (0.5, 0.5), amsgrad=True)
    for slope in (4.0, 1.0):
        first((Tensor([slope]),))
        second((Tensor([slope]),))
    assert first.max_exp_avg_sq[0].tolist() == [0.0]
    assert second.max_exp_avg_sq[0].tolist() == [8.0]
    assert largest.item() > plain.item()


def test_an_optimizer_of_the_users_steps_its_own_way():
    class Own(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def construct(self, gradients):
            for index, group in enumerate(self.param_groups):
                start = self.group_start_id[index]
                for place, parameter in enumerate(group["params"]):
                    ops.assign(parameter, parameter - gradients[start + place] * group["lr"])

    first, second = weights([1.0], [1.0])
    optimizer = Own([first], 0.5)
    optimizer.add_param_group({"params": second, "lr": 0.25})
    optimizer((Tensor([1.0]), Tensor([2.0])))
    assert (first.item(), second.item()) == (0.5, 0.5)


def test_settings_of_groups_are_printed_line_by_line():
    first, second = weights([1.0], [1.0])
    optimizer = optim.SGD([{"params": [first]}, {"params": [second], "lr": 0.5}], 0.25, momentum=0.9)
    lines = ["dampening: 0", "lr: {}", "maximize: False", "momentum: 0.9", "nesterov: False", "weight_decay: 0.0"]
    group = "Parameter Group {}\n" + "".join(f"    {line}\n" for line in lines)
    assert repr(optimizer) == f"SGD (\n{group.format(0, 0.25)}\n{group.format(1, 0.5)})"


def test_a_group_may_be_added_and_have_names_of_its_own():
    first, second = weights([1.0], [1.0])
    optimizer = optim.Adagrad([{"params": [first], "name": "body"}], 0.5, initial_accumulator_value=1.0)
    optimizer((Tensor([1.0]),))
    optimizer.add_param_group({"params": [second], "lr": 0.25, "name": "head"})
    optimizer((Tensor([1.0]), Tensor([1.0])))
    assert [group["name"] for group in optimizer.param_groups] == ["body", "head"]
    assert optimizer.accum[0].tolist() == [3.0]
    assert optimizer.accum[1].tolist() == [2.0]
    np.testing.assert_allclose(second.asnumpy(), [1 - 0.25 / np.sqrt(2)], rtol=1e-6)


def test_a_compiled_step_goes_on_with_a_changed_rate():
    net = nn.Dense(2, 1, weight_init="ones", has_bias=False)
    optimizer = optim.SGD(net.trainable_params(), 0.5)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    gradient = ms.value_and_grad(lambda data: net(data).sum(), None, optimizer.parameters)

    @ms.jit
    def step(data):
        value, grads = gradient(data)
        optimizer(grads)
        return value

    values = []
    for _ in range(4):
        values.append(float(step(ops.ones((1, 2), ms.float32))))
        schedule.step()
    assert values == [2.0, 1.0, 0.5, 0.25]
    assert len(ms.recompilations(step)) == 1
    assert schedule.get_last_lr()[0].item() == 0.5 / 16


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda p: optim.SGD(p, -0.1), SporaxValueError),
        (lambda p: optim.SGD(p, 0.1, nesterov=True), SporaxValueError),
        (lambda p: optim.Adam(p, betas=(0.9, 1.0)), SporaxValueError),
        (lambda p: optim.AdamW(p, eps=-1.0), SporaxValueError),
        (lambda p: optim.Adagrad(p, 0.0), SporaxValueError),
        (lambda p: optim.Adagrad(p, lr_decay=-1.0), SporaxValueError),
        (lambda p: optim.Adadelta(p, rho=1.5), SporaxValueError),
        (lambda p: optim.Adamax(p, eps=0.0), SporaxValueError),
        (lambda p: optim.NAdam(p, momentum_decay=-1.0), SporaxValueError),
        (lambda p: optim.RAdam(p, betas=(-0.1, 0.9)), SporaxValueError),
        (lambda p: optim.RMSprop(p, momentum=-1.0), SporaxValueError),
        (lambda p: optim.RMSprop(p, centered=1), SporaxTypeError),
        (lambda p: optim.Rprop(p, etas=(0.5, 0.9)), SporaxValueError),
        (lambda p: optim.Rprop(p, step_sizes=1.0), SporaxTypeError),
        (lambda p: optim.Rprop([{"params": p, "weight_decay": 0.1}]), SporaxValueError),
        (lambda p: optim.ASGD(p, lambd=1), SporaxTypeError),
        (lambda p: optim.ASGD(p, weight_decay=-1.0), SporaxValueError),
    ],
)
def test_bad_settings_are_refused(make, error):
    with pytest.raises(error):
        make(weights([1.0]))
