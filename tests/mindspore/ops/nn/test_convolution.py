"""Convolution and pooling against loops in numpy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from against_numpy import check, numbers

import sporax.mindspore as ms
from sporax.mindspore import ops


def amounts(mode, pad, size, kernel, stride):
    """Cells before and after one dimension."""
    if mode == "valid":
        return 0, 0
    if mode == "pad":
        return pad, pad
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def windows(x, kernel, stride, mode, pad=0, dilation=1, fill=0.0):
    """All windows of an (N, C, H, W) image: (N, C, rows, columns, kernel, kernel)."""
    reach = dilation * (kernel - 1) + 1
    sides = [amounts(mode, pad, size, reach, stride) for size in x.shape[2:]]
    padded = np.pad(x, [(0, 0), (0, 0), *sides], constant_values=fill)
    rows, columns = ((size - reach) // stride + 1 for size in padded.shape[2:])
    cut = [
        [padded[:, :, r * stride : r * stride + reach : dilation, c * stride : c * stride + reach : dilation]
         for c in range(columns)] for r in range(rows)
    ]  # fmt: skip
    return np.stack([np.stack(row, 2) for row in cut], 2)


def convolve(x, weight, stride=1, mode="valid", pad=0, dilation=1, group=1):
    parts = windows(x, weight.shape[2], stride, mode, pad, dilation)
    outputs = []
    for g in range(group):
        own = parts[:, g * weight.shape[1] : (g + 1) * weight.shape[1]]
        kernels = weight[g * len(weight) // group : (g + 1) * len(weight) // group]
        outputs.append(np.einsum("ncrskl,ockl->nors", own, kernels))
    return np.concatenate(outputs, 1)


@pytest.mark.parametrize(
    "settings", [{}, {"mode": "same", "stride": 2}, {"mode": "pad", "pad": 1}, {"dilation": 2}, {"group": 2}], ids=str
)
def test_conv2d(settings):
    group = settings.get("group", 1)
    names = {"mode": "pad_mode"}
    conv = ops.Conv2D(4, 2, **{names.get(name, name): value for name, value in settings.items()})
    reference = lambda x, w: convolve(x, w, **settings)
    check(conv, reference, numbers(2, 2, 4, 5), numbers(4, 2 // group, 2, 2, seed=1))


def test_channels_last():
    x, w = numbers(1, 2, 4, 4), numbers(3, 2, 2, 2, seed=1)
    last = ops.Conv2D(3, 2, data_format="NHWC")(ms.Tensor(x.transpose(0, 2, 3, 1)), ms.Tensor(w.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(last.asnumpy().transpose(0, 3, 1, 2), convolve(x, w))
    pooled = ops.MaxPool(2, 2, data_format="NHWC")(ms.Tensor(x.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(pooled.asnumpy().transpose(0, 3, 1, 2), windows(x, 2, 2, "valid").max((4, 5)))


@pytest.mark.parametrize("mode", ["valid", "same"])
def test_pooling_takes_each_window_by_itself(mode):
    x = numbers(2, 2, 5, 4)
    check(ops.MaxPool(2, 2, mode), lambda x: windows(x, 2, 2, mode, fill=-np.inf).max((4, 5)), x)
    check(ops.AvgPool(2, 2, mode.upper()), lambda x: np.nanmean(windows(x, 2, 2, mode, fill=np.nan), (4, 5)), x)


def adaptive(x, sizes, reduce):
    result = np.empty((*x.shape[:-2], *sizes))
    for cell in itertools.product(*map(range, sizes)):
        (top, bottom), (left, right) = (
            (i * n // k, -(-(i + 1) * n // k)) for i, n, k in zip(cell, x.shape[-2:], sizes, strict=True)
        )
        result[(..., *cell)] = reduce(x[..., top:bottom, left:right], axis=(-2, -1))
    return result


@pytest.mark.parametrize(("kernel", "mode"), [(2, "valid"), ((3, 2), "valid"), (2, "same"), (9, "valid")])
@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
def test_maxima_of_tiles_are_those_of_windows(kernel, mode, data_format):
    """Ties, NaN and a rest that fills no window included; of equal values the first gets the derivative."""
    x = np.random.default_rng(4).integers(0, 3, (2, 10, 10, 10)).astype(np.float32)
    x[0, 1, 2, 3] = np.nan
    high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
    window = (1, 1, high, wide) if data_format == "NCHW" else (1, high, wide, 1)

    def by_windows(x):
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, window, window, mode.upper())

    run = ops.MaxPool(kernel, kernel, mode, data_format)
    expected = by_windows(jnp.asarray(x))
    np.testing.assert_array_equal(run(ms.Tensor(x)).asnumpy(), expected)
    weights = np.random.default_rng(5).normal(size=expected.shape).astype(np.float32)
    x[np.isnan(x)] = 1
    _, pull = jax.vjp(by_windows, jnp.asarray(x))
    actual = ms.grad(lambda x: (run(x) * ms.Tensor(weights)).sum())(ms.Tensor(x))
    np.testing.assert_array_equal(actual.asnumpy(), pull(jnp.asarray(weights))[0])


@pytest.mark.parametrize("sizes", [(2, 3), (1, None)])
def test_adaptive_pooling(sizes):
    x = numbers(2, 5, 4)
    full = tuple(n if k is None else k for k, n in zip(sizes, x.shape[-2:], strict=True))
    check(lambda x: ops.adaptive_avg_pool2d(x, sizes), lambda x: adaptive(x, full, np.mean), x)
    check(lambda x: ops.adaptive_max_pool2d(x, sizes), lambda x: adaptive(x, full, np.max), x)
    values, places = ops.adaptive_max_pool2d(ms.Tensor(x), sizes, return_indices=True)
    flat = np.take_along_axis(x.reshape(2, -1), places.asnumpy().reshape(2, -1), 1)
    np.testing.assert_array_equal(flat.reshape(values.shape), values.asnumpy())


X = ms.Tensor(np.ones((1, 2, 4, 4), np.float32))
W = ms.Tensor(np.ones((3, 2, 3, 3), np.float32))
ERRORS = [
    (lambda: ops.Conv2D(3, 3)(X[:, :1], W), ValueError, r"1 and 2 .*\(1, 1, 4, 4\).*\(3, 2, 3, 3\)"),
    (lambda: ops.Conv2D(4, 3)(X, W), ValueError, r"out_channel 4 and kernel_size \(3, 3\).*\(3, 2, 3, 3\)"),
    (lambda: ops.Conv2D(3, 3)(X[0], W), ValueError, "'x' must have 4 dimensions"),
    (lambda: ops.Conv2D(3, 3)(X.half(), W), TypeError, "'x': Float16, 'weight': Float32"),
    (lambda: ops.Conv2D(3, 3, pad_mode="full"), ValueError, "'pad_mode' must be one of .* but got 'full'"),
    (lambda: ops.Conv2D(3, 3, stride=0)(X, W), ValueError, "'stride' must be one or two ints >= 1, but got 0"),
    (lambda: ops.Conv2D(3, 3)(X[:, :, :2], W), ValueError, "does not fit"),
    (lambda: ops.MaxPool(2, 2, "pad"), ValueError, "'pad_mode'"),
    (lambda: ops.AvgPool(5)(X), ValueError, "does not fit"),
    (lambda: ops.adaptive_avg_pool2d(X, (1, 2, 3)), ValueError, r"one or two sizes >= 1, but got \(1, 2, 3\)"),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_arguments_that_do_not_fit_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
