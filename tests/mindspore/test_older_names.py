"""Names that older or inner code of MindSpore's users imports from unusual places."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore._extends import cell_attr_register
from sporax.mindspore.common import JitConfig, api, dtype as mstype
from sporax.mindspore.nn.wrap import cell_wrapper, loss_scale
from sporax.mindspore.ops import composite as C, functional as F
from sporax.mindspore.ops._primitive_cache import _get_cache_prim
from sporax.mindspore.train.model import ParallelMode


def test_metrics_in_nn():
    assert nn.Metric is ms.train.Metric
    assert nn.Top1CategoricalAccuracy is ms.train.Top1CategoricalAccuracy


def test_ones_and_zeros_like_of_structures():
    ones, (zeros,) = C.ones_like((Tensor([1, 2]), (Tensor([3.0]),)))
    assert (ones.asnumpy().tolist(), ones.dtype, zeros.asnumpy().tolist()) == ([1, 1], ms.int64, [1.0])
    assert C.zeros_like({"a": Tensor([2.0])})["a"].asnumpy().tolist() == [0.0]


def test_functions_of_python_values():
    assert (F.make_range(3), F.make_range(1, 7, 2)) == ((0, 1, 2), (1, 3, 5))
    assert (F.tuple_len((1, 2)), F.list_len([1]), F.tuple_getitem((4, 5), 1), F.make_tuple(1, 2)) == (2, 1, 5, (1, 2))
    assert (F.is_sequence_value_unknown((2, 3)), F.is_sequence_shape_unknown((2, 3))) == (False, False)
    assert (F.tuple_reversed((1, 2)), F.shape_mul((2, 3)), F.is_(None, None), F.bool_not(1)) == ((2, 1), 6, True, False)


def test_the_random_stream_continues_where_it_was():
    ms.manual_seed(3)
    state = ms.get_rng_state()
    first = ops.standard_normal((2,)).asnumpy()
    ms.set_rng_state(state)
    np.testing.assert_array_equal(ops.standard_normal((2,)).asnumpy(), first)
    with pytest.raises(ValueError, match="must be UInt32 of shape"):
        ms.set_rng_state(Tensor([1.0]))


def test_set_deterministic_sets_the_context():
    ms.set_deterministic(False)
    assert ms.get_context("deterministic") == "OFF"
    with pytest.raises(TypeError, match="'deterministic' must be bool, but got int"):
        ms.set_deterministic(1)


def test_kinds_of_dtypes():
    assert isinstance(ms.float32, mstype.Float)
    assert not isinstance(ms.bfloat16, mstype.Float)
    assert not isinstance(ms.int8, mstype.Float)
    assert isinstance(ms.uint8, mstype.Number)
    assert not isinstance(ms.uint8, mstype.Int)


def test_matmul_as_a_layer():
    a, b = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(nn.MatMul(transpose_x1=True)(Tensor(a), Tensor(b)).asnumpy(), a.T @ b)
    np.testing.assert_allclose(nn.MatMul(True)(Tensor(a[:, 0]), Tensor(b)).asnumpy(), a[:, 0] @ b)


def test_round_of_numpy():
    np.testing.assert_allclose(ms.numpy.round(Tensor([1.26, -2.5]), 1).asnumpy(), [1.3, -2.5], rtol=1e-6)
    assert ms.numpy.around(Tensor([1.5, 2.5])).asnumpy().tolist() == [2, 2]


def test_jit_config_checks_its_values():
    assert JitConfig(jit_level="O1").jit_config_dict["jit_level"] == "O1"
    with pytest.raises(ValueError, match="'jit_level' must be one of"):
        JitConfig(jit_level="O9")


def test_decorators_and_helpers_that_give_their_argument():
    @cell_attr_register
    def constructor(self):
        return 1

    assert constructor(None) == 1
    assert cell_attr_register(attrs=["a"])(constructor) is constructor
    assert _get_cache_prim(ops.ReLU)()(Tensor([-1.0])).asnumpy().tolist() == [0]
    assert ParallelMode.AUTO_PARALLEL == "auto_parallel"


@pytest.mark.usefixtures("mode")
def test_no_gradient_flows_through_what_runs_without():
    def loss(x):
        with api._no_grad():
            square = x * x
        return (square * x).sum()

    assert ms.grad(loss)(Tensor([3.0])).asnumpy().tolist() == [9.0]
    assert ms.grad(api._no_grad()(lambda x: (x * x).sum()))(Tensor([3.0])).asnumpy().tolist() == [0.0]
    assert ms.grad(lambda x: (x * x).sum())(Tensor([3.0])).asnumpy().tolist() == [6.0]


def test_executors_forward_to_cells():
    ms.set_context(mode=ms.GRAPH_MODE)
    net, x = nn.ReLU(), Tensor([-1.0, 2.0])
    assert api._cell_graph_executor.compile(net, x, phase="train") == ("train", True)
    assert api._cell_graph_executor(net, x).asnumpy().tolist() == [0.0, 2.0]
    with pytest.raises(AttributeError, match=r"'_cell_graph_executor\.fetch_info_for_quant_export' is not offered"):
        api._cell_graph_executor.fetch_info_for_quant_export(None, None)
    with pytest.raises(TypeError, match="'obj' must be a Cell, but got int"):
        api._cell_graph_executor.compile(3)
    assert api._pynative_executor.enable_grad()
    assert api._pynative_executor.sync() is None


def test_a_generator_repeats_its_state():
    generator = ms.Generator().manual_seed(2**40 + 5)
    state = generator.get_state()
    assert generator.initial_seed() == 2**40 + 5
    assert generator.seed() == generator.initial_seed() != 2**40 + 5
    generator.set_state(state)
    assert generator.initial_seed() == 2**40 + 5
    assert ms.manual_seed(7) is ms.default_generator
    assert ms.initial_seed() == 7


def test_older_initializers_register_and_draw():
    from sporax.mindspore.common import initializer as recipes

    np.random.seed(1)
    first = recipes._init_random_normal(0.0, 2.0, (2, 3))
    np.random.seed(1)
    np.testing.assert_array_equal(recipes._init_random_normal(0.0, 2.0, (2, 3)), first)
    assert first.dtype == np.float32
    assert np.abs(recipes._init_random_uniform(-1.0, 1.0, (50,))).max() <= 1.0

    @recipes._register("seven_for_tests")
    class Seven(recipes.Constant):
        def __init__(self):
            super().__init__(7)

    assert recipes.initializer("seven_for_tests", (2,)).asnumpy().tolist() == [7.0, 7.0]


def test_flags_of_functions_are_kept():
    @ops.add_flags(has_effect=True)
    def function():
        return 1

    assert function._func_graph_flags == {"has_effect": True}
    assert ops.core(function)._func_graph_flags == {"has_effect": True, "core": True}
    assert C.add_flags(nn.ReLU(), fp16=True).get_flags()["fp16"] is True


def test_shapes_for_operators_of_users():
    from sporax.mindspore.ops._utils import get_broadcast_shape

    assert get_broadcast_shape([1, 3], [2, 1], "Mine") == [2, 3]
    with pytest.raises(ValueError, match=r"For 'Mine', a.shape and b.shape need to broadcast, but dim -1 is 2 and 3"):
        get_broadcast_shape([2], [3], "Mine", "a", "b")


class Line(nn.Cell):
    def __init__(self):
        super().__init__()
        self.micro_size = 2
        self.weight = ms.Parameter(Tensor([1.0]), name="weight")

    def construct(self, x):
        return (self.weight * x).sum()


def test_a_step_over_micro_batches_averages_them():
    net = Line()
    step = cell_wrapper._TrainGradAccuStepCell(net, nn.SGD(net.trainable_params(), 1.0))
    assert step(Tensor([2.0, 4.0])).asnumpy() == 6.0
    assert net.weight.asnumpy().tolist() == [1.0 - 6.0 / 2]
    with pytest.raises(ValueError, match="the parallel mode must be one of .* but got stand_alone"):
        loss_scale._TrainGradAccuWithLossScaleCell(net, nn.SGD(net.trainable_params(), 1.0), Tensor(2.0))


def test_accumulated_gradients_are_scaled_and_start_again():
    total = ms.Parameter(Tensor([6.0]), name="total")
    scaled = loss_scale.grad_scale(Tensor([2.0]), Tensor([1.0]), total)
    assert (scaled.asnumpy().tolist(), total.asnumpy().tolist()) == ([3.0], [0.0])
    assert loss_scale.shard_grad_scale(Tensor([2.0]), Tensor([1.0]), total).asnumpy().tolist() == [0.5]
    total.set_data(Tensor([5.0]))
    cell_wrapper._pipeline_clear_grad(total, Tensor([1.0]))
    assert total.asnumpy().tolist() == [0.0]
    assert loss_scale._grad_overflow(Tensor([float("inf")])).asnumpy().tolist() == [1.0]


def test_scalars_as_arrays():
    one, half = ops.scalar_to_array(1), ops.ScalarToArray()(0.5)
    assert (one.shape, one.dtype, half.dtype, float(half)) == ((), ms.int32, ms.float32, 0.5)
    with pytest.raises(TypeError, match="For 'ScalarToArray', 'input_x' must be an int or a float, but got str"):
        F.scalar_to_array("1")


def test_seeds_of_operators_follow_each_other():
    from sporax.mindspore.common.seed import _get_graph_seed

    ms.set_seed(5)
    assert [_get_graph_seed(0, "a") for _ in range(6)] == [
        *((5, 0), (5, 533697028), (5, 1067394056), (5, 1601091084), (5, 2134788112), (5, 521001493))
    ]
    assert [_get_graph_seed(seed, name) for seed, name in ((7, "a"), (7, "a"), (7, "b"))] == [
        *((5, 7), (5, 533697035), (5, 7))
    ]
    ms.set_seed(0)
    assert _get_graph_seed(None, "a") == (87654321, 0)
    with pytest.raises(ValueError, match="For 'a', the 'seed' must be int and must >= 0"):
        _get_graph_seed(-1, "a")


def test_parts_of_transformers_are_in_nn_as_before_2_0():
    from sporax.mindspore.nn import TransformerOpParallelConfig
    from sporax.mindspore.parallel import _transformer

    assert TransformerOpParallelConfig is _transformer.TransformerOpParallelConfig
    assert nn.VocabEmbedding is nn.transformer.VocabEmbedding
    assert nn.Transformer is not nn.transformer.Transformer
    assert TransformerOpParallelConfig(data_parallel=2).data_parallel == 2


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_keywords_of_first_releases(mode):
    ms.set_context(mode=mode)
    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    image = x.reshape(1, 1, 3, 4)

    class Old(nn.Cell):
        def construct(self, x, image):
            first, second = ops.split(x, axis=-1, output_num=2)
            half = ops.interpolate(image, sizes=(6, 8), mode="bilinear", coordinate_transformation_mode="half_pixel")
            corners = ops.interpolate(image, scales=(1.0, 1.0, 2.0, 2.0), mode="bilinear")
            length = ops.norm(x, axis=1, p=2, keep_dims=True)
            return F.amax(x, 1, keep_dims=True), F.amin(x, 0, keep_dims=False), first, second, length, half, corners

    largest, least, first, second, length, half, corners = Old()(x, image)
    assert (largest.shape, least.shape, length.shape) == ((3, 1), (4,), (3, 1))
    np.testing.assert_array_equal(np.concatenate([first.asnumpy(), second.asnumpy()], 1), x.asnumpy())
    for result, aligned in ((half, False), (corners, True)):
        expected = ops.interpolate(image, size=(6, 8), mode="bilinear", align_corners=aligned)
        np.testing.assert_allclose(result.asnumpy(), expected.asnumpy(), rtol=1e-6)
    np.testing.assert_array_equal(ops.argmax(x, axis=1).asnumpy(), [3, 3, 3])
    for product in (ops.dot, ops.matmul):
        np.testing.assert_allclose(product(x1=x, x2=x.T).asnumpy(), x.asnumpy() @ x.asnumpy().T)


def test_keywords_of_first_releases_that_cannot_be():
    x = Tensor(np.ones((1, 1, 3, 4), np.float32))
    with pytest.raises(ValueError, match="'output_num' must divide the size of the dim, 3, but got 2"):
        ops.split(x, axis=2, output_num=2)
    with pytest.raises(ValueError, match="'coordinate_transformation_mode' must be one of"):
        ops.interpolate(x, sizes=(6, 8), mode="bilinear", coordinate_transformation_mode="asymmetric")


def test_series_of_numpy_heed_their_steps():
    numbers = ms.numpy.arange(1, step=0.25)
    assert (numbers.asnumpy().tolist(), numbers.dtype) == ([0, 0.25, 0.5, 0.75], ms.float32)
    assert ms.numpy.arange(10, None, 3).asnumpy().tolist() == [0, 3, 6, 9]
    assert ms.numpy.asarray(numbers) is numbers
    series, distance = ms.numpy.linspace(0, 5, num=4, retstep=True, endpoint=False, dtype=ms.int16)
    assert (series.asnumpy().tolist(), float(distance), distance.dtype) == ([0, 1, 2, 3], 1.25, ms.float32)
