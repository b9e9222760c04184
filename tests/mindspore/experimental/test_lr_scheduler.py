"""Schedules of `experimental.optim.lr_scheduler` give the rates that MindSpore's give."""

import json
from pathlib import Path

import numpy as np
import optim_recipes as recipes
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxKeyError, SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Parameter, Tensor, mint, nn
from sporax.mindspore.experimental import optim
from sporax.mindspore.experimental.optim import lr_scheduler

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())
LISTS = {
    "schedules": (recipes.SCHEDULES, (None,) * 12),
    "at_epochs": (recipes.AT_EPOCHS, recipes.EPOCHS),
    "plateaus": (recipes.PLATEAUS, recipes.METRICS),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, (codes, _) in LISTS.items() for name in codes])
def test_rates_are_as_in_mindspore(kind, name):
    codes, steps = LISTS[kind]
    rates = recipes.rates(ms, codes[name], steps)
    np.testing.assert_allclose(rates, RECORDED[kind][name], rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("kind", LISTS)
def test_everything_recorded_is_compared(kind):
    assert RECORDED[kind].keys() == LISTS[kind][0].keys()


def test_what_mindspore_fails_at_follows_the_definition():
    rates = recipes.rates(ms, "lr.MultiStepLR(optimizer, [2, 5], 0.5)", (0, 4, 6))
    np.testing.assert_allclose([row[0] for row in rates], [0.1, 0.1, 0.05, 0.025], rtol=1e-6)
    rates = recipes.rates(ms, "lr.CosineAnnealingWarmRestarts(optimizer, 2, 2)", (1, 2, 4, 6, 10, None))
    np.testing.assert_allclose(
        [row[0] for row in rates], [0.1, 0.05, 0.1, 0.05, 0.1, 0.05, 0.1 * (1 + np.cos(5 * np.pi / 8)) / 2], rtol=1e-5
    )


def test_a_schedule_of_the_users_gets_counter_and_rates():
    class Halved(lr_scheduler.LRScheduler):
        def get_lr(self):
            if self.last_epoch == 0:
                return [rate * 1.0 for rate in self._last_lr]
            return [rate * 0.5 for rate in self._last_lr]

    optimizer = recipes.optimizer_of(ms)
    schedule = Halved(optimizer)
    assert [rate.item() for rate in schedule.get_last_lr()] == pytest.approx([0.1, 0.5])
    schedule.step()
    assert [rate.item() for rate in schedule.get_last_lr()] == pytest.approx([0.05, 0.25])
    assert schedule.last_epoch.item() == 1
    with pytest.raises(SporaxNotImplementedError, match="get_lr"):
        lr_scheduler.LRScheduler(optimizer)


def test_a_schedule_goes_on_where_another_stopped():
    optimizer = recipes.optimizer_of(ms)
    with pytest.raises(SporaxKeyError, match="initial_lr"):
        lr_scheduler.StepLR(optimizer, 2, last_epoch=3)
    for group in optimizer.param_groups:
        group["initial_lr"] = 1.0
    schedule = lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch, last_epoch=2)
    assert [rate.item() for rate in schedule.get_last_lr()] == [0.125, 0.125]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda o: lr_scheduler.StepLR(o, 2, 0.5), [1.0, 0.5, 0.5, 0.25]),
        (lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch), [0.5, 0.25, 0.125, 0.0625]),
        (lambda o: lr_scheduler.CyclicLR(o, 1.0, 2.0, 2), [1.5, 2.0, 1.5, 1.0]),
    ],
    ids=["step", "lambda", "cyclic"],
)
def test_schedules_may_be_part_of_a_compiled_step(make, expected):
    weight = Parameter(Tensor([1.0]), name="w")
    optimizer = optim.SGD([weight], 1.0)
    schedule = make(optimizer)

    @ms.jit
    def step(gradient):
        optimizer((gradient,))
        schedule.step()
        return gradient

    rates = []
    for _ in expected:
        step(Tensor([1.0]))
        rates.append(optimizer.param_groups[0]["lr"].item())
    assert rates == expected
    assert weight.item() == 1.0 - 1.0 - sum(expected[:-1])
    assert len(ms.recompilations(step)) == 1


def test_optimizers_of_mint_may_have_schedules():
    weight = Parameter(Tensor([1.0]), name="w")
    optimizer = mint.optim.SGD([weight], 0.5)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    schedule.step()
    optimizer((Tensor([1.0]),))
    assert weight.tolist() == [0.75]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda o: lr_scheduler.StepLR(nn.SGD([Parameter(Tensor([1.0]), name="w")]), 2), SporaxTypeError),
        (lambda o: lr_scheduler.StepLR(o, 2.0), SporaxTypeError),
        (lambda o: lr_scheduler.StepLR(o, 2, 1), SporaxTypeError),
        (lambda o: lr_scheduler.StepLR(o, 2, last_epoch=-2), SporaxValueError),
        (lambda o: lr_scheduler.MultiStepLR(o, 2), SporaxTypeError),
        (lambda o: lr_scheduler.MultiStepLR(o, [2.0]), SporaxTypeError),
        (lambda o: lr_scheduler.ConstantLR(o, 1.5), SporaxValueError),
        (lambda o: lr_scheduler.LinearLR(o, 0.0), SporaxValueError),
        (lambda o: lr_scheduler.LinearLR(o, total_iters=2.0), SporaxTypeError),
        (lambda o: lr_scheduler.ExponentialLR(o, 1), SporaxTypeError),
        (lambda o: lr_scheduler.PolynomialLR(o, power=-1.0), SporaxValueError),
        (lambda o: lr_scheduler.LambdaLR(o, [abs]), SporaxValueError),
        (lambda o: lr_scheduler.MultiplicativeLR(o, [abs]), SporaxValueError),
        (lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.ConstantLR(o)], [1]), SporaxValueError),
        (
            lambda o: lr_scheduler.SequentialLR(recipes.optimizer_of(ms), [lr_scheduler.ConstantLR(o)], []),
            SporaxValueError,
        ),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, "low"), SporaxValueError),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=1.0), SporaxValueError),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, threshold_mode="all"), SporaxValueError),
        (lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.2, mode="wave"), SporaxValueError),
        (lambda o: lr_scheduler.CyclicLR(o, [0.1], 0.2), SporaxValueError),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 2.0), SporaxTypeError),
        (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 0), SporaxValueError),
        (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2).step(-1), SporaxValueError),
    ],
)
def test_bad_settings_are_refused(make, error):
    with pytest.raises(error):
        make(recipes.optimizer_of(ms))
