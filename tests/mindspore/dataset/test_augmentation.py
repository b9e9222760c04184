"""Random, mixing, box and file transforms of images: their ranges, seeds and laws (exact values: test_vision)."""

import math
import warnings

import numpy as np
import pytest

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import transforms, vision
from sporax.mindspore.dataset._random import Engines, RowKey
from sporax.mindspore.dataset.vision._policies import _OPERATIONS, LEARNT, _space

IMAGE = np.random.default_rng(0).integers(0, 256, (12, 10, 3), np.uint8)
FLAT = np.full((20, 16, 3), 200, np.uint8)
POLICIES = [
    *(lambda each=each: vision.AutoAugment(each) for each in vision.AutoAugmentPolicy),
    lambda: vision.AutoAugment(interpolation=vision.Inter.LINEAR, fill_value=(1, 2, 3)),
    vision.RandAugment,
    lambda: vision.RandAugment(num_ops=3, magnitude=30),
    vision.TrivialAugmentWide,
]
RANDOM = [
    *POLICIES,
    vision.RandomColor,
    vision.RandomSharpness,
    vision.RandomLighting,
    vision.RandomPosterize,
    vision.RandomSolarize,
    lambda: vision.RandomGrayscale(0.5),
    vision.RandomEqualize,
    vision.RandomInvert,
    lambda: vision.RandomAutoContrast(5.0),
    lambda: vision.RandomAdjustSharpness(2.0),
    lambda: vision.RandomAffine(20, (-0.2, 0.2), (0.8, 1.2), 10),
    lambda: vision.RandomPerspective(0.5, 0.8),
    lambda: vision.CutOut(4, 2),
    lambda: vision.RandomErasing(0.8, value="random"),
    lambda: vision.UniformAugment([vision.RandomHorizontalFlip(), vision.Invert(), vision.Posterize(3)]),
    lambda: vision.RandomSelectSubpolicy([[(vision.Invert(), 0.5)], [(vision.Solarize(90), 0.5)]]),
]


def image_for(transform):
    return IMAGE.transpose(2, 0, 1) / np.float32(255) if isinstance(transform, vision.RandomErasing) else IMAGE


def drawn(transform, value, times):
    """What a pipeline with the seed of the configuration makes of equal rows."""
    draws = RowKey((1, 2), Engines(ds.config.get_seed())).draws(range(times), transform.takes)
    return [transform.on_row((value,), numbers)[0] for numbers in draws]


@pytest.mark.parametrize("make", RANDOM)
def test_random_transforms_follow_the_seed(make):
    transform = make()
    image = image_for(transform)
    if isinstance(transform, vision.RandomPerspective):
        pytest.importorskip("PIL")

    def draw(seed):
        ds.config.set_seed(seed)
        return [transform(image.copy()) for _ in range(12)]

    first = draw(1)
    assert all((item.shape, item.dtype) == (image.shape, image.dtype) for item in first)
    second = draw(2)
    if not isinstance(transform, vision.RandomPosterize):  # all eight bits, unless set otherwise
        assert not np.array_equal(second, first)
    assert np.array_equal(draw(1), first)


@pytest.mark.parametrize("make", RANDOM)
def test_pipelines_give_the_same_images_whatever_the_batch(make):
    transform = make()
    if isinstance(transform, vision.RandomPerspective):
        pytest.importorskip("PIL")
    images = np.stack([image_for(transform)] * 6)
    data = ds.NumpySlicesDataset({"image": images}, shuffle=False)

    def read(dataset):
        ds.config.set_seed(3)
        return [item["image"] for item in dataset.create_dict_iterator(num_epochs=1, output_numpy=True)]

    one_by_one = read(data.map(transform, "image"))
    batched = np.concatenate(read(data.map(transform, "image").batch(4)))
    assert np.array_equal(batched, one_by_one)


def test_policies_have_the_published_size_and_only_known_operations():
    for pairs in LEARNT.values():
        assert len(pairs) == 25
        for name, prob, index in (step for pair in pairs for step in pair):
            assert name in _OPERATIONS
            assert 0 <= prob <= 1
            assert 0 <= index < 10


