"""`Cell.shard` and `parallel.shard`: one part of a network is cut as the user says, in both modes."""

import numpy as np
import pytest
from program_text import planned_bytes, read_collectives

import sporax.mindspore as ms
from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Parameter, Tensor, context, grad, nn, ops, value_and_grad
from sporax.mindspore.context._strategy_files.layouts import parameter_layouts
from sporax.mindspore.parallel import Layout, shard

X = np.random.default_rng(2).normal(size=(8, 16)).astype(np.float32)
AUTO = {"parallel_mode": "auto_parallel", "search_mode": "sharding_propagation", "device_num": 8}
SEMI_AUTO = {"parallel_mode": "semi_auto_parallel", "device_num": 8, "dataset_strategy": "full_batch"}
GRID = Layout((2, 4), ("rows", "columns"))


class Net(nn.Cell):
    """Two blocks; the first is cut and called by another name, as MindSpore's example does."""

    def __init__(self, cut=(1, 8)):
        super().__init__()
        self.block = nn.SequentialCell(nn.Dense(16, 32), nn.ReLU(), nn.Dense(32, 16))
        self.rest = nn.Dense(16, 4)
        self.block_cut = self.block.shard(((1, 8),), parameter_plan={"self.block.0.weight": cut})

    def construct(self, x):
        return self.rest(self.block_cut(x))


def held(parameter):
    return parameter.array.addressable_shards[0].data.shape


def test_shard_is_one_function_under_all_of_mindspores_names():
    assert ms.shard is ms.ops.shard is shard


def test_another_name_for_a_sharded_part_leaves_the_names_of_its_parameters():
    net = Net()
    assert [item.name for item in net.get_parameters()][:2] == ["block.0.weight", "block.0.bias"]
    assert [name for name, _ in net.name_cells().items()] == ["block", "rest"]
    assert net.block_cut is net.block
    outer = nn.SequentialCell(net)
    assert outer[0].block[0].weight.name == "0.block.0.weight"
    assert net.block.marks["shard"][2] == {"0.weight": (1, 8)}  # by path, which stays


@pytest.mark.parametrize("settings", [AUTO, SEMI_AUTO], ids=["auto", "semi_auto"])
def test_the_shardings_of_parameters_hold_in_every_mode(settings):
    net, x = Net(), Tensor(X)
    alone = net(x).asnumpy()
    context.set_context(mode=context.GRAPH_MODE)
    context.set_auto_parallel_context(**settings)
    np.testing.assert_allclose(net(x).asnumpy(), alone, rtol=1e-5, atol=1e-6)
    assert held(net.block[0].weight) == (32, 2)


def test_an_eager_network_runs_its_sharded_part_on_all_devices():
    net, x = Net(GRID("columns", "rows")), Tensor(X)
    alone = net(x).asnumpy()
    context.set_context(mode=context.PYNATIVE_MODE)
    context.set_auto_parallel_context(**AUTO)
    np.testing.assert_allclose(net(x).asnumpy(), alone, rtol=1e-5, atol=1e-6)
    assert held(net.block[0].weight) == (8, 8)
    assert net.rest.weight.array.sharding.num_devices == 1 or held(net.rest.weight) == (4, 16)
    function = shard(lambda a: ops.square(a), in_strategy=((2, 4),))
    assert held(function(x)) == (4, 4)


class Eager(nn.Cell):
    """Sharded parts, a Cell and a function, between parts that are not."""

    def __init__(self, is_cut):
        super().__init__()
        self.first = nn.Dense(16, 16)
        self.block = nn.SequentialCell(nn.Dense(16, 32), nn.ReLU(), nn.Dense(32, 16))
        self.rest = nn.Dense(16, 4)
        draw = np.random.default_rng(0)
        for parameter in self.get_parameters():
            parameter.set_data(Tensor(draw.normal(size=parameter.shape).astype(np.float32) * 0.2))
        self.gate = gated
        if is_cut:
            self.block.shard(((1, 8),), parameter_plan={"self.block.0.weight": (8, 1)})
            self.gate = shard(gated, in_strategy=((2, 4), (2, 4)))

    def construct(self, x):
        x = self.first(x)
        return self.rest(self.gate(self.block(x), x))


def gated(a, b):
    return ops.tanh(a) * b


def train(is_cut):
    net, target = Eager(is_cut), Tensor(X[:, :4] * 0.5)
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    step = value_and_grad(lambda x: ops.square(net(x) - target).mean(), None, optimizer.parameters)
    history = []
    for _ in range(3):
        loss, gradients = step(Tensor(X))
        optimizer(gradients)
        history.append([loss.asnumpy(), *(gradient.asnumpy() for gradient in gradients)])
    return net, history


