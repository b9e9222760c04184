"""Conditions and loops: eager and compiled agree, Parameters are read and written, gradients flow."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import ops


@pytest.fixture(params=["eager", "compiled"])
def run(request):
    """Call a function as it is, or compiled."""
    return (lambda f: f) if request.param == "eager" else ms.jit


@pytest.fixture
def counter():
    return ms.Parameter(ms.Tensor([0.0]), name="counter")


def count(counter, amount=1.0):
    ops.assign_add(counter, ms.Tensor([amount]))


X = ms.Tensor([1.0, 2.0])


def test_cond_chooses(run):
    f = run(lambda x: ops.cond(x.sum() > 2, lambda v: v + 1, lambda v: v - 1, x))
    np.testing.assert_array_equal(f(X).asnumpy(), [2, 3])
    np.testing.assert_array_equal(f(-X).asnumpy(), [-2, -3])


def test_cond_writes_in_the_chosen_branch_only(run, counter):
    def choose(x):
        return ops.cond(x.sum() > 0, lambda: count(counter), lambda: count(counter, 10.0))

    f = run(choose)
    f(X), f(X), f(-X)
    assert float(counter) == 12


def test_cond_reads_what_was_written_before(run, counter):
    def f(x):
        count(counter, 5.0)
        return ops.cond(x.sum() > 0, lambda: counter * 2, lambda: counter)

    np.testing.assert_array_equal(run(f)(X).asnumpy(), [10])


def test_cond_draws_random_numbers_like_eagerly(run):
    ms.set_seed(3)
    f = run(lambda x: ops.cond(x.sum() > 0, lambda: ops.dropout(ops.ones((6,))), lambda: ops.ones((6,))))
    first, second = f(X).asnumpy(), f(X).asnumpy()
    ms.set_seed(3)
    np.testing.assert_array_equal([first, second], [ops.dropout(ops.ones((6,))).asnumpy() for _ in range(2)])


def test_gradient_through_cond(run):
    f = run(ms.grad(lambda x: ops.cond(x.sum() > 0, lambda v: v**2, lambda v: 3 * v, x)))
    np.testing.assert_array_equal(f(X).asnumpy(), [2, 4])
    np.testing.assert_array_equal(f(-X).asnumpy(), [3, 3])


def test_while_loop(run, counter):
    def double(value):
        count(counter)
        return value * 2

    f = run(lambda x: ops.while_loop(lambda v: v.sum() < 20, double, x))
    np.testing.assert_array_equal(f(X).asnumpy(), [8, 16])
    assert float(counter) == 3


def test_while_loop_carries_containers_and_numbers(run):
    f = run(
        lambda x: ops.while_loop(lambda c: c["n"] < 3, lambda c: {"n": c["n"] + 1, "x": c["x"] + x}, {"n": 0, "x": x})
    )
    result = f(X)
    assert int(result["n"]) == 3
    np.testing.assert_array_equal(result["x"].asnumpy(), [4, 8])


def test_gradient_of_while_loop():
    f = lambda x: ops.while_loop(lambda v: v.sum() < 20, lambda v: v * 2, x)
    np.testing.assert_array_equal(ms.grad(f)(X).asnumpy(), [8, 8])
    with pytest.raises(RuntimeError, match=r"number of rounds that is known.*ops.fori_loop or ops.scan"):
        ms.jit(ms.grad(f))(X)


def test_scan_hands_the_carry_on_and_stacks_outputs(run, counter):
    def step(carry, row):
        count(counter, 1.0)
        return carry + row, carry * row

    f = run(lambda xs: ops.scan(step, ms.Tensor(0.0), xs))
    last, outputs = f(ms.Tensor([1.0, 2.0, 3.0]))
    assert float(last) == 6
    np.testing.assert_array_equal(outputs.asnumpy(), [0, 2, 9])
    assert float(counter) == 3


def test_scan_by_length(run):
    f = run(lambda x: ops.scan(lambda c, _: (c * 2, None), x, None, length=4))
    last, outputs = f(X)
    np.testing.assert_array_equal(last.asnumpy(), [16, 32])
    assert outputs is None


def test_gradient_through_scan(run):
    weight = ms.Parameter(ms.Tensor([2.0]), name="weight")
    loss = lambda x: ops.scan(lambda c, _: (c * weight, None), x, None, length=3)[0]
    by_x, by_weight = run(ms.grad(loss, 0, weight))(ms.Tensor([5.0]))
    assert (float(by_x), float(by_weight)) == (8, 5 * 3 * 4)


def test_fori_loop(run):
    body = lambda i, v: v + i.astype(ms.float32)
    np.testing.assert_array_equal(run(lambda x: ops.fori_loop(1, 4, body, x))(X).asnumpy(), [7, 8])
    np.testing.assert_array_equal(run(lambda x, n: ops.fori_loop(0, n, body, x))(X, ms.Tensor(3)).asnumpy(), [4, 5])
    np.testing.assert_array_equal(run(lambda x: ops.fori_loop(3, 1, body, x))(X).asnumpy(), [1, 2])
    np.testing.assert_array_equal(
        run(ms.grad(lambda x: ops.fori_loop(0, 3, lambda i, v: v * v, x)))(X).asnumpy(), [8, 1024]
    )


def test_class_forms():
    assert float(ops.WhileLoop()(lambda v: v < 5, lambda v: v + 2, ms.Tensor(0))) == 6
    assert float(ops.Scan()(lambda c, x: (c + x, None), ms.Tensor(0), ms.Tensor([1, 2]))[0]) == 3
    assert ops.Scan()(lambda c, x: (c + x, c + x), 0, [1, 2, 3, 4]) == (10, [1, 3, 6, 10])
    # A round gets an element, not a row of each.
    rows = [ms.Tensor([1, 2]), ms.Tensor([3, 4])]
    last, sums = ms.jit(lambda rows: ops.Scan()(lambda c, x: (c + x, c.sum()), ms.Tensor([0, 0]), rows))(rows)
    assert (last.asnumpy().tolist(), list(map(int, sums))) == ([4, 6], [0, 3])
    assert float(ops.ForiLoop()(0, 3, lambda i, v: v + i, ms.Tensor(0))) == 3


def test_a_loop_must_keep_its_types(run):
    with pytest.raises(TypeError, match=r"got Float16\[2\] after Float32\[2\]"):
        run(lambda x: ops.while_loop(lambda v: v.sum() < 20, lambda v: v.half(), x))(X)
    with pytest.raises(TypeError, match="must keep its structure"):
        run(lambda x: ops.scan(lambda c, _: ((c, c), None), x, None, 2))(X)


ERRORS = [
    (lambda: ops.cond(True, 3, 4), TypeError, "'true_fn' must be a function, but got int"),
    (lambda: ops.cond(X, abs, abs), TypeError, r"one element, but its shape is \(2,\)"),
    (
        lambda: ms.jit(lambda x: ops.cond(x.sum() > 0, lambda: x, lambda: x[0]))(X),
        TypeError,
        "must return the same types",
    ),
    (lambda: ops.scan(lambda c, x: c, X, X), TypeError, "must return a pair"),
    (lambda: ops.scan(lambda c, x: (c, x), X, None), ValueError, "must not both be None"),
    (lambda: ops.scan(lambda c, x: (c, x), X, X, 3), ValueError, "must be the same"),
    (lambda: ms.jit(lambda x: ops.while_loop(lambda v: v > 0, lambda v: v, x))(X), TypeError, "one element"),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_arguments_that_do_not_fit_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
