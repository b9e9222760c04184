"""`jit`: what can be compiled, what goes in and out, and why it is compiled again."""

import functools

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, jit, nn, ops

X = Tensor([1.0, 2.0])


def double(x):
    return x * 2


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor([3.0, 4.0]), name="w")
        self.scale = 1

    def construct(self, x):
        return x * self.w * self.scale

    @jit
    def twice(self, x):
        return self.construct(x) * 2


def test_everything_that_can_be_called():
    net = Net()
    compiled = [
        (jit(double), [2, 4]),
        (jit(lambda x: x + 1), [2, 3]),
        (jit(net), [3, 8]),
        (jit(net.construct), [3, 8]),
        (net.twice, [6, 16]),
        (jit(functools.partial(ops.add, other=1)), [2, 3]),
        (jit(ops.ReLU()), [1, 2]),
        (jit()(double), [2, 4]),
        (jit(fn=double), [2, 4]),
        (jit(jit(double)), [2, 4]),
    ]
    for function, expected in compiled:
        assert function(X).asnumpy().tolist() == expected


def test_methods_of_other_classes():
    class Counter:
        def __init__(self):
            self.total = Parameter(Tensor([0.0]), name="total")

        @jit
        def add(self, x):
            return ops.assign_add(self.total, x.sum().reshape(1))

    one, other = Counter(), Counter()
    one.add(X), one.add(X), other.add(X)
    assert (float(one.total), float(other.total)) == (6, 3)


def test_it_looks_like_the_function():
    assert (jit(double).__name__, jit(double).__wrapped__) == ("double", double)


def test_containers_and_constants_in_and_out():
    @jit
    def f(x, pair, *, options, name="a"):
        return {"sum": x + pair[0], "rest": [pair[1], (name, options["n"], None)], "x": x}

    result = f(X, (Tensor([1.0, 1.0]), 5), options={"n": 2.5})
    assert result["sum"].asnumpy().tolist() == [2, 3]
    assert result["rest"] == [5, ("a", 2.5, None)]
    assert isinstance(result["x"], Tensor)


def test_static_arguments_choose_the_code():
    @jit
    def f(x, power, flag=False):
        return x**power if flag else x

    assert f(X, 2).asnumpy().tolist() == [1, 2]
    assert f(X, 2, flag=True).asnumpy().tolist() == [1, 4]
    assert f(X, 3, flag=True).asnumpy().tolist() == [1, 8]
    assert len(f.program.compilations) == 3
    f(X, 2)
    assert len(f.program.compilations) == 3


def test_parameters_are_state():
    net = Net()
    compiled = jit(net)
    net.w.set_data(Tensor([10.0, 10.0]))
    assert compiled(X).asnumpy().tolist() == [10, 20]  # not a constant of the program
    assert len(compiled.program.compilations) == 1
    assert compiled.program.compilations[0].num_read == 1


def test_a_parameter_as_an_argument():
    w = Parameter(Tensor([1.0, 1.0]), name="w")
    add = jit(lambda p, x: ops.assign_add(p, x))
    result = add(w, X)
    assert type(result) is Tensor
    assert w.asnumpy().tolist() == [2, 3]


def test_nested_programs_become_one():
    inner = jit(double)
    outer = jit(lambda x: inner(x) + 1)
    assert outer(X).asnumpy().tolist() == [3, 5]
    assert not inner.program.compilations


def test_why_it_was_compiled_again():
    net = Net()
    compiled = jit(net)
    compiled(X)
    compiled(Tensor(np.ones((3, 2), np.float32)))
    compiled(Tensor([1, 2]))
    net.scale = 2
    compiled(X)
    net.set_train()
    compiled(X)
    expected = (
        "first call",
        "to float32[3, 2]",
        "to int64[2]",
        "scale changed from 1 to 2",
        "training changed from False",
    )
    for reason, words in zip(ms.recompilations(compiled), expected, strict=True):
        assert words in reason
    with pytest.raises(TypeError, match="must be a compiled function or a Cell, but got function"):
        ms.recompilations(double)


def test_gradients_say_it_too():
    gradient = ms.grad(jit(double))
    gradient(X)
    assert ms.recompilations(gradient)[0].startswith("first call")


def test_input_signature():
    f = jit(double, input_signature=Tensor(shape=(2,), dtype=ms.float32))
    assert f(X).asnumpy().tolist() == [2, 4]
    for wrong in (Tensor([1.0]), Tensor([1, 2])):
        with pytest.raises(ValueError, match=r"input 0 must be Float32\[2\] by 'input_signature', but got"):
            f(wrong)
    with pytest.raises(ValueError, match="names 1 tensors, but the call has 0"):
        f()


def test_options_without_counterpart_warn_and_unknown_ones_are_refused():
    with pytest.warns(UserWarning, match="'jit_level' has no counterpart"):
        assert jit(double, jit_level="O2")(X).asnumpy().tolist() == [2, 4]
    with pytest.warns(UserWarning, match="'hash_args'"):
        jit(hash_args=1)(double)
    assert jit(double, fullgraph=True)(X).asnumpy().tolist() == [2, 4]
    with pytest.raises(TypeError, match="the option 'speed' is not one of"):
        jit(double, speed=1)
    with pytest.raises(TypeError, match="must be a function or a Cell, but got int"):
        jit(3)


def test_arguments_it_cannot_take():
    with pytest.raises(TypeError, match="must be a Tensor, a number, a string or a container of these, but got set"):
        jit(lambda s: s)({1, 2})


def test_an_error_leaves_the_state_alone():
    w = Parameter(Tensor([1.0, 1.0]), name="w")

    def f(x):
        ops.assign(w, x)
        return ops.matmul(x, Tensor([[1.0]]))

    with pytest.raises(ValueError, match="For 'matmul'"):
        jit(f)(X)
    assert w.asnumpy().tolist() == [1, 1]


def test_lazy_inline_makes_repeated_cells_one_body():
    """The decorated ``__init__`` still runs; the Cell says what it wants of the step."""

    class Block(nn.Cell):
        @ms.lazy_inline
        def __init__(self, width):
            super().__init__()
            self.fc = nn.Dense(width, width)

    assert Block(3).compiled_once and Block(3).fc.weight.shape == (3, 3)
    with pytest.raises(ValueError, match="'policy' must be None or 'front', but got 'back'"):
        ms.lazy_inline(policy="back")


def test_results_are_read_before_the_step_ends():
    @ms.jit
    def several(x):
        generated = (i * x for i in (1, 2))
        return zip((x, 1), (2, x), strict=True), range(3), filter(lambda n: n > 1, [1, 2]), generated

    pairs, numbers, filtered, generated = several(Tensor([3.0]))
    assert isinstance(pairs, tuple) and float(pairs[0][0][0]) == 3 and pairs[0][1] == 2
    assert (numbers, filtered) == ((0, 1, 2), [2])
    assert isinstance(generated, list) and [float(x[0]) for x in generated] == [3, 6]


def test_dicts_among_results_keep_their_order():
    @ms.jit
    def named(x):
        return {"loss": x, "accuracy": {"z": x + 1, "a": 2}}

    for _ in range(2):
        result = named(Tensor([1.0]))
        assert type(result) is dict and list(result) == ["loss", "accuracy"] and list(result["accuracy"]) == ["z", "a"]
        assert float(result["accuracy"]["z"][0]) == 2