def eager_auto_parallel():
    context.set_context(mode=context.PYNATIVE_MODE)
    context.set_auto_parallel_context(**AUTO)


def test_eager_training_runs_its_sharded_parts_in_slices_forward_and_backward():
    context.set_context(mode=context.PYNATIVE_MODE)
    _, alone = train(False)
    eager_auto_parallel()
    net, history = train(True)
    for step, expected in zip(history, alone, strict=True):
        for actual, value in zip(step, expected, strict=True):
            np.testing.assert_allclose(actual, value, rtol=1e-5, atol=1e-6)
    forward, backward = net.block.program.part.programs()
    assert [len(program.compilations) for program in (forward, backward)] == [1, 1]  # and not at every step
    for program in (forward, backward):
        layouts = parameter_layouts(program.planned)
        assert layouts["block.0.weight"][2] == [4, 16]
        sent, planned = read_collectives(program.executable.as_text()), planned_bytes(program.planned)
        assert sent and sent.keys() == planned.keys()
        # Backward computes the forward again, whose result has no reader: its sum is planned, and the compiler leaves it out.
        unread = {"all_reduce": X.shape[0] * 16 * 4} if program is backward else {}
        assert {name: size - unread.get(name, 0) for name, size in planned.items()} == sent
    assert held(net.block[0].weight) == (4, 16)


DERIVATIVES = {
    "grad": lambda f, x: [grad(lambda x: f(x).sum())(x)],
    "of second order": lambda f, x: [grad(lambda x: (grad(lambda y: f(y).sum())(x) * x).sum())(x)],
    "jvp": lambda f, x: ms.jvp(lambda x: f(x) * 2, x, x + 1),
    "jacfwd": lambda f, x: [ms.jacfwd(f)(x[:, :4])],
    "jacrev": lambda f, x: [ms.jacrev(f)(x[:, :4])],
    "vmap": lambda f, x: [grad(lambda x: ms.vmap(f)(x).sum())(ops.stack([x, x * 2]))],
    "branch": lambda f, x: [grad(lambda x: ops.cond(x.sum() > -1000.0, f, lambda a: a, x).sum())(x)],
    "vjp twice": lambda f, x: [ms.vjp(f, x)[1](x)[0], ms.vjp(f, x)[1](x * 2)[0]],
    "two calls": lambda f, x: value_and_grad(lambda x: f(f(x) + x).sum())(x),
    "sensitivity": lambda f, x: [grad(f, sens_param=True)(x, x)],
}


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES)
def test_all_derivatives_of_eager_code_go_through_sharded_parts(derivative):
    def wave(a):
        return ops.sin(a) * a

    alone = [value.asnumpy() for value in derivative(wave, Tensor(X))]
    eager_auto_parallel()
    actual = derivative(shard(wave, in_strategy=((2, 4),)), Tensor(X))
    for value, expected in zip(actual, alone, strict=True):
        np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-5, atol=1e-5)
    assert all(value.array.sharding.num_devices == 8 for value in actual)


def written_in_parts(wrap):
    scale = Parameter(Tensor(X + 2), name="scale")
    frozen = Parameter(Tensor(X + 1), name="frozen", requires_grad=False)

    def part(a, index, factor=1):
        b = a * scale * frozen * factor
        ops.assign(frozen, frozen + 1)
        return b, [ops.argmax(b, 1), index], "name"

    function = wrap(part)

    def forward(x, frozen):
        first, (rows, _), name = function(x, Tensor([1, 2]), factor=2)
        assert name == "name"
        second, _, _ = function(x, Tensor([1, 2]), factor=2)  # sees what the first call has written
        return (first * second).sum() + rows.sum()

    loss, (inputs, weights) = value_and_grad(forward, (0, 1), [scale])(Tensor(X), frozen)
    return [item.asnumpy() for item in (loss, *inputs, *weights, frozen)]


def test_what_a_sharded_part_writes_is_seen_by_the_next_call_and_kept():
    alone = written_in_parts(lambda part: part)
    eager_auto_parallel()
    actual = written_in_parts(lambda part: shard(part, in_strategy=((2, 4), (1,))))
    for value, expected in zip(actual, alone, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-4)


