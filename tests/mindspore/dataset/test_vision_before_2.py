import importlib

import numpy as np

from sporax.mindspore.dataset import vision


def test_py_transforms_normalize_channels_first():
    py_transforms = importlib.import_module("sporax.mindspore.dataset.vision.py_transforms")
    image = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    mean, std = (1.0, 2.0, 3.0), (1.0, 2.0, 4.0)
    expected = (image - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    np.testing.assert_allclose(py_transforms.Normalize(mean, std)(image), expected, rtol=1e-6)
    assert py_transforms.Resize is vision.Resize


def test_c_transforms_are_the_same():
    assert importlib.import_module("sporax.mindspore.dataset.vision.c_transforms").Normalize is vision.Normalize
