"""``MS_COMM_COMPILER_OPT`` in training: fewer operators, the same bits, and a line that says so."""

import re
from collections import Counter

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.ir.variables import VARIABLES
from sporax.mindspore import Tensor, communication, context, nn, ops
from sporax.runtime.ranks import collective_order

WIDTH = 16
OPERATORS = r"(?:all.reduce|all.gather|reduce.scatter|all.to.all|collective.permute)"


@pytest.fixture(autouse=True)
def _untouched(monkeypatch):
    monkeypatch.delenv("MS_COMM_COMPILER_OPT", raising=False)
    collective_order.say_once.cache_clear()
    mode = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.reset_auto_parallel_context()
    ms.set_context(mode=mode)


class Block(nn.Cell):
    """A column-sharded product and a row-sharded one, with biases and a norm."""

    def __init__(self, number):
        super().__init__()
        draw = np.random.default_rng(number)
        self.rise = ms.Parameter(Tensor(draw.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 4), name="rise")
        self.fall = ms.Parameter(Tensor(draw.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 4), name="fall")
        self.bias = ms.Parameter(Tensor(draw.normal(size=WIDTH).astype(np.float32) / 4), name="bias")
        self.first, self.second, self.tanh, self.add = ops.MatMul(), ops.MatMul(), ops.Tanh(), ops.Add()

    def construct(self, x):
        return self.add(self.second(self.tanh(self.first(x, self.rise)), self.fall), self.bias)


class Net(nn.Cell):
    def __init__(self, layers, strategies=()):
        super().__init__()
        self.blocks = nn.CellList([Block(number) for number in range(layers)])
        for block in self.blocks if strategies else ():
            block.first.shard(strategies[0])
            block.second.shard(strategies[1])

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return (x * x).mean()


class Run:
    """Losses and weights of three steps, and how many operators the lowered and the compiled program have."""

    def __init__(self, layers=3, strategies=(), rows=16, **settings):
        ms.set_auto_parallel_context(device_num=8, full_batch=True, **settings)
        ms.set_seed(3)
        net = Net(layers, strategies)
        step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train()
        x = Tensor(np.random.default_rng(1).normal(size=(rows, WIDTH)).astype(np.float32))
        self.bits = [step(x).asnumpy().tobytes() for _ in range(3)]
        self.bits += [parameter.asnumpy().tobytes() for parameter in net.get_parameters()]
        lowered = step.program.lower(x)
        self.lowered = len(re.findall(rf"\bstablehlo\.{OPERATORS}", lowered.as_text()))
        text = lowered.compile().as_text()
        self.compiled = len(re.findall(rf" {OPERATORS}(?:-start)?\(", text))
        self.instructions = Counter(re.findall(r"= (\S+) ([a-z-]+)\(", text))


TENSOR = (((2, 1), (1, 4)), ((2, 4), (4, 1)))
SEMI_AUTO = {"parallel_mode": "semi_auto_parallel"}
SHARDED = {
    **SEMI_AUTO,
    "enable_parallel_optimizer": True,
    "parallel_optimizer_config": {"parallel_optimizer_threshold": 0},
}


def reported(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if "communication" in line]


def test_optimizer_parallelism_gathers_and_scatters_by_calls(monkeypatch, capsys):
    plain = Run(strategies=(((8, 1), (1, 1)),) * 2, **SHARDED)
    assert not reported(capsys)
    monkeypatch.setenv("MS_COMM_COMPILER_OPT", "-1")
    reused = Run(strategies=(((8, 1), (1, 1)),) * 2, **SHARDED)
    assert reused.bits == plain.bits
    assert plain.lowered >= 18 and reused.lowered <= 6
    (line,) = reported(capsys)
    words = re.search(
        r"at most 1000\): (\d+) of (\d+) operators are calls now; subgraphs (\d+), operators left (\d+)", line
    )
    calls, operators, subgraphs, left = map(int, words.groups())
    assert operators == plain.lowered and left == reused.lowered == operators - calls + subgraphs


def test_operator_parallelism_lowers_each_class_once(monkeypatch, capsys):
    """The lowered program has one operator for each class; XLA writes calls out, and loops over layers have fewer there, too."""
    plain = Run(5, TENSOR, **SEMI_AUTO)
    monkeypatch.setenv("MS_COMM_COMPILER_OPT", "-1")
    reused = Run(5, TENSOR, **SEMI_AUTO)
    assert reused.bits == plain.bits
    assert reused.lowered * 3 < plain.lowered
    assert reused.compiled == plain.compiled and reused.instructions == plain.instructions
    assert len(reported(capsys)) == 1
    monkeypatch.setenv("SPORAX_REPEATED_BLOCKS", "1")
    both = Run(5, TENSOR, **SEMI_AUTO)
    assert both.lowered < both.compiled < plain.compiled


def test_the_number_of_the_sample_reuses_three_operators(monkeypatch, capsys):
    plain = Run(5, TENSOR, **SEMI_AUTO)
    monkeypatch.setenv("MS_COMM_COMPILER_OPT", "3")
    reused = Run(5, TENSOR, **SEMI_AUTO)
    assert reused.bits == plain.bits
    assert reused.lowered == plain.lowered - 2
    assert f"at most 3): 3 of {plain.lowered} operators are calls now; subgraphs 1" in reported(capsys)[0]