def test_strengths_of_policies():
    space = _space(10, 0.3, (150, 100), 30.0, 0.9, 4)
    assert space["Posterize"][0].tolist() == [8, 8, 7, 7, 6, 6, 5, 5, 4, 4]
    assert (space["Solarize"][0][0], space["Solarize"][0][-1]) == (255, 0)
    assert space["ShearX"][0][-1] == 0.3
    assert (space["TranslateX"][0][-1], space["TranslateY"][0][-1]) == (150, 100)
    for name, operation in _OPERATIONS.items():
        none = 8 if name == "Posterize" else 255 if name == "Solarize" else 0
        result = operation(IMAGE, float(none), vision.Inter.NEAREST, (0,))
        if name == "Solarize":
            assert (result != IMAGE).sum() == (IMAGE == 255).sum()
        elif name not in ("AutoContrast", "Equalize", "Invert"):
            assert np.array_equal(result, IMAGE), name


def test_policies_move_pixels_the_right_way():
    assert np.array_equal(_OPERATIONS["TranslateX"](IMAGE, 2.0, vision.Inter.NEAREST, (0,))[:, 2:], IMAGE[:, :-2])
    assert np.array_equal(_OPERATIONS["TranslateY"](IMAGE, 3.0, vision.Inter.NEAREST, (0,))[3:], IMAGE[:-3])
    # An angle in radians, about the middle, as in MindSpore.
    sheared = _OPERATIONS["ShearX"](IMAGE, 0.3, vision.Inter.NEAREST, (0,))
    assert np.array_equal(sheared, vision.Affine(0.0, (0, 0), 1.0, (math.degrees(0.3), 0.0))(IMAGE))


def test_ranges_of_random_parameters():
    ds.config.set_seed(5)
    posterize, lighting = vision.RandomPosterize((2, 4)), vision.RandomLighting(0.1)
    bits = {len(np.unique(image)) for image in drawn(posterize, np.arange(256, dtype=np.uint8)[None], 40)}
    assert bits == {4, 8, 16}
    assert np.array_equal(vision.RandomColor((1, 1))(IMAGE), IMAGE)
    assert np.ptp(vision.RandomColor((0, 0))(IMAGE), axis=-1).max() == 0
    assert np.array_equal(vision.RandomSharpness((1, 1))(IMAGE), IMAGE)
    noise = [lighting(FLAT).astype(int) - FLAT for _ in range(50)]
    assert all(np.ptp(item, axis=(0, 1)).max() == 0 for item in noise)
    assert 2 < np.std([item[0, 0] for item in noise]) < 12
    assert np.array_equal(vision.RandomAffine(0)(IMAGE), IMAGE)
    assert np.array_equal(vision.RandomPerspective(0.5, 0.0)(IMAGE), IMAGE)


def test_perspective_without_distortion_keeps_the_image():
    pytest.importorskip("PIL")
    assert np.array_equal(vision.RandomPerspective(0.0, 1.0, vision.Inter.NEAREST)(IMAGE), IMAGE)
    corners = [[0, 0], [9, 0], [9, 11], [0, 11]]
    assert np.array_equal(vision.Perspective(corners, corners)(IMAGE), IMAGE)


def test_cutout_covers_squares_that_may_reach_over_the_edge():
    ds.config.set_seed(5)
    cut = vision.CutOut(4)
    sizes = {int((image == 0).all(-1).sum()) for image in drawn(cut, FLAT, 300)}
    assert max(sizes) == 16
    assert {4, 8, 12} <= sizes
    planes = vision.CutOut(4, is_hwc=False)(FLAT.transpose(2, 0, 1))
    assert ((planes == 0).sum((1, 2)) == (planes[0] == 0).sum()).all()
    with pytest.raises(RuntimeError, match="box size is too large for image erase"):
        vision.CutOut(17)(FLAT)


