"""Transforms of sound that MindSpore's wheel was tested with, and what they were given (tools/golden/make_audio.py)."""

import numpy as np

_RANDOM = np.random.RandomState(3)
INPUTS = {
    "wave": _RANDOM.uniform(-1, 1, (2, 24)).astype(np.float32),
    "double": _RANDOM.uniform(-1, 1, (24,)),
    "spectrum": _RANDOM.uniform(0.1, 4, (2, 5, 8)).astype(np.float32),
    "complex": _RANDOM.uniform(-2, 2, (3, 4, 2)).astype(np.float32),
    "codes": _RANDOM.randint(0, 256, (2, 6)).astype(np.int32),
    "ints": _RANDOM.randint(-3, 4, (2, 6)).astype(np.int32),
    "frames": _RANDOM.uniform(-1, 1, (2, 9, 5, 2)).astype(np.float32),
    "double frames": _RANDOM.uniform(-1, 1, (9, 5, 2)),
    "powers": _RANDOM.uniform(0.1, 2, (2, 9, 5)).astype(np.float32),
    "speech": np.float32([*(0.002 * _RANDOM.uniform(-1, 1, 600)), *np.sin(np.arange(300) ** 1.3)]),
}

CASES = (
    ("AllpassBiquad(8000, 1000.0)", "wave"),
    ("AllpassBiquad(8000, 1000.0, 0.5)", "double"),
    ("BandBiquad(8000, 1000.0)", "wave"),
    ("BandBiquad(8000, 1000.0, 0.5, True)", "wave"),
    ("BandpassBiquad(8000, 1000.0)", "wave"),
    ("BandpassBiquad(8000, 1000.0, 0.5, True)", "wave"),
    ("BandrejectBiquad(8000, 1000.0)", "wave"),
    ("BassBiquad(8000, 3.0)", "wave"),
    ("BassBiquad(8000, -3.0, 500.0, 0.5)", "wave"),
    ("TrebleBiquad(8000, 3.0)", "wave"),
    ("TrebleBiquad(8000, -3.0, 500, 0.5)", "wave"),
    ("Biquad(0.1, 0.2, 0.3, 1.0, 0.2, 0.1)", "wave"),
    ("EqualizerBiquad(8000, 1000.0, 3.0)", "wave"),
    ("HighpassBiquad(8000, 1000.0)", "wave"),
    ("LowpassBiquad(8000, 1000.0)", "wave"),
    ("LFilter([1.0, 0.2, 0.1], [0.5, 0.3, 0.2])", "wave"),
    ("Filtfilt([1.0, 0.2, 0.1], [0.5, 0.3, 0.2])", "wave"),
    ("Resample(48000, 16000)", "wave"),
    ("Resample(16000, 24000)", "double"),
    ("Resample(3, 5, ResampleMethod.KAISER_WINDOW, 4, 0.9, 8.0)", "wave"),
    ("LFilter([1.0, 0.2, 0.1], [2.5, 0.3, 0.2], False)", "wave"),
    ("AmplitudeToDB()", "spectrum"),
    ("AmplitudeToDB(ScaleType.MAGNITUDE, 2.0, 0.5, 5.0)", "spectrum"),
    ("DBToAmplitude(1.5, 0.5)", "wave"),
    ("Gain(3.0)", "wave"),
    ("Vol(0.5)", "wave"),
    ("Vol(4.0, GainType.POWER)", "wave"),
    ("Vol(2.0, GainType.DB)", "wave"),
    ("Contrast(60.0)", "wave"),
    *((f"Fade(5, 7, FadeShape.{name})", "wave") for name in ("LINEAR", "EXPONENTIAL", "LOGARITHMIC", "QUARTER_SINE")),
    ("Fade(4, 3, FadeShape.HALF_SINE)", "double"),
    ("MuLawEncoding()", "wave"),
    ("MuLawDecoding()", "codes"),
    ("Spectrogram(8)", "wave"),
    ("Spectrogram(8, 6, 3, 2, WindowType.HAMMING, 1.0, True)", "wave"),
    ("Spectrogram(8, 8, 4, 0, WindowType.BLACKMAN, 0.0)", "wave"),
    ("Spectrogram(8, 7, 4, 1, WindowType.BARTLETT, 2.0, False, False, BorderType.REFLECT, False)", "double"),
    ("Spectrogram(8, 8, 4, 0, WindowType.KAISER, 2.0, False, True, BorderType.CONSTANT)", "wave"),
    ("Spectrogram(8, 8, 4, 0, WindowType.HANN, 2.0, False, True, BorderType.EDGE)", "wave"),
    ("MelScale(3, 8000, 0.0, None, 5)", "spectrum"),
    ("MelScale(3, 8000, 20.0, 3500.0, 5, NormType.SLANEY, MelType.SLANEY)", "spectrum"),
    ("MelSpectrogram(8000, 8, None, None, 0.0, None, 0, 3)", "wave"),
    ("SpectralCentroid(8000, 8)", "wave"),
    ("MFCC(8000, 2, melkwargs=MELS)", "wave"),
    ("MFCC(8000, 2, 2, NormMode.NONE, True, MELS)", "wave"),
    ("ComplexNorm()", "complex"),
    ("ComplexNorm(2.0)", "complex"),
    ("Angle()", "complex"),
    ("ComputeDeltas()", "spectrum"),
    ("ComputeDeltas(3, BorderType.REFLECT)", "spectrum"),
    ("MaskAlongAxis(1, 2, 0.5, 1)", "spectrum"),
    ("MaskAlongAxis(1, 2, 0.5, 2)", "spectrum"),
    ("FrequencyMasking(False, 2, 1, 0.5)", "spectrum"),
    ("TimeMasking(False, 3, 2, 1.0)", "spectrum"),
    ("DCShift(0.5)", "wave"),
    ("DCShift(0.5, 0.02)", "wave"),
    ("DCShift(-0.7, 0.05)", "double"),
    ("DeemphBiquad(44100)", "wave"),
    ("DeemphBiquad(48000)", "double"),
    *((f"RiaaBiquad({rate})", "wave") for rate in (44100, 48000, 88200, 96000)),
    ("Overdrive()", "wave"),
    ("Overdrive(10.0, 50.0)", "double"),
    ("Dither()", "wave"),
    ("Dither(DensityFunction.TPDF, True)", "double"),
    ("Phaser(1000)", "wave"),
    ("Phaser(2000, 0.8, 0.9, 2.5, 0.6, 2.0, False)", "double"),
    ("Flanger(8000)", "wave"),
    ("Flanger(1000, 2.0, 5.0, 60.0, 50.0, 10.0, 30.0, Modulation.TRIANGULAR, Interpolation.QUADRATIC)", "wave"),
    ("Flanger(1000, 2.0, 5.0, -60.0, 50.0, 10.0)", "wave"),
    ("Flanger(1000, 1.0, 2.0)", "ints"),
    ("Magphase(2.0)", "complex"),
    ("SlidingWindowCmn(3, 2)", "spectrum"),
    ("SlidingWindowCmn(4, 1, True, True)", "spectrum"),
    ("SlidingWindowCmn(2, 3, False, True)", "spectrum"),
    ("DetectPitchFrequency(30, 0.1, 3, 5, 25)", "wave"),
    ("DetectPitchFrequency(100, 0.02, 2, 20, 45)", "double"),
    ("LFCC(8000, 4, 2, speckwargs=FRAMES)", "wave"),
    ("LFCC(8000, 4, 2, 10.0, 3500.0, 2, NormMode.NONE, True, FRAMES)", "wave"),
    ("InverseSpectrogram(None, 16)", "frames"),
    ("InverseSpectrogram(20, 16, 12, 5, 2, WindowType.HAMMING, True)", "frames"),
    ("InverseSpectrogram(9, 16, 16, 4, 0, WindowType.HAMMING, False, False)", "double frames"),
    ("GriffinLim(16, 4, rand_init=False)", "powers"),
    ("GriffinLim(16, 3, 12, 4, WindowType.HAMMING, 1.5, 0.5, rand_init=False)", "powers"),
    ("TimeStretch(8, 9, 1.3)", "frames"),
    ("TimeStretch(None, 9, 0.7)", "double frames"),
    ("PhaseVocoder(1.7, np.linspace(0, 9, 9)[:, None].astype(np.float32))", "frames"),
    ("PitchShift(16000, 4, 12, 16)", "wave"),
    ("PitchShift(8000, -3, 12, 16, 12, 4, WindowType.HAMMING)", "wave"),
    ("Vad(600, 4.0)", "speech"),
    ("Vad(500, 3.0, 0.1, 0.5, 0.1, 0.1, 0.2, measure_freq=20.0, lp_lifter_freq=900.0, hp_lifter_freq=30.0)", "speech"),
    ("Vad(600, 40.0)", "wave"),
)
FUNCTIONS = (
    "create_dct(3, 5)",
    "create_dct(3, 5, NormMode.ORTHO)",
    "melscale_fbanks(5, 0.0, 4000.0, 3, 8000)",
    "melscale_fbanks(9, 20.0, 3500.0, 4, 8000, NormType.SLANEY, MelType.SLANEY)",
    "linear_fbanks(9, 0.0, 4000.0, 4, 8000)",
)


