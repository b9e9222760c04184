import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, nn


def step_with(scale):
    net = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    return net, nn.TrainOneStepWithLossScaleCell(nn.WithLossCell(net, nn.MSELoss()), optimizer, scale)


GOOD = (Tensor([[1.0, 1.0]]), Tensor([[0.0]]))
BAD = (Tensor([[np.inf, 1.0]]), Tensor([[0.0]]))


def test_scaling_changes_no_update(mode):
    plain = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
    plain_step = nn.TrainOneStepCell(
        nn.WithLossCell(plain, nn.MSELoss()), nn.Momentum(plain.trainable_params(), 0.1, 0.9)
    )
    net, step = step_with(nn.FixedLossScaleUpdateCell(1024))
    for _ in range(3):
        loss, overflow, scale = step(*GOOD)
        assert loss.asnumpy() == pytest.approx(plain_step(*GOOD).asnumpy(), rel=1e-6)
    assert not overflow.asnumpy()
    assert scale.asnumpy() == 1024
    np.testing.assert_allclose(net.weight.asnumpy(), plain.weight.asnumpy(), rtol=1e-6)


def test_an_overflow_changes_nothing_but_the_scale(mode):
    net, step = step_with(nn.DynamicLossScaleUpdateCell(64, 2, 2))
    step(*GOOD)
    before = {parameter.name: parameter.asnumpy() for parameter in step.optimizer.get_parameters()}
    _, overflow, scale = step(*BAD)
    assert overflow.asnumpy()
    assert scale.asnumpy() == 32
    for parameter in step.optimizer.get_parameters():
        np.testing.assert_array_equal(parameter.asnumpy(), before[parameter.name])
    scales = [step(*GOOD)[2].asnumpy().item() for _ in range(4)]
    assert scales == [32, 64, 64, 128]
    assert net.weight.asnumpy()[0, 0] < before["weight"][0, 0]


def test_scale_may_be_a_tensor(mode):
    _, step = step_with(Tensor(8.0))
    assert step(*GOOD)[2].asnumpy() == 8
    step.set_sense_scale(Tensor(4.0))
    assert step(*GOOD)[2].asnumpy() == 4
    with pytest.raises(SporaxTypeError, match="'sens' must be a Tensor"):
        step.set_sense_scale(4.0)


def test_other_scales_are_refused():
    with pytest.raises(SporaxTypeError, match="must be a Cell or a Tensor"):
        step_with(8.0)
    with pytest.raises(SporaxValueError, match="one element"):
        step_with(Tensor([1.0, 2.0]))
    with pytest.raises(SporaxValueError, match="positive"):
        nn.FixedLossScaleUpdateCell(0)
    with pytest.raises(SporaxValueError):
        nn.DynamicLossScaleUpdateCell(8, 2, 0)


def test_an_overflow_in_half_precision_is_found():
    net, step = step_with(nn.DynamicLossScaleUpdateCell(2**24, 2, 1000))
    net.to_float(ms.float16)
    scales = [step(*GOOD)[1:] for _ in range(12)]
    assert scales[0][0].asnumpy()
    assert not scales[-1][0].asnumpy()


def test_a_manager_counts_steps_and_ends_a_run_that_only_overflows():
    manager = ms.DynamicLossScaleManager(9.0, 3, 2)
    seen = []
    for overflow in (False, False, True, False, False, True, True, True, True):
        manager.update_loss_scale(overflow)
        seen.append(
            (round(manager.get_loss_scale(), 6), manager.cur_iter, manager.last_overflow_iter, manager.bad_step)
        )
    assert seen == [
        (9, 2, 0, 0), (27, 3, 0, 0), (9, 4, 3, 1), (9, 5, 3, 0), (27, 6, 3, 0),
        (9, 7, 6, 1), (3, 8, 7, 2), (1, 9, 8, 3), (1, 10, 9, 4),
    ]  # fmt: skip
    manager.bad_step_max = 5
    manager.update_loss_scale(True)
    with pytest.raises(RuntimeError, match="must not overflow without end, but got 6"):
        manager.update_loss_scale(True)
