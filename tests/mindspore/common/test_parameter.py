"""Parameter: names, marks, values, laziness."""

import copy
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from sporax.mindspore.common.initializer import initializer


@pytest.fixture
def weight():
    return Parameter(Tensor([1.0, 2.0]), name="weight")


def test_a_parameter_has_the_defaults_of_mindspore(weight):
    assert (weight.requires_grad, weight.layerwise_parallel, weight.parallel_optimizer) == (True, False, True)
    assert (weight.comm_fusion, weight.name, weight.has_init) == (1, "weight", False)
    assert repr(weight) == "Parameter (name=weight, shape=(2,), dtype=Float32, requires_grad=True)"
    assert Parameter(1).dtype == ms.int32
    assert Parameter([1, 2]).dtype == ms.int64
    assert Parameter(1.5).dtype == ms.float32


def test_a_parameter_without_a_name_gets_a_unique_one():
    unnamed, other = Parameter(1.0), Parameter(1.0, name="")
    assert unnamed.name.startswith("Parameter#")
    assert unnamed.name != other.name
    unnamed.name = "own"
    assert unnamed.name == "own"
    unnamed.name = None
    assert unnamed.name.startswith("Parameter#")


def test_it_owns_its_values(weight):
    source = Tensor([1.0, 2.0])
    mine = Parameter(source)
    source[0] = 9
    assert float(mine[0]) == 1
    value = weight.value()
    weight.set_data(Tensor([3.0, 4.0]))
    np.testing.assert_array_equal(value.asnumpy(), [1, 2])
    assert weight.data is weight


def test_set_data(weight):
    assert weight.set_data(Tensor([3, 4])) is weight
    assert (weight.dtype, weight.name) == (ms.float32, "weight")
    weight.set_data(Tensor([1.0, 2.0, 3.0]), slice_shape=True)
    assert weight.shape == (3,)
    scalar = Parameter(1.0)
    assert float(scalar.set_data(5)) == 5
    lazy = initializer("ones", (3,))
    np.testing.assert_array_equal(weight.set_data(lazy).asnumpy(), [1, 1, 1])


def test_arithmetic_gives_tensors(weight):
    result = weight + 1
    assert type(result) is Tensor
    rebound = weight
    rebound += 1
    assert (type(rebound), float(weight[0])) == (Tensor, 1)


def test_a_clone_keeps_settings_and_has_values_of_its_own(weight):
    weight.requires_grad = False
    weight.comm_fusion = 3
    twin = weight.clone()
    assert (twin.name, twin.requires_grad, twin.comm_fusion) == ("weight", False, 3)
    twin.set_data(Tensor([5.0, 6.0]))
    assert float(weight[0]) == 1
    np.testing.assert_array_equal(weight.clone("ones").asnumpy(), [1, 1])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_keep_the_marks(weight, duplicate):
    weight.requires_grad = False
    twin = duplicate(weight)
    assert (type(twin), twin.name, twin.requires_grad) == (Parameter, "weight", False)
    twin.set_data(Tensor([5.0, 6.0]))
    assert float(weight[0]) == 1


@pytest.mark.parametrize("what", [Tensor([1.0]), Parameter(Tensor([1.0])), Parameter(initializer("ones", (1,)))])
def test_it_takes_attributes_of_the_user(what):
    what.is_expert = True
    assert what.is_expert
    with pytest.raises(AttributeError, match="has no attribute 'is_experts'"):
        what.is_experts  # noqa: B018 - the reading is what is tested


def test_lazy_values_are_those_made_at_once():
    make = lambda: Parameter(initializer("normal", (4, 4)), name="w")
    ms.set_seed(5)
    first = [make().asnumpy(), make().asnumpy()]
    ms.set_seed(5)
    with nn.utils.no_init_parameters():
        lazy = [make(), make()]
        assert all(item.has_init and item.shape == (4, 4) for item in lazy)
    second = lazy[1].init_data().asnumpy()  # in another order
    np.testing.assert_array_equal(first, [lazy[0].asnumpy(), second])
    assert not lazy[0].has_init
    assert not make().has_init


def test_a_lazy_parameter_is_made_when_a_step_needs_it():
    with nn.utils.no_init_parameters():
        lazy = Parameter(initializer("ones", (2,)), name="w")
    np.testing.assert_array_equal(ms.jit(lambda x: x * lazy)(Tensor([2.0, 3.0])).asnumpy(), [2, 3])
    assert not lazy.has_init


def test_parameter_tuples_clone_and_refuse_equal_names(weight):
    other = Parameter(Tensor([3.0]), name="other")
    both = ParameterTuple([weight, other])
    assert [item.name for item in both.clone("moment", "zeros")] == ["moment.weight", "moment.other"]
    assert float(both.clone("m", "zeros")[1]) == 0
    assert len(ParameterTuple([weight, weight])) == 2
    with pytest.raises(ValueError, match="two different parameters are called 'weight'"):
        ParameterTuple([weight, weight.clone()])
    with pytest.raises(TypeError, match="must be a Parameter, but got Tensor"):
        ParameterTuple([Tensor([1.0])])


