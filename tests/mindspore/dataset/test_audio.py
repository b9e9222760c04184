"""Transforms of sound against MindSpore 2.10 (golden_audio.json holds what its CPU wheel gives), and their own laws."""

import json
from pathlib import Path

import audio_cases
import numpy as np
import pytest

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import audio
from sporax.mindspore.dataset._json import decoded_operation, encoded_operation

from .conftest import rows

GOLDEN = json.loads(Path(__file__).with_name("golden_audio.json").read_text())
NAMES = audio_cases.names_of(audio)


def agree(actual, expected):
    if isinstance(actual, tuple):
        for value, wanted in zip(actual, expected, strict=True):
            agree(value, wanted)
        return
    assert (str(actual.dtype), list(actual.shape)) == (expected["dtype"], expected["shape"])
    np.testing.assert_allclose(actual.ravel(), expected["values"], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("case", "kind"), audio_cases.CASES, ids=str)
def test_agrees_with_mindspore(case, kind):
    agree(eval(case, NAMES)(audio_cases.INPUTS[kind]), GOLDEN[f"{case} {kind}"])


@pytest.mark.parametrize("case", audio_cases.FUNCTIONS)
def test_matrices_agree_with_mindspore(case):
    agree(eval(case, NAMES), GOLDEN[case])


def test_transforms_of_sound_work_in_pipelines():
    waves = np.random.default_rng(0).uniform(-1, 1, (3, 2, 40)).astype(np.float32)
    data = ds.NumpySlicesDataset(waves, ["wave"], shuffle=False)
    mapped = data.map([audio.Spectrogram(16), audio.AmplitudeToDB()], "wave")
    by_hand = [audio.AmplitudeToDB()(audio.Spectrogram(16)(wave)).tolist() for wave in waves]
    assert [row[0] for row in rows(mapped)] == by_hand


@pytest.mark.parametrize(("case", "kind"), audio_cases.CASES, ids=str)
def test_transforms_of_sound_return_from_json(case, kind):
    operation = eval(case, NAMES)
    back = decoded_operation(json.loads(json.dumps(encoded_operation(operation))))
    wave = audio_cases.INPUTS[kind]
    assert type(back) is type(operation)
    results = zip(np.atleast_2d(back(wave)), np.atleast_2d(operation(wave)), strict=True)
    assert all(np.array_equal(*pair) for pair in results)


def test_the_energy_of_a_wave_is_that_of_its_spectrum():
    wave = np.random.default_rng(1).uniform(-1, 1, 64)
    whole = audio.Spectrogram(64, 64, 64, window=audio.WindowType.KAISER, center=False, onesided=False)(wave)
    windowed = wave * np.kaiser(65, 12)[:-1]
    assert whole.sum() == pytest.approx(64 * (windowed**2).sum())


@pytest.mark.parametrize(("make", "dim"), [(audio.FrequencyMasking, 1), (audio.TimeMasking, 2)])
def test_random_stripes_are_the_wheels_and_the_same_for_all_channels(make, dim):
    spectra = np.ones((6, 40, 40), np.float32)
    for seed, first, last in ((4, 26, 37), (5, 2, 3)):
        ds.config.set_seed(seed)
        masked = make(True, 12, mask_value=0.0)(spectra)
        stripe = (masked == 0).all(axis=tuple(d for d in (0, 1, 2) if d != dim))
        assert (masked == 0).sum() == stripe.sum() * 6 * 40  # whole rows, nothing else
        assert np.nonzero(stripe)[0].tolist() == list(range(first, last + 1))
    assert spectra.min() == 1


def test_descent_finds_powers_with_the_same_mel_scale():
    ds.config.set_seed(4)
    scale = audio.MelScale(4, 8000, n_stft=9)
    mels = scale(np.random.default_rng(2).uniform(0.5, 1, (2, 9, 6)))
    found = audio.InverseMelScale(9, 4, 8000)(mels)
    assert found.shape == (2, 9, 6) and found.min() >= 0
    np.testing.assert_allclose(scale(found), mels, atol=0.05)


def test_a_wave_returns_from_its_spectrogram_and_nearly_from_its_powers_alone():
    ds.config.set_seed(4)
    wave = np.sin(np.arange(160) * 0.7)
    frames = audio.Spectrogram(16, power=0.0, pad=3, normalized=True)(wave)
    back = audio.InverseSpectrogram(160, 16, pad=3, normalized=True)(frames)
    np.testing.assert_allclose(back, wave, atol=1e-6)
    powers = audio.Spectrogram(16, hop_length=4)
    few, many = (audio.GriffinLim(16, steps, hop_length=4)(powers(wave)) for steps in (1, 60))
    assert np.abs(powers(many) - powers(wave)).mean() < 0.5 * np.abs(powers(few) - powers(wave)).mean()


