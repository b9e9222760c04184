"""The two networks of this example, written with MindSpore's names only."""

import mindspore as ms
from mindspore import nn, ops


class Mlp(nn.Cell):
    """Two hidden layers on the flattened image."""

    def __init__(self, num_pixels: int = 64, width: int = 128, num_classes: int = 10) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.hidden1 = nn.Dense(num_pixels, width, activation="relu")
        self.hidden2 = nn.Dense(width, width, activation="relu")
        self.head = nn.Dense(width, num_classes)

    def construct(self, image: ms.Tensor) -> ms.Tensor:
        return self.head(self.hidden2(self.hidden1(self.flatten(image))))


class LeNet(nn.Cell):
    """Two convolutions with pooling, three dense layers, for 8x8 images."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, pad_mode="same", has_bias=True)
        self.conv2 = nn.Conv2d(16, 32, 3, pad_mode="same", has_bias=True)
        self.pool = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(32 * 2 * 2, 120, activation="relu")
        self.fc2 = nn.Dense(120, 84, activation="relu")
        self.head = nn.Dense(84, num_classes)

    def construct(self, image: ms.Tensor) -> ms.Tensor:
        x = self.pool(ops.relu(self.conv1(image)))
        x = self.pool(ops.relu(self.conv2(x)))
        return self.head(self.fc2(self.fc1(self.flatten(x))))


NETWORKS = {"mlp": Mlp, "lenet": LeNet}
