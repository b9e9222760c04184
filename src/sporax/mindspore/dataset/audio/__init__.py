"""Transforms of sound: `mindspore.dataset.audio`. Waves are arrays (…, time), spectra (…, freq, time)."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _effects: DCShift Dither Flanger Overdrive Phaser AmplitudeToDB Contrast DBToAmplitude Fade Gain LFCC MuLawDecoding
        MuLawEncoding Vol MFCC
    _filters: AllpassBiquad BandBiquad BandpassBiquad BandrejectBiquad BassBiquad Biquad DeemphBiquad EqualizerBiquad
        Filtfilt HighpassBiquad LFilter LowpassBiquad Resample RiaaBiquad TrebleBiquad
    _inverse: GriffinLim InverseMelScale InverseSpectrogram PhaseVocoder PitchShift TimeStretch
    _spectra: Angle ComplexNorm ComputeDeltas Magphase MelScale MelSpectrogram SpectralCentroid Spectrogram create_dct
        linear_fbanks melscale_fbanks FrequencyMasking MaskAlongAxis MaskAlongAxisIID TimeMasking
    _speech: DetectPitchFrequency SlidingWindowCmn Vad
    enums: BorderType DensityFunction FadeShape GainType Interpolation MelType Modulation NormMode NormType ResampleMethod
        ScaleType WindowType
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