@pytest.mark.parametrize("density", [audio.DensityFunction.RPDF, audio.DensityFunction.GPDF])
def test_dither_moves_all_samples_by_the_same_noise(density):
    ds.config.set_seed(4)
    wave = np.random.default_rng(5).uniform(-1, 1, (2, 50))
    moved = (audio.Dither(density)(wave) * 2**15 - wave * (2**15 - 2)).ravel()
    assert np.ptp(moved) <= 1 and 0 < np.abs(moved).max() <= 7.5


def test_stripes_of_one_size_begin_anywhere():
    spectra = ds.NumpySlicesDataset(np.ones((80, 3, 20), np.float32), "x", shuffle=False)
    masked = [row[0].asnumpy() for row in spectra.map(audio.MaskAlongAxisIID(5, -1.0, 2))]
    stripes = [np.nonzero((rows == -1).all(0))[0].tolist() for rows in masked]
    assert all((rows == -1).sum() == len(stripe) * 3 for rows, stripe in zip(masked, stripes, strict=True))
    assert {len(stripe) for stripe in stripes} == {0, 1, 2, 3, 4, 5}
    assert len({stripe[0] for stripe in stripes if stripe}) > 10


def test_encoding_and_decoding_nearly_give_the_wave_back():
    wave = np.linspace(-1, 1, 101)
    back = audio.MuLawDecoding()(audio.MuLawEncoding()(wave))
    assert back.dtype == np.float32 and np.abs(back - wave).max() < 0.021


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ValueError, lambda: audio.AllpassBiquad(0, 100.0)),
        (ValueError, lambda: audio.LowpassBiquad(8000, 100.0, 0)),
        (ValueError, lambda: audio.HighpassBiquad(8000, 100.0, 2.0)),
        (TypeError, lambda: audio.BandpassBiquad(8000.0, 100.0)),
        (ValueError, lambda: audio.Biquad(1, 1, 1, 0, 1, 1)),
        (ValueError, lambda: audio.LFilter([1.0, 2.0], [1.0])),
        (TypeError, lambda: audio.LFilter(1.0, [1.0])),
        (TypeError, lambda: audio.AmplitudeToDB("power")),
        (ValueError, lambda: audio.AmplitudeToDB(amin=0.0)),
        (ValueError, lambda: audio.Vol(-1.0)),
        (ValueError, lambda: audio.Contrast(101.0)),
        (ValueError, lambda: audio.Fade(-1)),
        (TypeError, lambda: audio.Fade(fade_shape="linear")),
        (ValueError, lambda: audio.Spectrogram(0)),
        (ValueError, lambda: audio.Spectrogram(8, 9)),
        (TypeError, lambda: audio.Spectrogram(8, window="hann")),
        (ValueError, lambda: audio.MelScale(f_min=100.0, f_max=50.0)),
        (ValueError, lambda: audio.ComputeDeltas(2)),
        (ValueError, lambda: audio.MFCC(n_mfcc=200)),
        (ValueError, lambda: audio.MFCC(dct_type=1)),
        (TypeError, lambda: audio.MFCC(melkwargs=3)),
        (ValueError, lambda: audio.MaskAlongAxis(0, 0, 0.0, 1)),
        (ValueError, lambda: audio.MaskAlongAxis(0, 1, 0.0, 3)),
        (ValueError, lambda: audio.TimeMasking(mask_value=-1.0)),
        (ValueError, lambda: audio.DCShift(2.5)),
        (ValueError, lambda: audio.DeemphBiquad(45000)),
        (ValueError, lambda: audio.RiaaBiquad(45000)),
        (TypeError, lambda: audio.RiaaBiquad(44100.0)),
        (ValueError, lambda: audio.Overdrive(101.0)),
        (TypeError, lambda: audio.Dither("TPDF")),
        (ValueError, lambda: audio.Phaser(8000, mod_speed=3.0)),
        (ValueError, lambda: audio.Flanger(0)),
        (TypeError, lambda: audio.Flanger(8000, modulation="sinusoidal")),
        (ValueError, lambda: audio.Magphase(-1.0)),
        (ValueError, lambda: audio.MaskAlongAxisIID(-1, 0.0, 1)),
        (ValueError, lambda: audio.DetectPitchFrequency(8000, freq_low=0)),
        (ValueError, lambda: audio.SlidingWindowCmn(-1)),
        (ValueError, lambda: audio.LFCC(f_min=9000.0)),
        (ValueError, lambda: audio.LFCC(n_lfcc=401)),
        (ValueError, lambda: audio.LFCC(speckwargs={"n_fft": 40, "win_length": 41})),
        (TypeError, lambda: audio.LFCC(speckwargs={"power": 2})),
        (ValueError, lambda: audio.InverseSpectrogram(-1)),
        (ValueError, lambda: audio.GriffinLim(power=0.0)),
        (RuntimeError, lambda: audio.GriffinLim(momentum=1.0)),
        (ValueError, lambda: audio.TimeStretch(fixed_rate=0.0)),
        (TypeError, lambda: audio.PhaseVocoder(2.0, None)),
        (ValueError, lambda: audio.PitchShift(8000, 1, 0)),
        (TypeError, lambda: audio.InverseMelScale(5, 3, sgdargs={"lr": 1.0})),
        (ValueError, lambda: audio.Vad(8000, noise_up_time=0.1, noise_down_time=0.2)),
        (ValueError, lambda: audio.Vad(8000, measure_freq=0.0)),
        (RuntimeError, lambda: audio.Phaser(8000, delay_ms=0.0)(np.zeros(8))),
        (RuntimeError, lambda: audio.Flanger(-8000)(np.zeros((1, 8)))),
        (RuntimeError, lambda: audio.Flanger(8000)(np.zeros(8))),
        (RuntimeError, lambda: audio.DetectPitchFrequency(8000)(np.zeros(80))),
        (RuntimeError, lambda: audio.GriffinLim(8)(np.zeros((4, 8)))),
        (RuntimeError, lambda: audio.GriffinLim(8, length=9)(np.ones((5, 8)))),
        (RuntimeError, lambda: audio.TimeStretch(8, 9, 1.5)(np.zeros((5, 8, 2)))),
        (RuntimeError, lambda: audio.PhaseVocoder(2.0, np.zeros(5))(np.zeros((5, 8, 2)))),
        (RuntimeError, lambda: audio.PhaseVocoder(2.0, np.zeros((4, 1)))(np.zeros((5, 8, 2)))),
        (RuntimeError, lambda: audio.PhaseVocoder(2.0, np.zeros((5, 1)))(np.zeros((5, 8, 2), np.float32))),
        (RuntimeError, lambda: audio.InverseMelScale(5, 3)(np.zeros((4, 8)))),
        (RuntimeError, lambda: audio.Vad(8000, search_time=0.0)(np.zeros(80))),
        (RuntimeError, lambda: audio.Vad(100)(np.zeros(80))),
        (RuntimeError, lambda: audio.Magphase()(np.zeros((2, 3)))),
        (RuntimeError, lambda: audio.MaskAlongAxisIID(5, 0.0, 1)(np.zeros((4, 4), np.float32))),
        (RuntimeError, lambda: audio.Fade(9)(np.zeros(8))),
        (RuntimeError, lambda: audio.Spectrogram(8)(np.zeros(4))),
        (RuntimeError, lambda: audio.MelScale()(np.zeros((3, 4)))),
        (RuntimeError, lambda: audio.MaskAlongAxis(3, 3, 0.0, 1)(np.zeros((4, 4), np.float32))),
        (RuntimeError, lambda: audio.AmplitudeToDB()(np.zeros(4))),
        (RuntimeError, lambda: audio.Gain()(np.array("a"))),
        (RuntimeError, lambda: audio.BandBiquad(2, 100.0)),
    ],
)
def test_errors(error, make):
    with pytest.raises(error, match="For '"):
        make()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: audio.Gain(1e5), -np.inf),
        (lambda: audio.Gain(-1e5), -0.0),
        (lambda: audio.Vol(1e5, audio.GainType.DB), -1.0),
        (lambda: audio.BassBiquad(2, 1e5), np.nan),
        (lambda: audio.TrebleBiquad(2, 2**24), np.nan),
        (lambda: audio.EqualizerBiquad(100, 10, 2**24), np.nan),
        (lambda: audio.EqualizerBiquad(100, 10, -(2**24)), np.nan),
    ],
)
def test_decibels_beyond_what_floats_hold_are_infinite_as_in_mindspore(make, expected):
    with np.errstate(all="ignore"):
        samples = make()(np.linspace(-1, -0.5, 8, dtype=np.float32))
    np.testing.assert_array_equal(samples[2:], expected)