def test_a_sharded_part_draws_the_same_numbers_forward_and_backward():
    eager_auto_parallel()
    net = nn.SequentialCell(nn.Dropout(p=0.5)).set_train().shard(((8, 1),))
    output, backward = ms.vjp(net, Tensor(X))
    np.testing.assert_allclose(backward(Tensor(X))[0].asnumpy(), output.asnumpy(), rtol=1e-6)
    again = ms.vjp(net, Tensor(X))[0].asnumpy()
    assert ((again != 0) != (output.asnumpy() != 0)).any()


def test_tensors_from_outside_that_are_differentiated_are_refused():
    eager_auto_parallel()

    def forward(x):
        scale = x * 2
        return shard(lambda a: a * scale, in_strategy=((2, 4),))(x).sum()

    with pytest.raises(SporaxRuntimeError, match="must get all Tensors that are differentiated as inputs"):
        grad(forward)(Tensor(X))


def test_derivatives_by_integers_are_refused_in_sharded_parts():
    eager_auto_parallel()
    square = shard(lambda a: a * a, in_strategy=((2, 4),))
    with pytest.raises(SporaxNotImplementedError, match="'shard' inside of a derivative by integers"):
        grad(lambda x: square(x).sum())(Tensor(np.arange(32).reshape(8, 4)))


def recomputed(is_cut):
    # Small weights: where tanh is near 1, its derivative 1 - tanh² keeps the rounding of tanh and little else.
    block = nn.SequentialCell(nn.Dense(16, 16, weight_init=Tensor(X.T @ X / 100), bias_init="zeros"))
    if is_cut:
        block.shard(((1, 8),), parameter_plan={"0.weight": (8, 1)})
    net = nn.SequentialCell(nn.Tanh(), block, nn.Tanh())
    net.recompute()
    loss, (inputs, weights) = value_and_grad(lambda x: net(net(x)).sum(), 0, net.trainable_params())(Tensor(X))
    return [item.asnumpy() for item in (loss, inputs, *weights)], block


def test_a_sharded_part_inside_of_recompute_runs_in_slices():
    alone, _ = recomputed(False)
    eager_auto_parallel()
    actual, block = recomputed(True)
    for value, expected in zip(actual, alone, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
    forward, backward = block.program.part.programs()
    assert [program.planned.plan.mesh.num_devices for program in (forward, backward)] == [8, 8]


@pytest.mark.parametrize(
    ("plan", "error", "words"),
    [
        (
            {"0.weight": (8,)},
            SporaxValueError,
            r"'0\.weight' .*must have 2 numbers for its shape \(32, 16\), but got \(8,\)",
        ),
        ({"0.weight": (3, 1)}, SporaxValueError, "dimension 0 has size 32 and got 3"),
        ({"0.weight": (0, 1)}, SporaxValueError, "dimension 0 has size 32 and got 0"),
        ({"0.weight": GRID("rows")}, SporaxValueError, "must have 2 numbers"),
        ({"0.weight": [8, 1]}, SporaxTypeError, "tuples or Layouts by name, but got str and list"),
        ({3: (8, 1)}, SporaxTypeError, "but got int and tuple"),
    ],
)
def test_plans_that_do_not_fit_are_refused_where_they_are_given(plan, error, words):
    block = nn.SequentialCell(nn.Dense(16, 32))
    with pytest.raises(error, match=f"For 'SequentialCell.shard'.*{words}"):
        shard(block, in_strategy=((8, 1),), parameter_plan=plan)
    assert "shard" not in block.marks


def test_unknown_parameters_are_left_out():
    with pytest.warns(UserWarning, match=r"'nowhere', which is not a Parameter of Dense: ignored.*'bias', 'weight'"):
        nn.Dense(16, 32).shard(((8, 1),), parameter_plan={"nowhere": (8, 1)})


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (((3, 1),), "the number of slices of dimension 0 of tensor 0 must be a power of 2 on 8 devices, but got 3"),
        (((8,),), r"tensor 0 must have 2 numbers for its shape \(8, 16\), but got \(8,\)"),
        (((1, 1), (1, 1)), "one entry for each of the 1 Tensors, but got 2"),
        (((8, 2),), r"must divide the 8 devices, but \(8, 2\) makes 16"),
    ],
)
def test_strategies_that_do_not_fit_name_the_function(strategy, words):
    def doubled(x):
        return x * 2

    context.set_auto_parallel_context(**SEMI_AUTO)
    with pytest.raises(SporaxRuntimeError, match=f"For 'doubled'.*{words}"):
        shard(doubled, in_strategy=strategy)(Tensor(X))
