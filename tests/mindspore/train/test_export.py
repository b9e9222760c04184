"""`export`, `load` and `nn.GraphCell`: the same results without the network's code; what cannot be saved is refused."""

import importlib.util

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops

needs_flatbuffers = pytest.mark.skipif(
    importlib.util.find_spec("flatbuffers") is None, reason="the extra 'export' is not installed"
)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.body = nn.SequentialCell(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(p=0.5))
        self.head = nn.Dense(3, 4)

    def construct(self, x, scale):
        features = self.body(x).mean((2, 3))
        return {"logits": self.head(features) * scale, "parts": [features, (scale, 3)]}


def inputs():
    return Tensor(np.random.default_rng(0).normal(size=(2, 2, 5, 5)).astype(np.float32)), Tensor(2.0, ms.float32)


@needs_flatbuffers
def test_an_exported_network_gives_the_same_results(tmp_path):
    net = Net().set_train(False)
    ms.export(net, *inputs(), file_name=str(tmp_path / "net"), file_format="MINDIR")
    again = nn.GraphCell(ms.load(str(tmp_path / "net.mindir")))
    expected, got = net(*inputs()), again(*inputs())
    np.testing.assert_allclose(got["logits"].asnumpy(), expected["logits"].asnumpy(), rtol=1e-6)
    assert isinstance(got["parts"], list) and got["parts"][1][1] == 3
    assert {p.name for p in again.get_parameters()} == {p.name for p in net.get_parameters()}
    compiled = ms.jit(again)(*inputs())
    np.testing.assert_allclose(compiled["logits"].asnumpy(), expected["logits"].asnumpy(), rtol=1e-6)


@needs_flatbuffers
def test_parameters_can_be_given(tmp_path):
    net = nn.Dense(3, 1, has_bias=False)
    ms.export(net, ops.ones((1, 3)), file_name=str(tmp_path / "dense.mindir"), file_format="MINDIR")
    graph = ms.load(str(tmp_path / "dense.mindir"))
    assert graph.program.platforms == ("cpu", "cuda", "tpu")
    ones = nn.GraphCell(graph, {"weight": ops.ones((1, 3))})
    assert float(ones(ops.ones((1, 3)))) == 3
    assert float(nn.SequentialCell(ones, nn.Identity())(ops.ones((1, 3)))) == 3
    with pytest.raises(ValueError, match="must have names"):
        nn.GraphCell(graph, {"bias": ops.ones((1,))})
    with pytest.raises(ValueError, match="must give"):
        nn.GraphCell(graph, {"weight": ops.ones((2, 3))})
    with pytest.raises(ValueError, match="inputs must be"):
        nn.GraphCell(graph)(ops.ones((2, 3)))


def test_what_is_refused(tmp_path):
    net, name = Net(), str(tmp_path / "net")
    for other in ("ONNX", "AIR", "TXT"):
        with pytest.raises(ValueError, match=f"'file_format' must be 'MINDIR', but got '{other}'"):
            ms.export(net, *inputs(), file_name=name, file_format=other)
    with pytest.raises(NotImplementedError, match="enc_key"):
        ms.export(net, *inputs(), file_name=name, file_format="MINDIR", enc_key=b"0")
    with pytest.raises(TypeError, match="inputs must be Tensors"):
        ms.export(net, 3, file_name=name, file_format="MINDIR")
    with pytest.raises(ValueError, match="must name a file"):
        ms.load(name)


@needs_flatbuffers
def test_networks_that_write_and_files_of_others_are_refused(tmp_path):
    net, name = Net(), str(tmp_path / "net")
    with pytest.raises(RuntimeError, match=r"set_train\(False\)"):
        ms.export(net.set_train(), *inputs(), file_name=name, file_format="MINDIR")
    (tmp_path / "theirs.mindir").write_bytes(b"\x0a\x05")
    with pytest.raises(ValueError, match="MindSpore's own are not read"):
        ms.load(str(tmp_path / "theirs.mindir"))


@needs_flatbuffers
def test_a_dtype_that_the_file_cannot_hold_is_named(tmp_path):
    net = nn.SequentialCell(nn.ReLU())
    net.insert_param_to_cell("phase", ms.Parameter(ops.zeros((2,), ms.complex128), name="phase"))
    with pytest.raises(TypeError, match="'safetensors' has no complex128, but 'phase' is of it"):
        ms.export(net.set_train(False), ops.ones((2,)), file_name=str(tmp_path / "net"), file_format="MINDIR")
    assert not list(tmp_path.iterdir())


def test_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"sporax\[export\]"):
        ms.export(nn.Dense(1, 1), ops.ones((1, 1)), file_name=str(tmp_path / "net"), file_format="MINDIR")
