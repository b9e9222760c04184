"""Enumerations of the transforms of sound."""

import enum


class BorderType(enum.StrEnum):
    """What padding holds."""

    CONSTANT, EDGE, REFLECT, SYMMETRIC = "constant", "edge", "reflect", "symmetric"


class DensityFunction(enum.StrEnum):
    """The noise of `Dither`."""

    TPDF, RPDF, GPDF = "TPDF", "RPDF", "GPDF"


class FadeShape(enum.StrEnum):
    """The curve of a fade."""

    QUARTER_SINE = "quarter_sine"
    HALF_SINE = "half_sine"
    LINEAR = "linear"
    LOGARITHMIC = "logarithmic"
    EXPONENTIAL = "exponential"


class GainType(enum.StrEnum):
    """What the number of `Vol` means."""

    AMPLITUDE, POWER, DB = "amplitude", "power", "db"


class Interpolation(enum.StrEnum):
    """How samples between two are found."""

    LINEAR, QUADRATIC = "linear", "quadratic"


class MelType(enum.StrEnum):
    """The formula of the mel scale."""

    HTK, SLANEY = "htk", "slaney"


class Modulation(enum.StrEnum):
    """What a delay follows."""

    SINUSOIDAL, TRIANGULAR = "sinusoidal", "triangular"


class NormMode(enum.StrEnum):
    """How a cosine transform is normalized."""

    ORTHO, NONE = "ortho", "none"


class NormType(enum.StrEnum):
    """How filters of the mel scale are normalized."""

    SLANEY, NONE = "slaney", "none"


class ResampleMethod(enum.StrEnum):
    """The window of the filter that resamples."""

    SINC_INTERPOLATION, KAISER_WINDOW = "sinc_interpolation", "kaiser_window"


class ScaleType(enum.StrEnum):
    """What is turned into decibels."""

    POWER, MAGNITUDE = "power", "magnitude"


class WindowType(enum.StrEnum):
    """The window of a short-time Fourier transform."""

    BARTLETT, BLACKMAN, HAMMING, HANN, KAISER = "bartlett", "blackman", "hamming", "hann", "kaiser"
