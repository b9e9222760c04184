"""Random transforms whose draws were recorded from MindSpore's wheel, and what it is given (tools/golden/make_draws.py)."""

import zlib

import numpy as np

IMAGE = (np.arange(360) ** 2 // 7 % 256).astype(np.uint8).reshape(12, 10, 3)

CASES = (
    "vision.RandomCrop((5, 6), 2)",
    "vision.RandomHorizontalFlip()",
    "vision.RandomVerticalFlip(0.3)",
    "[vision.RandomCrop(8), vision.RandomHorizontalFlip()]",
    "vision.RandomResize(20)",
    "vision.RandomRotation(40)",
    "vision.RandomColor((0.5, 1.5))",
    "vision.RandomColorAdjust(0.3, 0.3, 0.3, 0.2)",
    "vision.RandomColorAdjust(contrast=0.3)",
    "vision.RandomSharpness((0.5, 2.0))",
    "vision.RandomPosterize((1, 8))",
    "vision.RandomSolarize((20, 200))",
    "vision.RandomAdjustSharpness(2.0)",
    "vision.RandomAutoContrast()",
    "vision.RandomEqualize()",
    "vision.RandomInvert()",
    "vision.CutOut(4, 2)",
    "vision.RandomAffine(20)",
    "vision.RandomAffine(20, (-0.1, 0.1, 0, 0.2), (0.8, 1.2), (-5, 5, -3, 3))",
    "vision.RandomAffine(0, (-0.1, 0.1, 0, 0.2))",
    "vision.RandomAffine(0, None, (0.8, 1.2))",
    "vision.RandomAffine(0, None, None, (-5, 5, -3, 3))",
    "transforms.RandomApply([vision.Invert()], 0.5)",
    "transforms.RandomChoice([vision.Invert(), vision.HorizontalFlip(), vision.VerticalFlip()])",
    "vision.RandomSelectSubpolicy([[(vision.Invert(), 0.5)], [(vision.VerticalFlip(), 0.7)]])",
)


def sums_of(case, ds, vision, transforms):
    """For one and two workers, check sums of the images of two epochs of five rows; `ds` is MindSpore's or ours."""
    operations = eval(case, {"vision": vision, "transforms": transforms})
    sums = []
    for workers in (1, 2):
        ds.config.set_seed(7)
        images = ds.NumpySlicesDataset(np.stack([IMAGE] * 5), "x", shuffle=False)
        rows = images.map(operations, "x", num_parallel_workers=workers).create_tuple_iterator(
            num_epochs=2, output_numpy=True
        )
        sums.append([zlib.crc32(row[0].tobytes()) for _ in range(2) for row in rows])
    return sums
