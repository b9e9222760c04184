import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxAttributeError, SporaxKeyError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Parameter, Tensor, nn, ops


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(2, 2)
        self.scale = Parameter(Tensor([2.0]), name="scale")

    def construct(self, x):
        return self.fc(x) * self.scale


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = Block()
        self.second = Block()
        self.own = Parameter(Tensor([1.0]))

    def construct(self, x):
        return self.second(self.first(x)) + self.own


def names(parameters):
    return [parameter.name for parameter in parameters]


def test_an_argument_may_be_called_cls():
    class Weighted(nn.Cell):
        def __init__(self, box, cls):
            super().__init__()
            self.factors = box, cls

    assert Weighted(box=1.0, cls=0.5).factors == (1.0, 0.5)


def test_parameters_are_named_by_the_path_of_attributes_own_ones_first():
    net = Net()
    expected = ["own", "first.scale", "first.fc.weight", "first.fc.bias"]
    expected += [name.replace("first", "second") for name in expected[1:]]
    assert names(net.get_parameters()) == expected
    assert [path for path, _ in net.parameters_and_names()] == expected
    assert list(net.parameters_dict()) == expected
    assert names(net.get_parameters(expand=False)) == ["own"]


def test_frozen_parameters_are_not_trainable():
    net = Net()
    net.first.fc.weight.requires_grad = False
    assert "first.fc.weight" not in names(net.trainable_params())
    assert names(net.untrainable_params()) == ["first.fc.weight"]


def test_cells_are_walked_by_path_each_once():
    net = Net()
    net.again = net.first
    assert [path for path, _ in net.cells_and_names()] == ["", "first", "first.fc", "second", "second.fc"]
    assert list(net.name_cells()) == ["first", "second"]
    assert list(net.cells()) == [net.first, net.second]
    without = [path for path, _ in net.cells_and_names({net.first}, "top")]
    assert without == ["top", "top.second", "top.second.fc"]


def test_broadcast_dict_leaves_layerwise_parallel_parameters_out():
    net = Net()
    net.own.layerwise_parallel = True
    assert "own" not in net.parameters_broadcast_dict()
    assert "first.scale" in net.parameters_broadcast_dict()


def test_prefix_is_put_in_front_of_all_names():
    net = Net()
    net.update_parameters_name("student.")
    assert names(net.get_parameters())[:2] == ["student.own", "student.first.scale"]
    with pytest.raises(SporaxTypeError, match="'prefix' must be a string"):
        net.update_parameters_name(3)


def test_training_flag_reaches_all_cells():
    net = Net()
    assert not net.training
    assert net.set_train() is net
    assert all(cell.training for _, cell in net.cells_and_names())
    net.set_train(False)
    assert not any(cell.training for _, cell in net.cells_and_names())
    assert net.set_grad() is net
    assert net.requires_grad


def test_children_and_parameters_can_be_inserted():
    net = nn.Cell()
    net.insert_child_to_cell("child", nn.Dense(2, 2))
    net.insert_param_to_cell("w", Parameter(Tensor([1.0])))
    assert names(net.get_parameters()) == ["w", "weight", "bias"]
    with pytest.raises(SporaxTypeError, match="'child_cell' must be a Cell"):
        net.insert_child_to_cell("other", 3)
    for name in ("", "a.b", "w"):
        with pytest.raises(SporaxKeyError, match=f"the name '{name}' is empty, contains '.', or is taken"):
            net.insert_child_to_cell(name, nn.Dense(2, 2))
    net.insert_child_to_cell("none", None)
    net.insert_param_to_cell("no_parameter", None)
    assert (net.none, net.no_parameter) == (None, None)
    assert [path for path, _ in net.cells_and_names()] == ["", "child"]
    with pytest.raises(SporaxKeyError, match="must not be empty or contain"):
        net.insert_param_to_cell("a.b", Parameter(Tensor([1.0])))
    net.taken = 3
    with pytest.raises(SporaxKeyError, match="taken by another attribute"):
        net.insert_param_to_cell("taken", Parameter(Tensor([1.0])))


