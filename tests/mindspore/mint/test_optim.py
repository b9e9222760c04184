import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxKeyError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Parameter, Tensor, mint, nn

optim = mint.optim


def weights(*values):
    return [Parameter(Tensor(value), name=f"w{index}") for index, value in enumerate(values)]


def test_state_is_called_as_in_mindspore():
    def names(optimizer):
        return [parameter.name for parameter in optimizer.get_parameters()]

    assert names(optim.SGD(weights([1.0], [1.0]), 0.1)) == ["w0", "w1", "momentum_buf.w0", "momentum_buf.w1", "step_t"]
    adam = optim.Adam(weights([1.0]), amsgrad=True)
    assert names(adam) == ["w0", "exp_avg.w0", "exp_avg_sq.w0", "max_exp_avg_sq.w0", "state_step"]
    assert adam.state_step.tolist() == [0]
    assert optim.AdamW(weights([1.0])).state_step.tolist() == [-1]


def test_it_is_an_optimizer_like_those_of_nn():
    optimizer = optim.Adam(weights([1.0], [2.0]), 0.5)
    assert isinstance(optimizer, nn.Optimizer)
    assert optimizer.get_lr().item() == 0.5
    assert optimizer.get_weight_decay() == (0.0, 0.0)
    assert (
        optimizer.get_lr_parameter(optimizer.parameters[1])
        is optimizer.param_groups[0]["lr"]
        is optimizer.learning_rate
    )
    with pytest.raises(SporaxTypeError, match="not one of its parameters"):
        optimizer.get_lr_parameter(Parameter(Tensor([1.0]), name="other"))
    with pytest.raises(SporaxRuntimeError, match="one gradient per parameter"):
        optimizer((Tensor([1.0]),))


def test_the_rate_can_be_changed_between_steps():
    (weight,) = params = weights([1.0])
    optimizer = optim.SGD(params, 0.5)
    optimizer((Tensor([1.0]),))
    optimizer.param_groups[0]["lr"] = 0.25
    optimizer((Tensor([1.0]),))
    ms.ops.assign(optimizer.param_groups[0]["lr"], Tensor(0.125, ms.float32))
    optimizer((Tensor([1.0]),))
    assert weight.tolist() == [0.125]


def test_other_settings_can_be_changed_between_steps():
    (weight,) = params = weights([1.0])
    optimizer = optim.SGD(params, 0.5)
    optimizer((Tensor([1.0]),))
    optimizer.param_groups[0]["maximize"] = True
    optimizer((Tensor([1.0]),))
    assert weight.tolist() == [1.0]
    adam = optim.Adam(params)
    adam((Tensor([1.0]),))
    adam.param_groups[0]["amsgrad"] = True
    adam((Tensor([1.0]),))
    assert adam.max_exp_avg_sq[0].asnumpy() > 0


def test_a_group_may_be_added():
    first, second = weights([1.0], [1.0])
    optimizer = optim.SGD([first], 0.5, momentum=0.5)
    optimizer((Tensor([1.0]),))
    optimizer.add_param_group({"params": second, "lr": 0.25, "momentum": 0.0})
    assert optimizer.group_start_id == [0, 1, 2]
    assert [rate.item() for rate in optimizer.get_lr()] == [0.5, 0.25]
    optimizer((Tensor([1.0]), Tensor([1.0])))
    assert first.tolist() == [1.0 - 0.5 - 0.75]  # its velocity went on
    assert second.tolist() == [0.75]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda p: optim.SGD(p), TypeError),
        (lambda p: optim.SGD(p, -0.1), SporaxValueError),
        (lambda p: optim.SGD(p, "0.1"), SporaxTypeError),
        (lambda p: optim.SGD(p, Tensor([0.1])), SporaxValueError),
        (lambda p: optim.SGD(p, 0.1, -1.0), SporaxValueError),
        (lambda p: optim.SGD(p, 0.1, nesterov=True), SporaxValueError),
        (lambda p: optim.SGD(p, 0.1, 0.9, nesterov=1), SporaxTypeError),
        (lambda p: optim.SGD(p, 0.1, maximize=1), SporaxTypeError),
        (lambda p: optim.Adam(p, betas=0.9), SporaxTypeError),
        (lambda p: optim.Adam(p, betas=(0.9, 1.0)), SporaxValueError),
        (lambda p: optim.Adam(p, betas=(0.9,)), SporaxValueError),
        (lambda p: optim.Adam(p, eps=-1.0), SporaxValueError),
        (lambda p: optim.AdamW(p, weight_decay=-1.0), SporaxValueError),
        (lambda p: optim.AdamW(p, amsgrad=1), SporaxTypeError),
        (lambda p: optim.AdamW([]), SporaxValueError),
        (lambda p: optim.AdamW(None), SporaxValueError),
        (lambda p: optim.AdamW(set(p)), SporaxTypeError),
        (lambda p: optim.AdamW([Tensor([1.0])]), SporaxTypeError),
        (lambda p: optim.AdamW([*p, *p]), SporaxValueError),
        (lambda p: optim.AdamW([{"params": p, "momentum": 0.9}]), SporaxKeyError),
        (lambda p: optim.AdamW([{"lr": 0.1}]), SporaxTypeError),
    ],
)
def test_bad_settings_are_refused(make, error):
    with pytest.raises(error):
        make(weights([1.0]))


def test_bad_changes_are_refused():
    group = optim.Adam(weights([1.0])).param_groups[0]
    for key, value, error in (
        ("betas", (2.0, 0.5), SporaxValueError),
        ("lr", -1, SporaxValueError),
        ("speed", 1, SporaxKeyError),
        ("params", [], SporaxKeyError),
    ):
        with pytest.raises(error):
            group[key] = value


def test_training_stops_and_goes_on(tmp_path):
    def trained(optimizer, steps):
        for step in range(steps):
            optimizer((Tensor(np.float32([step + 1.0])),))

    (whole,) = first = weights([1.0])
    trained(optim.AdamW(first, 0.1), 4)
    (part,) = second = weights([1.0])
    before = optim.AdamW(second, 0.1)
    trained(before, 2)
    ms.save_checkpoint(before, str(tmp_path / "state.ckpt"))
    (rest,) = third = weights([0.0])
    after = optim.AdamW(third, 0.1)
    ms.load_checkpoint(str(tmp_path / "state.ckpt"), after)
    for step in (2, 3):
        after((Tensor(np.float32([step + 1.0])),))
    np.testing.assert_allclose(rest.asnumpy(), whole.asnumpy(), rtol=1e-6)
    assert part.tolist() != rest.tolist()


def test_the_state_of_a_lazy_parameter_is_lazy():
    with nn.utils.no_init_parameters():
        net = mint.nn.Linear(3, 2)
    optimizer = optim.Adam(net.trainable_params())
    assert [item.has_init for item in optimizer.exp_avg] == [True, True]
