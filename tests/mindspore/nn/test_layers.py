"""Layers that the MindSpore CPU wheel has no (right) kernel for, against numpy; and what layers pass to plans."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, nn

TABLE = np.arange(10, dtype=np.float32).reshape(5, 2) - 3


def lookup(**settings):
    return nn.EmbeddingLookup(5, 2, Tensor(TABLE), **settings)


def test_rows_are_looked_up_and_ids_outside_the_table_give_zeros(mode):
    ids = Tensor([[4, 0], [5, 2]], ms.int32)
    expected = TABLE[[[4, 0], [0, 2]]]
    expected[1, 0] = 0
    for target in ("CPU", "DEVICE"):
        np.testing.assert_array_equal(lookup(target=target)(ids).asnumpy(), expected)


def test_long_rows_are_shortened(mode):
    rows = lookup(max_norm=2.0)(Tensor([0, 1, 4], ms.int32)).asnumpy()
    for row, plain in zip(rows, TABLE[[0, 1, 4]], strict=True):
        np.testing.assert_allclose(row, plain * min(1, 2 / np.linalg.norm(plain)), rtol=1e-6)


def test_marks_say_where_and_how_a_table_is_sharded():
    assert lookup(target="CPU").embeddinglookup.attrs["primitive_target"] == "CPU"
    assert "primitive_target" not in lookup(target="DEVICE").embeddinglookup.attrs
    assert lookup(sparse=True).embedding_table.unique
    assert "in_strategy" not in lookup(slice_mode="table_row_slice").embeddinglookup.attrs
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=4)
    try:
        cuts = {
            mode: lookup(slice_mode=mode).embeddinglookup.attrs["in_strategy"]
            for mode in ("batch_slice", "table_row_slice", "table_column_slice")
        }
        fields = lookup(slice_mode="field_slice", manual_shapes=(2, 1, 1, 1)).embeddinglookup.attrs
        with pytest.raises(SporaxValueError, match="needs 'manual_shapes'"):
            lookup(slice_mode="field_slice")
    finally:
        ms.reset_auto_parallel_context()
    assert cuts == {
        "batch_slice": ((1, 1), (4, 1)),
        "table_row_slice": ((4, 1), (1, 1)),
        "table_column_slice": ((1, 4), (1, 1)),
    }
    assert (fields["in_strategy"], fields["manual_split"]) == (((4, 1), (1, 4)), (2, 1, 1, 1))


@pytest.mark.parametrize("operator", ["SUM", "MEAN", "MAX"])
def test_fields_are_merged(mode, operator):
    ids, weights, fields = (
        np.array([[2, 4, 0, 1]]),
        np.array([[0.5, 2.0, 1.0, 0.0]], np.float32),
        np.array([[0, 1, 0, 1]]),
    )
    layer = nn.MultiFieldEmbeddingLookup(5, 2, 3, Tensor(TABLE), operator=operator)
    result = layer(Tensor(ids, ms.int32), Tensor(weights), Tensor(fields, ms.int32)).asnumpy()[0]
    for field in range(3):
        members = [(weights[0, i], TABLE[ids[0, i]]) for i in range(4) if fields[0, i] == field]
        rows = [weight * row for weight, row in members if weight or operator != "MAX"]
        expected = np.zeros(2)
        if rows:
            expected = np.max(rows, 0) if operator == "MAX" else np.sum(rows, 0)
            expected = expected / sum(weight for weight, _ in members) if operator == "MEAN" else expected
        np.testing.assert_allclose(result[field], expected, rtol=1e-6)


@pytest.mark.parametrize(
    "dtypes", [("int16", "float32", "int32"), ("int32", "float16", "int32"), ("int32", "float32", "int64")]
)
def test_fields_have_the_dtypes_of_mindspore(dtypes):
    layer = nn.MultiFieldEmbeddingLookup(5, 2, 3)
    with pytest.raises(TypeError, match="For 'MultiFieldEmbeddingLookup', the dtype of"):
        layer(*(Tensor(np.ones((1, 4), dtype)) for dtype in dtypes))


def test_windows_are_unfolded_along_the_channels():
    image = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    result = nn.Unfold([1, 2, 2, 1], [1, 1, 2, 1], [1, 1, 1, 1])(Tensor(image)).asnumpy()
    assert result.shape == (1, 8, 2, 2)
    for down in range(2):
        for across in range(2):
            window = image[0, :, down : down + 2, 2 * across : 2 * across + 2]
            np.testing.assert_array_equal(result[0, :, down, across], window.reshape(2, 4).T.ravel())
    same = nn.Unfold([1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "same")(Tensor(image[:, :, :, :3]))
    assert same.shape == (1, 8, 2, 2)


def test_losses_of_margins(tensor):
    x, y = tensor(4), np.array([1.0, -1.0, 1.0, -1.0], np.float32)
    expected = np.log1p(np.exp(-y * x.asnumpy())).mean()
    assert nn.SoftMarginLoss()(x, Tensor(y)).asnumpy() == pytest.approx(expected, rel=1e-5)

    scores, labels = tensor(2, 4), np.array([[1, 3, -1, 0], [2, -1, 0, 0]])
    losses = nn.MultilabelMarginLoss("none")(scores, Tensor(labels, ms.int32)).asnumpy()
    for loss, row, own in zip(losses, scores.asnumpy(), ((1, 3), (2,)), strict=True):
        others = [other for other in range(4) if other not in own]
        assert loss == pytest.approx(sum(max(0, 1 - row[a] + row[b]) for a in own for b in others) / 4, rel=1e-5)

    anchor, near, far = tensor(3, 4), tensor(3, 4), tensor(3, 4)
    distance = lambda a, b: np.linalg.norm(a.asnumpy() - b.asnumpy() + 1e-6, axis=-1)
    swapped = np.minimum(distance(anchor, far), distance(near, far))
    expected = np.maximum(distance(anchor, near) - swapped + 0.5, 0).mean()
    loss = nn.TripletMarginLoss(margin=0.5, swap=True)(anchor, near, far)
    assert loss.asnumpy() == pytest.approx(expected, rel=1e-5)


def test_signal_to_noise_ratio_and_clipping(tensor):
    image = tensor(2, 1, 3, 3)
    noise = (image.asnumpy() * 0.1) ** 2
    expected = 10 * np.log10(1 / noise.mean((1, 2, 3)))
    np.testing.assert_allclose(nn.PSNR()(image, image * 0.9).asnumpy(), expected, rtol=1e-4)
    rows = tensor(3, 4)
    norms = np.linalg.norm(nn.ClipByNorm(1)(rows, 0.5).asnumpy(), axis=1)
    np.testing.assert_allclose(norms, 0.5, rtol=1e-5)


def test_resize_by_factor_and_size():
    image = Tensor(np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2))
    resize = nn.ResizeBilinear()
    assert resize(image, size=(3, 5)).shape == (1, 1, 3, 5)
    assert resize(image, scale_factor=2).shape == (1, 1, 4, 4)
    corners = resize(image, size=(3, 3), align_corners=True).asnumpy()[0, 0]
    np.testing.assert_allclose(corners, [[0, 0.5, 1], [1, 1.5, 2], [2, 2.5, 3]])
    with pytest.raises(SporaxValueError, match="either 'size' or 'scale_factor'"):
        resize(image)


def test_shared_layers_of_a_transformer_stack_start_equal():
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 6), 2)
    first, second = (list(layer.get_parameters()) for layer in stack.layers)
    assert all((a.asnumpy() == b.asnumpy()).all() and a is not b for a, b in zip(first, second, strict=True))
    assert second[0].name.startswith("layers.1.")


@pytest.mark.parametrize(
    "make",
    [
        lambda bad: nn.Conv2d(3, 4, 3, pad_mode=bad),
        lambda bad: nn.MaxPool2d(2, pad_mode=bad),
        lambda bad: nn.AvgPool1d(2, pad_mode=bad),
        lambda bad: nn.LRN(norm_region=bad),
        lambda bad: nn.LRN(alpha=[bad]),
        lambda bad: nn.RNNCell(2, 2, nonlinearity=bad),
        lambda bad: nn.Unfold([1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], padding=bad),
        lambda bad: nn.Unflatten(bad, (2, 2)),
        lambda bad: nn.Unflatten(1, str(bad)),
        lambda bad: nn.Norm(axis=str(bad)),
        lambda bad: nn.ClipByNorm(axis=str(bad)),
        lambda bad: nn.ReduceLogSumExp(axis=str(bad)),
        lambda bad: nn.CrossEntropyLoss(ignore_index=bad),
        lambda bad: nn.NLLLoss(ignore_index=bad),
        lambda bad: nn.NLLLoss(weight=bad),
        lambda bad: nn.MultiClassDiceLoss(weights=bad),
        lambda bad: nn.MultiClassDiceLoss(ignore_indiex=bad),
        lambda bad: nn.MultiMarginLoss(p=bad),
        lambda bad: nn.Embedding(4, 2, padding_idx=bad),
        lambda bad: nn.WithEvalCell(nn.ReLU(), None, bad),
    ],
)
def test_settings_of_another_type_are_refused(make):
    """By TypeError, as in MindSpore 2.10, which distinguishes them from values of the right type."""
    for bad in (1.5, [0.5]):
        with pytest.raises(SporaxTypeError):
            make(bad)


def test_whether_statistics_are_of_the_batch_is_a_bool():
    with pytest.raises(SporaxValueError, match="'use_batch_statistics' must be one of"):
        nn.BatchNorm2d(3, use_batch_statistics="x")


@pytest.mark.parametrize("alpha", [0.1, 2.5])
def test_leaky_relu_of_integers_rounds_the_slope(alpha, mode):
    values = nn.LeakyReLU(alpha)(Tensor([-3, 0, 4], ms.int32))
    assert (values.dtype, values.asnumpy().tolist()) == (ms.int32, [0, 0, 4] if alpha < 1 else [-6, 0, 4])
    assert nn.LeakyReLU(0.1)(Tensor([1, 5], ms.uint32)).asnumpy().tolist() == [1, 5]


def test_focal_loss_of_fewer_labels_reads_the_first_logits():
    logits = Tensor([[0.8, 1.4], [0.5, 0.9], [1.2, 0.9]])
    loss = nn.FocalLoss()
    assert loss(logits, Tensor([[1]], ms.int32)) == loss(logits[:1], Tensor([[1]], ms.int32))


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("kind", [nn.BatchNorm2d, nn.SyncBatchNorm])
def test_what_scripts_assign_to_a_batch_norm_later_changes_nothing(mode, kind):
    # Public code does so with numbers of PyTorch's; MindSpore's operators have taken theirs by then.
    ms.set_context(mode=mode)
    x = ms.Tensor(np.random.default_rng(0).normal(5, 1, (8, 3, 4, 4)).astype(np.float32))
    made = [kind(3, eps=0.5).set_train() for _ in range(2)]
    assert made[0].momentum == pytest.approx(0.1)
    made[1].momentum, made[1].eps = 0.97, 1e-3
    first, second = (layer(x).asnumpy() for layer in made)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(made[1].moving_mean.asnumpy(), 0.1 * x.asnumpy().mean((0, 2, 3)), rtol=1e-5)


def test_a_layer_that_is_one_function_takes_its_inputs_by_name_and_says_what_they_are():
    x = Tensor(np.float32([-2, 1, 3]))
    layer = nn.Threshold(1.5, 7.0)
    for result in (layer(x), layer(x=x)):
        np.testing.assert_array_equal(result.asnumpy(), [7, 7, 3])
    np.testing.assert_array_equal(
        nn.MatrixSetDiag()(Tensor(np.eye(2)), diagonal=Tensor([3.0, 4.0], ms.float64)), np.diag([3, 4])
    )
    with pytest.raises(SporaxTypeError, match="For 'Threshold', the inputs must fit construct.*but got 0 by position"):
        layer()


PLAIN = (
    "DiGamma IGamma ImageGradients LBeta LGamma LogSigmoid MatDet MatInverse MatrixDiag MatrixDiagPart MatrixSetDiag ReLU SiLU "
    "SparseToDense Tanhshrink Tril Triu"
)


@pytest.mark.parametrize("name", PLAIN.split())
def test_layers_without_settings_take_no_argument(name):
    """They took those of `Cell`, as in ``nn.MatInverse(3)``."""
    getattr(nn, name)()
    for arguments in ((3,), (True,), (3, 3)):
        with pytest.raises(TypeError, match="positional argument"):
            getattr(nn, name)(*arguments)