def test_random_erasing():
    ds.config.set_seed(5)
    planes = FLAT.transpose(2, 0, 1)
    erase = vision.RandomErasing(1.0, (0.1, 0.2), (0.5, 2.0), (1, 2, 3))
    for _ in range(60):
        erased = erase(planes) != planes
        rows, columns = np.nonzero(erased[0].any(1))[0], np.nonzero(erased[0].any(0))[0]
        tall, wide = np.ptp(rows) + 1, np.ptp(columns) + 1
        assert erased.all(0).sum() == tall * wide
        assert 0.07 < tall * wide / (20 * 16) < 0.25
        assert 0.4 < tall / wide < 2.5
    assert np.array_equal(vision.RandomErasing(0.0)(planes), planes)
    with pytest.warns(UserWarning, match="inplace"):
        vision.RandomErasing(inplace=True)


BATCH = np.random.default_rng(1).integers(0, 256, (4, 6, 5, 3)).astype(np.float32)
LABELS = np.eye(4, dtype=np.float32)


@pytest.mark.parametrize("labels", [LABELS, np.stack([LABELS, LABELS], 1)])
def test_mixed_images_and_labels_have_one_weight(labels):
    ds.config.set_seed(5)
    mixed, targets = vision.MixUpBatch(0.7)(BATCH, labels)
    assert (mixed.dtype, targets.dtype) == (np.float32, np.float32)
    weights = targets.reshape(4, -1, 4)[:, 0]
    np.testing.assert_allclose(mixed, np.einsum("ij,jhwc->ihwc", weights, BATCH), rtol=1e-5)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-6)


def test_mix_up_takes_the_next_image():
    ds.config.set_seed(5)
    mixed, targets = vision.MixUp(4, 0.7)(BATCH, LABELS)
    assert mixed.dtype == np.float64
    np.testing.assert_allclose(mixed, np.einsum("ij,jhwc->ihwc", targets, BATCH), rtol=1e-6)
    assert ((targets > 0) == (LABELS + np.roll(LABELS, -1, 0) > 0)).all()
    with pytest.raises(RuntimeError, match="4 images"):
        vision.MixUp(4, 0.7)(BATCH[:3], LABELS[:3])


@pytest.mark.parametrize("order", [vision.ImageBatchFormat.NHWC, vision.ImageBatchFormat.NCHW])
def test_cutmix_labels_are_shares_of_area(order):
    ds.config.set_seed(5)
    images = np.broadcast_to(np.arange(4, dtype=np.uint8)[:, None, None, None], (4, 8, 9, 3))
    images = images if order == vision.ImageBatchFormat.NHWC else images.transpose(0, 3, 1, 2)
    mix, changed = vision.CutMixBatch(order), 0
    for _ in range(20):
        mixed, targets = mix(images.copy(), LABELS)
        for image, target in zip(mixed, targets, strict=True):
            shares = np.bincount(image.ravel(), minlength=4) / image.size
            np.testing.assert_allclose(target, shares, atol=1e-6)
            changed += (shares > 0).sum() > 1
    assert changed > 20
    assert np.array_equal(vision.CutMixBatch(order, prob=0.0)(images, LABELS)[0], images)


def test_batches_are_mixed_in_a_pipeline():
    data = ds.NumpySlicesDataset({"image": BATCH, "label": np.arange(4, dtype=np.int32)}, shuffle=False)
    data = data.map(transforms.OneHot(4), "label").batch(2).map(vision.MixUpBatch(), ["image", "label"])
    assert [row["label"].shape for row in data.create_dict_iterator(num_epochs=1, output_numpy=True)] == [(2, 4)] * 2


BOXES = np.array([[1, 1, 3, 2], [5, 3, 4, 4]], np.float32)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        # What MindSpore 2.10 gives for an image 10 x 12.
        (vision.RandomHorizontalFlipWithBBox(1.0), [[8, 1, 3, 2], [3, 3, 4, 4]]),
        (vision.RandomVerticalFlipWithBBox(1.0), [[1, 7, 3, 2], [5, 3, 4, 4]]),
        (vision.ResizeWithBBox((20, 6)), [[0.5, 2, 1.5, 4], [2.5, 6, 2, 8]]),
        (vision.ResizeWithBBox(5), [[0.5, 0.5, 1.5, 1], [2.5, 1.5, 2, 2]]),
        (vision.RandomResizeWithBBox(5), [[0.5, 0.5, 1.5, 1], [2.5, 1.5, 2, 2]]),
        (vision.RandomResizedCropWithBBox(6, (1.0, 1.0), (1.2, 1.2)), [[0.5, 0.6, 1.5, 1.2], [2.5, 1.8, 2, 2.4]]),
        (vision.BoundingBoxAugment(vision.RandomVerticalFlip(1.0), 1.0), BOXES),
    ],
)
def test_boxes_go_with_the_image(transform, expected):
    image = np.arange(10 * 12 * 3, dtype=np.int32).astype(np.uint8).reshape(10, 12, 3)
    before = BOXES.copy()
    _, boxes = transform(image, BOXES)
    np.testing.assert_allclose(boxes, expected, rtol=1e-6)
    assert np.array_equal(BOXES, before)


