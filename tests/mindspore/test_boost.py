"""`mindspore.boost`."""

import numpy as np
import pytest

from sporax.mindspore import Tensor, boost, nn, set_context


@pytest.mark.parametrize("mode", [0, 1])
def test_gradients_are_used_at_every_second_call(mode):
    set_context(mode=mode)
    network = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
    accumulate = boost.GradientAccumulation(2, nn.SGD(network.trainable_params(), 1.0))
    seen = []
    for number in range(4):
        grads = (Tensor(np.full((1, 2), number + 1.0, np.float32)), Tensor(np.ones(1, np.float32)))
        loss = accumulate(Tensor(float(number)), grads)
        assert float(loss) == number
        seen.append((float(network.weight[0, 0]), float(network.bias[0])))
    assert seen == [(1.0, 0.0), (-0.5, -1.0), (-0.5, -1.0), (-4.0, -2.0)]


def test_mindspores_paths_lead_to_it():
    from sporax.mindspore.boost.grad_accumulation import gradient_accumulation_op, gradient_clear_op

    assert gradient_accumulation_op is boost.gradient_accumulation_op
    assert gradient_clear_op is boost.gradient_clear_op


class _Deep(nn.Cell):
    def __init__(self):
        super().__init__()
        weights = [Tensor((np.eye(2) * (1 + i / 10)).astype(np.float32)) for i in range(6)]
        self.layers = nn.SequentialCell(*[nn.Dense(2, 2, weight_init=w, bias_init="zeros") for w in weights])

    def construct(self, x):
        return self.layers(x)


X, Y = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor(np.zeros((2, 2), np.float32))


def _sums(net):
    return [round(float(parameter.asnumpy().sum()), 4) for parameter in net.trainable_params()]


def test_frozen_layers_learn_in_their_steps_only():
    # Golden values of the wheel in GRAPH_MODE: losses, and the weights' sums after four steps of groups 0, 0, 1 and 2.
    set_context(mode=0)
    net = _Deep()
    optimizer = nn.Momentum(net.trainable_params(), 0.001, 0.9)
    freeze = boost.GradientFreeze(3, 0, 0.5, 20)
    network, frozen = freeze.freeze_generate(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    assert [len(part.parameters) for part in frozen.opts] == [12, 8, 4]
    step = boost.BoostTrainOneStepCell(network, frozen)
    losses = [float(step(X, Y)) for _ in range(4)]
    np.testing.assert_allclose(losses, [97.3945, 16.30253, 1.5616395, 1.5233514], rtol=1e-5)
    golden = [1.2037, -0.137, 1.48, -0.1269, 1.7365, -0.11, 1.99, -0.0867, 2.231, -0.0655, 2.4703, -0.045]
    np.testing.assert_allclose(_sums(net), golden, atol=1e-4)


def test_frozen_layers_with_a_scaled_loss():
    set_context(mode=0)
    net = _Deep()
    frozen = boost.FreezeOpt(
        nn.SGD(net.trainable_params(), 0.001), [net.trainable_params()[10:], net.trainable_params()]
    )
    step = boost.BoostTrainOneStepWithLossScaleCell(nn.WithLossCell(net, nn.MSELoss()), frozen, Tensor(4.0))
    before = _sums(net)
    step(X, Y)
    # The first group has the last layer only.
    assert [a == b for a, b in zip(_sums(net), before, strict=True)] == [True] * 10 + [False] * 2
    step(X, Y)
    assert all(a != b for a, b in zip(_sums(net), before, strict=True))


def test_steps_without_frozen_layers():
    net = _Deep()
    step = boost.BoostTrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.001))
    assert step(X, Y).asnumpy() == pytest.approx(97.3945)


def test_sequences_of_groups():
    freeze = boost.GradientFreeze(4, 0, 0.7, 10)
    # Golden values of the wheel.
    assert freeze.generate_freeze_index_sequence(4, 0, 0.7, 10) == [0] * 6 + [1, 2, 3] + [0] * 6 + [1, 2, 3]
    np.random.seed(1)
    drawn = freeze.generate_freeze_index_sequence(4, 1, 0.7, 20)
    assert drawn == [0, 2, 0, 0, 1, 0, 0, 3, 0, 0, 2, 0, 0, 0, 3, 0, 0, 3, 0, 0]
    assert freeze.generate_freeze_index_sequence(1, 0, 0.7, 3) == [0, 0, 0]
    with pytest.raises(ValueError, match="'freeze_strategy' must be 0 or 1, but got 2"):
        freeze.generate_freeze_index_sequence(4, 2, 0.7, 10)


