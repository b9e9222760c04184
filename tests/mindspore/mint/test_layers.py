import copy
import math

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, mint, nn


def numbers(*shape):
    return Tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def names(layer):
    return [(item.name, item.shape) for item in layer.get_parameters()]


def test_parameters_are_called_as_in_mindspore():
    assert names(mint.nn.Linear(3, 4)) == [("weight", (4, 3)), ("bias", (4,))]
    assert names(mint.nn.Embedding(4, 3)) == [("weight", (4, 3))]
    assert names(mint.nn.Conv2d(4, 6, 3, groups=2)) == [("weight", (6, 2, 3, 3)), ("bias", (6,))]
    assert names(mint.nn.ConvTranspose2d(4, 6, (3, 2), groups=2, bias=False)) == [("weight", (4, 3, 3, 2))]
    assert names(mint.nn.LayerNorm((3,))) == names(mint.nn.GroupNorm(1, 3)) == [("weight", (3,)), ("bias", (3,))]
    assert names(mint.nn.PReLU(3)) == [("weight", (3,))]
    assert names(mint.nn.BatchNorm2d(3)) == [
        *(("weight", (3,)), ("bias", (3,)), ("running_mean", (3,)), ("running_var", (3,))),
        ("num_batches_tracked", ()),
    ]
    net = nn.SequentialCell(mint.nn.Linear(3, 4), mint.nn.ReLU(), mint.nn.BatchNorm1d(4))
    assert [item.name for item in net.trainable_params()] == ["0.weight", "0.bias", "2.weight", "2.bias"]


@pytest.mark.parametrize(
    ("make", "fan_in"),
    [
        (lambda: mint.nn.Linear(50, 40), 50),
        (lambda: mint.nn.Conv2d(8, 40, 3, groups=2), 4 * 9),
        (lambda: mint.nn.ConvTranspose2d(40, 8, 3), 8 * 9),
    ],
    ids=["Linear", "Conv2d", "ConvTranspose2d"],
)
def test_first_weights_are_uniform_within_one_over_the_root_of_fan_in(make, fan_in):
    ms.set_seed(0)  # eight numbers alone may all be small
    bound = 1 / math.sqrt(fan_in)
    for parameter in make().get_parameters():
        values = parameter.asnumpy()
        assert np.abs(values).max() <= bound
        assert np.abs(values).max() > 0.7 * bound


def test_first_rows_of_an_embedding():
    table = mint.nn.Embedding(50, 40, padding_idx=-1).weight.asnumpy()
    assert abs(table[:-1].std() - 1) < 0.1
    assert not table[-1].any()
    given = numbers(2, 3)
    frozen = mint.nn.Embedding(2, 3, _weight=given, _freeze=True)
    assert frozen.weight.tolist() == given.tolist()
    assert not frozen.weight.requires_grad


def test_settings_by_place_and_name():
    assert mint.nn.AvgPool2d(2, padding=1).settings == (
        *("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    )
    assert repr(mint.nn.ELU(0.5)) == "ELU(alpha=0.5, inplace=False)"
    assert mint.nn.Fold([3, 3], 2).output_size == (3, 3)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: mint.nn.ReLU(1), SporaxTypeError),
        (lambda: mint.nn.Threshold(1.0), SporaxTypeError),
        (lambda: mint.nn.ELU(beta=1.0), SporaxTypeError),
        (lambda: mint.nn.Softmax(dim="a"), SporaxTypeError),
        (lambda: mint.nn.MSELoss("median"), SporaxValueError),
        (lambda: mint.nn.AvgPool2d("a"), SporaxTypeError),
        (lambda: mint.nn.Linear(0, 1), SporaxValueError),
        (lambda: mint.nn.Linear(2, 1, bias=1), SporaxTypeError),
        (lambda: mint.nn.Linear(2, 1, weight_init=numbers(2, 2)), SporaxValueError),
        (lambda: mint.nn.Embedding(3, 2, padding_idx=3), SporaxValueError),
        (lambda: mint.nn.Embedding(3, 2, padding_idx=1.0), SporaxTypeError),
        (lambda: mint.nn.Embedding(3, 2, sparse=True), SporaxNotImplementedError),
        (lambda: mint.nn.Embedding(3, 2, _weight=numbers(2, 2)), SporaxValueError),
        (lambda: mint.nn.Conv2d(3, 4, 3, groups=2), SporaxValueError),
        (lambda: mint.nn.Conv2d(4, 4, 3, 2, "same"), SporaxValueError),
        (lambda: mint.nn.Conv2d(4, 4, 3, padding="full"), SporaxValueError),
        (lambda: mint.nn.Conv2d(4, 4, 3, padding_mode="mirror"), SporaxValueError),
        (lambda: mint.nn.ConvTranspose2d(4, 4, 3, padding_mode="circular"), SporaxNotImplementedError),
        (lambda: mint.nn.BatchNorm2d(0), SporaxValueError),
        (lambda: mint.nn.BatchNorm2d(2, momentum=2.0), SporaxValueError),
        (lambda: mint.nn.BatchNorm2d(2)(numbers(2, 2)), SporaxValueError),
        (lambda: mint.nn.LayerNorm(()), SporaxValueError),
        (lambda: mint.nn.LayerNorm("a"), SporaxTypeError),
        (lambda: mint.nn.GroupNorm(2, 3), SporaxValueError),
        (lambda: mint.nn.ReflectionPad2d((1, 2)), SporaxValueError),
        (lambda: mint.nn.ReflectionPad1d(-1), SporaxValueError),
        (lambda: mint.nn.ZeroPad1d(1.0), SporaxTypeError),
        (lambda: mint.nn.ConstantPad1d(1, "a"), SporaxTypeError),
        (lambda: mint.nn.Dropout(1.5), SporaxValueError),
        (lambda: mint.nn.Dropout(inplace=1), SporaxTypeError),
        (lambda: mint.nn.PReLU(0), SporaxValueError),
    ],
)
def test_bad_settings_are_refused(make, error):
    with pytest.raises(error):
        make()