def test_cropped_boxes_frame_the_same_pixels():
    ds.config.set_seed(5)
    image = np.zeros((10, 12, 3), np.uint8)
    for mark, (x, y, wide, tall) in enumerate(BOXES.astype(int), 1):
        image[y : y + tall, x : x + wide] = mark
    for transform in (vision.RandomCropWithBBox(5), vision.RandomCropWithBBox((12, 12), 1, pad_if_needed=True)):
        for _ in range(20):
            part, boxes = transform(image, BOXES)
            covered = np.zeros(part.shape[:2], bool)
            for x, y, wide, tall in boxes.astype(int):
                covered[y : y + tall, x : x + wide] = True
            assert np.array_equal(covered, part[..., 0] > 0)


def test_augmented_boxes_leave_the_rest_alone():
    image = IMAGE[:10].copy()
    boxes = np.array([[2, 3, 4, 5]], np.float32)
    result, _ = vision.BoundingBoxAugment(vision.Invert(), 1.0)(image, boxes)
    assert np.array_equal(result[3:8, 2:6], 255 - image[3:8, 2:6])
    result[3:8, 2:6] = image[3:8, 2:6]
    assert np.array_equal(result, image)
    # What has another size then fills the box again.
    image[4:8, 2:6], image[3] = 7, 7
    result, _ = vision.BoundingBoxAugment(vision.Resize((9, 2)), 1.0)(image, boxes)
    assert np.array_equal(result, image)


def test_five_crop_makes_five_columns():
    data = ds.NumpySlicesDataset({"image": IMAGE[None]}).map(vision.FiveCrop(4), "image", list("abcde"))
    (row,) = list(data.create_dict_iterator(num_epochs=1, output_numpy=True))
    assert np.array_equal(row["a"], IMAGE[:4, :4])
    assert np.array_equal(row["d"], IMAGE[-4:, -4:])


def test_images_are_written_and_read_back(tmp_path):
    pytest.importorskip("PIL")
    path = str(tmp_path / "a.png")
    vision.write_png(path, IMAGE)
    assert np.array_equal(vision.read_image(path), IMAGE)
    assert vision.read_image(path, vision.ImageReadMode.GRAYSCALE).shape == (12, 10, 1)
    assert np.array_equal(vision.Decode()(vision.read_file(path)), IMAGE)
    assert np.array_equal(vision.read_file(path), vision.encode_png(IMAGE))
    vision.write_png(path, IMAGE[..., :1])
    assert vision.read_image(path).shape == (12, 10, 1)
    assert vision.read_image(path, vision.ImageReadMode.COLOR).shape == (12, 10, 3)
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(IMAGE).convert("RGBA").save(path)
    assert np.array_equal(vision.read_image(path), IMAGE)  # without transparency, as in MindSpore
    pillow.fromarray(IMAGE).save(path, "GIF")
    with pytest.raises(RuntimeError, match="ReadImage: Failed to read file"):
        vision.read_image(path)
    vision.write_jpeg(path, FLAT, 100)
    assert np.abs(vision.read_image(path).astype(int) - FLAT).max() <= 2
    assert len(vision.encode_jpeg(IMAGE, 10)) < len(vision.encode_jpeg(IMAGE, 95))
    vision.write_file(path, np.arange(5, dtype=np.uint8))
    assert vision.read_file(path).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="cannot be read"):
        vision.read_image(path)
    with pytest.raises(RuntimeError, match="cannot be read"):
        vision.read_file(str(tmp_path / "missing"))
    with pytest.raises(RuntimeError, match="cannot be written"):
        vision.write_file(str(tmp_path / "missing" / "a"), np.zeros(1, np.uint8))


