"""What callbacks are notified of and what they decide, run the same way under MindSpore and under this package.

`run(ms, name)` runs one recipe with either package and gives JSON; `tools/golden/make_train.py` records MindSpore's.
"""

import contextlib
import io
import os
import re
import tempfile

import numpy as np

HOOKS = [f"on_{mode}_{event}" for mode in ("train", "eval") for event in ("begin", "epoch_begin", "step_begin")]
HOOKS += [hook.replace("begin", "end") for hook in HOOKS]
OLD_HOOKS = ["begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end"]


def dataset(ms, rows=8):
    data = np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2) / 10
    labels = data.sum(axis=1, keepdims=True) * np.ones((1, 3), np.float32)
    return ms.dataset.NumpySlicesDataset((data, labels), ["data", "label"], shuffle=False).batch(4)


def model(ms, metrics=None, rate=0.1):
    net = ms.nn.Dense(2, 3, weight_init=ms.Tensor(np.full((3, 2), 0.5, np.float32)), bias_init="zeros")
    optimizer = ms.nn.SGD(net.trainable_params(), rate)
    return ms.train.Model(net, ms.nn.MSELoss(), optimizer, metrics=metrics)


def recorder(ms, hooks, seen):
    """A callback that notes every hook with the epoch and step it gets."""

    def note(hook):
        def call(self, run_context):
            facts = run_context.original_args()
            seen.append([hook, facts.get("cur_epoch_num"), facts.get("cur_step_num")])

        return call

    return type("Recorder", (ms.train.Callback,), {hook: note(hook) for hook in hooks})()


class Losses:
    """Losses that epochs pretend to end with."""

    def __init__(self, ms, losses):
        def end(self, run_context):
            facts = run_context.original_args()
            facts.net_outputs = ms.Tensor(np.float32(losses[facts.cur_epoch_num - 1]))

        self.callback = type("Pretend", (ms.train.Callback,), {"on_train_epoch_end": end})()


def hooks(ms, how, names):
    seen = []
    built = model(ms, {"mae"})
    callback = recorder(ms, names, seen)
    if how == "train":
        built.train(2, dataset(ms), callbacks=callback, dataset_sink_mode=False)
    elif how == "fit":
        built.fit(
            2, dataset(ms), dataset(ms, 4), callbacks=callback, dataset_sink_mode=False, valid_dataset_sink_mode=False
        )
    else:
        built.eval(dataset(ms), callbacks=callback, dataset_sink_mode=False)
    return seen


def lambda_hooks(ms):
    seen = []
    names = [hook for hook in HOOKS if hook.startswith("on_train")]
    functions = {hook: lambda run_context, hook=hook: seen.append(hook) for hook in names}
    model(ms).train(1, dataset(ms), callbacks=ms.train.LambdaCallback(**functions), dataset_sink_mode=False)
    return seen


def facts(ms):
    """What the run reports of itself, by hook."""
    report = {}
    expected = [
        "batch_num",
        "cur_epoch_num",
        "cur_step_num",
        "epoch_num",
        "mode",
        "dataset_sink_mode",
        "parallel_mode",
        "list_callback",
        "loss_fn",
        "network",
        "optimizer",
        "train_network",
        "train_dataset",
        "train_dataset_element",
        "net_outputs",
        "device_number",
    ]

    def note(hook):
        def call(self, run_context):
            reference = run_context.original_args()
            report[hook] = {
                name: reference[name] if isinstance(reference[name], int | float | str) else True
                for name in expected
                if reference.get(name) is not None
            }

        return call

    callback = type("Facts", (ms.train.Callback,), {hook: note(hook) for hook in OLD_HOOKS})()
    model(ms).train(2, dataset(ms), callbacks=callback, dataset_sink_mode=False)
    return report


def history(ms):
    callback = ms.train.History()
    model(ms, {"mae"}).fit(
        2, dataset(ms), dataset(ms, 4), callbacks=callback, dataset_sink_mode=False, valid_dataset_sink_mode=False
    )
    content = {
        name: [float(np.asarray(getattr(value, "asnumpy", lambda v=value: v)())) for value in values]
        for name, values in callback.history.items()
    }
    return {"epoch": callback.epoch, "history": content}


def early_stopping(ms, losses, **options):
    stopping = ms.train.EarlyStopping("loss", **options)
    epochs = []
    count = ms.train.LambdaCallback(on_train_epoch_end=lambda run: epochs.append(run.original_args().cur_epoch_num))
    model(ms).train(len(losses), dataset(ms), [Losses(ms, losses).callback, stopping, count], False)
    return [epochs[-1], stopping.stopped_epoch]


def plateau(ms, losses, **options):
    rates = []
    built = model(ms)
    optimizer = built._optimizer
    look = ms.train.LambdaCallback(
        on_train_epoch_end=lambda run: rates.append(round(float(optimizer.learning_rate.asnumpy()), 6))
    )
    callback = ms.train.ReduceLROnPlateau("loss", **options)
    built.train(len(losses), dataset(ms), [Losses(ms, losses).callback, callback, look], False)
    return rates