def names_of(audio):
    """What the cases may name."""
    names = {name: getattr(audio, name) for name in dir(audio) if not name.startswith("_")}
    mels = {"n_fft": 8, "win_length": 8, "hop_length": 4, "f_min": 0.0, "f_max": 4000.0, "pad": 0, "n_mels": 3}
    mels |= {"window": audio.WindowType.HAMMING, "power": 2.0, "normalized": False, "center": True, "onesided": True}
    mels |= {"pad_mode": audio.BorderType.REFLECT, "norm": audio.NormType.NONE, "mel_scale": audio.MelType.HTK}
    spectra = {
        "n_fft",
        "win_length",
        "hop_length",
        "pad",
        "window",
        "power",
        "normalized",
        "center",
        "pad_mode",
        "onesided",
    }
    return names | {"MELS": mels, "FRAMES": {name: mels[name] for name in spectra}, "np": np}


def describe(value):
    """Dtype, shape and rounded values."""
    if isinstance(value, tuple):
        return [describe(item) for item in value]
    array = np.asarray(value)
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": [float(f"{x:.7g}") for x in array.ravel()]}


def record(audio):
    """What a package gives for all cases."""
    names = names_of(audio)
    # The wheel changes some of its inputs.
    results = {f"{case} {kind}": describe(eval(case, names)(INPUTS[kind].copy())) for case, kind in CASES}
    for case in FUNCTIONS:
        value = eval(case, names)
        results[case] = describe(value.asnumpy() if hasattr(value, "asnumpy") else value)
    return results
