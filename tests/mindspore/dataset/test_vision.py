"""Image transforms against MindSpore 2.10 (golden_vision.json holds what its CPU wheel gives), and their own laws."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import vision
from sporax.mindspore.dataset._random import Engines, RowKey

sys.path.insert(0, str(Path(__file__).parent))  # the cases shared with tools/golden

from vision_cases import BYTES, INPUTS

GOLDEN = json.loads(Path(__file__).with_name("golden_vision.json").read_text())
NAMES = {"np": np, **{name: getattr(vision, name) for name in vision.__all__}}
# Those that work with floats in another order than MindSpore may differ in the last bits; the others may not.
ROUNDED = (
    "AdjustGamma",
    "AdjustSharpness",
    "ConvertColor",
    "GaussianBlur",
    "HsvToRgb",
    "LinearTransformation",
    "Perspective",
    "RgbToHsv",
)
ROUNDING = {"float32": 3e-7, "float64": 1e-13}  # relative to the largest value; sums and products depend on the BLAS


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: f"{golden['case']}-{golden['input']}")
def test_agrees_with_mindspore(golden):
    result = eval(golden["case"], NAMES)(INPUTS[golden["input"]])
    results = result if isinstance(result, tuple) else (result,)
    assert len(results) == len(golden["outputs"])
    for actual, expected in zip(results, golden["outputs"], strict=True):
        assert (str(actual.dtype), list(actual.shape)) == (expected["dtype"], expected["shape"])
        values = np.array(expected["values"], actual.dtype).reshape(actual.shape)
        difference = np.abs(actual.astype(np.float64) - values.astype(np.float64)).max()
        inexact = golden["case"].startswith(ROUNDED)
        rounding = ROUNDING.get(str(actual.dtype), 0) * np.abs(values).max() if inexact else 0
        assert difference <= rounding


BLOCK_TRANSFORMS = [
    vision.Rescale(1 / 255, 0.5),
    vision.Rescale(2.3, 0.0),
    vision.Normalize((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)),
    vision.Normalize((0.1,), (0.4,)),
    vision.HWC2CHW(),
    vision.ToTensor(),
    vision.ToType("float16"),
    vision.Resize((4, 9)),
    vision.Resize(3, vision.Inter.CUBIC),
    vision.Invert(),
    vision.Solarize(100),
]


@pytest.mark.parametrize(
    ("transform", "shape"),
    [
        (transform, shape)
        for transform in BLOCK_TRANSFORMS
        for shape in ((4, 5, 7, 3), (4, 5, 7, 1), (4, 5, 7))
        if shape == (4, 5, 7, 3) or transform is not BLOCK_TRANSFORMS[2]
    ],
)
def test_blocks_equal_rows_bit_by_bit(transform, shape):
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    (block,) = transform.on_block([images], np.arange(4), RowKey((0, 0), Engines(0)))
    for row, image in zip(block, images, strict=True):
        expected = transform(image)
        assert row.dtype == expected.dtype
        assert np.array_equal(row, expected)


@pytest.mark.parametrize("shape", [(9, 5, 7, 3), (9, 5, 7, 1), (9, 5, 7)])
@pytest.mark.parametrize(
    "transform",
    [
        vision.RandomHorizontalFlip(),
        vision.RandomVerticalFlip(),
        vision.RandomCrop((4, 3)),
        vision.RandomCrop(5, 2, fill_value=(1, 2, 3)),
        vision.RandomCrop((2, 9), [1, 2, 3, 4], fill_value=9),
        vision.RandomCrop((8, 3), 1, pad_if_needed=True),
        vision.RandomCrop(5, 2, padding_mode=vision.Border.REFLECT),
        vision.RandomResizedCrop(4),
    ],
)
def test_random_blocks_equal_rows_bit_by_bit(transform, shape):
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    key, numbers = RowKey((5, 6), Engines(7)), np.array([3, 1, 4, 15, 9, 2, 6, 5, 35])
    (block,) = transform.on_block([images], numbers, key)
    changed = 0
    for result, image, draws in zip(block, images, key.draws(numbers, transform.takes), strict=True):
        (expected,) = transform.on_row((image,), draws)
        assert result.dtype == expected.dtype
        assert np.array_equal(result, expected)
        changed += not np.array_equal(result, image)
    assert changed


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (TypeError, lambda v: v.Rescale("a", 1)),
        (ValueError, lambda v: v.Normalize((0.1, 0.2), (0.3, 0.4, 0.5))),
        (ValueError, lambda v: v.Normalize((0.1,), (0,))),
        (ValueError, lambda v: v.Normalize((300,), (1.0,))),
        (ValueError, lambda v: v.Normalize((-1,), (1.0,))),
        (TypeError, lambda v: v.Normalize(0.1, (1.0,))),
        (RuntimeError, lambda v: v.Normalize((0.1, 0.2), (0.3, 0.4))(BYTES)),
        (RuntimeError, lambda v: v.HWC2CHW()(BYTES[None])),
        (RuntimeError, lambda v: v.HWC2CHW()(np.arange(3))),
        (ValueError, lambda v: v.Resize((0, 9))),
        (ValueError, lambda v: v.Resize(-1)),
        (TypeError, lambda v: v.Resize((1, 2, 3))),
        (TypeError, lambda v: v.Resize("a")),
        (TypeError, lambda v: v.Resize(2.0)),
        (TypeError, lambda v: v.Resize((8, 9), 1)),
        (RuntimeError, lambda v: v.Resize((8, 9))(BYTES.astype(np.int32))),
        (RuntimeError, lambda v: v.Crop((3, 1), 3)(BYTES)),
        (ValueError, lambda v: v.Crop((-1, 1), 3)),
        (ValueError, lambda v: v.Pad(-1)),
        (ValueError, lambda v: v.Pad(1, 300)),
        (ValueError, lambda v: v.Pad((1, 2, 3))),
        (TypeError, lambda v: v.Pad(1, 0, "edge")),
        (RuntimeError, lambda v: v.RandomCrop(6)(BYTES)),
        (ValueError, lambda v: v.RandomCrop(0)),
        (TypeError, lambda v: v.RandomCrop((1, 2, 3))),
        (ValueError, lambda v: v.RandomCrop(3, -1)),
        (ValueError, lambda v: v.RandomHorizontalFlip(1.5)),
        (TypeError, lambda v: v.RandomHorizontalFlip("a")),
        (RuntimeError, lambda v: v.ToTensor()(BYTES[None])),
        (ValueError, lambda v: v.SlicePatches(0, 2)),
        (TypeError, lambda v: v.SlicePatches("a", 2)),
        (TypeError, lambda v: v.SlicePatches(1, 2, 1)),
        (ValueError, lambda v: v.SlicePatches(1, 2, v.SliceMode.PAD, 256)),
        (TypeError, lambda v: v.SlicePatches(1, 2, v.SliceMode.PAD, 1.5)),
        (RuntimeError, lambda v: v.SlicePatches(9, 2)(BYTES)),
        (RuntimeError, lambda v: v.SlicePatches(9, 2, v.SliceMode.DROP)(BYTES)),
        (RuntimeError, lambda v: v.SlicePatches(2, 2)(BYTES[None])),
        (RuntimeError, lambda v: v.Decode()(BYTES)),
        (RuntimeError, lambda v: v.AdjustHue(0.1)(BYTES[..., :1])),
        (ValueError, lambda v: v.AdjustHue(0.6)),
        (ValueError, lambda v: v.RandomColorAdjust(brightness=(2, 1))),
        (ValueError, lambda v: v.Posterize(9)),
        (TypeError, lambda v: v.Rotate(3, v.Inter.PILCUBIC)),
        (TypeError, lambda v: v.Decode(to_pil=1)),
        (TypeError, lambda v: v.Resize(3, v.Inter.ANTIALIAS)(BYTES)),
    ],
)
def test_arguments_that_do_not_fit_are_refused(error, make):
    with pytest.raises(error):
        make(vision)


def test_aspect_ratio_is_kept_for_one_size():
    for (height, width), expected in (((10, 4), (7, 3)), ((10, 5), (6, 3)), ((5, 10), (3, 6))):
        assert vision.Resize(3)(np.zeros((height, width, 3), np.uint8)).shape == (*expected, 3)


def test_one_patch_is_the_image():
    assert np.array_equal(vision.SlicePatches(1, 1)(BYTES), BYTES)


def test_patches_become_columns():
    data = ds.NumpySlicesDataset({"image": BYTES[None]})
    names = ["p0", "p1"]
    cut = data.map(vision.SlicePatches(1, 2), "image", names)
    assert cut.output_shapes() == [[5, 4, 3], [5, 4, 3]]
    assert cut.project(["p1"]).get_col_names() == ["p1"]


@given(st.integers(1, 4), st.integers(1, 5), st.integers(4, 9), st.integers(5, 9))
def test_padded_patches_put_together_are_the_image(rows, columns, height, width):
    image = np.arange(height * width * 2, dtype=np.int32).reshape(height, width, 2)
    patches = vision.SlicePatches(rows, columns, vision.SliceMode.PAD, 7)(image)
    patches = patches if isinstance(patches, tuple) else (patches,)
    lines = [np.concatenate(patches[i * columns : (i + 1) * columns], 1) for i in range(rows)]
    whole = np.concatenate(lines, 0)
    assert np.array_equal(whole[:height, :width], image)
    assert (whole[height:] == 7).all()
    assert (whole[:, width:] == 7).all()


def drawn(transform, value, times):
    """What a pipeline with the seed of the configuration makes of equal rows."""
    draws = RowKey((1, 2), Engines(ds.config.get_seed())).draws(range(times), transform.takes)
    return [transform.on_row((value,), numbers)[0] for numbers in draws]


def test_random_transforms_follow_the_seed_and_crop_columns_equally():
    crop = vision.RandomCrop(3, padding=[1, 2, 3, 4], fill_value=9)
    assert crop(BYTES).shape == (3, 3, 3)
    ds.config.set_seed(1)
    first = drawn(crop, BYTES, 6)
    # A seed makes direct calls equal, as in MindSpore.
    assert all(np.array_equal(crop(BYTES), first[0]) for _ in range(3))
    ds.config.set_seed(2)
    assert not np.array_equal(drawn(crop, BYTES, 6), first)
    ds.config.set_seed(1)
    assert np.array_equal(drawn(crop, BYTES, 6), first)
    assert any(not np.array_equal(first[0], other) for other in first[1:])
    for transform in (vision.RandomCrop(3), vision.RandomHorizontalFlip(), vision.RandomResizedCrop(4)):
        image, mask = transform(BYTES, BYTES)
        assert np.array_equal(image, mask)
    with pytest.raises(RuntimeError, match="one size"):
        vision.RandomCrop(3)(BYTES, BYTES[:4])


def test_random_transforms_with_certain_outcomes():
    assert np.array_equal(vision.RandomHorizontalFlip(1.0)(BYTES), BYTES[:, ::-1])
    assert np.array_equal(vision.RandomHorizontalFlip(0.0)(BYTES), BYTES)
    assert np.array_equal(vision.RandomVerticalFlip(1.0)(BYTES), BYTES[::-1])
    assert np.array_equal(vision.RandomRotation((90, 90))(BYTES), vision.Rotate(90)(BYTES))
    assert np.array_equal(vision.RandomColorAdjust(brightness=(1.7, 1.7))(BYTES), vision.AdjustBrightness(1.7)(BYTES))
    assert np.array_equal(vision.RandomColorAdjust()(BYTES), BYTES)
    assert vision.RandomCrop((8, 9), pad_if_needed=True)(BYTES).shape == (8, 9, 3)
    assert vision.RandomResizedCrop((4, 6))(BYTES).shape == (4, 6, 3)


def test_random_crop_reaches_every_place_equally():
    image = np.arange(16, dtype=np.uint8).reshape(4, 4)
    crop = vision.RandomCrop(3)
    ds.config.set_seed(0)
    corners = [int(part[0, 0]) for part in drawn(crop, image, 400)]
    assert set(corners) == {0, 1, 4, 5}
    assert min(corners.count(corner) for corner in set(corners)) > 60


def test_decode_gives_the_pixels_of_a_file():
    pillow = pytest.importorskip("PIL.Image")
    import io

    file = io.BytesIO()
    pillow.fromarray(BYTES).save(file, "png")
    content = np.frombuffer(file.getvalue(), np.uint8)
    assert np.array_equal(vision.Decode()(content), BYTES)
    with pytest.raises(RuntimeError, match="Invalid image"):
        vision.Decode()(content[:40])


def test_decode_without_pillow(monkeypatch):
    import importlib

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match="pip install pillow"):
        vision.Decode()(np.zeros(3, np.uint8))


@pytest.mark.parametrize(
    ("largest", "larger"),
    [
        (vision.CenterCrop((7, 11)), vision.CenterCrop((8, 11))),
        (vision.CenterCrop((7, 11)), vision.CenterCrop(16777216)),
        (vision.RandomCrop(2, padding=5), vision.RandomCrop(2, padding=6)),
        (vision.Resize((2000, 1)), vision.Resize((2001, 1))),
    ],
)
def test_an_image_is_not_made_huge(largest, larger):
    image = np.ones((2, 3, 1), np.uint8)
    assert largest(image).ndim == 3
    with pytest.raises(RuntimeError, match=f"For '{type(larger).__name__}', .*: at most"):
        larger(image)


PIXELS = np.arange(-3, 117, 10).reshape(2, 2, 3)


# Of MindSpore 2.10.
@pytest.mark.parametrize(
    ("dtype", "inverted", "solarized"),
    [
        ("int8", [127] * 12, [-3, 7, *[127] * 9, 107]),
        ("int16", [258 - 10 * i for i in range(12)], [-3, 7, *[238 - 10 * i for i in range(9)], 107]),
        ("float64", [258 - 10 * i for i in range(12)], [-3, 7, *[238 - 10 * i for i in range(9)], 107]),
        ("bool", [1] * 12, [1] * 12),
    ],
)
def test_pixels_of_every_dtype_are_inverted(dtype, inverted, solarized):
    image = PIXELS.astype(dtype)
    for transform, expected in ((vision.Invert(), inverted), (vision.Solarize((10, 100)), solarized)):
        result = transform(image)
        assert (result.dtype, result.ravel().tolist()) == (np.dtype(dtype), expected)
    for other in ("uint32", "int64", "float16"):
        with pytest.raises(RuntimeError, match="the data type of image tensor"):
            vision.Invert()(np.ones((2, 2, 3), other))


def test_brightness_of_integers_is_rounded_and_gray_images_have_one():
    values = np.arange(12).reshape(2, 2, 3)
    expected = [0, 1, 2, 4, 5, 6, 7, 8, 10, 11, 12, 13]
    for dtype in (np.int32, np.uint16, np.uint8):
        assert vision.AdjustBrightness(1.2)(values.astype(dtype)).ravel().tolist() == expected
    assert vision.AdjustBrightness(1.2)(values[..., 0].astype(np.uint8)).ravel().tolist() == [0, 4, 7, 11]


@pytest.mark.parametrize(
    ("dtype", "size", "expected"),
    [
        ("uint16", (3, 5), [1554, 2331, 3108, 3186, 3963, 4740, 5050, 5828, 6604, 6915, 7692, 8469, 8547, 9324, 10101]),
        ("uint16", (2, 2), [5828, 6605, 7382, 10490, 11267, 12044, 24476, 25253, 26030, 29138, 29915, 30692]),
        ("int16", (2, 2), [5828, 6605, 7382, 10490, 11267, 12044, 24476, 25253, 26030, 12754, -2853, -2076]),
    ],
)
def test_images_of_16_bits_are_resized(dtype, size, expected):
    image = (np.arange(48).reshape(4, 4, 3) * 777).astype(dtype)
    result = vision.Resize(size, vision.Inter.LINEAR)(image)
    assert (result.dtype, result.ravel()[: len(expected)].tolist()) == (np.dtype(dtype), expected)
    assert vision.Resize(size)(image > 5).dtype == np.bool_