def scheduler(ms):
    calls, rates = [], []
    built = model(ms)
    optimizer = built._optimizer

    def halve(rate, step):
        calls.append([round(float(rate), 6), step])
        return rate / 2

    look = ms.train.LambdaCallback(
        on_train_step_end=lambda run: rates.append(round(float(optimizer.learning_rate.asnumpy()), 6))
    )
    built.train(2, dataset(ms), [ms.train.LearningRateScheduler(halve), look], False)
    return [calls, rates]


def printed(ms, make):
    """What a callback prints, with numbers that depend on the machine taken out."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        model(ms).train(2, dataset(ms), make(ms), False)
    lines = output.getvalue().splitlines()
    return [re.sub(r"\d+\.\d+", "N", line) for line in lines if line]


def saved(ms, **options):
    """Names of the files that ModelCheckpoint leaves."""
    with tempfile.TemporaryDirectory() as folder:
        config = ms.train.CheckpointConfig(**options)
        callback = ms.train.ModelCheckpoint("net", folder, config)
        model(ms).train(3, dataset(ms), callback, False)
        names = sorted(name for name in os.listdir(folder) if name.endswith(".ckpt"))
        last = ms.load_checkpoint(os.path.join(folder, names[-1])) if names else {}
        return {"files": names, "holds": sorted(last)}


def stopped(ms):
    """A stop requested in the middle of an epoch."""
    seen = []
    stop = ms.train.LambdaCallback(
        on_train_step_end=lambda run: run.request_stop() if run.original_args().cur_step_num == 3 else None
    )
    model(ms).train(3, dataset(ms), [stop, recorder(ms, HOOKS, seen)], False)
    return seen


STOPPING = {
    "patience 1": ([3.0, 2.0, 2.0, 1.0], {"patience": 1}),
    "patience 2": ([3.0, 2.0, 2.0, 1.0], {"patience": 2}),
    "patience 2, worse": ([3.0, 2.0, 2.5, 2.5, 1.0], {"patience": 2}),
    "min_delta": ([3.0, 2.9, 2.8, 2.7], {"patience": 2, "min_delta": 0.5}),
    "mode max": ([1.0, 2.0, 3.0, 3.0, 4.0], {"patience": 1, "mode": "max"}),
    "never": ([4.0, 3.0, 2.0, 1.0], {"patience": 1}),
}
PLATEAUS = {
    "cooldown": ([1.0] * 8, {"factor": 0.5, "patience": 2, "cooldown": 1, "min_lr": 0.03}),
    "patience 1": ([1.0, 1.0, 0.9, 0.9, 0.9], {"factor": 0.1, "patience": 1}),
    "min_delta": ([1.0, 0.95, 0.9, 0.85, 0.8], {"factor": 0.5, "patience": 2, "min_delta": 0.2}),
    "mode max": ([1.0, 2.0, 2.0, 2.0, 3.0], {"factor": 0.5, "patience": 2, "mode": "max"}),
}
RECIPES = {
    **{f"hooks of {how}": lambda ms, how=how: hooks(ms, how, HOOKS) for how in ("train", "fit", "eval")},
    **{f"old hooks of {how}": lambda ms, how=how: hooks(ms, how, OLD_HOOKS) for how in ("train", "fit", "eval")},
    "LambdaCallback": lambda_hooks,
    "RunContext": facts,
    "stopped": stopped,
    "History": history,
    **{
        f"EarlyStopping, {name}": lambda ms, case=case: early_stopping(ms, case[0], **case[1])
        for name, case in STOPPING.items()
    },
    **{
        f"ReduceLROnPlateau, {name}": lambda ms, case=case: plateau(ms, case[0], **case[1])
        for name, case in PLATEAUS.items()
    },
    "LearningRateScheduler": scheduler,
    "LossMonitor": lambda ms: printed(ms, lambda ms: ms.train.LossMonitor()),
    "LossMonitor, 3": lambda ms: printed(ms, lambda ms: ms.train.LossMonitor(3)),
    "TimeMonitor": lambda ms: printed(ms, lambda ms: ms.train.TimeMonitor()),
    "TimeMonitor, data_time": lambda ms: printed(ms, lambda ms: ms.train.TimeMonitor(data_time=True)),
    "ModelCheckpoint": lambda ms: saved(ms, save_checkpoint_steps=1),
    "ModelCheckpoint, keep 2": lambda ms: saved(ms, save_checkpoint_steps=1, keep_checkpoint_max=2),
    "ModelCheckpoint, every 4": lambda ms: saved(ms, save_checkpoint_steps=4),
    "ModelCheckpoint, append": lambda ms: saved(ms, save_checkpoint_steps=2, append_info=["epoch_num", "step_num"]),
}


def run(ms, name):
    """The outcome of one recipe, or the class of the error that it ends in."""
    try:
        return RECIPES[name](ms)
    except (TypeError, ValueError, RuntimeError) as error:
        return {
            "error": next(kind.__name__ for kind in (TypeError, ValueError, RuntimeError) if isinstance(error, kind))
        }