def test_a_cell_or_parameter_is_replaced_only_by_its_like_or_none():
    net = Net()
    with pytest.raises(SporaxTypeError, match="attribute 'first' is a Cell"):
        net.first = 3
    with pytest.raises(SporaxKeyError, match="attribute 'own' is a Parameter"):
        net.own = nn.Dense(2, 2)
    with pytest.raises(SporaxKeyError, match="attribute 'first' is a Cell, not a Parameter"):
        net.first = Parameter(Tensor([1.0]))
    net.own = Tensor([7.0])
    assert isinstance(net.own, Parameter)
    assert net.own.asnumpy() == 7
    net.own = None
    net.second = None
    assert names(net.get_parameters()) == ["first.scale", "first.fc.weight", "first.fc.bias"]
    del net.first
    assert list(net.get_parameters()) == []
    with pytest.raises(AttributeError, match="has no attribute 'first'"):
        _ = net.first


def test_super_init_comes_first():
    class Hasty(nn.Cell):
        def __init__(self):
            self.fc = nn.Dense(2, 2)

    with pytest.raises(SporaxAttributeError, match=r"super\(\).__init__\(\)"):
        Hasty()


def test_repr_shows_the_tree():
    assert repr(nn.Dense(2, 3)) == "Dense(input_channels=2, output_channels=3, has_bias=True)"
    lines = repr(Net()).splitlines()
    assert lines[:3] == [
        "Net(",
        "  (first): Block(",
        "    (fc): Dense(input_channels=2, output_channels=2, has_bias=True)",
    ]


def test_apply_goes_from_the_leaves_up():
    seen = []
    assert Net().apply(lambda cell: seen.append(type(cell).__name__))
    assert seen == ["Dense", "Block", "Dense", "Block", "Net"]


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16])
def test_to_float_casts_inputs_and_the_weights_of_layers(mode, dtype, tensor):
    net = nn.SequentialCell(nn.Conv2d(1, 2, 3, has_bias=True), nn.Flatten(), nn.LayerNorm((8,)), nn.Dense(8, 3))
    x = tensor(2, 1, 2, 2)
    full = net(x)
    half = net.to_float(dtype)(x)
    assert full.dtype == ms.float32
    assert half.dtype == dtype
    assert all(parameter.dtype == ms.float32 for parameter in net.get_parameters())
    np.testing.assert_allclose(half.float().asnumpy(), full.asnumpy(), atol=0.05)
    with pytest.raises(SporaxValueError, match="must be one of"):
        net.to_float(ms.int32)


def test_flags_become_attributes():
    assert nn.Cell(flags={"fast": True}).fast is True


def test_layers_refuse_numpy_arrays(mode):
    with pytest.raises(SporaxTypeError, match="wrap it in Tensor"):
        nn.Dense(2, 2)(np.ones((1, 2), np.float32))


def test_numpy_arrays_are_constants_of_a_step(mode):
    class Weighted(nn.Cell):
        def construct(self, x, weights):
            return x * Tensor(weights, ms.float32)

    net, x, weights = Weighted(), Tensor([1.0, 2.0]), np.array([3, 4])
    assert net(x, weights).asnumpy().tolist() == [3, 8]
    weights[0] = 5
    assert net(x, weights).asnumpy().tolist() == [5, 8]
    weights[0] = 3
    assert net(x, weights).asnumpy().tolist() == [3, 8]


def test_construct_must_be_defined():
    with pytest.raises(SporaxAttributeError, match="'construct' is not defined"):
        nn.Cell()(Tensor([1.0]))


def test_an_error_ends_with_the_path_of_the_cell(mode):
    net = Net()
    with pytest.raises(SporaxValueError) as caught:
        net(Tensor(np.ones((1, 3), np.float32)))
    assert str(caught.value).endswith("in Cell 'Net.first.fc'")


@pytest.mark.parametrize(
    ("inputs", "named", "text"),
    [
        (0, {}, "construct\\(x\\), but got 0 by position: missing a required argument: 'x'"),
        (2, {}, "construct\\(x\\), but got 2 by position: too many"),
        (1, {"y": 1}, "construct\\(x\\), but got 1 by position, 'y': got an unexpected keyword argument 'y'"),
    ],
)
def test_a_wrong_number_of_inputs_is_said_with_the_path(mode, inputs, named, text):
    class Outer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = nn.SequentialCell(nn.ReLU())

        def construct(self, x):
            return self.inner(*[x] * inputs, **named)

    class Inner(nn.Cell):
        def construct(self, x):
            return x

    net = Outer()
    net.inner = Inner()
    with pytest.raises(SporaxTypeError, match=text) as caught:
        net(Tensor([1.0]))
    assert str(caught.value).endswith("in Cell 'Outer.inner'")


