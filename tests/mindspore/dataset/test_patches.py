"""One process that drives all devices reads the patches of all ranks."""

import numpy as np
import pytest

import sporax.mindspore.dataset as ds
from sporax.mindspore import context
from sporax.mindspore.dataset._all_ranks import together
from sporax.mindspore.parallel import Layout
from sporax.mindspore.parallel.auto_parallel import AutoParallel

IMAGES = np.arange(6 * 4 * 8, dtype=np.float32).reshape(6, 4, 8, 1)
LABELS = np.arange(6, dtype=np.int32)


@pytest.fixture(autouse=True)
def _untouched():
    yield
    context.reset_auto_parallel_context()


def pipeline(height, width, kept=0, generator=False):
    names = [f"patch{number}" for number in range(height * width)]
    if generator:
        rows = ds.GeneratorDataset(lambda: iter(zip(IMAGES, LABELS, strict=True)), ["image", "label"])
    else:
        rows = ds.NumpySlicesDataset({"image": IMAGES, "label": LABELS}, shuffle=True)
    cut = rows.map(ds.vision.SlicePatches(height, width), "image", names).project([names[kept], "label"])
    return cut.map(ds.vision.HWC2CHW(), names[kept]).batch(3).repeat(2)


def read(pipeline):
    return [(image, label) for image, label in pipeline.create_tuple_iterator(num_epochs=1, output_numpy=True)]


@pytest.mark.parametrize("generator", [False, True])
@pytest.mark.parametrize(
    ("grid", "strategy"),
    [
        ((1, 4), ((1, 1, 1, 4), (1,))),
        ((2, 1), ((1, 1, 2, 1), (1,))),
        ((2, 4), ((1, 1, 2, 4), (1,))),
        ((2, 4), (Layout((2, 4), ("a", "b"))("None", "None", "a", "b"), Layout((2, 4), ("a", "b"))("None"))),
    ],
)
def test_images_are_whole_where_one_process_feeds_all_devices(grid, strategy, generator):
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, dataset_strategy=strategy)
    data = pipeline(*grid, generator=generator)
    assert data.get_dataset_size() == 4
    assert data.output_shapes() == [[3, 1, 4, 8], [3]]
    for images, labels in read(data):
        np.testing.assert_array_equal(images, IMAGES[labels].transpose(0, 3, 1, 2))


@pytest.mark.parametrize("generator", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_what_comes_before_the_choice_is_read_once(generator, workers):
    """In spite of eight patches; what follows the choice may change its rows in place, once for each patch."""
    context.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel", device_num=8, dataset_strategy=((1, 1, 2, 4), (1,))
    )
    decoded = []

    def decode(image):
        decoded.append(float(image.ravel()[0]))
        return image + np.float32(0.5)

    def more(label):
        label += 1
        return label

    names = [f"patch{number}" for number in range(8)]
    if generator:
        rows = ds.GeneratorDataset(lambda: iter(zip(IMAGES, LABELS, strict=True)), ["image", "label"])
    else:
        rows = ds.NumpySlicesDataset({"image": IMAGES, "label": LABELS}, shuffle=True)
    data = rows.map(decode, "image", num_parallel_workers=workers).map(ds.vision.SlicePatches(2, 4), "image", names)
    data = data.project([names[0], "label"]).map(ds.vision.HWC2CHW(), names[0]).map(more, "label").batch(3)
    for images, labels in read(data):
        np.testing.assert_array_equal(images, IMAGES[labels - 1].transpose(0, 3, 1, 2) + 0.5)
    assert sorted(decoded) == sorted(IMAGES[:, 0, 0, 0].tolist())


def test_parts_are_put_together_as_the_step_divides_them_not_as_the_image_was_divided():
    context.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel", device_num=8, dataset_strategy=((1, 1, 4, 1), (1,))
    )
    images, labels = read(pipeline(1, 4))[0]
    parts = np.split(IMAGES[labels].transpose(0, 3, 1, 2), 4, axis=3)
    np.testing.assert_array_equal(images, np.concatenate(parts, axis=2))


def test_the_settings_of_a_wrapped_network_count(monkeypatch):
    monkeypatch.setattr(context, "num_devices", lambda: 8)
    net = AutoParallel(lambda x, y: x)
    net.dataset_strategy(((1, 1, 1, 4), (1,)))
    assert read(pipeline(1, 4))[0][0].shape == (3, 1, 4, 8)
    del net
    assert read(pipeline(1, 4))[0][0].shape == (3, 1, 4, 2)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, 0),  # one device
        ({"parallel_mode": "data_parallel"}, 0),
        ({"dataset_strategy": "full_batch"}, 0),
        ({"dataset_strategy": ((1, 1, 1, 2), (1,))}, 0),  # another number of slices
        ({"dataset_strategy": ((1, 1, 1, 4), (1,))}, 2),  # not what rank 0 would pick
    ],
)
def test_elsewhere_a_patch_is_a_patch(settings, kept):
    if settings:
        context.set_auto_parallel_context(**{"parallel_mode": "semi_auto_parallel", "device_num": 8, **settings})
    images, labels = read(pipeline(1, 4, kept))[0]
    np.testing.assert_array_equal(images, IMAGES[labels].transpose(0, 3, 1, 2)[..., 2 * kept : 2 * kept + 2])


def test_together_is_row_major():
    parts = [np.full((1, 1), number) for number in range(6)]
    assert together(parts, (2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert together(parts, (6, 1)).ravel().tolist() == list(range(6))
