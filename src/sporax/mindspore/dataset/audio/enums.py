"""Enumerations of the transforms of sound."""

import enum


class BorderType(enum.StrEnum):
    """What padding holds."""

    CONSTANT = "constant"
    EDGE = "edge"
    REFLECT = "reflect"
    SYMMETRIC = "symmetric"


class FadeShape(enum.StrEnum):
    """The curve of a fade."""

    QUARTER_SINE = "quarter_sine"
    HALF_SINE = "half_sine"
    LINEAR = "linear"
    LOGARITHMIC = "logarithmic"
    EXPONENTIAL = "exponential"


class GainType(enum.StrEnum):
    """What the number of `Vol` means."""

    AMPLITUDE = "amplitude"
    POWER = "power"
    DB = "db"


class MelType(enum.StrEnum):
    """The formula of the mel scale."""

    HTK = "htk"
    SLANEY = "slaney"


class NormMode(enum.StrEnum):
    """How a cosine transform is normalized."""

    ORTHO = "ortho"
    NONE = "none"


class NormType(enum.StrEnum):
    """How filters of the mel scale are normalized."""

    SLANEY = "slaney"
    NONE = "none"


class ResampleMethod(enum.StrEnum):
    """The window of the filter that resamples."""

    SINC_INTERPOLATION = "sinc_interpolation"
    KAISER_WINDOW = "kaiser_window"


class ScaleType(enum.StrEnum):
    """What is turned into decibels."""

    POWER = "power"
    MAGNITUDE = "magnitude"


class WindowType(enum.StrEnum):
    """The window of a short-time Fourier transform."""

    BARTLETT = "bartlett"
    BLACKMAN = "blackman"
    HAMMING = "hamming"
    HANN = "hann"
    KAISER = "kaiser"
