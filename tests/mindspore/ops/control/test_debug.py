"""Values that a program writes down while it runs."""

import itertools

import jax
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn, ops
from sporax.mindspore.ops.control.debug import TensorDump


class Dumping(nn.Cell):
    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.product = ops.Add().shard(((2, 4), (2, 4)))

    def construct(self, x):
        y = self.product(x, x)
        ops.tensordump(f"{self.folder}/deep/sum.npy", y)
        ops.TensorDump("in")(f"{self.folder}/half", y.astype(ms.bfloat16))
        return y


@pytest.mark.parametrize("how", ["eager", "compiled", "planned"])
def test_tensors_are_saved_under_a_number(how, tmp_path, monkeypatch):
    monkeypatch.setattr(TensorDump, "_numbers", itertools.count())
    mode = context.get_context("mode")
    context.set_context(mode=context.PYNATIVE_MODE if how == "eager" else context.GRAPH_MODE)
    try:
        if how == "planned":
            context.set_auto_parallel_context(
                parallel_mode="semi_auto_parallel", device_num=8, dataset_strategy="full_batch"
            )
        values = np.arange(32, dtype=np.float32).reshape(4, 8)
        Dumping(tmp_path)(Tensor(values))
        jax.effects_barrier()
    finally:
        context.reset_auto_parallel_context()
        context.set_context(mode=mode)
    (first,), (second,) = tmp_path.glob("deep/sum_float32_*.npy"), tmp_path.glob("half_in_bfloat16_*.npy")
    np.testing.assert_array_equal(np.load(first), 2 * values)
    assert np.load(second).dtype == np.float32


def test_what_cannot_be_saved_is_refused():
    with pytest.raises(ValueError, match="'input_output' must be 'in' or 'out', but got 'all'"):
        ops.TensorDump("all")
    with pytest.warns(UserWarning, match="side_effect_io"):
        assert isinstance(ops.TensorDump().add_prim_attr("side_effect_io", False), TensorDump)
    assert isinstance(ops.NPUAllocFloatStatus().add_prim_attr("stage", 0), ops.Primitive)
    for arguments in ((3, Tensor([1.0])), ("x", [1.0])):
        with pytest.raises(TypeError, match="For 'TensorDump'"):
            ops.tensordump(*arguments)


def test_gradients_are_saved_where_they_pass(tmp_path, monkeypatch):
    monkeypatch.setattr(TensorDump, "_numbers", itertools.count())
    dump = ops.DumpGradient()
    slope = ms.grad(lambda x: (dump(f"{tmp_path}/dx", x * 2, "in") ** 2).sum())(Tensor([1.0, 3.0]))
    np.testing.assert_array_equal(slope.asnumpy(), [8.0, 24.0])
    ms.runtime.synchronize()
    np.testing.assert_array_equal(np.load(tmp_path / "dx_in_float32_0.npy"), [4.0, 12.0])