def test_rates_go_to_the_groups_of_their_steps():
    net = _Deep()
    optimizer = nn.SGD(net.trainable_params(), [0.1, 0.2, 0.3, 0.4])
    frozen = boost.FreezeOpt(optimizer, [net.trainable_params(), net.trainable_params()[4:]], [0, 1, 1, 0])
    assert [part.init_learning_rate for part in frozen.opts] == [[0.1, 0.4], [0.2, 0.3]]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3,), TypeError, "must be an Optimizer"),
        ((None, None, [0]), ValueError, "'train_strategy' needs"),
        ((None, 3), TypeError, "must be a list of lists"),
        ((None, [[]], [1]), ValueError, "must hold numbers of 1 groups"),
    ],
)
def test_frozen_optimizers_are_checked(arguments, error, message):
    first = nn.SGD(_Deep().trainable_params(), 0.1) if arguments[0] is None else arguments[0]
    with pytest.raises(error, match=message):
        boost.FreezeOpt(first, *arguments[1:])


def test_gradients_of_groups_are_centralized():
    net = nn.SequentialCell(nn.Conv2d(2, 2, 3, group=2), nn.Dense(2, 2))
    groups = [{"params": net.trainable_params(), "weight_decay": 0.1}]
    process = boost.OptimizerProcess(nn.Momentum(groups, 0.1, 0.9, use_nesterov=True))
    process.add_grad_centralization(net)
    made = process.generate_new_optimizer()
    assert (type(made), made.use_nesterov) == (nn.Momentum, True)
    flags = dict(zip([parameter.name for parameter in made.parameters], made.grad_centralization_flags, strict=True))
    assert flags == {"0.weight": False, "1.weight": True, "1.bias": False}
    around = boost.OptimizerProcess(nn.LARS(nn.SGD(groups, 0.1), epsilon=1e-4)).generate_new_optimizer()
    assert (type(around), type(around.opt), around.epsilon) == (nn.LARS, nn.SGD, 1e-4)


def test_parameters_from_a_generator_are_remembered():
    net = nn.Dense(2, 2)
    optimizer = nn.SGD(filter(lambda parameter: True, net.get_parameters()), 0.1)
    assert len(optimizer.parameters) == 2
    assert len(optimizer.init_params["params"]) == 2
    assert optimizer.init_learning_rate == 0.1


def test_groups_of_some_parameters():
    weights = nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 2)).trainable_params()
    origin = [{"params": weights[:1], "lr": 0.1, "weight_decay": 0.2}, {"params": weights[1:3]}]
    made = boost.ParameterProcess.generate_group_params(weights[2:], origin)
    assert made == [{"params": [weights[2]]}, {"params": [weights[3]], "lr": 0.1, "weight_decay": 0.2}]
    assert boost.ParameterProcess.generate_group_params(weights[2:], weights) == [{"params": weights[2:]}]
    with pytest.raises(ValueError, match="'origin_params' must not be empty"):
        boost.ParameterProcess.generate_group_params(weights, [])
    boost.ParameterProcess().assign_parameter_group(weights)
    assert [weight.comm_fusion for weight in weights] == [1, 1, 2, 2]


def test_a_last_layer_of_directions():
    layer = boost.CommonHeadLastFN(2, 3, weight_init=Tensor(np.arange(6).reshape(3, 2).astype(np.float32)))
    golden = [[0.8944272, 0.99227786, 0.9778024], [0.8, 0.9984604, 0.9995121]]
    np.testing.assert_allclose(layer(X).asnumpy(), golden, rtol=1e-6)


def test_last_layers_are_replaced():
    net = nn.SequentialCell(nn.SequentialCell(nn.Dense(2, 3), nn.Dense(3, 2)))
    with pytest.warns(UserWarning, match="'less_bn' has no counterpart"):
        less = boost.LessBN(net, fn_flag=True)
    kinds = [type(cell).__name__ for cell in net[0].cells()]
    assert kinds == ["Dense", "CommonHeadLastFN"]
    assert [parameter.name for parameter in net[0][1].get_parameters()] == [
        "network.0.1.weight",
        "network.0.1.multiplier",
    ]
    assert less(X).shape == (2, 2)
    boost.LessBN(net, fn_flag=True)
    assert [type(cell).__name__ for cell in net[0].cells()] == kinds
