"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.dataset.audio._filters import AllpassBiquad as AllpassBiquad
from sporax.mindspore.dataset.audio._filters import BandBiquad as BandBiquad
from sporax.mindspore.dataset.audio._filters import BandpassBiquad as BandpassBiquad
from sporax.mindspore.dataset.audio._filters import BandrejectBiquad as BandrejectBiquad
from sporax.mindspore.dataset.audio._filters import BassBiquad as BassBiquad
from sporax.mindspore.dataset.audio._filters import Biquad as Biquad
from sporax.mindspore.dataset.audio._filters import EqualizerBiquad as EqualizerBiquad
from sporax.mindspore.dataset.audio._filters import Filtfilt as Filtfilt
from sporax.mindspore.dataset.audio._filters import HighpassBiquad as HighpassBiquad
from sporax.mindspore.dataset.audio._filters import LFilter as LFilter
from sporax.mindspore.dataset.audio._filters import LowpassBiquad as LowpassBiquad
from sporax.mindspore.dataset.audio._filters import Resample as Resample
from sporax.mindspore.dataset.audio._filters import TrebleBiquad as TrebleBiquad
from sporax.mindspore.dataset.audio._levels import AmplitudeToDB as AmplitudeToDB
from sporax.mindspore.dataset.audio._levels import Contrast as Contrast
from sporax.mindspore.dataset.audio._levels import DBToAmplitude as DBToAmplitude
from sporax.mindspore.dataset.audio._levels import Fade as Fade
from sporax.mindspore.dataset.audio._levels import Gain as Gain
from sporax.mindspore.dataset.audio._levels import MFCC as MFCC
from sporax.mindspore.dataset.audio._levels import MuLawDecoding as MuLawDecoding
from sporax.mindspore.dataset.audio._levels import MuLawEncoding as MuLawEncoding
from sporax.mindspore.dataset.audio._levels import Vol as Vol
from sporax.mindspore.dataset.audio._masks import FrequencyMasking as FrequencyMasking
from sporax.mindspore.dataset.audio._masks import MaskAlongAxis as MaskAlongAxis
from sporax.mindspore.dataset.audio._masks import TimeMasking as TimeMasking
from sporax.mindspore.dataset.audio._spectra import Angle as Angle
from sporax.mindspore.dataset.audio._spectra import ComplexNorm as ComplexNorm
from sporax.mindspore.dataset.audio._spectra import ComputeDeltas as ComputeDeltas
from sporax.mindspore.dataset.audio._spectra import MelScale as MelScale
from sporax.mindspore.dataset.audio._spectra import MelSpectrogram as MelSpectrogram
from sporax.mindspore.dataset.audio._spectra import SpectralCentroid as SpectralCentroid
from sporax.mindspore.dataset.audio._spectra import Spectrogram as Spectrogram
from sporax.mindspore.dataset.audio._spectra import create_dct as create_dct
from sporax.mindspore.dataset.audio._spectra import linear_fbanks as linear_fbanks
from sporax.mindspore.dataset.audio._spectra import melscale_fbanks as melscale_fbanks
from sporax.mindspore.dataset.audio.enums import BorderType as BorderType
from sporax.mindspore.dataset.audio.enums import FadeShape as FadeShape
from sporax.mindspore.dataset.audio.enums import GainType as GainType
from sporax.mindspore.dataset.audio.enums import MelType as MelType
from sporax.mindspore.dataset.audio.enums import NormMode as NormMode
from sporax.mindspore.dataset.audio.enums import NormType as NormType
from sporax.mindspore.dataset.audio.enums import ResampleMethod as ResampleMethod
from sporax.mindspore.dataset.audio.enums import ScaleType as ScaleType
from sporax.mindspore.dataset.audio.enums import WindowType as WindowType


