"""ResNet-18 for 32x32 images: four stages of two basic blocks, an eighth of the usual width.

Shapes: images (B, 3, 32, 32), labels (B,) of 10 classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

WIDTHS = (8, 16, 32, 64)


def net(ms: Any) -> Any:
    """The network: images to logits."""
    nn, ops = ms.nn, ms.ops

    class BasicBlock(nn.Cell):
        """Two convolutions, and a way past them."""

        def __init__(self, in_channels, out_channels, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, pad_mode="pad", padding=1)
            self.bn1 = nn.BatchNorm2d(out_channels)
            self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, pad_mode="same")
            self.bn2 = nn.BatchNorm2d(out_channels)
            self.relu = nn.ReLU()
            self.down_sample = None
            if stride != 1 or in_channels != out_channels:
                convolution = nn.Conv2d(in_channels, out_channels, 1, stride, pad_mode="valid")
                self.down_sample = nn.SequentialCell([convolution, nn.BatchNorm2d(out_channels)])

        def construct(self, x):
            identity = x
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            if self.down_sample is not None:
                identity = self.down_sample(x)
            return self.relu(out + identity)

    class ResNet(nn.Cell):
        """Stem, stages, mean over the image, classifier."""

        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, pad_mode="same", weight_init="HeUniform")
            self.bn1 = nn.BatchNorm2d(WIDTHS[0])
            self.relu = ops.ReLU()
            blocks, before = [], WIDTHS[0]
            for stage, width in enumerate(WIDTHS):
                blocks += [BasicBlock(before, width, 1 if stage == 0 else 2), BasicBlock(width, width, 1)]
                before = width
            self.layers = nn.SequentialCell(blocks)
            self.mean = ops.ReduceMean(keep_dims=True)
            self.flatten = nn.Flatten()
            self.fc = nn.Dense(before, 10, weight_init="normal", bias_init="zeros")

        def construct(self, x):
            x = self.relu(self.bn1(self.conv1(x)))
            x = self.layers(x)
            return self.fc(self.flatten(self.mean(x, (2, 3))))

    return ResNet()


def batches() -> Iterator[tuple[np.ndarray, ...]]:
    """Two batches of 16 images, five times: a class is a colour gradient in its own direction, under noise."""
    rng = np.random.default_rng(31)
    rows, columns = np.mgrid[-1:1:32j, -1:1:32j]
    pair = []
    for _ in range(2):
        labels = rng.integers(0, 10, 16).astype(np.int32)
        angles = 2 * np.pi * labels[:, None, None] / 10
        ramp = np.cos(angles) * rows + np.sin(angles) * columns
        images = np.stack([ramp, -ramp, ramp**2], 1) + 0.3 * rng.normal(size=(16, 3, 32, 32))
        pair.append((images.astype(np.float32), labels))
    for _ in range(5):
        yield from pair
