from typing import Any

import pytest

from sporax.train._feed import Feed


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