def test_transforms_of_images_made_by_pillow_give_a_tuple():
    pillow = pytest.importorskip("PIL.Image")
    compose = transforms.Compose([vision.ToPIL(), vision.RandomGrayscale(1.0)])
    (image,) = compose(IMAGE)  # as in MindSpore
    assert isinstance(image, pillow.Image)
    (gray,) = transforms.Compose([vision.ToPIL(), vision.Grayscale(1), vision.RandomGrayscale(1.0)])(IMAGE)
    assert gray.mode == "L"
    assert transforms.Compose([vision.Resize(4)])(IMAGE).shape[0] == 4
    several = vision.Resize(4, vision.Inter.PILCUBIC)(np.stack([IMAGE, 255 - IMAGE]))
    assert np.array_equal(several[1], vision.Resize(4, vision.Inter.PILCUBIC)(255 - IMAGE))


def test_random_crop_decode_resize():
    pytest.importorskip("PIL")
    content = vision.encode_png(IMAGE)
    ds.config.set_seed(4)
    actual = vision.RandomCropDecodeResize((4, 6))(content)
    ds.config.set_seed(4)
    assert np.array_equal(actual, vision.RandomResizedCrop((4, 6))(IMAGE))


def test_pillow_images_in_and_out():
    image_module = pytest.importorskip("PIL.Image")
    image = vision.ToPIL()(IMAGE)
    assert isinstance(image, image_module.Image)
    assert np.array_equal(vision.ToNumpy()(image), IMAGE)
    assert vision.get_image_size(image) == vision.get_image_size(IMAGE) == [12, 10]
    assert vision.get_image_num_channels(image) == 3
    assert np.array_equal(vision.Invert()(image), 255 - IMAGE)


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ValueError, lambda v: v.AdjustGamma(-1)),
        (RuntimeError, lambda v: v.AdjustGamma(1)(np.arange(3))),
        (ValueError, lambda v: v.AutoContrast(50)),
        (RuntimeError, lambda v: v.AutoContrast()(IMAGE / 2)),
        (ValueError, lambda v: v.RandomInvert(1.5)),
        (ValueError, lambda v: v.RandomPosterize((0, 3))),
        (ValueError, lambda v: v.RandomPosterize((5, 3))),
        (TypeError, lambda v: v.RandomSolarize(3)),
        (ValueError, lambda v: v.RandomSolarize((9, 3))),
        (ValueError, lambda v: v.RandomColor((-1, 1))),
        (TypeError, lambda v: v.RandomSharpness(2)),
        (ValueError, lambda v: v.RandomLighting(-0.1)),
        (ValueError, lambda v: v.GaussianBlur(4)),
        (ValueError, lambda v: v.GaussianBlur(3, -1.0)),
        (TypeError, lambda v: v.GaussianBlur((3, 3, 3))),
        (ValueError, lambda v: v.Grayscale(2)),
        (RuntimeError, lambda v: v.Grayscale()(IMAGE[0, 0])),
        (TypeError, lambda v: v.RgbToHsv()(IMAGE)),
        (TypeError, lambda v: v.ConvertColor(4)),
        (RuntimeError, lambda v: v.ConvertColor(v.ConvertMode.COLOR_BGRA2BGR)(IMAGE)),
        (ValueError, lambda v: v.Affine(0, (2, 0), 1, 0)),
        (ValueError, lambda v: v.Affine(0, (0, 0), 0, 0)),
        (TypeError, lambda v: v.Affine(0, (0, 0), 1, 0, v.Inter.PILCUBIC)),
        (ValueError, lambda v: v.RandomAffine(-1)),
        (ValueError, lambda v: v.RandomAffine(1, scale=(0.5, 0.1))),
        (TypeError, lambda v: v.RandomAffine(1, (0.5, 0.1, 0.3))),
        (ValueError, lambda v: v.RandomAffine(1, scale=(0, 0))),
        (TypeError, lambda v: v.Perspective([[0, 0]], [[0, 0]])),
        (ValueError, lambda v: v.Perspective([[0, 0], [1, 0], [2, 0], [0, 1]], [[0, 0], [1, 0], [1, 1], [0, 1]])),
        (ValueError, lambda v: v.RandomPerspective(1.5)),
        (ValueError, lambda v: v.Erase(0, 0, 0, 1)),
        (ValueError, lambda v: v.RandomErasing(scale=(0.5, 0.1))),
        (RuntimeError, lambda v: v.FiveCrop(11)(IMAGE)),
        (RuntimeError, lambda v: v.ResizedCrop(0, 0, 13, 3, 4)(IMAGE)),
        (RuntimeError, lambda v: v.PadToSize(11)(IMAGE)),
        (RuntimeError, lambda v: v.PadToSize(13, 2)(IMAGE)),
        (ValueError, lambda v: v.NormalizePad([0.1], [0.1, 0.2])),
        (ValueError, lambda v: v.NormalizePad([0.1], [0.1], "int8")),
        (ValueError, lambda v: v.LinearTransformation(np.eye(3), np.zeros(4))),
        (ValueError, lambda v: v.LinearTransformation(np.eye(3), np.zeros(3))(IMAGE)),
        (NotImplementedError, lambda v: v.MixUp(4, 0.2, is_single=False)),
        (ValueError, lambda v: v.MixUpBatch(0.0)),
        (RuntimeError, lambda v: v.MixUpBatch()(BATCH, LABELS[0])),
        (TypeError, lambda v: v.CutMixBatch("NHWC")),
        (RuntimeError, lambda v: v.ResizeWithBBox(4)(IMAGE, np.array([[0, 0, 30, 1]], np.float32))),
        (RuntimeError, lambda v: v.ResizeWithBBox(4)(IMAGE, np.array([[0, 0, 3, 1]], np.int32))),
        (TypeError, lambda v: v.AutoAugment("imagenet")),
        (RuntimeError, lambda v: v.AutoAugment()(IMAGE[..., :1])),
        (ValueError, lambda v: v.RandAugment(magnitude=31)),
        (ValueError, lambda v: v.UniformAugment([v.Invert()])),
        (ValueError, lambda v: v.RandomSelectSubpolicy([[v.Invert()]])),
        (ValueError, lambda v: v.RandomSelectSubpolicy([])),
        (TypeError, lambda v: v.ToPIL()(IMAGE / 2)),
        (RuntimeError, lambda v: v.encode_png(IMAGE.astype(np.float32))),
        (RuntimeError, lambda v: v.encode_jpeg(IMAGE, 101)),
        (TypeError, lambda v: v.encode_png([1, 2])),
        (TypeError, lambda v: v.get_image_size(3)),
        (AttributeError, lambda v: v.read_video),
    ],
)
def test_arguments_that_do_not_fit_are_refused(error, make):
    with pytest.raises(error), warnings.catch_warnings():
        make(vision)


