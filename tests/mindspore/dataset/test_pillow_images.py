"""Pillow images inside `map`: what MindSpore 2.10 gives for the same image, as checksums of the bytes."""

import io
import sys
import types
import zlib

import numpy as np
import PIL.Image
import pytest

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import transforms, vision


def _png():
    pixels = np.random.RandomState(0).randint(0, 255, (20, 30, 3)).astype(np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return np.frombuffer(file.getvalue(), np.uint8)


PNG = _png()
DECODE = vision.Decode(to_pil=True)


def mapped(operations):
    data = ds.GeneratorDataset([PNG, PNG], "image", shuffle=False).map(operations, "image")
    return next(iter(data.create_tuple_iterator(num_epochs=1, output_numpy=True)))[0]


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
def test_decode_reads_the_bytes_of_any_numbers(dtype):
    whole = PNG.size // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize
    assert np.array_equal(vision.Decode()(PNG[:whole].view(dtype)), vision.Decode()(PNG))


def test_rows_are_no_pillow_images_while_another_thread_imports_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", types.ModuleType("PIL.Image"))
    data = ds.GeneratorDataset([np.zeros(2), np.zeros(3)], "row", shuffle=False).map(lambda row: row + 1, "row")
    assert [row.tolist() for (row,) in data.create_tuple_iterator(output_numpy=True)] == [[1, 1], [1, 1, 1]]


def described(value):
    kind = str(value.dtype) if isinstance(value, np.ndarray) else value.mode
    shape = value.shape if isinstance(value, np.ndarray) else value.size
    return kind, shape, zlib.crc32(np.ascontiguousarray(value).tobytes())


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([DECODE], ("uint8", (20, 30, 3), 3762236066)),
        ([DECODE, vision.ToTensor()], ("float32", (3, 20, 30), 1945057991)),
        ([DECODE, vision.Resize((10, 12)), vision.ToTensor()], ("float32", (3, 10, 12), 2727919365)),
        (
            [DECODE, vision.Resize((10, 12), vision.Inter.BICUBIC), vision.ToTensor()],
            ("float32", (3, 10, 12), 941728979),
        ),
        (
            [DECODE, vision.Resize((10, 12), vision.Inter.NEAREST), vision.ToTensor()],
            ("float32", (3, 10, 12), 266623234),
        ),
        ([DECODE, vision.ToNumpy()], ("uint8", (20, 30, 3), 3762236066)),
        ([DECODE, vision.Grayscale(3), vision.ToTensor()], ("float32", (3, 20, 30), 1278462647)),
        ([vision.Decode(), vision.ToPIL(), vision.ToTensor()], ("float32", (3, 20, 30), 1945057991)),
        ([DECODE, lambda image: image.rotate(90), vision.ToTensor()], ("float32", (3, 20, 30), 1542622003)),
        ([DECODE, lambda image: image.convert("L"), np.array], ("uint8", (20, 30), 781770364)),
        ([DECODE, vision.Pad(2), vision.ToTensor()], ("float32", (3, 24, 34), 299826461)),
        ([DECODE, vision.CenterCrop(40), vision.ToTensor()], ("float32", (3, 40, 40), 1434849655)),
        ([DECODE, vision.RandomHorizontalFlip(1.0), vision.ToTensor()], ("float32", (3, 20, 30), 1956243973)),
        ([DECODE, vision.RandomVerticalFlip(1.0), vision.ToTensor()], ("float32", (3, 20, 30), 4078646177)),
        ([DECODE, vision.Invert(), vision.ToTensor()], ("float32", (3, 20, 30), 1214160256)),
        ([DECODE, vision.AutoContrast(), vision.ToTensor()], ("float32", (3, 20, 30), 2676614289)),
        ([DECODE, vision.Equalize(), vision.ToTensor()], ("float32", (3, 20, 30), 3826087713)),
        ([DECODE, vision.HWC2CHW()], ("uint8", (3, 20, 30), 1839540116)),
        ([DECODE, vision.Rescale(1 / 255, 0)], ("float32", (20, 30, 3), 477549177)),
        ([DECODE, vision.RandomRotation((90, 90)), vision.ToTensor()], ("float32", (3, 20, 30), 1542622003)),
        ([DECODE, vision.RandomCrop((20, 30)), vision.ToTensor()], ("float32", (3, 20, 30), 1945057991)),
        ([DECODE, transforms.TypeCast(np.float32)], ("float32", (20, 30, 3), 3272504577)),
        (
            [DECODE, transforms.RandomApply([vision.Resize((4, 4))], 1.0), vision.ToTensor()],
            ("float32", (3, 4, 4), 1294737592),
        ),
        (transforms.Compose([DECODE, vision.Resize((4, 4)), vision.ToTensor()]), ("float32", (3, 4, 4), 1294737592)),
        (
            [DECODE, vision.RandomResizedCrop((8, 8), (1.0, 1.0), (1.5, 1.5)), vision.ToTensor()],
            ("float32", (3, 8, 8), 3579661342),
        ),
    ],
)
def test_images_of_pillow_go_through_a_map_as_in_mindspore(operations, expected):
    assert described(mapped(operations)) == expected


