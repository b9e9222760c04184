import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from operator_cases import case, check, numbers

from sporax.mindspore import Tensor, mint, ops


def convolved(x, weight, stride, edges, dilation=1, groups=1):
    """A convolution over any number of dims, cell by cell of the kernel."""
    dims = weight.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *edges])
    reach = [(size - 1) * dilation + 1 for size in weight.shape[2:]]
    outs = [(size - far) // stride + 1 for size, far in zip(x.shape[2:], reach, strict=True)]
    result = np.zeros((x.shape[0], weight.shape[0], *outs))
    per_in, per_out = weight.shape[1], weight.shape[0] // groups
    for cell in itertools.product(*map(range, weight.shape[2:])):
        window = tuple(
            slice(at * dilation, at * dilation + (out - 1) * stride + 1, stride)
            for at, out in zip(cell, outs, strict=True)
        )
        for group in range(groups):
            part = x[(slice(None), slice(group * per_in, (group + 1) * per_in), *window)]
            kernel = weight[(slice(group * per_out, (group + 1) * per_out), slice(None), *cell)]
            result[:, group * per_out : (group + 1) * per_out] += np.einsum("ni...,oi->no...", part, kernel)
    assert result.ndim == dims + 2
    return result


X1, X2, X3 = numbers(2, 4, 7), numbers(2, 4, 5, 6), numbers(1, 2, 3, 4, 4)
W1, W2, W3 = numbers(6, 4, 3), numbers(6, 2, 3, 2), numbers(2, 2, 2, 2, 2)
B = numbers(6)
N2 = [(0, 0)] * 2

CASES = {
    "conv1d": case(ops.conv1d, lambda x, w, b: convolved(x, w, 1, [(0, 0)]) + b[:, None], X1, W1, B),
    "conv1d same": case(lambda x, w: ops.conv1d(x, w, stride=2, pad_mode="same"), lambda x, w: convolved(x, w, 2, [(1, 1)]), X1, W1),
    "conv2d groups": case(lambda x, w: ops.conv2d(x, w, groups=2), lambda x, w: convolved(x, w, 1, N2, groups=2), X2, W2),
    "conv2d padded": case(lambda x, w: ops.conv2d(x, w, stride=2, pad_mode="pad", padding=(1, 2), groups=2),
                          lambda x, w: convolved(x, w, 2, [(1, 1), (2, 2)], groups=2), X2, W2),
    "conv2d dilated": case(lambda x, w: ops.conv2d(x, w, dilation=2, groups=2), lambda x, w: convolved(x, w, 1, N2, 2, 2), X2, W2),
    "mint conv2d": case(lambda x, w, b: mint.nn.functional.conv2d(x, w, b, padding=1, groups=2),
                        lambda x, w, b: convolved(x, w, 1, [(1, 1), (1, 1)], groups=2) + b[:, None, None], X2, W2, B),
    "mint conv1d one sample": case(lambda x, w: mint.nn.functional.conv1d(x, w), lambda x, w: convolved(x[None], w, 1, [(0, 0)])[0], X1[0], W1),
    "Conv3D": case(ops.Conv3D(2, 2), lambda x, w: convolved(x, w, 1, [(0, 0)] * 3), X3, W3),
    "Conv3D padded": case(ops.Conv3D(2, (2, 2, 2), pad_mode="pad", pad=(1, 0, 0, 2, 1, 1), stride=2),
                          lambda x, w: convolved(x, w, 2, [(1, 0), (0, 2), (1, 1)]), X3, W3),
    "conv3d": case(lambda x, w: ops.conv3d(x, w, pad_mode="same"), lambda x, w: convolved(x, w, 1, [(0, 1)] * 3), X3, W3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


def assert_adjoint(forward, backward, x, weight):
    """A transposed convolution is the adjoint of the convolution: <forward(x), y> = <x, backward(y)>."""
    image = forward(x)
    y = numbers(*image.shape, seed=5)
    back = backward(y, weight).asnumpy()
    assert back.shape == x.shape
    np.testing.assert_allclose((image * y).sum(), (x * back).sum(), rtol=1e-9)


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 1), st.integers(1, 2), st.sampled_from([1, 2]))
def test_conv_transpose2d_is_the_adjoint(size, stride, pad, dilation, groups):
    x, weight = numbers(1, 4, 7, 8), numbers(4, 4 // groups, size, size)
    edges = [(pad, pad)] * 2
    outs = [(n + 2 * pad - (size - 1) * dilation - 1) for n in (7, 8)]
    extra = tuple(item % stride for item in outs)
    if max(extra) >= max(stride, dilation):
        return
    assert_adjoint(
        lambda x: convolved(x, weight, stride, edges, dilation, groups),
        lambda y, w: ops.conv_transpose2d(Tensor(y), Tensor(w), None, stride, pad, extra, groups, dilation),
        x, weight,
    )  # fmt: skip


@pytest.mark.parametrize(("mode", "pad", "stride"), [("valid", 0, 1), ("valid", 0, 2), ("same", 0, 2), ("pad", 1, 2)])
@pytest.mark.parametrize("name", ["Conv2DTranspose", "Conv2DBackpropInput"])
def test_conv2d_transpose_is_the_adjoint(mode, pad, stride, name):
    x, weight = numbers(1, 4, 6, 6), numbers(2, 4, 3, 3)
    edges = {"valid": [(0, 0)] * 2, "same": [(0, 1)] * 2, "pad": [(1, 1)] * 2}[mode]
    operator = getattr(ops, name)(2, 3, pad_mode=mode, pad=pad, stride=stride)
    assert_adjoint(
        lambda x: convolved(x, weight, stride, edges), lambda y, w: operator(Tensor(y), Tensor(w), x.shape), x, weight
    )


def test_conv3d_transpose_is_the_adjoint():
    x, weight = numbers(1, 2, 4, 4, 4), numbers(3, 2, 2, 2, 2)
    for call in (
        lambda y, w: ops.conv3d_transpose(Tensor(y), Tensor(w), stride=2),
        lambda y, w: ops.Conv3DTranspose(3, 2, 2, stride=2)(Tensor(y), Tensor(w)),
    ):
        assert_adjoint(lambda x: convolved(x, weight, 2, [(0, 0)] * 3), call, x, weight)


def test_gradients_of_transposes():
    check(
        case(
            lambda x, w: ops.conv_transpose2d(x, w, stride=2, output_padding=1),
            None,
            numbers(1, 2, 2, 3),
            numbers(2, 3, 2, 2),
        )
    )
    check(
        case(lambda x, w: ops.Conv2DTranspose(2, 3)(x, w, (1, 2, 5, 5)), None, numbers(1, 2, 3, 3), numbers(2, 2, 3, 3))
    )
    check(case(lambda x, w: ops.conv3d_transpose(x, w), None, numbers(1, 1, 2, 2, 2), numbers(1, 1, 2, 2, 2)))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.conv2d(Tensor(X2), Tensor(W2)), ValueError, "times 'groups'"),
        (lambda: ops.conv2d(Tensor(X2), Tensor(W2), groups=2, padding=1), ValueError, "'pad' must be 0"),
        (lambda: ops.conv2d(Tensor(X2), Tensor(W2), groups=2, pad_mode="full"), ValueError, "pad_mode"),
        (lambda: ops.Conv3D(3, 2)(Tensor(X3), Tensor(W3)), ValueError, "out_channel 3"),
        (lambda: ops.conv1d(Tensor(X1[..., :2]), Tensor(W1)), ValueError, "does not fit"),
        (lambda: ops.Conv2DTranspose(2, 3)(Tensor(numbers(1, 2, 3, 3)), Tensor(numbers(2, 2, 3, 3)), (1, 2, 9, 9)), ValueError, "no input of size"),
        (lambda: ops.conv_transpose2d(Tensor(X2), Tensor(numbers(4, 1, 2, 2)), output_padding=1), ValueError, "output_padding"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