def test_gray_bytes_are_rounded_as_in_opencv():
    # Pixels of which 14 and 15 bits of the weights give different values; the wheel has 15.
    pixels = [[93, 164, 109], [57, 153, 32], [75, 26, 244], [236, 241, 162], [84, 82, 125], [124, 211, 5]]
    gray = vision.ConvertColor(vision.ConvertMode.COLOR_RGB2GRAY)(np.array([pixels], np.uint8))
    assert gray.tolist() == [[137, 111, 65, 231, 87, 162]]


@pytest.mark.parametrize("channels", [0, 1, 3, 4])
@pytest.mark.parametrize("is_hwc", [True, False])
def test_a_channel_of_zeros_behind_any_number_of_channels(channels, is_hwc):
    image = np.arange(20 * max(channels, 1), dtype=np.uint8).reshape(4, 5, -1)
    mean, std = [float(i) for i in range(image.shape[2])], [float(2 + i) for i in range(image.shape[2])]
    expected = np.concatenate([(image - np.float32(mean)) / np.float32(std), np.zeros((4, 5, 1))], 2)
    value = image[..., 0] if not channels else image if is_hwc else image.transpose(2, 0, 1)
    result = vision.NormalizePad(mean, std, is_hwc=is_hwc)(value)
    assert result.dtype == np.float32
    assert np.allclose(result if is_hwc else result.transpose(1, 2, 0), expected)