ERRORS = [
    (lambda: Parameter("a"), TypeError, "got type 'str'"),
    (lambda: Parameter(1.0, name=3), ValueError, "'name' must be a string or None, but got int"),
    (lambda: Parameter(1.0, name="x" * 1025), ValueError, "at most 1024 characters, but got 1025"),
    (lambda: Parameter(1.0, requires_grad=1), TypeError, "'requires_grad' must be a bool, but got int"),
    (lambda: Parameter(1.0, layerwise_parallel="a"), TypeError, "'layerwise_parallel' must be a bool"),
    (lambda: setattr(Parameter(1.0), "comm_fusion", -1), ValueError, "must be >= 0, but got -1"),
    (lambda: setattr(Parameter(1.0), "comm_fusion", True), TypeError, "must be an int, but got bool"),
    (lambda: Parameter(1.0, "w").set_data(np.ones(1)), TypeError, "must be a Tensor or a number, but got ndarray"),
    (lambda: Parameter([1.0], "w").set_data(Tensor([1.0, 2.0])), ValueError, r"'w' is \(1,\), but .* is \(2,\)"),
    (lambda: Parameter([1], "w").set_data(Tensor([1.5])), TypeError, "dtype Int64, and 'data' of dtype Float32"),
    (lambda: Parameter(1.0, "w").init_data(layout=(1,)), RuntimeError, "hand-written layout"),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_arguments_that_do_not_fit_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


class Slow:
    """Values that are drawn slowly, and counted."""

    may_wait = True
    shape, dtype = (4,), ms.float32

    def __init__(self):
        self.draws = 0
        self.begun = threading.Event()

    def make(self, sharding=None, arrange=None):
        self.draws += 1
        self.begun.set()
        time.sleep(0.05)
        return jnp.full(self.shape, float(self.draws))


def waiting():
    parameter = ms.Parameter(Tensor(np.zeros(4, np.float32)), name="waits")
    values = Slow()
    parameter.take_later(values)
    return parameter, values


@pytest.mark.parametrize(
    "use",
    [
        lambda parameter: parameter.raw,
        lambda parameter: parameter.init_data().raw,
        lambda parameter: parameter.asnumpy(),
        lambda parameter: (parameter + 0).raw,
        lambda parameter: (parameter.shape, parameter.dtype) and parameter.raw,
    ],
    ids=["raw", "init_data", "asnumpy", "operator", "shape"],
)
def test_threads_that_use_a_waiting_parameter_first_draw_it_once(use):
    for _ in range(3):
        parameter, values = waiting()
        barrier = threading.Barrier(4)

        def first(parameter=parameter, barrier=barrier):
            barrier.wait()
            return np.asarray(use(parameter)).tolist()

        with ThreadPoolExecutor(4) as pool:
            results = [future.result() for future in [pool.submit(first) for _ in range(4)]]
        assert (values.draws, results) == (1, [[1.0] * 4] * 4)


@pytest.mark.parametrize(
    "write", [lambda parameter, new: parameter.set_data(new), lambda parameter, new: parameter.assign_value(new)]
)
def test_values_that_a_thread_draws_do_not_replace_what_another_sets(write):
    parameter, values = waiting()
    drawing = threading.Thread(target=lambda: parameter.raw)
    drawing.start()
    values.begun.wait()
    write(parameter, Tensor(np.full(4, 7, np.float32)))
    drawing.join()
    assert parameter.asnumpy().tolist() == [7.0] * 4


def test_optimizer_state_takes_over_the_marks_of_its_parameter():
    weight = Parameter(Tensor([1.0, 2.0]), name="layer.weight", requires_grad=False, parallel_optimizer=False)
    weight.comm_fusion = 3
    state = Parameter(initializer("zeros", (2,), ms.float32))
    state.param_info = weight.param_info.clone()
    assert (state.name, state.requires_grad, state.parallel_optimizer, state.comm_fusion) == (
        "layer.weight",
        False,
        False,
        3,
    )
    assert weight.requires_aggr
    state.requires_aggr = weight.requires_aggr
    state.name = f"moment.{state.name}"
    assert (weight.name, state.asnumpy().tolist()) == ("layer.weight", [0, 0])
    with pytest.raises(TypeError, match="'param_info' must be the 'param_info' of a Parameter"):
        state.param_info = 3


def test_bools_and_fractions_are_refused_where_they_do_not_fit():
    with pytest.raises(SporaxValueError, match="'default_input' must not be a bool"):
        Parameter(True)
    counter = Parameter(1, name="counter")
    with pytest.raises(SporaxTypeError, match="'data' of dtype Float64 does not fit into it"):
        counter.set_data(1.2)
    assert counter.set_data(2).asnumpy() == 2


def _set(parameter, x):
    ops.assign(parameter, x * 2)


def _set_first(parameter, x):
    parameter[0] = x[1] * 2


@pytest.mark.parametrize(
    ("write", "by_input", "by_parameter"),
    [
        (_set, [6, 8], [3, 4]),
        (lambda p, x: p.set_data(x * 2), [6, 8], [3, 4]),
        (lambda p, x: ops.assign(p, p * 2), [4, 10], [3, 4]),
        (lambda p, x: ops.assign_add(p, x), [5, 9], [3, 4]),
        (_set_first, [8, 5], [3, 4]),
        (lambda p, x: ops.scatter_update(p, Tensor([0]), x[1:] * 2), [8, 5], [3, 4]),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_who_reads_a_written_parameter_differentiates_by_it(write, by_input, by_parameter, compiled):
    """Gradients went on to what was written; expected values are the wheel's, in both modes."""
    parameter = Parameter(Tensor([2.0, 5.0]), name="w")

    def function(x):
        write(parameter, x)
        return parameter * x

    gradient = ms.grad(function, 0, parameter)
    found = (ms.jit(gradient) if compiled else gradient)(Tensor([3.0, 4.0]))
    assert [part.asnumpy().tolist() for part in found] == [by_input, by_parameter]


def test_the_derivative_of_a_sum_passes_its_result():
    parameter = Parameter(Tensor([2.0, 5.0]), name="w")
    by_x, by_parameter = ms.grad(lambda x: ops.assign_add(parameter, x) * x, 0, parameter)(Tensor([3.0, 4.0]))
    assert (by_x.asnumpy().tolist(), by_parameter.asnumpy().tolist()) == ([8, 13], [3, 4])
