"""Callbacks of `map`: the events and their numbers are those of the MindSpore wheel."""

import numpy as np
import pytest

import sporax.mindspore as ms
import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import DSCallback, WaitedDSCallback


class Recorder(DSCallback):
    def __init__(self, step_size=1):
        super().__init__(step_size)
        self.events = []

    def note(self, name, context):
        self.events.append((name, context.cur_epoch_num, context.cur_step_num_in_epoch, context.cur_step_num))

    def ds_begin(self, ds_run_context):
        self.note("begin", ds_run_context)

    def ds_epoch_begin(self, ds_run_context):
        self.note("epoch begin", ds_run_context)

    def ds_epoch_end(self, ds_run_context):
        self.note("epoch end", ds_run_context)

    def ds_step_begin(self, ds_run_context):
        self.note("step begin", ds_run_context)

    def ds_step_end(self, ds_run_context):
        self.note("step end", ds_run_context)


def recorded(rows, step_size, epochs, repeats=1):
    callback = Recorder(step_size)
    data = ds.NumpySlicesDataset(list(range(rows)), "x", shuffle=False).map(lambda x: x, "x", callbacks=callback)
    iterator = data.repeat(repeats).create_tuple_iterator(num_epochs=epochs, output_numpy=True)
    for _ in range(epochs):
        assert [int(row[0]) for row in iterator] == list(range(rows)) * repeats
    return callback.events


def test_events_of_two_epochs():
    assert recorded(4, 2, 2) == [
        ("begin", 0, 0, 0),
        ("epoch begin", 1, 0, 0),
        ("step begin", 1, 1, 1),
        ("step end", 1, 1, 1),
        ("step begin", 1, 3, 3),
        ("step end", 1, 3, 3),
        ("epoch end", 1, 4, 4),
        ("epoch begin", 2, 0, 4),
        ("step begin", 2, 1, 5),
        ("step end", 2, 1, 5),
        ("step begin", 2, 3, 7),
        ("step end", 2, 3, 7),
        ("epoch end", 2, 4, 8),
    ]


def test_repeats_are_one_epoch():
    events = recorded(2, 1, 1, repeats=2)
    assert [event for event in events if event[0] in ("step begin", "epoch begin", "epoch end")] == [
        ("epoch begin", 1, 0, 0),
        *(("step begin", 1, number, number) for number in range(1, 5)),
        ("epoch end", 1, 4, 4),
    ]


def test_questions_are_no_events():
    callback = Recorder()
    data = ds.NumpySlicesDataset([1, 2], "x").map(lambda x: x, callbacks=callback)
    assert data.output_shapes() == [[]] and data.get_dataset_size() == 2
    assert callback.events == []


class Waiting(WaitedDSCallback):
    def __init__(self, events, step_size):
        super().__init__(step_size)
        self.events = events

    def sync_epoch_begin(self, train_run_context, ds_run_context):
        trained = train_run_context.original_args().cur_step_num
        self.events.append(("data epoch", ds_run_context.cur_epoch_num, "after", trained))

    def sync_step_begin(self, train_run_context, ds_run_context):
        trained = train_run_context.original_args().cur_step_num
        self.events.append(("data step", ds_run_context.cur_step_num, "after", trained))


class Trained(ms.Callback):
    def __init__(self, events):
        self.events = events

    def on_train_step_end(self, run_context):
        self.events.append(("step", run_context.original_args().cur_step_num))

    def on_train_epoch_end(self, run_context):
        self.events.append(("epoch", run_context.original_args().cur_epoch_num))


class Same(ms.nn.Cell):
    def construct(self, x):
        return x


def test_data_wait_for_the_training():
    events = []
    waiting = Waiting(events, step_size=2)
    data = ds.NumpySlicesDataset([1.0, 2.0, 3.0, 4.0], "x", shuffle=False).map(lambda x: x, callbacks=waiting).batch(2)
    ms.train.Model(Same()).train(2, data, [Trained(events), waiting], dataset_sink_mode=False)
    assert events == [
        ("step", 1),
        ("data step", 3, "after", 1),
        ("step", 2),
        ("epoch", 1),
        ("data epoch", 2, "after", 2),
        ("data step", 5, "after", 2),
        ("step", 3),
        ("data step", 7, "after", 3),
        ("step", 4),
        ("epoch", 2),
    ]


def test_waiting_without_a_training_ends_with_an_error(monkeypatch):
    monkeypatch.setattr(ds.config._settings, "callback_timeout_seconds", 1)
    data = ds.NumpySlicesDataset([1, 2, 3], "x").map(lambda x: x, callbacks=Waiting([], 1))
    with pytest.raises(RuntimeError, match=r"ds_step_begin timed out after 1 second"):
        list(data)


def test_an_iterator_that_is_left_does_not_wait():
    data = ds.NumpySlicesDataset(np.arange(9), "x").map(lambda x: x, callbacks=Waiting([], 1))
    iterator = data.create_tuple_iterator()
    next(iterator)
    iterator.release()


def test_errors():
    data = ds.NumpySlicesDataset([1, 2], "x")

    class Silent(DSCallback):
        pass

    class Failing(DSCallback):
        def ds_step_begin(self, ds_run_context):
            raise KeyError("no")

    with pytest.raises(AttributeError, match="Inheriting Callback class without overriding any methods"):
        data.map(lambda x: x, callbacks=Silent())
    with pytest.raises(TypeError, match="Argument callbacks with value 3 is not of type"):
        data.map(lambda x: x, callbacks=3)
    with pytest.raises(ValueError, match="step_size is not within"):
        Recorder(0)
    with pytest.raises(RuntimeError, match="'ds_step_begin' of the callback 'Failing' failed with KeyError"):
        list(data.map(lambda x: x, callbacks=[Failing()]))
