"""Signals: Fourier transforms, windows, and spectra over time.

The transforms take real or complex tensors of any float dtype; integers become float32. Sizes that are given truncate or fill up
with zeros. `norm` says which direction is divided: ``"backward"`` (or None, the default) the inverse, ``"forward"`` the other
one, ``"ortho"`` both, by square roots.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore.common import DType, Tensor, dtypes, wrap
from sporax.mindspore.ops._core import FUNCTIONS, Along, Array, check, export, known, operator, promote

Norm = Literal["backward", "ortho", "forward"] | None
Sizes = int | tuple[int, ...] | None
# Hermitian transforms are the real ones in the other direction, so the division is on the other side.
_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _hermitian(x: Array, s: Any, axes: Any, norm: str) -> Array:
    """The real spectrum of a signal of which half is given: the other direction of `irfftn`, conjugated."""
    return jnp.fft.irfftn(jnp.conj(x), s, axes, _OPPOSITE[norm])


def _inverse_hermitian(x: Array, s: Any, axes: Any, norm: str) -> Array:
    return jnp.conj(jnp.fft.rfftn(x, s, axes, _OPPOSITE[norm]))


# name: function over several dims, whether it takes real input only, what it computes
_TRANSFORMS: dict[str, tuple[Callable[..., Array], bool, str]] = {
    "fft": (jnp.fft.fftn, False, "Discrete Fourier transform"),
    "ifft": (jnp.fft.ifftn, False, "Inverse of the discrete Fourier transform"),
    "rfft": (jnp.fft.rfftn, True, "Fourier transform of a real signal: the half of it that defines all"),
    "irfft": (jnp.fft.irfftn, False, "Inverse of the Fourier transform of a real signal; gives real numbers"),
    "hfft": (_hermitian, False, "Fourier transform of a signal that is Hermitian, of which half is given; it is real"),
    "ihfft": (_inverse_hermitian, True, "Inverse of the Fourier transform of a Hermitian signal: half of the signal"),
}


def _transformed(name: str, x: Array, sizes: Any, dims: Any, norm: str | None) -> Array:
    base = name.removesuffix("2").removesuffix("n")
    compute, real_only, _ = _TRANSFORMS[base]
    check.tensor(name, input=x)
    For(name).refuse(not x.ndim, "'input' must have at least one dimension, but its shape is ()")
    For(name).refuse_type(real_only and jnp.iscomplexobj(x), "'input' must be real", check.describe(x))
    sizes = (sizes,) if isinstance(sizes, int) else sizes
    For(name).refuse(sizes is not None and min(sizes, default=1) < 1, "the sizes must be >= 1", sizes)
    axes = check.axes(name, dims, x.ndim, "dim")
    if axes is None:
        axes = tuple(range(x.ndim) if sizes is None else range(x.ndim - len(sizes), x.ndim))
    if sizes is not None and (len(sizes) != len(axes) or min(axes) < 0):
        raise SporaxValueError(f"For '{name}', there must be one size for each dim, but got {sizes} and {dims}.")
    return compute(promote.inexact(x), sizes, axes, norm or "backward")


def _register(name: str, doc: str) -> None:
    def one(input: Array, n: int | None = None, dim: int = -1, norm: Norm = None) -> Array:
        return _transformed(name, input, n, dim, norm)

    def two(input: Array, s: Sizes = None, dim: int | tuple[int, ...] = (-2, -1), norm: Norm = None) -> Array:
        return _transformed(f"{name}2", input, s, dim, norm)

    def many(input: Array, s: Sizes = None, dim: int | tuple[int, ...] | None = None, norm: Norm = None) -> Array:
        return _transformed(f"{name}n", input, s, dim, norm)

    kernels: tuple[tuple[str, Callable[..., Array], str, Hashable], ...] = (
        ("", one, "along `dim`", -1),
        ("2", two, "over two dims", (-2, -1)),
        ("n", many, "over `dim`", None),
    )
    for suffix, kernel, where, default in kernels:
        kernel.__name__ = f"{name}{suffix}"
        kernel.__doc__ = f"{doc}, {where}. Sizes and `norm`: see the module."
        operator(dims=Along("dim", default))(kernel)


for _name, (*_, _doc) in _TRANSFORMS.items():
    _register(_name, _doc)


@operator("FFTWithSize(signal_ndim, inverse, real, norm, onesided, signal_sizes)", function="")
def _fft_with_size(
    x: Array,
    signal_ndim: int,
    inverse: bool,
    real: bool,
    norm: Norm = "backward",
    onesided: bool = True,
    signal_sizes: tuple[int, ...] = (),
) -> Array:
    """A Fourier transform over the last `signal_ndim` dims (1 to 3).

    Args:
        x: the signal.
        signal_ndim: see above.
        inverse: transform back.
        real: the signal (not the spectrum) is real.
        norm: see the module.
        onesided: of the spectrum of a real signal only the half is given that defines all.
        signal_sizes: sizes of the real signal for the inverse; needed when its last one is odd.
    """
    name = "FFTWithSize"
    check.one_of(name, signal_ndim, (1, 2, 3), "signal_ndim")
    check.rank(name, range(signal_ndim, 9), x=x)
    axes = tuple(range(x.ndim - signal_ndim, x.ndim))
    # Half of the spectrum of a real signal defines all.
    if real and onesided:
        transform = _TRANSFORMS["irfft" if inverse else "rfft"][0]
        # The forward direction takes its sizes from the signal.
        return transform(promote.inexact(x), (signal_sizes or None) if inverse else None, axes, norm)
    result = _TRANSFORMS["ifft" if inverse else "fft"][0](promote.inexact(x), None, axes, norm)
    # The inverse of a full spectrum has an imaginary part of rounding errors.
    return jnp.real(result) if real and inverse else result


def _shifted(name: str, compute: Callable[..., Array], doc: str) -> None:
    def kernel(input: Array, dim: int | tuple[int, ...] | None = None) -> Array:
        check.tensor(name, input=input)
        return compute(input, check.axes(name, dim, input.ndim, "dim"))

    kernel.__name__, kernel.__doc__ = name, doc
    operator(dims=Along("dim", None))(kernel)


_shifted("fftshift", jnp.fft.fftshift, "The frequency 0 moved to the middle along `dim` (all dims by default).")
_shifted("ifftshift", jnp.fft.ifftshift, "What `fftshift` moved, moved back.")


def _checked_count(name: str, n: object) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise For(name).error("'n' must be an int >= 1", n, show=repr)
    return n


def fftfreq(n: int, d: float = 1.0, dtype: DType | None = None) -> Tensor:
    """Frequencies of the `n` values of `fft` for samples at the distance `d`; float32 unless `dtype` says otherwise."""
    # numpy counts in float64; the result is rounded once.
    values = np.fft.fftfreq(_checked_count("fftfreq", n), d)
    return wrap(jnp.asarray(values, (dtype or dtypes.float32).np_dtype))


def rfftfreq(n: int, d: float = 1.0, dtype: DType | None = None) -> Tensor:
    """Frequencies of the values of `rfft` for `n` samples at the distance `d`; float32 unless `dtype` says otherwise."""
    values = np.fft.rfftfreq(_checked_count("rfftfreq", n), d)
    return wrap(jnp.asarray(values, (dtype or dtypes.float32).np_dtype))


export(fftfreq, rfftfreq)


def _window(name: str, length: Any, periodic: bool, dtype: DType | None, make: Callable[[int], Any]) -> Tensor:
    """`length` values of a window; a periodic one lacks the last value of the symmetric one that is longer by 1."""
    # The length decides the shape, so a Tensor must be known.
    size = known(name, "window_length", length).item() if isinstance(length, Tensor) else length
    if isinstance(size, bool) or not isinstance(size, int):
        raise SporaxTypeError(f"For '{name}', 'window_length' must be an int, but got {type(size).__name__}: {size!r}.")
    For(name).refuse(size < 0, "'window_length' must be >= 0", size)
    For(name).typed("periodic", periodic, "a bool", bool)
    # numpy's windows are symmetric: a periodic one is a part of the next longer one. Below 2 there is no shape.
    values = np.ones(size) if size < 2 else make(size + periodic)[:size]
    return wrap(jnp.asarray(values, (dtype or dtypes.float32).np_dtype))


def bartlett_window(window_length: Any, periodic: bool = True, *, dtype: DType | None = None) -> Tensor:
    """A triangle. `window_length`: an int or a Tensor with one; `periodic`: for spectra, not symmetric."""
    return _window("bartlett_window", window_length, periodic, dtype, np.bartlett)


def blackman_window(window_length: Any, periodic: bool = True, *, dtype: DType | None = None) -> Tensor:
    """Three cosines (Blackman). Arguments as for `bartlett_window`."""
    return _window("blackman_window", window_length, periodic, dtype, np.blackman)


def hamming_window(
    window_length: Any, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: DType | None = None
) -> Tensor:
    """``alpha - beta · cos``. Other arguments as for `bartlett_window`."""

    def make(size: int) -> Any:
        return alpha - beta * np.cos(2 * np.pi * np.arange(size) / (size - 1))

    return _window("hamming_window", window_length, periodic, dtype, make)


def hann_window(window_length: Any, periodic: bool = True, *, dtype: DType | None = None) -> Tensor:
    """A raised cosine, in float64 unless `dtype` says otherwise. Other arguments as for `bartlett_window`."""
    # float64 as in MindSpore.
    return _window("hann_window", window_length, periodic, dtype or dtypes.float64, np.hanning)


def kaiser_window(
    window_length: Any, periodic: bool = True, beta: float = 12.0, *, dtype: DType | None = None
) -> Tensor:
    """A Bessel function, in float64 unless `dtype` says otherwise; a larger `beta` makes it narrower.

    Other arguments as for `bartlett_window`.
    """
    return _window(
        "kaiser_window", window_length, periodic, dtype or dtypes.float64, lambda size: np.kaiser(size, beta)
    )


export(bartlett_window, blackman_window, hamming_window, hann_window, kaiser_window)


@operator("BartlettWindow(periodic, dtype)", function="", composed=True)
def _bartlett(window_length: Array, periodic: bool = True, dtype: DType = dtypes.float32) -> Any:
    """A triangle of `window_length` values."""
    return bartlett_window(window_length, periodic, dtype=dtype)


@operator("BlackmanWindow(periodic, dtype)", function="", composed=True)
def _blackman(window_length: Array, periodic: bool = True, dtype: DType = dtypes.float32) -> Any:
    """Three cosines, `window_length` values (Blackman)."""
    return blackman_window(window_length, periodic, dtype=dtype)


@operator("HammingWindow(periodic, alpha, beta, dtype)", function="", composed=True)
def _hamming(
    length: Array, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, dtype: DType = dtypes.float32
) -> Any:
    """``alpha - beta · cos``, `length` values."""
    return hamming_window(length, periodic, alpha, beta, dtype=dtype)


@operator("STFT(n_fft, hop_length, win_length, normalized, onesided, return_complex)", function="")
def _stft(
    x: Array,
    window: Array,
    n_fft: int,
    hop_length: int,
    win_length: int,
    normalized: bool,
    onesided: bool,
    return_complex: bool,
) -> Array:
    """Spectra of the windows of a signal.

    Args:
        x: (length,) or (n, length).
        window: (win_length,), filled up with zeros on both sides to `n_fft`.
        n_fft, hop_length: size of a window, and distance between two.
        win_length: size of `window`.
        normalized: divide by the square root of `n_fft`.
        onesided: only the frequencies that define all of a real signal.
        return_complex: complex numbers; otherwise real and imaginary parts in another dim.

    Returns:
        (n, frequencies, windows), or (n, frequencies, windows, 2).
    """
    name = "STFT"
    check.rank(name, (1, 2), x=x)
    length = x.shape[-1]
    if not 0 < n_fft <= length or hop_length < 1 or not 0 < win_length <= n_fft or window.shape != (win_length,):
        raise SporaxValueError(
            f"For '{name}', it must be 0 < 'win_length' <= 'n_fft' <= {length} (the length of 'x'), 'hop_length' > 0 and "
            f"'window' of shape (win_length,), but got {win_length}, {n_fft}, {hop_length} and {window.shape}."
        )
    complex_input = jnp.iscomplexobj(x) or jnp.iscomplexobj(window)
    For(name).refuse(onesided and complex_input, "'onesided' must be False for complex signals and windows")
    # In the middle of the frame; the odd zero goes behind.
    before = (n_fft - win_length) // 2
    filled = jnp.pad(window, (before, n_fft - win_length - before))
    starts = np.arange(0, length - n_fft + 1, hop_length)
    # All windows as one gather, so that one transform serves them.
    pieces = promote.inexact(x)[..., starts[:, None] + np.arange(n_fft)] * filled
    transform = jnp.fft.rfft if onesided else jnp.fft.fft
    # MindSpore has frequencies before time.
    spectra = jnp.swapaxes(transform(pieces, axis=-1, norm="ortho" if normalized else "backward"), -1, -2)
    return spectra if return_complex else jnp.stack([spectra.real, spectra.imag], -1)


_PAD_MODES = {"CONSTANT": "constant", "REFLECT": "reflect", "REPLICATE": "replicate", "CIRCULAR": "circular"}


def stft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "REFLECT",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Tensor:
    """Spectra of the windows of a signal (short-time Fourier transform).

    Args:
        x: (length,) or (n, length).
        n_fft: size of a window of the signal.
        hop_length: distance between two windows; None: n_fft // 4.
        win_length: size of `window`; None: n_fft.
        window: what each window is multiplied with, filled up with zeros to `n_fft`; None: ones.
        center: put n_fft // 2 values before and behind the signal, so that windows are centred on their time.
        pad_mode: which values: ``"CONSTANT"`` (zeros), ``"REFLECT"``, ``"REPLICATE"`` or ``"CIRCULAR"``.
        normalized: divide by the square root of `n_fft`.
        onesided: only the frequencies that define all of a real signal; None: when signal and window are real.
        return_complex: complex numbers; otherwise real and imaginary parts in another dim; None: for complex signals.

    Returns:
        (n, frequencies, windows), or (n, frequencies, windows, 2).
    """
    For("stft").typed("x", x, "a Tensor", Tensor)
    if isinstance(n_fft, bool) or not isinstance(n_fft, int):
        raise SporaxTypeError(f"For 'stft', 'n_fft' must be an int, but got {type(n_fft).__name__}: {n_fft!r}.")
    win_length = n_fft if win_length is None else win_length
    window = FUNCTIONS["ones"]((win_length,), dtypes.float32) if window is None else window
    if center:
        check.one_of("stft", pad_mode.upper(), tuple(_PAD_MODES), "pad_mode")
        rows = x.reshape((1, -1, x.shape[-1]))
        padded = FUNCTIONS["pad"](rows, (n_fft // 2, n_fft // 2), mode=_PAD_MODES[pad_mode.upper()])
        x = padded.reshape((*x.shape[:-1], padded.shape[-1]))
    complex_input = any(value.dtype in (dtypes.complex64, dtypes.complex128) for value in (x, window))
    onesided = not complex_input if onesided is None else onesided
    return_complex = complex_input if return_complex is None else return_complex
    settings = (n_fft, n_fft // 4 if hop_length is None else hop_length, win_length)
    return _stft(x, window, *settings, normalized, onesided, return_complex)


export(stft)
