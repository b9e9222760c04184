"""How similar two images are: the structural similarity, at one scale and at several."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.container import CellList
from sporax.mindspore.nn.convolution import Conv2d
from sporax.mindspore.nn.image import check_equal_images


def _window(size: int, sigma: float) -> Conv2d:
    """A convolution of one channel with a Gaussian; its weight is not trained."""
    at = np.arange(-size // 2 + 1, size // 2 + 1, dtype=np.float32)
    bell = np.exp(-np.square(at) / (2 * sigma**2))
    # The sum of all weights is 1.
    weight = np.outer(bell, bell) / np.square(bell.sum())
    blur = Conv2d(1, 1, size, pad_mode="valid", weight_init=Tensor(weight[None, None].astype(np.float32)))
    blur.weight.requires_grad = False
    return blur


class _Similarity(Cell):
    """What both indices share: settings, checks, and luminance and contrast at one scale."""

    def __init__(self, max_val: float, filter_size: int, filter_sigma: float, k1: float, k2: float) -> None:
        super().__init__()
        name = type(self).__name__
        self.max_val = argument.within(name, "max_val", max_val, 0.0, math.inf, "()")
        self.filter_size = argument.positive_int(name, "filter_size", filter_size)
        self.filter_sigma = argument.within(name, "filter_sigma", filter_sigma, 0.0, math.inf, "()")
        self.k1 = argument.exactly_float(name, "k1", k1, -math.inf, math.inf)
        self.k2 = argument.exactly_float(name, "k2", k2, -math.inf, math.inf)

    def pixels(self, **images: Tensor) -> tuple[float, list[Tensor]]:
        """The largest value and both images as float32 channels (N·C, 1, H, W); uint8 pixels become shares of 255."""
        name = type(self).__name__
        first, second = images.values()
        check_equal_images(name, first, second)
        if min(first.shape[2:]) < self.filter_size:
            raise SporaxValueError(
                f"For '{name}', height and width must be >= 'filter_size' = {self.filter_size}, but got {first.shape[2:]}."
            )
        largest = _largest(name, first.dtype)
        channels = [
            image.astype(dtypes.float32).reshape((-1, 1, *image.shape[2:])) / largest for image in images.values()
        ]
        # uint8 pixels become shares of 255, and the largest value with them.
        return self.max_val / largest, channels

    def at_scale(self, blur: Cell, max_val: float, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Mean similarity and mean contrast of each channel (N·C,) (Wang et al. 2004, eq. 13)."""
        c1, c2 = (self.k1 * max_val) ** 2, (self.k2 * max_val) ** 2
        mean1, mean2 = blur(first), blur(second)
        # E[xy] - E[x]E[y], with the window's weights.
        covariance = blur(first * second) - mean1 * mean2
        variances = blur(first * first) + blur(second * second) - mean1 * mean1 - mean2 * mean2
        contrast = (2 * covariance + c2) / (variances + c2)
        luminance = (2 * mean1 * mean2 + c1) / (mean1 * mean1 + mean2 * mean2 + c1)
        return ops.mean(luminance * contrast, (1, 2, 3)), ops.mean(contrast, (1, 2, 3))


def _largest(name: str, dtype: DType) -> float:
    if dtype == dtypes.uint8:
        return 255.0
    if dtype not in (dtypes.float16, dtypes.float32, dtypes.float64):
        raise SporaxTypeError(f"For '{name}', the images must be float16, float32, float64 or uint8, but got {dtype}.")
    return 1.0


class SSIM(_Similarity):
    """Structural similarity of two batches of images (Wang et al. 2004), one number per image: 1 for equal ones.

    Args:
        max_val: largest value a pixel can have.
        filter_size: side of the Gaussian window.
        filter_sigma: its standard deviation.
        k1, k2: constants that keep the quotients of luminance and contrast stable.
    """

    def __init__(
        self, max_val: float = 1.0, filter_size: int = 11, filter_sigma: float = 1.5, k1: float = 0.01, k2: float = 0.03
    ) -> None:
        super().__init__(max_val, filter_size, filter_sigma, k1, k2)
        self.conv = _window(filter_size, filter_sigma)

    def construct(self, img1: Tensor, img2: Tensor) -> Tensor:
        """`img1`, `img2`: (N, C, H, W), floating or uint8; gives (N,)."""
        max_val, (first, second) = self.pixels(img1=img1, img2=img2)
        similarity, _ = self.at_scale(self.conv, max_val, first, second)
        return ops.mean(similarity.reshape(img1.shape[:2]), 1)


class MSSSIM(_Similarity):
    """Structural similarity at several scales (Wang et al. 2003), one number per image.

    Args:
        max_val: largest value a pixel can have.
        power_factors: exponent of each scale; between two scales the images are halved.
        filter_size, filter_sigma, k1, k2: as for `SSIM`.
    """

    def __init__(
        self,
        max_val: float = 1.0,
        power_factors: Sequence[float] = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333),
        filter_size: int = 11,
        filter_sigma: float = 1.5,
        k1: float = 0.01,
        k2: float = 0.03,
    ) -> None:
        super().__init__(max_val, filter_size, filter_sigma, k1, k2)
        if not isinstance(power_factors, tuple | list) or not power_factors:
            raise SporaxTypeError.must("MSSSIM", "power_factors", "be a tuple or list of numbers", repr(power_factors))
        self.power_factors = tuple(float(factor) for factor in power_factors)
        self.multi_convs_list = CellList([_window(filter_size, filter_sigma) for _ in self.power_factors])

    def construct(self, img1: Tensor, img2: Tensor) -> Tensor:
        """`img1`, `img2`: (N, C, H, W), floating or uint8; gives (N,)."""
        max_val, images = self.pixels(img1=img1, img2=img2)
        product = Tensor(1.0, dtypes.float32)
        for place, (blur, power) in enumerate(zip(self.multi_convs_list, self.power_factors, strict=True)):
            similarity, contrast = self.at_scale(blur, max_val, *images)
            last = place == len(self.power_factors) - 1
            # Luminance counts at the coarsest scale only (Wang et al. 2003).
            product = product * ops.pow(ops.relu(similarity if last else contrast), power)
            images = [ops.avg_pool2d(image, 2, 2) for image in images]
        return ops.mean(product.reshape(img1.shape[:2]), 1)
