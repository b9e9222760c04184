"""Classes that users derive from ours are plain Python classes: their own attributes and few methods suffice."""

from collections.abc import Iterator
from typing import Any

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, dataset as ds, nn


class Count(nn.Metric):
    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def clear(self) -> None:
        self.count = 0

    def update(self, *inputs: Any) -> None:
        self.count += inputs[0].shape[0]

    def eval(self) -> int:
        return self.count


class Steps(ms.train.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[int] = []
        self.steps = 0

    def step_end(self, run_context: Any) -> None:
        self.steps += 1

    def epoch_end(self, run_context: Any) -> None:
        self.epochs.append(run_context.original_args().cur_epoch_num)


class WarmThenHalf(nn.learning_rate_schedule.LearningRateSchedule):
    def __init__(self, base: float) -> None:
        super().__init__()
        self.base, self.warm_up = base, nn.WarmUpLR(base, 4)

    def construct(self, step: Tensor) -> Any:
        if step < 2:
            return self.warm_up(step)
        return Tensor(self.base * 0.5, ms.float32)


class Source:
    def __getitem__(self, index: int) -> Any:
        return np.full(2, index, np.float32), np.zeros(1, np.float32)

    def __len__(self) -> int:
        return 8


class Backwards(ds.Sampler):
    def __iter__(self) -> Iterator[int]:
        return iter(range(7, -1, -1))


class Chosen:
    def __iter__(self) -> Iterator[int]:
        return iter([3, 1, 2])

    def __len__(self) -> int:
        return 3


def first_column(sampler: Any) -> list[float]:
    data = ds.GeneratorDataset(Source(), ["x", "y"], sampler=sampler)
    return [row[0][0] for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]


def test_samplers_of_users_choose_rows() -> None:
    assert first_column(Backwards()) == [7, 6, 5, 4, 3, 2, 1, 0]
    assert first_column(Chosen()) == [3, 1, 2]


def test_a_metric_and_a_callback() -> None:
    data = ds.GeneratorDataset(Source(), ["x", "y"], shuffle=False).batch(2)
    net, callback = nn.Dense(2, 1), Steps()
    model = ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 1e-3), metrics={"count": Count()})
    model.train(2, data, callbacks=[callback], dataset_sink_mode=False)
    assert (callback.epochs, callback.steps) == ([1, 2], 8)
    assert model.eval(data, dataset_sink_mode=False) == {"count": 8}


def test_a_schedule_with_an_if_of_a_tensor(mode: str) -> None:
    weight = ms.Parameter(Tensor([1.0]), name="weight")
    optimizer = nn.SGD([weight], WarmThenHalf(0.4))
    values = []
    for _ in range(3):
        optimizer((Tensor([1.0]),))
        values.append(float(weight.asnumpy()[0]))
    np.testing.assert_allclose(values, [1.0, 0.9, 0.7], rtol=1e-6)
