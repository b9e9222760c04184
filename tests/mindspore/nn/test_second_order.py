"""Layers that keep statistics for THOR. Golden values: MindSpore 2.10's layers on CPU, with the same inputs."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.nn.second_order import ConvertNetUtils

DRAW = np.random.RandomState(0)
X = DRAW.randn(4, 3).astype(np.float32)
WEIGHT = DRAW.randn(2, 3).astype(np.float32)


def _backward(layer, x, sensitivity):
    gradient = ms.grad(lambda x: (layer(x) * Tensor(sensitivity)).sum(), None, layer.trainable_params())
    return gradient(Tensor(x))


def test_dense_keeps_the_moments_of_inputs_and_gradients(mode):
    layer = nn.DenseThor(3, 2, weight_init=Tensor(WEIGHT), activation="relu")
    ms.grad(lambda x: (layer(x) ** 2).sum(), None, layer.trainable_params())(Tensor(X))
    golden_a = [
        [3.0682476, 1.6020793, 0.01187511],
        [1.6020793, 1.2305188, -0.40279078],
        [0.01187511, -0.40279078, 1.3461885],
    ]
    np.testing.assert_allclose(layer.matrix_a.asnumpy(), golden_a, rtol=1e-5)
    np.testing.assert_allclose(layer.matrix_g.asnumpy(), [[6.9651523, 7.5293694], [7.5293694, 14.963459]], rtol=1e-5)


def test_dense_computes_what_the_ordinary_layer_computes():
    layer = nn.DenseThor(3, 2, weight_init=Tensor(WEIGHT))
    np.testing.assert_allclose(layer(Tensor(X)).asnumpy(), X @ WEIGHT.T, rtol=1e-5)
    assert [parameter.name for parameter in layer.get_parameters()] == ["weight", "bias", "matrix_a", "matrix_g"]
    assert [parameter.name for parameter in layer.trainable_params()] == ["weight", "bias"]


def test_embedding_counts_its_ids(mode):
    layer = nn.EmbeddingThor(5, 3)
    ids, sensitivity = np.array([[1, 0], [1, 3]], np.int32), np.arange(12).reshape(2, 2, 3).astype(np.float32)
    _backward(layer, ids, sensitivity)
    np.testing.assert_array_equal(layer.matrix_a.asnumpy(), [1, 2, 0, 1, 0])
    np.testing.assert_allclose(layer.matrix_g.asnumpy(), [[31.5, 36, 40.5], [36, 41.5, 47], [40.5, 47, 53.5]])


@pytest.mark.parametrize("target", ["CPU", "DEVICE"])
def test_lookup_keeps_statistics_of_a_table_in_float16(target):
    layer = nn.EmbeddingLookupThor(5, 3, target=target)
    ids, sensitivity = np.array([[1, 0], [1, 3]], np.int32), np.arange(12).reshape(2, 2, 3).astype(np.float16)
    assert layer.embedding_table.dtype == ms.float16
    _backward(layer, ids, sensitivity)
    rows = sensitivity.reshape(-1, 3).astype(np.float32)
    np.testing.assert_array_equal(layer.matrix_a.asnumpy(), [1, 2, 0, 1, 0])
    np.testing.assert_allclose(layer.matrix_g.asnumpy(), rows.T @ rows / 2)


def test_convolution_keeps_moments_of_mean_patches(mode):
    layer = nn.Conv2dThor(2, 3, 3, stride=2)
    x, sensitivity = DRAW.randn(2, 2, 4, 4).astype(np.float32), DRAW.randn(2, 3, 2, 2).astype(np.float32)
    _backward(layer, x, sensitivity)
    # "same" padding of 4 cells under a kernel of 3 with stride 2 adds one row below and one column on the right.
    image = np.pad(x.mean(0), ((0, 0), (0, 1), (0, 1)))
    patches = np.stack([image[:, i : i + 3, j : j + 3].ravel() for i in (0, 2) for j in (0, 2)], 1)
    gradient = sensitivity.mean(0).reshape(3, -1)
    np.testing.assert_allclose(layer.matrix_a.asnumpy(), patches @ patches.T / 4, atol=1e-5)
    np.testing.assert_allclose(layer.matrix_g.asnumpy(), gradient @ gradient.T / 4, atol=1e-5)
    assert (layer.a_normalizer.asnumpy(), layer.g_normalizer.asnumpy()) == (4, 4)


def test_layers_without_the_flag_keep_nothing():
    layer = nn.DenseThor(3, 2).add_flags_recursive(thor=False)
    _backward(layer, X, np.ones((4, 2), np.float32))
    np.testing.assert_array_equal(layer.matrix_a.asnumpy(), np.eye(3))
    np.testing.assert_array_equal(layer.matrix_g.asnumpy(), np.eye(2))


class _Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.blocks = nn.SequentialCell(nn.Dense(4, 3, activation="relu"), nn.Dense(3, 2, has_bias=False))
        self.images = nn.CellList([nn.Conv2d(2, 2, 3), nn.Conv2d(2, 2, 3, group=2)])
        self.frozen = nn.Dense(2, 2)
        self.frozen.weight.requires_grad = False
        self.wide = nn.Dense(2, 2)

    def construct(self, ids):
        return self.blocks(self.embedding(ids))


def test_conversion_changes_layers_in_place():
    net = _Net()
    first, before = net.blocks[0], net(Tensor([1, 2], ms.int32)).asnumpy()
    names = [parameter.name for parameter in net.get_parameters()]
    ConvertNetUtils().convert_to_thor_net(net)
    kinds = [type(cell).__name__ for _, cell in net.cells_and_names() if not list(cell.cells())]
    assert kinds == ["EmbeddingThor", "ReLU", "DenseThor", "Conv2dThor", "Conv2d", "Dense", "Dense"]
    assert net.blocks[0] is first and type(first) is nn.DenseThor
    np.testing.assert_array_equal(net(Tensor([1, 2], ms.int32)).asnumpy(), before)
    added = [parameter.name for parameter in net.get_parameters() if parameter.name not in names]
    matrices = [f"{layer}.matrix_{side}" for layer in ("embedding", "blocks.0", "blocks.1") for side in "ag"]
    convolution = [f"images.0.{name}" for name in ("a_normalizer", "g_normalizer", "matrix_a", "matrix_g")]
    assert added == matrices + convolution


def test_conversion_is_done_once():
    net = nn.SequentialCell(nn.Dense(2, 2))
    ConvertNetUtils().convert_to_thor_net(net)
    matrix = net[0].matrix_a
    ConvertNetUtils().convert_to_thor_net(net)
    assert net[0].matrix_a is matrix


def test_a_compiled_layer_is_compiled_again_after_conversion():
    ms.set_context(mode=ms.GRAPH_MODE)
    net = nn.SequentialCell(nn.Dense(3, 2))
    net(Tensor(X))
    ConvertNetUtils().convert_to_thor_net(net)
    net(Tensor(X))
    np.testing.assert_allclose(net[0].matrix_a.asnumpy(), X.T @ X / 3, rtol=1e-5)