def test_a_type_error_of_the_users_own_code_stays_as_it_is(mode):
    class Net(nn.Cell):
        def construct(self, x):
            return x.shape + 1

    with pytest.raises(TypeError, match="concatenate tuple") as caught:
        Net()(Tensor([1.0]))
    assert not isinstance(caught.value, SporaxTypeError)


def test_compile_prepares_without_running(tensor):
    net = Net()
    x = tensor(3, 2)
    net.compile(x)
    assert len(ms.recompilations(net)) == 1
    ms.set_context(mode=ms.GRAPH_MODE)
    net(x)
    assert len(ms.recompilations(net)) == 1


def test_compile_refuses_two_parameters_of_one_name(tensor):
    net = Net()
    net.other = Parameter(Tensor([1.0]), name=net.own.name)
    with pytest.raises(SporaxValueError, match="the parameters 'own' and 'other' have the same name"):
        net.compile(tensor(3, 2))


def test_compile_and_run_gives_what_eager_gives(tensor):
    net = Net()
    x = tensor(3, 2)
    np.testing.assert_allclose(net.compile_and_run(x).asnumpy(), net(x).asnumpy(), rtol=1e-6)


def test_set_inputs_takes_constants_as_mindspore_does():
    net = nn.Dense(2, 2)
    inputs = Tensor(np.ones((1, 2), np.float32)), 3, None, "mean"
    net.set_inputs(*inputs)
    assert net.get_inputs() == inputs
    with pytest.raises(SporaxValueError, match="by position or by name"):
        net.set_inputs(inputs[0], x=inputs[0])


class Counter(nn.Cell):
    def __init__(self):
        super().__init__()
        self.steps = Parameter(Tensor(0, ms.int32), name="steps")

    def construct(self, x):
        ops.assign_add(self.steps, 1)
        return x * self.steps


def test_parameters_written_in_construct_keep_their_values(mode):
    net = Counter()
    results = [net(Tensor([2.0])).asnumpy().item() for _ in range(3)]
    assert results == [2.0, 4.0, 6.0]
    assert net.steps.asnumpy() == 3


def test_cells_are_converted_in_place():
    net = nn.SequentialCell(nn.Dense(2, 3), nn.BatchNorm1d(3))
    counts = ms.Parameter(Tensor([1], ms.int32), name="counts", requires_grad=False)
    net.insert_param_to_cell("counts", counts)
    weight = net[0].weight
    assert net.to(ms.float16) is net
    assert (net[0].weight, weight.dtype, counts.dtype) == (weight, ms.float16, ms.int32)
    assert net.to("CPU", ms.float32)[0].bias.dtype == ms.float32
    assert net.to(Tensor(1.0, ms.bfloat16))[1].gamma.dtype == ms.bfloat16
    assert net.to(device="CPU").to(dtype=ms.float32)[1].gamma.dtype == ms.float32


@pytest.mark.parametrize("arguments", [(ms.int32,), (3,), ("CPU", 3), (ms.float16, 1), ("CPU", ms.float16, False, 1)])
def test_conversions_to_nothing_are_refused(arguments):
    with pytest.raises(TypeError, match=r"For 'Cell.to', the arguments must be"):
        nn.Dense(2, 3).to(*arguments)


def test_a_cell_cannot_go_where_jax_is_not():
    with pytest.raises(ValueError, match="For 'Cell.to', 'device' must be 'CPU'"):
        nn.Dense(2, 3).to("Ascend:0")


def test_inputs_that_were_announced_are_reported():
    net = nn.Dense(2, 3)
    assert net.get_inputs() is None
    x = Tensor(np.ones((1, 2), np.float32))
    net.set_inputs(x)
    assert net.get_inputs() == (x,)
    net.update_cell_type("second-order")
    assert net.cell_type == "second-order"
    with pytest.raises(TypeError, match="'cell_type' must be a string"):
        net.update_cell_type(2)


def test_a_class_that_lacks_what_a_cell_needs_is_reported():
    class Plain(nn.Cell):
        def __init__(self):
            self.width = 1

    class Selfless(nn.Cell):
        def construct(x):
            return x

    with pytest.raises(AttributeError, match=r"Its __init__\(\) must call super\(\).__init__\(\) first"):
        Plain()()
    with pytest.raises(TypeError, match=r"must fit construct\(\), which lacks 'self'"):
        Selfless()(Tensor(1.0))
