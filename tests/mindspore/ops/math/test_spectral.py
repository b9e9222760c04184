"""Fourier transforms and windows against scipy, with their gradients; values of MindSpore are in `cases/signals.cases`."""

import numpy as np
import pytest
import scipy.fft
import scipy.signal
from operator_cases import case, check, numbers

import sporax.mindspore as ms
from sporax.mindspore import ops

X = numbers(3, 4)
Y = numbers(3, 4, seed=1)


def pairs(z):
    return np.stack([z.real, z.imag], -1)


def complexly(transform):
    """A transform of a complex signal, given and taken as real numbers, so that differences can judge the gradient."""
    return lambda x, y: ops.view_as_real(transform(ops.Complex()(x, y)))


def stft(x):
    padded = np.pad(x, ((0, 0), (2, 2)), "reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 4, 1)[:, ::2] * scipy.signal.get_window("hann", 4)
    return pairs(np.fft.rfft(windows).swapaxes(1, 2))


CASES = {
    "fft": case(complexly(ops.fft), lambda x, y: pairs(scipy.fft.fft(x + 1j * y)), X, Y),
    "ifft2": case(complexly(ops.ifft2), lambda x, y: pairs(scipy.fft.ifft2(x + 1j * y)), X, Y),
    "rfft and back": case(lambda x: ops.irfftn(ops.rfftn(x) * 2, (3, 4)), lambda x: 2 * x, X),
    "hfftn": case(lambda x: ops.hfftn(x, norm="ortho"), lambda x: scipy.fft.hfftn(x, norm="ortho"), X),
    "ihfft and back": case(lambda x: ops.hfft(ops.ihfft(x), 4), lambda x: x, X),
    "fftshift": case(lambda x: ops.fftshift(x, 1), lambda x: np.fft.fftshift(x, 1), X),
    "stft": case(lambda x: ops.stft(x, 4, 2, window=ops.hann_window(4)), stft, numbers(2, 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


@pytest.mark.parametrize(
    ("ours", "name"),
    [
        (ops.bartlett_window, "bartlett"),
        (ops.blackman_window, "blackman"),
        (ops.hamming_window, "hamming"),
        (ops.hann_window, "hann"),
        (lambda *args, **kwargs: ops.kaiser_window(*args, 9.0, **kwargs), ("kaiser", 9.0)),
    ],
)
def test_window_functions_equal_scipy(ours, name):
    for size in (0, 1, 2, 5, 8):
        for periodic in (True, False):
            window = ours(size, periodic, dtype=ms.float64).asnumpy()
            expected = scipy.signal.get_window(name, size, fftbins=periodic) if size else np.zeros(0)
            np.testing.assert_allclose(window, expected, atol=1e-12)


def test_dtypes_and_empty_batches():
    assert ops.fft(ms.Tensor([1, 2], ms.int32)).dtype == ms.complex64
    assert ops.rfft(ms.Tensor([1.0], ms.float64)).dtype == ms.complex128
    assert ops.fft(ops.zeros((0, 4))).shape == (0, 4)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: ops.fft(x[0, 0]), ValueError, "at least one dimension"),
        (lambda x: ops.rfft(ops.fft(x)), TypeError, "must be real"),
        (lambda x: ops.fftn(x, (2, 2), (0,)), ValueError, "one size for each dim"),
        (lambda x: ops.fft(x, norm="none"), ValueError, "'norm' must be one of"),
        (lambda x: ops.hann_window(-1), ValueError, "must be >= 0"),
        (lambda x: ops.hann_window(2.0), TypeError, "must be an int"),
        (lambda x: ops.stft(x, 9, center=False), ValueError, "the length of 'x'"),
        (lambda x: ops.fftfreq(0), ValueError, "'n' must be an int >= 1"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call(ms.Tensor(X))
