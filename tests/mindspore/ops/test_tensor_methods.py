"""Tensor methods without a function of their name."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops

X = np.arange(6.0, dtype=np.float32).reshape(2, 3)


def test_shapes_and_types():
    x = Tensor(X)
    assert (x.short().dtype, x.type(), x.type(ms.int32).dtype) == (ms.int16, "Float32", ms.int32)
    assert (x.stride(), x.stride(-1)) == ([3, 1], 1)
    np.testing.assert_array_equal(x.resize(3, 1).asnumpy(), [[0], [1], [2]])
    np.testing.assert_array_equal(x.resize((2, 4)).asnumpy(), [[0, 1, 2, 3], [4, 5, 0, 0]])
    np.testing.assert_array_equal(x.sum_to_size((1, 3)).asnumpy(), [[3, 5, 7]])
    np.testing.assert_array_equal(x.sum_to_size(1).asnumpy(), [15])
    assert (x.new_empty((2,)).shape, x.new_empty(3, dtype=ms.int8).dtype) == ((2,), ms.int8)
    np.testing.assert_array_equal(x.fill_diagonal(9.0).asnumpy(), [[9, 1, 2], [3, 9, 5]])
    np.testing.assert_array_equal(x.asnumpy(), X)
    assert x.fill_diagonal_(9.0) is x
    assert x[1, 1] == 9
    choice = Tensor([[0, 1, 5], [1, 0, -2]]).choose([Tensor(X), Tensor(-X)])
    np.testing.assert_array_equal(choice.asnumpy(), np.choose([[0, 1, 5], [1, 0, -2]], [X, -X], mode="clip"))


def test_two_numbers_exchange_dims_outside_of_compiled_code():
    x, images = Tensor(X), np.arange(12.0, dtype=np.float32).reshape(2, 3, 2)
    for dims in ((0, 1), (1, 0), (-2, -1)):
        np.testing.assert_array_equal(x.transpose(*dims).asnumpy(), X.T)
    np.testing.assert_array_equal(x.transpose(0, 0).asnumpy(), X)
    np.testing.assert_array_equal(x.transpose((0, 1)).asnumpy(), X)
    np.testing.assert_array_equal(Tensor(images).transpose(0, -1).asnumpy(), images.swapaxes(0, 2))
    with pytest.raises(ValueError, match="in range"):
        x.transpose(0, 2)
    # Graph mode takes two numbers for a permutation, and exchanges dims by name.
    np.testing.assert_array_equal(ms.jit(lambda x: x.transpose(0, 1))(x).asnumpy(), X)
    for form in (lambda x: x.transpose(dim0=0, dim1=1), lambda x: x.transpose(0, dim1=1)):
        np.testing.assert_array_equal(form(x).asnumpy(), X.T)
        np.testing.assert_array_equal(ms.jit(form)(x).asnumpy(), X.T)
    step = ms.value_and_grad(lambda x: (x.transpose(0, 1) * Tensor(X.T)).sum())
    np.testing.assert_array_equal(step(x)[1].asnumpy(), X)


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_numbers_by_place_that_only_the_second_signature_has(mode):
    images = np.arange(12.0, dtype=np.float32).reshape(2, 3, 2)
    forms = [
        (lambda x: x.flatten(1), images.reshape(2, 6)),
        (lambda x: x.flatten(0), images.reshape(12)),
        (lambda x: x.flatten(0, 1), images.reshape(6, 2)),
        (lambda x: x.tile(2, 1, 1), np.tile(images, (2, 1, 1))),
        (lambda x: x.tile(2), np.tile(images, 2)),
        (lambda x: x.sort(1, True, True)[0], -np.sort(-images, 1)),
        (lambda x: x.argsort(1, True, True), np.argsort(-images, 1, kind="stable")),
    ]
    for form, expected in forms:
        run = ms.jit(form) if mode == ms.GRAPH_MODE else form
        np.testing.assert_array_equal(run(Tensor(images)).asnumpy(), expected)


def test_forms_of_operators():
    x = Tensor(X.T + np.eye(3, 2, dtype=np.float32))
    packed, tau = x.geqrf()
    q = packed.orgqr(tau)
    np.testing.assert_allclose((q.T @ q).asnumpy(), np.eye(2), atol=1e-6)
    np.testing.assert_allclose(packed.ormqr(tau, x, transpose=True).asnumpy()[2], [0, 0], atol=1e-5)
    solved = Tensor([[2.0], [4.0]]).lu_solve(ops.eye(2) * 2, Tensor([1, 2], ms.int32))
    np.testing.assert_array_equal(solved.asnumpy(), [[1], [2]])


def test_random_numbers():
    ms.set_seed(5)
    x = ops.zeros((4000,))
    assert x.normal_(2.0, 0.5) is x
    np.testing.assert_allclose([x.asnumpy().mean(), x.asnumpy().std()], [2, 0.5], atol=0.05)
    assert 1 <= x.uniform_(1, 3).asnumpy().min() < x.asnumpy().max() < 3
    np.testing.assert_allclose(x.exponential_(2.0).asnumpy().mean(), 0.5, atol=0.05)
    np.testing.assert_allclose(x.bernoulli_(0.3).asnumpy().mean(), 0.3, atol=0.05)
    np.testing.assert_array_equal(Tensor([0.0, 1.0]).bernoulli().asnumpy(), [0, 1])
    assert set(ops.zeros((200,), ms.int8).random_(3).asnumpy()) == {0, 1, 2}
    assert ops.zeros((200,), ms.int8).random_().asnumpy().min() >= 0
    assert (x.uniform().shape, x.cauchy(1.0).shape, x.log_normal().dtype) == ((4000,), (4000,), ms.float32)


def test_arguments_that_do_not_fit_are_refused():
    x = Tensor(X)
    for call, error, words in (
        (lambda: x.sum(dim=0, foo=1), TypeError, "For 'sum', got an unexpected keyword argument 'foo'"),
        (lambda: x.sum_to_size((2, 2)), ValueError, r"\(2, 3\) cannot be summed to \(2, 2\)"),
        (lambda: x.normal_(generator=1), TypeError, "one stream for all operators"),
        (lambda: x.random_(3, 3), ValueError, "'from_' must be below 'to'"),
        (lambda: x.exponential_(0), ValueError, "'lambd' must be > 0"),
        (lambda: x.new_empty(2, device="GPU"), ValueError, "'device' must be None"),
        (lambda: x.choose([x], mode="wrap"), ValueError, "'mode' must be one of"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_functions_in_place():
    x = Tensor([-1.0, 0.5, 3.0])
    assert ops.clamp_(x, 0, 1) is x
    np.testing.assert_array_equal(x.asnumpy(), [0, 0.5, 1])
    ops.uniform_(x, 2, 3)
    assert ((x.asnumpy() >= 2) & (x.asnumpy() < 3)).all()
    ops.random_(x, 5, 6)
    np.testing.assert_array_equal(x.asnumpy(), [5, 5, 5])
    ops.normal_(x, 100, 0.1)
    assert (abs(x.asnumpy() - 100) < 5).all()
    np.testing.assert_allclose(ops.erfinv_(Tensor([0.0, 0.5])).asnumpy(), [0, 0.4769363], rtol=1e-5)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_compiled_code_has_extremes_without_positions_where_no_name_decides(mode):
    before = ms.get_context("mode")
    ms.set_context(mode=mode)
    calls = [
        lambda x: x.max(1),
        lambda x: x.min(-1, True),
        lambda x: x.max(1, keepdims=True),
        lambda x: x.min(dim=1),
        lambda x: x.max(axis=1),
    ]
    kinds = [[type(form(call)(Tensor(X))) for call in calls] for form in (ms.jit, lambda function: function)]
    ms.set_context(mode=before)
    assert kinds == [[Tensor, Tensor, Tensor, tuple, Tensor], [tuple, tuple, Tensor, tuple, Tensor]]
    assert ms.jit(calls[0])(Tensor(X)).asnumpy().tolist() == [2, 5]
    assert calls[2](Tensor(X)).asnumpy().tolist() == [[2], [5]]
