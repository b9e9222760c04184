"""Attributes of layers that others' scripts read, and set strategies on."""

import ast
import copy
import re

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn
from sporax.mindspore.nn import _deferred_settings

X = Tensor(np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3))
IMAGE = Tensor(np.ones((1, 2, 2, 2), np.float32))


def test_plain_arguments_of_constructors_are_attributes():
    net = nn.Conv2d(3, 4, 3, bias_init="ones", has_bias=True)
    assert (net.bias_init, nn.GLU(1).axis, nn.LayerNorm((4,)).epsilon) == ("ones", 1, 1e-7)
    assert copy.deepcopy(net).bias_init == "ones"
    assert nn.BiDense(2, 3, 4).bias_init is None and nn.GroupNorm(1, 2, beta_init="ones").beta_init == "ones"
    weights = Tensor(np.ones((4, 3), np.float32))
    dense = nn.Dense(3, 4, weight_init=weights)
    assert not hasattr(dense, "weight_init")  # it would keep the values alive
    assert not any(value is weights for value in dense.__dict__[_deferred_settings.MADE_WITH][1].values())
    for wrong in ("nothing", "_private"):
        with pytest.raises(AttributeError, match=f"The 'Dense' object has no attribute '{wrong}'"):
            getattr(dense, wrong)


