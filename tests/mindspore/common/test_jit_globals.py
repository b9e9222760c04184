"""Compiled functions that assign global names: each call has the results and the effects that Python has."""

import warnings

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, jit, nn, ops
from sporax.mindspore.dataset import NumpySlicesDataset
from sporax.mindspore.ops import tensor_operators

X = Tensor([1.0, 2.0])
MESSAGE = r"runs operator by operator .* it assigns the global variable '{}' \(.*test_jit_globals.py, line \d+\)"

count = 0
total = 0
last = None
factor = 2.0
limit = 3


@pytest.fixture(autouse=True)
def _fresh():
    global count, total, last, factor, limit
    count, total, last, factor, limit = 0, 0, None, 2.0, 3


def bump():
    global count
    count += 1
    return count


class Counting(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor([1.0, 1.0]), name="w")

    def construct(self, x):
        return x * self.w * self.helper()

    def helper(self):
        return bump()


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_a_number_grows_once_by_each_call(mode):
    ms.set_context(mode=mode)

    @jit
    def step(x):
        global count
        count += 1
        return x + count

    with pytest.warns(UserWarning, match=MESSAGE.format("count")):
        assert step(X).asnumpy().tolist() == [2.0, 3.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert step(X).asnumpy().tolist() == [3.0, 4.0]
    assert count == 2


def test_what_is_computed_of_tensors_can_be_assigned():
    @jit
    def step(x):
        global total, last
        for part in x:
            total += part
        last = x
        return x + total

    with pytest.warns(UserWarning, match=MESSAGE.format("total")):
        assert step(X).asnumpy().tolist() == [4.0, 5.0]
    assert step(X).asnumpy().tolist() == [7.0, 8.0]
    assert (total.item(), last.asnumpy().tolist()) == (6.0, [1.0, 2.0])


def test_functions_and_cells_that_are_called_count():
    ms.set_context(mode=ms.GRAPH_MODE)
    net = Counting()
    gradient = jit(ms.value_and_grad(lambda x: (x * bump()).sum()))
    inner = jit(lambda x: x * bump())
    for call in (net, gradient, jit(lambda x: inner(x) + 1), jit(nn.SequentialCell(net))):
        before = count
        with pytest.warns(UserWarning, match=MESSAGE.format("count")):
            call(X)
        call(X)
        assert count == before + 2
    assert net(X).asnumpy().tolist() == [9.0, 18.0]


def test_a_training_step_counts_its_calls():
    ms.set_context(mode=ms.GRAPH_MODE)
    net = Counting()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    with pytest.warns(UserWarning, match=MESSAGE.format("count")):
        losses = [step(X, X).item() for _ in range(2)]
    assert count == 2
    np.testing.assert_allclose(losses[0], 0.0, atol=1e-6)
    np.testing.assert_allclose(losses[1], 2.5, rtol=1e-6)


@pytest.mark.parametrize("sink", [True, False])
def test_a_training_counts_its_steps(sink):
    ms.set_context(mode=ms.GRAPH_MODE)
    net = Counting()
    data = NumpySlicesDataset((np.ones((8, 2), np.float32), np.ones((8, 2), np.float32))).batch(2)
    model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
    with pytest.warns(UserWarning, match=MESSAGE.format("count")):
        model.train(1, data, dataset_sink_mode=sink)
    assert count == 4


def test_a_branch_on_a_tensor_assigns_only_where_it_is_taken():
    @jit
    def step(x):
        global count
        if x.sum() > 0:
            count += 1
        return x + count

    with pytest.warns(UserWarning, match=MESSAGE.format("count")):
        assert step(X).asnumpy().tolist() == [2.0, 3.0]
    assert step(-X).asnumpy().tolist() == [0.0, -1.0]
    assert count == 1


def test_a_name_that_may_be_assigned_and_is_not_leaves_the_step_compiled_and_is_read_at_each_call():
    global factor

    @jit
    def step(x):
        global factor
        if factor < 0:
            factor = 0.0
        return x * factor

    assert step(X).asnumpy().tolist() == [2.0, 4.0]
    factor = 5.0
    assert step(X).asnumpy().tolist() == [5.0, 10.0]
    assert len(ms.recompilations(step)) == 2


def test_a_trace_that_fails_leaves_names_as_they_were():
    @jit
    def step(x):
        global last
        last = x * 2
        return ops.matmul(x, Tensor(np.ones((5, 5), np.float32)))

    with pytest.raises(ValueError):
        step(X)
    assert last is None


def test_what_is_assigned_inside_of_a_gradient_has_its_value():
    def loss(x):
        global last
        last = [x * 2]
        return (x * x).sum()

    with pytest.warns(UserWarning, match=MESSAGE.format("last")):
        value, gradient = jit(ms.value_and_grad(loss))(X)
    assert last[0].asnumpy().tolist() == (X.asnumpy() * 2).tolist()
    assert np.allclose(gradient.asnumpy(), X.asnumpy() * 2)
    assert np.allclose(value.asnumpy(), (X.asnumpy() ** 2).sum())


def test_what_is_known_only_inside_of_a_map_is_refused_and_does_not_stay():
    def loss(x):
        global last
        last = [x * 2]
        return (x * x).sum()

    step = jit(ops.vmap(loss))
    with (
        pytest.warns(UserWarning, match=MESSAGE.format("last")),
        pytest.raises(TypeError, match="For 'jit', the function 'loss' assigns to the global variable 'last'"),
    ):
        step(X)
    assert last is None


def test_it_is_refused_where_the_syntax_is_strict_or_the_step_is_sharded():
    ms.set_context(jit_syntax_level=ms.STRICT)
    message = r"For 'jit', the function 'bump' assigns the global variable 'count'"
    try:
        with pytest.raises(TypeError, match=message):
            jit(lambda x: x + bump())(X)
    finally:
        ms.set_context(jit_syntax_level=ms.LAX)
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    try:
        with pytest.raises(TypeError, match=message):
            jit(lambda x: x + bump())(X)
    finally:
        ms.reset_auto_parallel_context()
    assert count == 0


def adds(x):
    for i in range(limit):
        count += i  # noqa: F823  # a local variable that Python does not find
    return x + count


def adds_to_rows(x):
    if x.sum() > 0:
        count += 1  # noqa: F823
    return x + count


def appends(x):
    names += ["new"]  # noqa: F823
    return x, len(names)


names = ["old"]


def test_a_local_variable_that_is_not_bound_starts_as_the_global_one_which_stays():
    global count
    step = jit(adds)
    assert [step(X).asnumpy().tolist() for _ in range(2)] == [[4.0, 5.0]] * 2
    assert count == 0
    count = 10
    assert step(X).asnumpy().tolist() == [14.0, 15.0]
    assert count == 10


def test_so_it_does_in_branches_on_tensors():
    step = jit(adds_to_rows)
    assert step(X).asnumpy().tolist() == [2.0, 3.0]
    assert step(-X).asnumpy().tolist() == [-1.0, -2.0]
    assert count == 0


def test_what_is_changed_in_place_is_a_copy():
    assert jit(appends)(X)[1] == 2
    assert names == ["old"]


def test_without_a_global_python_says_what_is_wrong():
    def step(x):
        nowhere += 1  # noqa: F821
        return x + nowhere

    with pytest.raises(UnboundLocalError, match="nowhere"):
        jit(step)(X)


def test_a_global_tensor_that_a_compiled_step_adds_to_stays_as_it_is_and_a_line_says_so():
    tensor_operators._warn_lost.cache_clear()
    offset = X.asnumpy()

    @jit
    def step(x):
        X *= x  # noqa: F823
        return X

    with pytest.warns(UserWarning, match="Tensor.__imul__', a Tensor from outside of the compiled step stays as it is"):
        result = step(Tensor([3.0, 3.0]))
    assert result.asnumpy().tolist() == [3.0, 6.0]
    np.testing.assert_array_equal(X.asnumpy(), offset)
