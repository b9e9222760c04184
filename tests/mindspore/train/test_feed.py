from typing import Any

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.communication import init
from sporax.mindspore.train._feed import Feed


class Epochs:
    """A dataset whose epochs have the given numbers of batches, the last of them for ever."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = list(sizes)

    def create_tuple_iterator(self, **_: Any) -> "Epochs":
        return self

    def __iter__(self) -> Any:
        size = self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]
        return iter([[number] for number in range(size)])


def test_batches_are_taken_over_the_ends_of_epochs():
    feed = Feed(Epochs(2, 3))
    assert list(feed.take(1)) == [(0,)]
    assert list(feed.take(3)) == [(1,), (0,), (1,)]


def test_an_epoch_without_batches_is_an_error_after_those_before():
    feed = Feed(Epochs(2, 0))
    assert list(feed.take(2)) == [(0,), (1,)]
    with pytest.raises(RuntimeError, match="must have at least one batch, but got none, and 2 more"):
        list(feed.take(2))


def test_sink_mode_does_not_wait_for_ever(make_data: Any, make_model: Any):
    data = make_data().filter(lambda x: False, input_columns=["x"])
    with pytest.raises((RuntimeError, ValueError), match="batch"):
        make_model().train(1, data, dataset_sink_mode=True, sink_size=2)


class OwnData:
    """A data set of one's own with the least that a loop needs, in MindSpore's manner: an iterator of itself."""

    def __init__(self) -> None:
        self.number, self.resets = 0, 0

    def get_dataset_size(self) -> int:
        return 3

    def create_tuple_iterator(self, num_epochs: int = -1, do_copy: bool = True) -> "OwnData":
        return self

    def __iter__(self) -> "OwnData":
        return self

    def __next__(self) -> list[Any]:
        if self.number == 3:
            raise StopIteration
        self.number += 1
        return [Tensor(np.full((2, 4), self.number, np.float32)), np.zeros((2, 1), np.float32)]

    def reset(self) -> None:
        self.number = 0
        self.resets += 1


class WithoutEpochs(OwnData):
    """Makes a new iterator at each call, which takes no argument."""

    def create_tuple_iterator(self) -> Any:  # type: ignore[override]
        self.number = 0
        return iter([next(self) for _ in range(3)])

    reset = None  # type: ignore[assignment]


class NextAlone(OwnData):
    __iter__ = None  # type: ignore[assignment]

    def create_tuple_iterator(self, num_epochs: int = -1) -> Any:
        outer = self

        class Rows:
            def __next__(self) -> Any:
                return next(outer)

        return Rows()


@pytest.mark.parametrize("kind", [OwnData, WithoutEpochs, NextAlone])
@pytest.mark.parametrize("sink", [False, True])
def test_a_data_set_class_of_ones_own_trains(mode: Any, kind: Any, sink: bool):
    data = kind()
    network = nn.Dense(4, 1)
    model = ms.Model(network, nn.MSELoss(), nn.Momentum(network.trainable_params(), 0.01, 0.9))
    steps: list[int] = []

    class Count(ms.Callback):
        def on_train_step_end(self, run_context: Any) -> None:
            steps.append(run_context.original_args().cur_step_num)

    model.train(2, data, callbacks=Count(), dataset_sink_mode=sink)
    assert steps[-1] == 6


def test_rows_of_an_own_class_are_tensors_or_arrays_as_requested():
    (first, *_), (second, *_) = list(Feed(OwnData()).epoch()), list(Feed(OwnData(), output_numpy=True).epoch())
    assert [type(column) for column in first] == [Tensor, Tensor]
    assert [type(column) for column in second] == [np.ndarray, np.ndarray]


class BareColumn(OwnData):
    def __next__(self) -> Any:
        return super().__next__()[0]


def test_a_single_column_needs_no_list_around_it():
    network = nn.Dense(4, 1)
    model = ms.Model(
        nn.SequentialCell(network, nn.ReduceLogSumExp(())), optimizer=nn.Momentum(network.trainable_params(), 0.01, 0.9)
    )
    data = BareColumn()
    model.train(2, data, dataset_sink_mode=False)
    assert data.resets == 2
    assert [[column.shape for column in row] for row in Feed(BareColumn(), output_numpy=True).epoch()] == [[(2, 4)]] * 3


def test_what_cannot_be_iterated_is_refused():
    class Wrong(OwnData):
        def create_tuple_iterator(self) -> Any:  # type: ignore[override]
            return 5

    with pytest.raises(
        TypeError, match=r"For 'Model', 'create_tuple_iterator' of the dataset \(Wrong\) must give .* got int"
    ):
        Feed(Wrong())


class Wide(OwnData):
    """Rows of one rank for a network that is made for those of all ranks."""

    def __next__(self) -> list[Any]:
        return [*super().__next__(), np.float32(2)]


class Scaled(nn.Cell):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.weight = ms.Parameter(Tensor(np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)), name="weight")
        self.multiply = ms.ops.Mul().shard(((8 if rows > 2 else 1, 1),) * 2)

    def construct(self, x: Any, label: Any, factor: Any) -> Any:
        return (self.multiply(x, self.weight) * factor - label).mean()


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize(("strategy", "rows"), [("data_parallel", 16), ("full_batch", 2)])
def test_a_data_set_class_gives_the_rows_of_one_rank(sink: bool, strategy: str, rows: int):
    """As each of eight processes would feed them."""

    def trained(rows: int) -> Any:
        network = Scaled(rows)
        model = ms.Model(network, optimizer=nn.SGD(network.trainable_params(), 1.0))
        model.train(1, Wide(), dataset_sink_mode=sink)
        return network.weight.asnumpy()

    class Repeated(Wide):
        def __next__(self) -> list[Any]:
            data, label, factor = super().__next__()
            return [*(np.concatenate([np.asarray(part)] * (rows // 2)) for part in (data, label)), factor]

    ms.set_context(mode=ms.GRAPH_MODE)
    network = Scaled(rows)
    ms.Model(network, optimizer=nn.SGD(network.trainable_params(), 1.0)).train(1, Repeated(), dataset_sink_mode=False)
    init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", dataset_strategy=strategy)
    np.testing.assert_allclose(trained(rows), network.weight.asnumpy(), rtol=1e-6)


def test_a_model_is_built_for_the_rows_that_it_trains_with():
    ms.set_context(mode=ms.GRAPH_MODE)
    init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    network, data = Scaled(16), Wide()
    model = ms.Model(network, optimizer=nn.SGD(network.trainable_params(), 1.0))
    model.build(data)
    assert (data.number, data.resets) == (0, 1)
    layout = model.infer_train_layout(Wide())
    assert "weight" in layout


def test_evaluation_reads_a_data_set_class_once():
    init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    (first, *_), *_ = Feed(OwnData(), trains=False).epoch()
    assert first.shape == (2, 4)
    (first, *_), *_ = Feed(OwnData()).epoch()
    assert first.shape == (16, 4)
    ms.set_auto_parallel_context(pipeline_stages=2)
    (first, _, factor), *_ = Feed(Wide()).epoch()
    assert first.shape == (8, 4) and np.shape(factor) == ()


def test_sink_mode_begins_with_an_epoch():
    def batches(step: int, at_once: int) -> list[int]:
        data = ms.dataset.NumpySlicesDataset(np.arange(4), ["x"], shuffle=False)
        data.set_init_step(step)
        return [int(x) for (x,) in Feed(data, at_once=at_once).take(3)]

    assert batches(2, 1) == batches(2, 2) == [2, 3, 0]
    with pytest.warns(UserWarning, match="a multiple of 4, but got 6; it is 4 now"):
        assert batches(6, 4) == [0, 1, 2]