def test_automatic_parallelism(monkeypatch):
    settings = {"parallel_mode": "auto_parallel", "search_mode": "recursive_programming"}
    plain = Run(rows=4096, **settings)  # so many that sharding pays
    monkeypatch.setenv("MS_COMM_COMPILER_OPT", "-1")
    reused = Run(rows=4096, **settings)
    assert reused.bits == plain.bits
    assert reused.lowered < plain.lowered


def test_stages_of_a_pipeline(monkeypatch, capsys):
    """Each program of a stage reuses what it has."""

    def losses():
        ms.set_auto_parallel_context(**SEMI_AUTO, device_num=8, pipeline_stages=2, full_batch=True)
        net = Net(6, (((1, 1), (1, 4)), ((1, 4), (4, 1))))
        for number, block in enumerate(net.blocks):
            block.pipeline_stage = number // 3
        piped = nn.PipelineCell(net, 2)
        step = nn.TrainOneStepCell(piped, nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train()
        x = Tensor(np.random.default_rng(1).normal(size=(16, WIDTH)).astype(np.float32))
        return [step(x).asnumpy().tobytes() for _ in range(3)] + [p.asnumpy().tobytes() for p in net.get_parameters()]

    plain = losses()
    monkeypatch.setenv("MS_COMM_COMPILER_OPT", "-1")
    assert losses() == plain
    assert any(re.search(r"[1-9]\d* of \d+ operators are calls", line) for line in reported(capsys))


@pytest.fixture
def ranks(monkeypatch):
    """This process as eight ranks of data parallelism."""
    for name in ("MS_ROLE", "RANK_TABLE_FILE", "RANK_SIZE", "RANK_ID", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    communication.init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    yield
    ms.reset_auto_parallel_context()
    communication.release()


def test_operators_of_the_user_among_ranks(monkeypatch, capsys, ranks):
    """They keep their order, and each class is lowered once."""
    reduce, gather = ops.AllReduce(), ops.AllGather()

    def run():
        @ms.jit
        def exchange(x):
            for _ in range(4):
                x = ops.tanh(reduce(x))
            return gather(x) + gather(x * 2)

        x = Tensor(np.random.default_rng(2).normal(size=(8, 4)).astype(np.float32))
        result = exchange(x).asnumpy()
        return result, exchange.program.lower(x).as_text()

    plain, before = run()
    monkeypatch.setenv("MS_COMM_COMPILER_OPT", "-1")
    reused, after = run()
    assert plain.tobytes() == reused.tobytes()
    counts = [len(re.findall(rf"\bstablehlo\.{OPERATORS}", text)) for text in (before, after)]
    assert counts == [6, 2]
    assert "6 of 6 operators are calls now; subgraphs 2, operators left 2" in reported(capsys)[0]


def test_a_program_without_equal_operators_says_so(monkeypatch, capsys):
    monkeypatch.setenv("MS_COMM_COMPILER_OPT", "-1")
    ms.set_auto_parallel_context(**SEMI_AUTO, device_num=8, full_batch=True)
    product = ops.MatMul().shard(((1, 8), (8, 1)))
    x = Tensor(np.ones((16, WIDTH), np.float32))
    for times, reason in (
        (1, "no two of its communication operators (2) are equal"),
        (0, "it has no communication operators"),
    ):

        @ms.jit
        def multiplied(x, times=times):
            return product(x, x.T) if times else x + 1

        multiplied(x)
        assert f"'multiplied' reuses no communication (MS_COMM_COMPILER_OPT): {reason}" in reported(capsys)[0]


def test_one_device_is_warned_that_it_has_no_effect(monkeypatch):
    monkeypatch.setenv("MS_COMM_COMPILER_OPT", "-1")
    context.forget_reported()
    net = Net(1)
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1)).set_train()
    with pytest.warns(
        UserWarning, match=r"For 'MS_COMM_COMPILER_OPT', '-1' has no effect in this step: it needs a parallel"
    ):
        step(Tensor(np.ones((16, WIDTH), np.float32)))


def test_another_number_compiles_the_step_again(monkeypatch):
    ms.set_auto_parallel_context(**SEMI_AUTO, device_num=8, full_batch=True)
    net = Net(3, TENSOR)
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1)).set_train()
    x = Tensor(np.ones((16, WIDTH), np.float32))

    def count():
        return len(re.findall(rf"\bstablehlo\.{OPERATORS}", step.program.lower(x).as_text()))

    before = count()
    monkeypatch.setenv("MS_COMM_COMPILER_OPT", "-1")
    context.set_auto_parallel_context(gradients_mean=True)
    assert count() < before


def test_the_table_and_the_reader_agree():
    """What commands refuse before they start processes is what a step refuses."""
    for text in VARIABLES["MS_COMM_COMPILER_OPT"].kind.outside:
        with pytest.raises(ValueError, match="For 'MS_COMM_COMPILER_OPT', the value must be -1 or a positive number"):
            collective_order.reuse_limit({"MS_COMM_COMPILER_OPT": text})
