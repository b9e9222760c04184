"""Internal and older names of MindSpore that published programs import: what they give. Numbers are the wheel's."""

import os
import sys
import types

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops


def test_numbers_become_arrays():
    assert ops.scalar_to_array(2.5).dtype == ms.float32
    assert ops.functional.scalar_to_array(3).dtype == ms.int32
    assert ops.operations.ScalarToArray()(2.5).asnumpy() == 2.5
    with pytest.raises(TypeError, match="For 'ScalarToArray', 'input_x' must be an int or a float"):
        ops.scalar_to_array("2")


def test_narrow_dtypes_hold_values():
    assert [str(d) for d in (ms.qint4x2, ms.float8_e4m3fn, ms.float8_e5m2)] == ["Int4", "Float8E4M3FN", "Float8E5M2"]
    assert repr(ms.float8_e5m2) == "mindspore.float8_e5m2"
    assert Tensor([1, -3], ms.qint4x2).asnumpy().tolist() == [1, -3]
    assert Tensor([1.0, -3.0], ms.float8_e4m3fn).astype(ms.float32).asnumpy().tolist() == [1, -3]


def test_short_names_of_dtypes():
    assert (ms.bool, ms.int, ms.float) == (ms.bool_, ms.int32, ms.float32)


def test_seeds_of_operators_move_on():
    from sporax.mindspore.common.seed import _get_graph_seed

    before = ms.get_seed()
    ms.set_seed(3)
    pairs = [(_get_graph_seed(0, "Dropout"), _get_graph_seed(5, "X")) for _ in range(3)]
    moved = [((3, 533697028), (3, 533697033)), ((3, 1067394056), (3, 1067394061))]
    assert pairs == [((3, 0), (3, 5)), *moved]
    ms.set_seed(3)
    assert _get_graph_seed(0, "Dropout") == (3, 0)
    with pytest.raises(ValueError, match="For 'Dropout', the 'seed'"):
        _get_graph_seed(-1, "Dropout")
    ms.set_seed(before or 0)


def test_the_recursion_limit_is_raised_only():
    before = sys.getrecursionlimit()
    try:
        ms.set_recursion_limit(before + 7)
        ms.set_recursion_limit(10)
        assert sys.getrecursionlimit() == before + 7
    finally:
        sys.setrecursionlimit(before)
    with pytest.raises(ValueError, match="must > 0, but got '-1'"):
        ms.set_recursion_limit(-1)
    with pytest.raises(TypeError, match="must be int, but got 'str'"):
        ms.set_recursion_limit("a")


def test_one_parameter_takes_the_values_of_another():
    from sporax.mindspore.train.serialization import _update_param, tensor_to_ms_type, tensor_to_np_type

    target = Parameter(Tensor([1.0, 2.0]), name="w")
    with pytest.warns(UserWarning, match="Float16 to Float32"):
        _update_param(target, Parameter(Tensor([3.0, 4.0], ms.float16), name="other"), False)
    np.testing.assert_array_equal(target.asnumpy(), [3, 4])
    assert target.dtype == ms.float32
    with pytest.raises(RuntimeError, match="shape"):
        _update_param(target, Parameter(Tensor([3.0]), name="other"), False)
    with pytest.raises(RuntimeError, match="dtype"):
        _update_param(target, Parameter(Tensor([3.0, 4.0], ms.float16), name="other"), True)
    assert (tensor_to_ms_type["Int4"], tensor_to_np_type["Float32"]) == (ms.qint4x2, np.float32)


def test_directories_are_made(tmp_path):
    from sporax.mindspore.train._utils import _make_directory, check_value_type

    assert _make_directory(f"{tmp_path}/a/b") == os.path.realpath(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="must be a directory"):
        _make_directory(f"{tmp_path}/file/b")
    with pytest.raises(TypeError, match="must be a string"):
        _make_directory("")
    check_value_type("steps", 3, [int])
    with pytest.raises(TypeError, match=r"For `steps` the type should be a valid type of \['int'\], but got bool"):
        check_value_type("steps", True, int)


def test_losses_are_handled_as_in_callbacks():
    from sporax.mindspore.train.callback._callback import _handle_loss

    assert _handle_loss(Tensor([1.0, 3.0])) == 2.0
    assert _handle_loss((Tensor(1.5), 2)).asnumpy() == 1.5


