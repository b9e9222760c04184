"""Transforms of sound: `mindspore.dataset.audio`. Waves are arrays (…, time), spectra (…, freq, time)."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _filters: AllpassBiquad BandBiquad BandpassBiquad BandrejectBiquad BassBiquad Biquad EqualizerBiquad
        Filtfilt HighpassBiquad LFilter LowpassBiquad Resample TrebleBiquad
    _levels: AmplitudeToDB Contrast DBToAmplitude Fade Gain MuLawDecoding MuLawEncoding Vol MFCC
    _spectra: Angle ComplexNorm ComputeDeltas MelScale MelSpectrogram SpectralCentroid Spectrogram create_dct
        linear_fbanks melscale_fbanks FrequencyMasking MaskAlongAxis TimeMasking
    enums: BorderType FadeShape GainType MelType NormMode NormType ResampleMethod ScaleType WindowType
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