def test_dropout_drops_while_training_only():
    ms.set_seed(0)
    layer, values = mint.nn.Dropout(0.25), mint.ones(4000)
    assert layer(values).asnumpy().all()
    dropped = layer.set_train()(values).asnumpy()
    assert abs((dropped == 0).mean() - 0.25) < 0.03
    assert np.unique(dropped).tolist() == pytest.approx([0, 4 / 3])


def test_a_transposed_convolution_reaches_a_size():
    layer = mint.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
    assert layer(numbers(1, 2, 4, 5), (8, 10)).shape == (1, 3, 8, 10)
    with pytest.raises(SporaxValueError, match="'output_size'"):
        layer(numbers(1, 2, 4, 5), (9, 10))


def test_statistics_can_be_forgotten():
    layer = mint.nn.BatchNorm1d(3).set_train()
    layer(numbers(5, 3))
    assert layer.num_batches_tracked.item() == 1
    layer.weight.set_data(numbers(3))
    layer.reset_parameters()
    assert layer.running_mean.tolist() == [0, 0, 0]
    assert layer.weight.tolist() == layer.running_var.tolist() == [1, 1, 1]
    assert layer.num_batches_tracked.item() == 0


def test_layers_in_half_precision():
    net = nn.SequentialCell(mint.nn.Conv2d(2, 4, 3), mint.nn.ReLU(), mint.nn.Flatten(), mint.nn.Linear(36, 2))
    assert net.to_float(ms.float16)(numbers(1, 2, 5, 5)).dtype == ms.float16
    assert net.trainable_params()[0].dtype == ms.float32


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_a_network_learns(mode):
    ms.set_context(mode=mode)
    ms.set_seed(0)
    net = nn.SequentialCell(
        mint.nn.Conv2d(1, 4, 3, padding="same"),
        mint.nn.BatchNorm2d(4),
        mint.nn.ReLU(),
        mint.nn.MaxPool2d(2),
        mint.nn.Flatten(),
        mint.nn.Linear(16, 3),
    )
    step = nn.TrainOneStepCell(
        nn.WithLossCell(net, mint.nn.CrossEntropyLoss()), mint.optim.AdamW(net.trainable_params(), 0.05)
    ).set_train()
    images, labels = numbers(12, 1, 4, 4), Tensor(np.arange(12) % 3)
    losses = [step(images, labels).item() for _ in range(20)]
    assert losses[-1] < 0.2 * losses[0]
    assert net[1].num_batches_tracked.item() == 20


def test_layers_can_be_copied():
    twin = copy.deepcopy(mint.nn.Hardshrink(0.3))
    assert twin(Tensor([0.2, 1.0])).tolist() == [0, 1]
    weights = copy.deepcopy(mint.nn.CrossEntropyLoss(weight=Tensor([1.0, 2.0]))).weight
    assert weights.tolist() == [1, 2]
