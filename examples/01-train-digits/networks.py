"""The two networks of this example, written with MindSpore's names only.

Each takes the number of devices it may be cut over. What it says about cuts counts in semi-automatic parallelism alone; on
one device the same code runs whole.
"""

import mindspore as ms
from mindspore import nn, ops


class Linear(nn.Cell):
    """``x @ weight.T + bias`` by operators of its own, so that each can be cut."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        dense = nn.Dense(num_inputs, num_outputs)  # for its initial values
        self.weight = ms.Parameter(dense.weight.value(), name="weight")
        self.bias = ms.Parameter(dense.bias.value(), name="bias")
        self.matmul = ops.MatMul(transpose_b=True)
        self.add = ops.Add()

    def cut_columns(self, batch: int, columns: int) -> "Linear":
        """The batch in `batch` slices, outputs in `columns`: every device makes its own outputs, nothing travels."""
        self.matmul.shard(((batch, 1), (columns, 1)))
        self.add.shard(((batch, columns), (columns,)))
        return self

    def cut_rows(self, batch: int, rows: int) -> "Linear":
        """The batch in `batch` slices, inputs in `rows`: what devices make are parts of a sum, which is all-reduced."""
        self.matmul.shard(((batch, rows), (1, rows)))
        self.add.shard(((batch, 1), (1,)))
        return self

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.add(self.matmul(x, self.weight), self.bias)


class Mlp(nn.Cell):
    """Two hidden layers on the flattened image: the first cut by columns, the second by rows, as Megatron-LM does."""

    def __init__(self, num_devices: int = 1, num_pixels: int = 64, width: int = 128, num_classes: int = 10) -> None:
        super().__init__()
        columns = 4 if num_devices % 4 == 0 else 1
        batch = num_devices // columns
        self.flatten = nn.Flatten()
        self.hidden1 = Linear(num_pixels, width).cut_columns(batch, columns)
        self.relu1 = ops.ReLU().shard(((batch, columns),))
        self.hidden2 = Linear(width, width).cut_rows(batch, columns)
        self.relu2 = ops.ReLU().shard(((batch, 1),))
        self.head = nn.Dense(width, num_classes)

    def construct(self, image: ms.Tensor) -> ms.Tensor:
        x = self.relu1(self.hidden1(self.flatten(image)))
        return self.head(self.relu2(self.hidden2(x)))


class LeNet(nn.Cell):
    """Two convolutions with pooling, three dense layers, for 8x8 images. It says nothing of cuts, so its batch is cut."""

    def __init__(self, num_devices: int = 1, num_classes: int = 10) -> None:
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