@pytest.mark.parametrize(("role", "enabled", "expected"), [("MS_SCHED", True, "sched"), ("MS_SCHED", False, "")])
def test_roles_of_parameter_servers(monkeypatch, role, enabled, expected):
    from sporax.mindspore.parallel import _ps_context, _utils

    monkeypatch.setenv("MS_ROLE", role)
    monkeypatch.setattr(_utils, "_is_ps_mode", lambda: enabled)
    held = [name for name in ("worker", "pserver", "sched") if getattr(_ps_context, f"_is_role_{name}")()]
    assert held == ([expected] if expected else [])


def test_names_in_second_places():
    from sporax.mindspore._c_expression import typing
    from sporax.mindspore.communication._comm_helper import _is_initialized
    from sporax.mindspore.experimental import optim
    from sporax.mindspore.mint import nn as mint_nn
    from sporax.mindspore.nn import optim_ex
    from sporax.mindspore.nn.layer.activation import _activation
    from sporax.mindspore.version import __version__

    assert optim_ex.AdamW is optim.AdamW
    assert ops.reshard is ms.reshard
    assert nn.Linear is mint_nn.Linear
    assert nn.AvgPool2dExt is mint_nn.AvgPool2d
    assert _activation["relu"] is nn.ReLU
    assert isinstance(ms.float32, typing.Float)
    assert not _is_initialized()
    assert __version__ == "2.10.0"
    assert ops.Tensor is Tensor
    assert ops.operations.identity()(Tensor([2.0])).asnumpy() == 2
    assert ops.composite.repeat_elements(Tensor([1, 2]), 2).asnumpy().tolist() == [1, 1, 2, 2]
    copied = ms.numpy.copy(Tensor([1.0]))
    assert copied.dtype == ms.float32
    assert ms.numpy.copy([1, 2]).dtype == ms.int32


def test_operators_of_layers_and_steps_that_published_models_mark():
    from sporax.mindspore.nn.wrap.cell_wrapper import _VirtualDatasetCell

    net = nn.Dense(2, 2)
    parts = nn.PipelineCell(net, 3).micro_inputs
    embedding = nn.Embedding(4, 2)
    marked = [
        *(part.strided_slice for part in parts),
        embedding.expand,
        embedding.reshape,
        _VirtualDatasetCell(net)._virtual_dataset,
    ]
    assert len(parts) == 3
    assert all(operator.add_prim_attr("recompute", False) is operator for operator in marked)


def test_pooling_keeps_the_sizes_that_it_was_given():
    assert (nn.MaxPool2d(3, 2).kernel_size, nn.AvgPool2d((3, 2), 1).kernel_size, nn.AvgPool2d(2).stride) == (
        3,
        (3, 2),
        1,
    )


def test_checks_of_the_core():
    from sporax.mindspore._c_expression import security
    from sporax.mindspore._checkparam import twice

    assert not security.enable_security()
    assert (twice(3), twice((1, 2))) == ((3, 3), (1, 2))
    with pytest.raises(TypeError, match="must be an int or 2 ints, but got 1.5"):
        twice(1.5)


def test_a_parameter_describes_an_input():
    net = nn.Dense(2, 2)
    net.set_inputs(Parameter(Tensor(np.ones((3, 2), np.float32)), name="x"))
    assert len(net.get_inputs()) == 1


def test_settings_of_the_context_by_its_inner_names():
    from sporax.mindspore._c_expression import MSContext, ms_ctx_param

    inner, before = MSContext.get_instance(), ms.get_context("mode")
    inner.set_param(ms_ctx_param.mode, 1 - before)
    try:
        assert inner.get_param(ms_ctx_param.mode) == ms.get_context("mode") == 1 - before
    finally:
        ms.set_context(mode=before)
    with pytest.raises(ValueError, match="no_such_setting"):
        inner.set_param(ms_ctx_param.no_such_setting, 1)
    with pytest.warns(UserWarning, match="'dataset_broadcast_opt_level' changes nothing"):
        inner.set_param(ms_ctx_param.dataset_broadcast_opt_level, 1)
    assert inner.get_param(ms_ctx_param.dataset_broadcast_opt_level) == 1


