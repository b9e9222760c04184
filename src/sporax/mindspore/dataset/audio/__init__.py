"""Transforms of sound: `mindspore.dataset.audio`. Waves are arrays (…, time), spectra (…, freq, time)."""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.dataset.audio._cepstra import MFCC
from sporax.mindspore.dataset.audio._filters import (
    AllpassBiquad,
    BandBiquad,
    BandpassBiquad,
    BandrejectBiquad,
    BassBiquad,
    Biquad,
    EqualizerBiquad,
    HighpassBiquad,
    LFilter,
    LowpassBiquad,
    TrebleBiquad,
)
from sporax.mindspore.dataset.audio._levels import (
    AmplitudeToDB,
    Contrast,
    DBToAmplitude,
    Fade,
    Gain,
    MuLawDecoding,
    MuLawEncoding,
    Vol,
)
from sporax.mindspore.dataset.audio._masks import FrequencyMasking, MaskAlongAxis, TimeMasking
from sporax.mindspore.dataset.audio._spectra import (
    Angle,
    ComplexNorm,
    ComputeDeltas,
    MelScale,
    MelSpectrogram,
    SpectralCentroid,
    Spectrogram,
    create_dct,
    linear_fbanks,
    melscale_fbanks,
)
from sporax.mindspore.dataset.audio.enums import (
    BorderType,
    FadeShape,
    GainType,
    MelType,
    NormMode,
    NormType,
    ScaleType,
    WindowType,
)

__all__ = [
    "AllpassBiquad",
    "AmplitudeToDB",
    "Angle",
    "BandBiquad",
    "BandpassBiquad",
    "BandrejectBiquad",
    "BassBiquad",
    "Biquad",
    "BorderType",
    "ComplexNorm",
    "ComputeDeltas",
    "Contrast",
    "DBToAmplitude",
    "EqualizerBiquad",
    "Fade",
    "FadeShape",
    "FrequencyMasking",
    "Gain",
    "GainType",
    "HighpassBiquad",
    "LFilter",
    "LowpassBiquad",
    "MFCC",
    "MaskAlongAxis",
    "MelScale",
    "MelSpectrogram",
    "MelType",
    "MuLawDecoding",
    "MuLawEncoding",
    "NormMode",
    "NormType",
    "ScaleType",
    "SpectralCentroid",
    "Spectrogram",
    "TimeMasking",
    "TrebleBiquad",
    "Vol",
    "WindowType",
    "create_dct",
    "linear_fbanks",
    "melscale_fbanks",
]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
