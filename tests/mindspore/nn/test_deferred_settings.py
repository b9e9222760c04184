"""Settings that come after what they are about was made take effect, and constructors keep none of them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, context, nn, ops

SOURCE = Path(ms.__file__).parent


@pytest.fixture(autouse=True)
def _graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.reset_auto_parallel_context()
    ms.set_context(device_target="CPU", device_id=0)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = Parameter(Tensor(np.linspace(-1, 1, 16 * 64, dtype=np.float32).reshape(16, 64)))
        self.second = Parameter(Tensor(np.linspace(-1, 1, 64 * 8, dtype=np.float32).reshape(64, 8)))
        self.matmul, self.relu, self.last = ops.MatMul(), ops.ReLU(), ops.MatMul()

    def construct(self, x):
        return ops.square(self.last(self.relu(self.matmul(x, self.first)), self.second)).mean()


X = Tensor(np.linspace(-1, 1, 8 * 16, dtype=np.float32).reshape(8, 16))


def make_step():
    net = Net()
    return net, nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))


def set_first_whole(net):
    net.first.parallel_optimizer = False


def set_second_alone(net):
    net.second.comm_fusion = 0


COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
MARKS = {
    "the operator 'matmul'": lambda net: net.matmul.shard(((1, 1), (1, 8))),
    "the operator 'relu'": lambda net: net.relu.recompute(),
    "the operator 'last'": lambda net: net.last.set_device("CPU"),
    "Parameter 'first'": set_first_whole,
    "Parameter 'second'": set_second_alone,
}


@pytest.mark.parametrize("who", MARKS)
def test_marks_after_the_first_step_give_the_step_that_they_give_before_it(who):
    config = {"parallel_optimizer_threshold": 0}
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        device_num=8,
        enable_parallel_optimizer=True,
        parallel_optimizer_config=config,
    )
    net, early = make_step()
    MARKS[who](net)
    other, late = make_step()
    late(X)
    MARKS[who](other)
    compiled = [step.program.lower(X).compile().as_text() for step in (late, early)]
    counts = [{kind: text.count(f" {kind}(") for kind in COLLECTIVES} for text in compiled]
    assert counts[0] == counts[1]
    losses = [early(X).asnumpy() for _ in range(3)][1:]
    np.testing.assert_allclose([late(X).asnumpy() for _ in range(2)], losses, rtol=1e-6)
    (_, second) = ms.recompilations(late)
    assert second.startswith(who)


def test_a_device_that_is_chosen_after_the_first_step_takes_the_step():
    net, step = make_step()
    ms.set_device("CPU", 0)
    step(X)
    ms.set_device("CPU", 3)
    step(X)
    assert net.first.array.devices() == {jax.devices("cpu")[3]}


def test_an_optimizer_is_where_the_device_is_now():
    optimizer = nn.SGD(Net().trainable_params(), 0.1)
    assert optimizer.target == context.get_context("device_target")


def test_the_number_of_stages_divides_gradients_whenever_it_is_set():
    net = nn.PipelineCell(Net(), 2)
    step = ms.Model(net, None, nn.SGD(net.trainable_params(), 0.1)).train_network
    assert step._factor == 1.0
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", pipeline_stages=2)
    assert step._factor == 0.5


def test_lookups_are_sharded_by_the_mode_in_which_they_are_compiled():
    lookup = nn.EmbeddingLookup(16, 4, target="DEVICE", slice_mode="table_row_slice")
    assert "in_strategy" not in lookup.embeddinglookup.attrs
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    lookup(Tensor([[1, 2]]))
    assert lookup.embeddinglookup.in_strategy == ((8, 1), (1, 1))
    ms.set_auto_parallel_context(device_num=4)
    lookup(Tensor([[1, 2]]))
    assert lookup.embeddinglookup.in_strategy == ((4, 1), (1, 1))


def test_lookups_keep_the_strategy_of_the_user():
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    lookup = nn.EmbeddingLookup(16, 4, target="DEVICE")
    lookup.embeddinglookup.shard(((2, 1), (1, 1)))
    lookup(Tensor([[1, 2]]))
    assert lookup.embeddinglookup.in_strategy == ((2, 1), (1, 1))


def test_a_reducer_is_refused_where_a_plan_reduces():
    parameters = Net().trainable_params()
    reducer = nn.DistributedGradReducer(parameters)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    with pytest.raises(
        RuntimeError, match=r"^For 'DistributedGradReducer', the parallel mode must not be 'semi_auto_par"
    ):
        nn.DistributedGradReducer(parameters)
    with pytest.raises(
        RuntimeError, match=r"^For 'DistributedGradReducer', the parallel mode must not be 'semi_auto_par"
    ):
        reducer(tuple(parameter.value() for parameter in parameters))


def test_derived_steps_may_set_what_is_read_late():
    _, step = make_step()
    assert step.reducer_flag is False
    assert step.degree == 1
    step.reducer_flag, step.degree = True, 4
    assert step.reducer_flag is True
    assert step.degree == 4
    assert step.fingerprint()["_own_degree"] == 4


# ------------------------------------------------------------------------------------------- what constructors read

READERS = {
    "snapshot", "parallel_mode", "get_context", "graph_mode", "get_auto_parallel_context", "ps_snapshot", "world_size",
    "num_devices", "devices_of_only_process", "has_peers", "this_rank", "get_rank", "get_group_size", "reduces",
    "offload_snapshot", "search_snapshot",
}  # fmt: skip
"""Functions that give a setting of the process, or its place in the job."""

RUNS = {"__init__", "__call__", "__get__", "construct", "program", "run_program", "call"}
"""Names of what a constructor may mention and does not call."""

CONSTRUCTORS = {"__init__", "_prepare"}
"""A constructor, and what one that follows from fields ends with."""

ONLY_CHECKED = {
    "sporax.mindspore.nn.embedding:EmbeddingLookup": "whether servers keep the table; without them it warns that it has no cache",
    "sporax.mindspore.nn.grad_reducer:DistributedGradReducer": "warns and refuses at once what is decided again in each step",
    "sporax.mindspore.nn.step_parts:_TrainGradAccuWithLossScaleCell": "refuses other modes, as MindSpore does",
    "sporax.mindspore.common.parameter:Parameter": "when values are drawn, and not which: in planned modes not before the plan is known",
    "sporax.mindspore.ops._collectives.requests:P2POp": "refuses a message to the rank itself; exists once the ranks have joined",
    "sporax.mindspore.parallel._layout:Layout": "a name in common: the number of devices in its own matrix",
    "sporax.mindspore.parallel.auto_parallel:AutoParallel": "a name in common: its `_set` reads nothing",
    "sporax.mindspore.train.dataset_helper:DatasetHelper": "how batches come in sink mode; values are the same",
}
"""Constructors that read one, and why nothing of it is wrong when the setting changes later."""


def constructors_that_read(package: str) -> Iterator[str]:
    for path in sorted((SOURCE / package).rglob("*.py")):
        module = ".".join(("sporax.mindspore", *path.relative_to(SOURCE).with_suffix("").parts))
        tree = ast.parse(path.read_text())
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            own = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef)}
            if any(reads({**functions, **own}, part, set()) for part in CONSTRUCTORS & own.keys()):
                yield f"{module}:{owner.name}"


def reads(functions: dict[str, ast.FunctionDef], name: str, seen: set[str]) -> bool:
    """Whether a function reads a setting, by itself or by others of its module."""
    if name not in functions or name in seen:
        return False
    seen.add(name)
    used = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(functions[name])
        if isinstance(node, ast.Attribute | ast.Name)
    }
    return bool(used & READERS) or any(reads(functions, other, seen) for other in used - RUNS)


@pytest.mark.parametrize("package", ["nn", "amp", "parallel", "ops", "mint", "experimental", "train", "common"])
def test_constructors_read_no_setting_for_later(package):
    found = set(constructors_that_read(package))
    expected = {name for name in ONLY_CHECKED if name.startswith(f"sporax.mindspore.{package}.")}
    assert found == expected