@pytest.mark.parametrize(
    ("image", "kind"), [(np.zeros((4, 4, 3), np.uint8), np.ndarray), (PIL.Image.new("RGB", (4, 4)), PIL.Image.Image)]
)
def test_functions_of_a_composition_that_is_called_with_arrays_get_arrays(image, kind):
    seen = []
    transforms.Compose([lambda x: PIL.Image.fromarray(np.array(x)), lambda x: (seen.append(x), np.array(x))[1]])(image)
    assert isinstance(seen[0], kind)


def test_antialiased_images_are_normalized_as_in_mindspore():
    size = vision.Resize(15, vision.Inter.ANTIALIAS)
    scaled = vision.Normalize([0.5] * 3, [0.5] * 3, is_hwc=False)
    pixels = mapped([DECODE, size, vision.CenterCrop(12), vision.ToTensor()])
    assert described(mapped([DECODE, size, vision.CenterCrop(12), vision.ToTensor(), scaled])) == (
        "float32",
        (3, 12, 12),
        667575003,
    )
    assert pixels.shape == (3, 12, 12)


def test_functions_get_images_and_the_next_map_gets_arrays():
    kinds = []

    def seen(image):
        kinds.append(type(image).__name__)
        return image

    data = ds.GeneratorDataset([PNG], "image", shuffle=False).map([DECODE, seen], "image").map(seen, "image")
    list(data.create_tuple_iterator(num_epochs=1, output_numpy=True))
    assert kinds == ["Image", "ndarray"]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (vision.Resize((5, 6)), ("RGB", (6, 5), 3273029949)),
        (vision.CenterCrop(5), ("RGB", (5, 5), 2429327252)),
        (vision.RandomHorizontalFlip(1.0), ("RGB", (30, 20), 3096031732)),
        (vision.Normalize([1.0] * 3, [1.0] * 3), ("float32", (20, 30, 3), 1998795985)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_transform_called_with_an_image_gives_one_where_it_is_one(operation, expected):
    image = DECODE(PNG)
    assert described(image) == ("RGB", (30, 20), 3762236066)
    assert described(operation(image)) == expected


def test_pixels_are_averaged_over_areas_of_arrays_only():
    with pytest.raises(TypeError, match="Current Interpolation is not supported with PIL input"):
        mapped([DECODE, vision.Resize((4, 4), vision.Inter.AREA)])


def test_pixels_of_a_pillow_image_in_a_call_are_divided_in_double_precision():
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    image = PIL.Image.fromarray(pixels)
    exact = (pixels / 255.0)[None]
    np.testing.assert_array_equal(vision.ToTensor()(image), exact.astype(np.float32))
    np.testing.assert_array_equal(vision.ToTensor(np.float64)(image), exact)
    single = (pixels * np.float32(1 / 255))[None]
    np.testing.assert_array_equal(vision.ToTensor()(pixels), single)
    assert (single != exact.astype(np.float32)).any()


def test_compose_called_with_a_pillow_image_gives_a_tuple():
    image = PIL.Image.fromarray(np.zeros((2, 3, 3), np.uint8))
    (result,) = transforms.Compose([vision.ToTensor(), lambda planes: planes * 2])(image)
    assert result.shape == (3, 2, 3)
    assert transforms.Compose([vision.ToTensor()])(np.zeros((2, 3, 3), np.uint8)).shape == (3, 2, 3)


SMALL = np.random.default_rng(0).integers(0, 255, (4, 5, 3)).astype(np.uint8)


@pytest.mark.parametrize(
    ("operations", "first"),
    [
        ([vision.ToPIL(), vision.Resize(3)], [157, 146, 88]),
        ([vision.ToPIL(), lambda image: image, vision.Resize(3)], [167, 143, 94]),
        ([PIL.Image.fromarray, vision.Resize(3)], [167, 143, 94]),
        ([PIL.Image.fromarray, vision.Resize(3), vision.HWC2CHW()], [167, 50, 135]),
        ([vision.ToPIL(), lambda image: image, vision.RandomHorizontalFlip(1.0), vision.Resize(3)], [135, 165, 230]),
        ([PIL.Image.fromarray, vision.Resize(3, vision.Inter.ANTIALIAS)], [145, 159, 83]),
        (transforms.Compose([PIL.Image.fromarray, vision.Resize(3)]), [167, 143, 94]),
    ],
)
def test_after_a_function_transforms_work_on_arrays_as_in_mindspore(operations, first):
    data = ds.NumpySlicesDataset(SMALL[None], ["image"]).map(operations, "image")
    (image,) = next(iter(data.create_tuple_iterator(num_epochs=1, output_numpy=True)))
    assert image.reshape(-1)[:3].tolist() == first


@pytest.mark.parametrize(
    ("transform", "kind"),
    [
        (vision.Rotate(10), np.ndarray),
        (vision.HorizontalFlip(), np.ndarray),
        (vision.Posterize(3), np.ndarray),
        (vision.RandomInvert(1.0), np.ndarray),
        (vision.CenterCrop(2), PIL.Image.Image),
        (vision.Invert(), PIL.Image.Image),
    ],
)
def test_transforms_of_arrays_alone_give_arrays_of_pillow_images(transform, kind):
    image = PIL.Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    assert isinstance(transform(image), kind)
    seen = []
    data = ds.NumpySlicesDataset([np.asarray(image)], ["x"])
    data = data.map([vision.ToPIL(), transform, lambda x: seen.append(x) or np.asarray(x, np.uint8)], ["x"])
    list(data.create_dict_iterator(output_numpy=True, num_epochs=1))
    assert isinstance(seen[0], kind)


def test_the_bytes_of_a_file_may_be_one_value(tmp_path):
    PIL.Image.fromarray(np.zeros((2, 3, 3), np.uint8)).save(tmp_path / "a.png")
    assert vision.Decode()(np.array([(tmp_path / "a.png").read_bytes()])).shape == (2, 3, 3)


def test_arrays_are_resized_by_the_cubic_curves_of_pillow():
    image = (np.arange(60, dtype=np.uint8).reshape(4, 5, 3) * 37 % 251).astype(np.uint8)
    resize = vision.Resize((3, 2), vision.Inter.PILCUBIC)
    assert resize(image).tolist() == [  # of MindSpore 2.10
        [[88, 81, 130], [152, 115, 86]],
        [[100, 148, 128], [110, 102, 142]],
        [[163, 120, 119], [119, 156, 111]],
    ]
    with pytest.raises(RuntimeError, match="PILCUBIC only supports image with 3 channels"):
        resize(image[..., 0])


COLOURS = (np.arange(36) * 41 % 256).astype(np.uint8).reshape(3, 4, 3)
GRAYS = (np.arange(12) * 21).astype(np.uint8).reshape(3, 4)
CORNERS = [[0, 0], [3, 0], [3, 2], [0, 2]]


# Sums of pixels times their numbers, of MindSpore 2.10.
@pytest.mark.parametrize(
    ("transform", "of_colours", "of_grays"),
    [
        (vision.AdjustBrightness(1.3), 101409, 14847),
        (vision.AdjustContrast(1.7), 85104, 13363),
        (vision.AdjustSaturation(0.5), 81298, 12012),
        (vision.AdjustHue(0.3), 89366, 12012),
        (vision.RandomColor((0.4, 0.4)), 80969, 12012),
        (vision.RandomSharpness((1.7, 1.7)), 82330, 12012),
        (vision.AutoContrast(20.0), 86952, 13996),
        (vision.RandomColorAdjust(), 82926, 12012),
        (vision.RandomAffine((20, 20)), 74769, 10857),
        (vision.RandomAffine((0, 0), shear=(10, 10), resample=vision.Inter.BILINEAR), 81338, 11920),
        # No pixel comes from the border, where the processor's rounding decides whether it is inside.
        (vision.Perspective(CORNERS, [[0, -1], [3, 0], [4, 4], [-1, 3]]), 81473, 7779),
        (vision.CenterCrop((4, 5)), 95206, 14070),
        (vision.ResizedCrop(0, 1, 2, 3, (1, 2)), 2905, 268),
    ],
    ids=lambda value: type(value).__name__,
)
def test_pillow_calculates_what_mindspore_has_it_calculate(transform, of_colours, of_grays):
    for image, expected in ((COLOURS, of_colours), (GRAYS, of_grays)):
        result = np.array(transform(PIL.Image.fromarray(image))).astype(np.int64).ravel()
        assert int((result * np.arange(1, len(result) + 1)).sum()) == expected


def test_two_channels_make_an_image_and_anything_an_array():
    assert vision.ToPIL()(np.ones((3, 4, 2), np.uint8)).mode == "LA"
    assert vision.ToNumpy()([1, 2]).tolist() == [1, 2]
    assert vision.ToNumpy()(3).shape == ()