def test_cells_of_the_user_on_the_base_of_recurrent_cells():
    from sporax.mindspore.nn.layer.rnn_cells import RNNCellBase

    class Halved(RNNCellBase):
        def __init__(self):
            super().__init__(3, 2, True, num_chunks=4)

        def construct(self, x, hx):
            return ops.matmul(x, self.weight_ih.T)[:, :2] + hx / 2

    cell = Halved()
    shapes = {parameter.name: parameter.shape for parameter in cell.get_parameters()}
    assert shapes == {"weight_ih": (8, 3), "weight_hh": (8, 2), "bias_ih": (8,), "bias_hh": (8,)}
    assert abs(cell.weight_ih.asnumpy()).max() <= 2**-0.5
    assert cell(Tensor(np.zeros((1, 3), np.float32)), Tensor([[2.0, 4.0]])).asnumpy().tolist() == [[1, 2]]
    assert isinstance(nn.GRUCell(3, 2), RNNCellBase)
    with pytest.raises(ValueError, match="hidden_size"):
        RNNCellBase(3, 0, True, 1)


def test_a_function_warns_once_for_its_key():
    from sporax.mindspore.log import _LogActionOnce

    shown = []
    logger = types.SimpleNamespace(warning=shown.append)
    for silent, key in ((False, "a key of this test"), (False, "a key of this test"), (True, "another one")):

        @_LogActionOnce(logger=logger, key=key, no_warning=silent)
        def add(a, b=1):
            logger.warning("added")
            return a + b

        assert (add(1), add(1, b=2)) == (2, 3)
    assert shown == ["added"]
    logger.warning("outside")
    assert shown == ["added", "outside"]


def test_data_sets_know_their_size_once_they_were_queried(tmp_path):
    from sporax.mindspore import dataset

    data = dataset.NumpySlicesDataset(np.arange(6), ["a"]).batch(2).repeat(2)
    assert (data.dataset_size, data.get_dataset_size(), data.dataset_size) == (None, 6, 6)
    (tmp_path / "a.txt").write_text("a line")
    sources = dataset.GeneratorDataset([1], ["a"]), dataset.TextFileDataset(str(tmp_path / "a.txt"))
    assert all(isinstance(source, dataset.SourceDataset) for source in sources)
    assert not isinstance(data, dataset.SourceDataset)


def test_names_at_their_inner_places():
    from sporax.mindspore.common.dtype import type_size_in_bytes
    from sporax.mindspore.dataset import transforms
    from sporax.mindspore.dataset.vision.transforms import PyTensorOperation
    from sporax.mindspore.train.callback import _set_cur_net

    assert [type_size_in_bytes(dtype) for dtype in (ms.bool_, ms.bfloat16, ms.float64)] == [1, 2, 8]
    with pytest.raises(TypeError, match="'dtype' must be a dtype, but got int"):
        type_size_in_bytes(3)
    assert PyTensorOperation is transforms.PyTensorOperation
    assert _set_cur_net(None) is None


def test_names_that_mindnlp_sets():
    from sporax.mindspore._c_expression import Tensor as InnerTensor
    from sporax.mindspore.common._stub_tensor import StubTensor
    from sporax.mindspore.context import K_CONTEXT

    StubTensor.of_stubs = lambda tensor: tensor
    assert InnerTensor is Tensor
    assert not hasattr(Tensor, "of_stubs")
    assert not isinstance(Tensor([1]), StubTensor)
    with pytest.warns(UserWarning, match="the backend policy 'ge' changes nothing"):
        K_CONTEXT.set_backend_policy("ge")


def test_modules_of_distributions_are_attributes():
    place = nn.probability.distribution.distribution
    assert place.Distribution is nn.probability.distribution.Distribution
    assert nn.probability.bijector.exp.Exp is nn.probability.bijector.Exp
    assert ms.numpy.array_ops.expand_dims is ms.numpy.expand_dims


def test_inner_primitives_are_in_ops_as_well():
    x, weight, bias = (
        Tensor(np.ones((2, 3), np.float32)),
        Tensor(np.ones((4, 3), np.float32)),
        Tensor(np.ones(4, np.float32)),
    )
    assert (ops.Dense()(x, weight, bias).asnumpy() == 4).all()
    assert (ops.Dense()(x, weight).asnumpy() == 3).all()
    assert sorted(ops.RandpermV2(0, 0, ms.int64)(5).asnumpy().tolist()) == [0, 1, 2, 3, 4]


def test_wrappers_of_steps_are_listed():
    classes = {name for name in dir(nn.wrap) if isinstance(getattr(nn.wrap, name), type)}
    assert {"DynamicLossScaleUpdateCell", "TrainOneStepWithLossScaleCell", "PipelineCell", "WithLossCell"} <= classes


def test_all_losses_are_in_their_module():
    losses = {name for name in dir(nn.loss) if name.endswith("Loss")}
    assert losses == {name for name in dir(nn) if name.endswith("Loss")}
    assert nn.loss.HuberLoss is nn.HuberLoss