@pytest.mark.parametrize(
    ("layer", "attributes"),
    [
        (
            nn.Conv1d(4, 4, 5, 2, "pad", 1, 2, 2, True),
            "kernel_size=(1, 5) stride=(1, 2) dilation=(1, 2) padding=(0, 0, 1, 1)",
        ),
        (
            nn.Conv1dTranspose(4, 3, 3),
            "kernel_size=(1, 3) stride=(1, 1) dilation=(1, 1) padding=(0, 0, 0, 0) is_same=True",
        ),
        (nn.Conv2dTranspose(4, 4, 3, 2, "pad", 1, 1), "output_padding=1 padding=1 is_pad=True is_valid=False"),
        (nn.MaxPool1d(3, 2), "kernel_size=(1, 3) stride=(1, 2) pad_mode='VALID' format='NCHW'"),
        (nn.MaxPool1d(4, 2, "pad", 1), "kernel_size=(1, 1, 4) stride=(1, 1, 2) pad_mode='PAD' padding=(0, 0, 1)"),
        (nn.MaxPool2d(4, 2, "pad", 1), "kernel_size=4 stride=2 pad_mode='PAD' padding=(0, 1, 1)"),
        (nn.MaxPool2d((3, 2), 1, "SAME"), "kernel_size=(3, 2) stride=1 pad_mode='SAME' return_indices=False"),
        (nn.MaxPool3d(3, 2), "kernel_size=3 stride=2 pad_mode='VALID'"),
        (nn.AvgPool1d(3, 1, "same"), "kernel_size=(1, 3) stride=(1, 1) pad_mode='SAME'"),
        (nn.AvgPool1d(4, 2, "pad", 1), "kernel_size=4 stride=2 pad_mode='PAD'"),
        (nn.AvgPool3d((3, 2, 1), 1), "kernel_size=(3, 2, 1) stride=1 pad_mode='VALID'"),
        (nn.AdaptiveAvgPool1d(2), "output_size=2"),
        (nn.AdaptiveAvgPool2d(2), "output_size=(2, 2)"),
        (nn.AdaptiveMaxPool2d(2), "output_size=2"),
        (nn.LPPool2d(2, 3), "norm_type=2 kernel_size=3 stride=None"),
        (nn.MaxUnpool2d(2), "kernel_size=2 stride=2 padding=0"),
        (nn.Dense(4, 3), "activation_flag=False activation=None"),
        (nn.Dropout(0.75), "p=None keep_prob=0.75"),
        (nn.Dropout(p=0.25), "p=0.25 keep_prob=0.5"),
        (nn.Dropout1d(0.25), "prob=0.25"),
        (nn.Dropout2d(0.25), "keep_prob=0.75"),
        (nn.BatchNorm2d(3, data_format="NHWC"), "format='NHWC'"),
        (nn.GELU(), "approximate='tanh'"),
        (nn.GLU(1), "dim=1"),
        (nn.MultiheadAttention(4, 2), "head_dim=2"),
        (nn.CosineDecayLR(0.01, 0.1, 4), "delta=0.045000000000000005"),
        (nn.PolynomialDecayLR(0.5, 0.25, 4, 0.5), "diff_learning_rate=0.25 start_learning_rate=0.5"),
        (nn.WithGradCell(nn.Dense(3, 2), nn.MSELoss()).network_with_loss, "cls_name='WithLossCell'"),
        (nn.SequentialCell(nn.ReLU()).cell_list[0], "cls_name='ReLU'"),
        (
            nn.TransformerEncoderLayer(4, 2, 8, 0.2, "gelu", 1e-3),
            "layernorm_eps=0.001 activation1='gelu' dropout_num=0.2",
        ),
        (nn.MultiheadAttention(4, 2), "k_is_v=False q_is_k=False"),
        (
            nn.Rprop(nn.Dense(3, 2).trainable_params()),
            "etaminus=0.5 etaplus=1.2 step_size_min=1e-06 step_size_max=50.0",
        ),
        (nn.ReplicationPad2d(1), "name='ReplicationPad2d'"),
        (nn.SyncBatchNorm(3), "rank_id=0 rank_size=1"),
        (
            ms.DynamicLossScaleManager(4.0, 3, 5),
            "increase_ratio=3 decrease_ratio=0.3333333333333333 cur_iter=1 last_overflow_iter=0 bad_step_max=1000",
        ),
        (ms.EarlyStopping(min_delta=-1), "monitor='eval_loss' mode='auto' min_delta=1"),
        (ms.ReduceLROnPlateau(), "monitor='eval_loss' mode='auto' min_delta=0.0001"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_attributes_are_mindspores(layer, attributes):
    for name, expected in re.findall(r"(\w+)=(\([^)]*\)|\S+)", attributes):
        value = getattr(layer, name)
        assert (value, type(value)) == (ast.literal_eval(expected), type(ast.literal_eval(expected))), name


SIGNAL = Tensor(np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 2, 8))
LABELS = Tensor(np.array([[0, 1, 0], [1, 0, 1]], np.float32))


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
@pytest.mark.parametrize(
    ("layer", "assigned", "same_as"),
    [
        (nn.Dense(3, 2, "ones", "ones"), {"has_bias": False}, nn.Dense(3, 2, "ones", has_bias=False)),
        (nn.Dense(3, 2, "ones", "ones", activation="relu"), {"activation_flag": False}, nn.Dense(3, 2, "ones", "ones")),
        (nn.Dense(3, 2, "ones", "ones"), {"activation": nn.ReLU()}, nn.Dense(3, 2, "ones", "ones")),
        (
            nn.Conv1d(2, 2, 3, has_bias=True, weight_init="ones", bias_init="ones"),
            {"has_bias": False, "kernel_size": (1, 5), "stride": (1, 2), "pad_mode": "valid"},
            nn.Conv1d(2, 2, 3, weight_init="ones"),
        ),
        (
            nn.Conv1dTranspose(2, 2, 3, has_bias=True, weight_init="ones", bias_init="ones"),
            {"has_bias": False, "pad_mode": "valid"},
            nn.Conv1dTranspose(2, 2, 3, weight_init="ones"),
        ),
        (nn.MaxPool1d(3, 2), {"pad_mode": "SAME", "kernel_size": (1, 4), "return_indices": True}, nn.MaxPool1d(3, 2)),
        (nn.AvgPool1d(3, 2), {"pad_mode": "SAME", "stride": (1, 4)}, nn.AvgPool1d(3, 2)),
        (nn.LPPool1d(2, 3), {"kernel_size": 4, "stride": 1}, nn.LPPool1d(2, 4, 1)),
        (nn.GELU(), {"approximate": "none"}, nn.GELU(False)),
        (nn.MSELoss(), {"reduction": "sum"}, nn.MSELoss()),
        (nn.MSELoss(), {"reduce": False}, nn.MSELoss("none")),
        (nn.MSELoss(), {"average": False}, nn.MSELoss("sum")),
        (nn.L1Loss(), {"reduction": "sum", "reduce": False}, nn.L1Loss("sum")),
        (nn.MAELoss(), {"reduce": False}, nn.MAELoss("none")),
        (nn.SmoothL1Loss(0.5), {"reduction": "mean"}, nn.SmoothL1Loss(0.5)),
        (nn.HuberLoss(), {"reduction": "none"}, nn.HuberLoss("none")),
        (nn.SoftmaxCrossEntropyWithLogits(), {"reduce": True}, nn.SoftmaxCrossEntropyWithLogits(reduction="mean")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Cell) else "",
)
def test_layers_read_later_assigned_attributes_as_mindspores_do(mode, layer, assigned, same_as):
    ms.set_context(mode=mode)
    inputs = (X, LABELS) if isinstance(layer, nn.LossBase) else (SIGNAL if "1d" in layer.cls_name else X,)
    layer(*inputs)
    before = {name: getattr(layer, name) for name in assigned}
    for name, value in assigned.items():
        setattr(layer, name, value)
    np.testing.assert_allclose(layer(*inputs).asnumpy(), same_as(*inputs).asnumpy(), rtol=1e-6)
    for name, value in before.items():  # for the other mode
        setattr(layer, name, value)


@pytest.mark.parametrize(("off", "ratio"), [({"p": 0}, 0), ({"keep_prob": 1}, 0), ({"p": 0.9}, 0.25)])
def test_a_dropout_can_be_switched_off_and_keeps_its_rate(off, ratio):
    layer, ones = nn.Dropout(p=0.25).set_train(), Tensor(np.ones((100, 100), np.float32))
    for name, value in off.items():
        setattr(layer, name, value)
    assert float((layer(ones).asnumpy() == 0).mean()) == pytest.approx(ratio, abs=0.02)


def test_cells_bring_the_operator_cast():
    own = Own(3)
    assert own.cast(X, ms.float16).dtype == ms.float16 and own.cast.shard(((1, 1),)) is own.cast
    assert nn.LossBase().cast.name == "Cast"


class Own(nn.Cell):
    def __init__(self, size):
        super().__init__()


def test_arguments_of_the_users_cells_are_none_of_their_attributes():
    assert not hasattr(Own(3), "size")


def test_parameters_of_tuples_and_members_of_dicts_are_attributes():
    lstm = nn.LSTM(3, 4)
    assert lstm.weight_ih_l0 is lstm.get_parameters().__next__()
    assert nn.CellDict({"first": nn.ReLU()}).first.cls_name == "ReLU"
    assert [loss.average for loss in (nn.L1Loss("sum"), nn.L1Loss("mean"))] == [False, True]


def test_every_operator_of_the_table_can_be_requested():
    layer = nn.ReLU()
    for primitive in {kind for table in _deferred_settings._operators().values() for kind in table.values()}:
        assert _deferred_settings._made(primitive).name == primitive
    assert layer.relu.name == "ReLU"


def test_operators_that_take_no_part_say_so_when_something_is_set_on_them():
    optimizer = nn.LazyAdam([Parameter(Tensor([1.0]), name="p")])
    with pytest.warns(UserWarning, match="For 'LazyAdam.sparse_opt', 'primitive_target' has no effect"):
        optimizer.sparse_opt.add_prim_attr("primitive_target", "CPU")
    with pytest.raises(NotImplementedError, match="For 'FusedSparseLazyAdam', the operator of a layer"):
        optimizer.sparse_opt()
    dense = nn.Dense(3, 4)
    assert dense.reshape.shard(((1, 1),)) is dense.reshape  # follows its input anyway
    assert dense.reshape(X, (3, 2)).shape == (3, 2)


@pytest.mark.parametrize(
    ("layer", "name", "x"),
    [
        (nn.CELU(2.0), "celu", X),
        (nn.HShrink(), "hshrink", X),
        (nn.SoftShrink(), "softshrink", X),
        (nn.Softmax2d(), "softmax", IMAGE),
        (nn.OneHot(depth=3), "onehot", Tensor([0, 2])),
        (nn.Pad(((1, 0), (0, 2))), "pad", X),
        (nn.Pad(((1, 0), (0, 2)), "SYMMETRIC"), "pad", X),
        (nn.FastGelu(), "fast_gelu", X),
    ],
)
def test_layers_of_one_operator_compute_by_their_attribute(layer, name, x):
    plain = layer(x).asnumpy()
    getattr(layer, name).recompute()
    np.testing.assert_allclose(ms.jit(layer)(x).asnumpy(), plain, rtol=1e-6)
    setattr(layer, name, type("Marked", (nn.Cell,), {"attrs": {"recompute": True}, "construct": lambda *_: X})())
    np.testing.assert_array_equal(layer(x).asnumpy(), X.asnumpy())
