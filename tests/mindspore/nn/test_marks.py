import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, nn, ops


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(2, 2)
        self.matmul = ops.MatMul()

    def construct(self, x):
        return self.matmul(self.fc(x), x)


@pytest.mark.parametrize("name", ["pipeline_stage", "pipeline_segment"])
def test_stage_is_a_natural_number(name):
    net = Net()
    assert getattr(net, name) is None
    setattr(net, name, 2)
    assert getattr(net, name) == net.marks[name] == 2
    with pytest.raises(SporaxTypeError, match=f"'{name}' must be an int"):
        setattr(net, name, "1")
    with pytest.raises(SporaxTypeError, match=f"'{name}' must be an int"):
        setattr(net, name, True)
    with pytest.raises(SporaxValueError, match="must be >= 0, but got -1"):
        setattr(net, name, -1)


def test_shard_returns_the_cell_and_checks_its_strategies():
    net = Net()
    assert net.shard(((2, 1), None), ((1, 1),), {"fc.weight": (2, 1)}) is net
    assert net.marks["shard"] == (((2, 1), None), ((1, 1),), {"fc.weight": (2, 1)}, "Ascend", 0)
    for wrong in ({"in_strategy": [(1, 1)]}, {"in_strategy": ((1.5, 1),)}, {"in_strategy": (3,)}):
        with pytest.raises(SporaxTypeError, match="'in_strategy'"):
            net.shard(**wrong)
    with pytest.raises(SporaxTypeError, match="'parameter_plan' must be a dict"):
        net.shard(((1, 1),), parameter_plan=[1])
    with pytest.raises(SporaxTypeError, match="'device'"):
        net.shard(((1, 1),), device="TPU")
    with pytest.raises(SporaxTypeError, match="'level'"):
        net.shard(((1, 1),), level=3)


def test_a_level_of_mindspores_search_changes_nothing_and_says_so():
    net = Net()
    with pytest.warns(UserWarning, match="level=1 changes nothing"):
        net.shard(((1, 1),), level=1)
    assert net.marks["shard"][0] == ((1, 1),)


def test_recompute_settings_are_checked_and_set_once():
    net = Net()
    net.recompute(mp_comm_recompute=False)
    net.recompute()
    assert net.marks["recompute"]["mp_comm_recompute"] is False
    with pytest.raises(SporaxValueError, match="but got 'everything'"):
        Net().recompute(everything=True)
    with pytest.raises(SporaxTypeError, match="must be a bool"):
        Net().recompute(mp_comm_recompute=1)


def test_comm_fusion_reaches_the_trainable_parameters():
    net = Net()
    net.fc.bias.requires_grad = False
    net.set_comm_fusion(3)
    assert (net.fc.weight.comm_fusion, net.fc.bias.comm_fusion) == (3, 1)
    with pytest.raises(SporaxValueError, match=">= 0"):
        net.set_comm_fusion(-1)
    with pytest.raises(SporaxTypeError, match="must be an int"):
        net.set_comm_fusion("1")


def test_data_parallel_reaches_all_below():
    net = Net()
    assert net.set_data_parallel() is net
    assert net.fc.marks["strategy_gen_mode"] == "data_parallel"


def test_a_cell_is_placed_on_a_worker_that_there_is():
    net, x = Net(), Tensor([[1.0, 2.0], [3.0, 4.0]])
    values = net(x).asnumpy()
    net.place("MS_WORKER", 0)
    assert (net(x).asnumpy() == values).all()
    net.place("MS_WORKER", 1)
    for call in (net, ms.jit(net)):
        with pytest.raises(SporaxRuntimeError, match="For 'Net', 'rank_id' must be < 1, the workers, but got 1"):
            call(x)
    net.matmul.place("MS_WORKER", 2)
    with pytest.raises(SporaxRuntimeError, match="For 'MatMul', 'rank_id' must be < 1, the workers, but got 2"):
        net.matmul(x, x)
    with pytest.raises(SporaxValueError, match="'MS_WORKER'"):
        net.place("MS_SERVER", 0)
    with pytest.raises(SporaxTypeError, match="'rank_id' must be an int"):
        net.place("MS_WORKER", 1.0)
    ms.set_auto_parallel_context(parallel_mode="data_parallel")
    try:
        with pytest.raises(
            SporaxRuntimeError, match="must be used in the parallel mode 'stand_alone', but the mode is 'data_"
        ):
            net.place("MS_WORKER", 0)
    finally:
        ms.reset_auto_parallel_context()


def test_marks_change_no_values():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    net = Net()
    before = net(x).asnumpy()
    net.shard(((1, 1),)).set_data_parallel()
    net.pipeline_stage = 1
    assert (net(x).asnumpy() == before).all()


def test_a_mark_set_later_compiles_anew():
    ms.set_context(mode=ms.GRAPH_MODE)
    net = nn.Dense(2, 2)
    net(Tensor([[1.0, 2.0]]))
    net.pipeline_stage = 1
    net(Tensor([[1.0, 2.0]]))
    assert "pipeline_stage" in ms.recompilations(net)[1]
