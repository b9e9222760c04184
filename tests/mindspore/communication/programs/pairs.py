"""Trains one small network with pairs of features, pair after pair, in the same processes.

The first argument is a folder, the second how many processes there are; every other one is a parallel mode and two features, as in
``semi_auto:recompute+pipeline``. Each process writes what became of a pair to ``<pair>.<rank>.json`` in the folder: the weights after four
steps, an error of ours, or a traceback. A process whose peers do not end the pair as well raises its error again, as a
script would, which ends the job. ``sleep`` is no feature: process 1 never trains.
"""

import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
from sporax.base.errors import SporaxDefectError, SporaxError
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import comm_func, get_rank, init
from sporax.mindspore.context import reset_offload_context
from sporax.mindspore.parallel.nn import PipelineCell

FOLDER, NUM = Path(sys.argv[1]), int(sys.argv[2])
ROWS, WIDTH, STEPS = 8, 8, 4
MODES = {
    "alone": {},
    "data_parallel": {"parallel_mode": "data_parallel", "gradients_mean": True},
    "semi_auto": {"parallel_mode": "semi_auto_parallel"},
    "recursive": {"parallel_mode": "auto_parallel", "search_mode": "recursive_programming"},
    "dynamic": {"parallel_mode": "auto_parallel", "search_mode": "dynamic_programming"},
    "propagation": {"parallel_mode": "auto_parallel", "search_mode": "sharding_propagation"},
}
FUSED = {kind: {"mode": "auto", "config": None} for kind in ("allreduce", "allgather", "reducescatter")}
SHARDED = {"enable_parallel_optimizer": True}
PARALLEL = {
    "optimizer_parallel": {**SHARDED, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}},
    "accumulation_shard": {
        **SHARDED,
        "parallel_optimizer_config": {"parallel_optimizer_threshold": 0, "gradient_accumulation_shard": True},
    },
    "pipeline": {"pipeline_stages": 2},
    "comm_fusion": {"comm_fusion": FUSED},
    "full_batch": {"dataset_strategy": "full_batch"},
    "dataset_strategy": {"dataset_strategy": ((NUM, 1), (NUM, 1), (NUM, 1))},
    "broadcast": {"parameter_broadcast": True},
}
"""Settings of the parallel context, by feature."""
VARIABLES = {"reuse": {"MS_COMM_COMPILER_OPT": "-1"}, "verify": {"SPORAX_VERIFY_STEPS": "2"}}
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 16, (ROWS, 2)).astype(np.int32)
X, Y = (RNG.standard_normal((ROWS, WIDTH)).astype(np.float32) for _ in range(2))


class Net(nn.Cell):
    """A lookup and two layers."""

    def __init__(self, features, stages):
        super().__init__()
        rows = 65_536 // WIDTH if "lazy" in features else 16
        self.table = nn.EmbeddingLookup(rows, WIDTH, target="CPU" if "host_embedding" in features else "DEVICE")
        self.a, self.b = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)
        if "shard" in features:
            self.a.matmul.shard(((1, 2), (1, 2)))
        self.sharded = ms.shard(self.b, in_strategy=((2, 1),)) if "functional_shard" in features else None
        if "recompute" in features:
            self.a.recompute()
        if stages > 1:
            self.table.pipeline_stage = self.a.pipeline_stage = 0
            self.b.pipeline_stage = stages - 1

    def construct(self, ids, x, y):
        last = self.b if self.sharded is None else self.sharded
        return ((last(ops.tanh(self.a(x + self.table(ids).mean(1)))) - y) ** 2).mean()


class Training:
    """A network that learns in the way that features say; `run` trains it for some steps."""

    def __init__(self, mode, features, seed=1):
        self.features = features
        self.inputs = rows_of_this_process(mode, features)
        # Dealing Parameters to ranks is offered for three optimizers alone.
        dealt = mode == "data_parallel" and features & {"optimizer_parallel", "accumulation_shard"}
        ms.set_seed(seed + (get_rank() if mode == "data_parallel" and "broadcast" in features else 0))
        stages = ms.get_auto_parallel_context("pipeline_stages")
        self.net = Net(features, stages)
        self.net.set_train()
        cell = self.net
        if "amp" in features:
            cell = ms.amp.auto_mixed_precision(cell, "O2")
        if "accumulation" in features or "accumulation_shard" in features:
            cell = nn.GradAccumulationCell(cell, 2)
        if "pipeline" in features:
            cell = PipelineCell(cell, 2)
        if dealt or "adam" in features:
            self.optimizer = nn.AdamWeightDecay(self.net.trainable_params(), 0.05)
        else:
            self.optimizer = nn.Momentum(self.net.trainable_params(), 0.05, 0.9)
        if "host_optimizer" in features:
            self.optimizer.target = "CPU"
        self._way = getattr(self, next((way for way in ("sink", "functions") if way in features), "steps"))
        self._cell, self._mode = cell, mode
        self.begin()

    def begin(self):
        """Make the training step, which `run` repeats."""
        self.run = self._way(self._cell, self._mode)

    def evaluate(self):
        """The loss of the whole batch, where every process has it."""
        self.net.set_train(False)
        loss = self.net(*map(Tensor, self.inputs))
        is_whole = self._mode != "data_parallel" and ms.get_auto_parallel_context("pipeline_stages") == 1
        return [float(loss)] if is_whole else None

    def steps(self, cell, mode):
        if "loss_scale" in self.features:
            manager = nn.DynamicLossScaleUpdateCell(2.0**10, 2, 1000)
            step = nn.TrainOneStepWithLossScaleCell(cell, self.optimizer, manager)
        else:
            step = nn.TrainOneStepCell(cell, self.optimizer)

        def run(count):
            for _ in range(count):
                step(*map(Tensor, self.inputs))

        return run

    def sink(self, cell, mode):
        scaled = {"loss_scale_manager": ms.DynamicLossScaleManager(2.0**10)} if "loss_scale" in self.features else {}
        model = ms.Model(cell, optimizer=self.optimizer, **scaled)

        def run(count):
            rows = (np.concatenate([part] * count) for part in self.inputs)
            data = ms.dataset.NumpySlicesDataset(tuple(rows), ["ids", "x", "y"], shuffle=False)
            model.train(1, data.batch(len(self.inputs[0])), dataset_sink_mode=True)

        return run

    def functions(self, cell, mode):
        value_and_grad = ms.value_and_grad(cell, None, self.optimizer.parameters)
        reduced = nn.DistributedGradReducer(self.optimizer.parameters) if mode == "data_parallel" else tuple

        def run(count):
            for _ in range(count):
                _, grads = value_and_grad(*map(Tensor, self.inputs))
                self.optimizer(reduced(grads))

        return run


def rows_of_this_process(mode, features):
    """What this process feeds of a batch: the batch of a stage is divided over the processes that drive the stage."""
    sharers = NUM // ms.get_auto_parallel_context("pipeline_stages")
    if mode == "alone" or ("full_batch" in features and mode != "data_parallel"):
        return IDS, X, Y
    micros = 2 if "pipeline" in features else 1
    parts = (
        part.reshape(micros, sharers, -1, *part.shape[1:])[:, get_rank() % sharers].reshape(-1, *part.shape[1:])
        for part in (IDS, X, Y)
    )
    return tuple(parts)


def train(mode, features):
    """The weights after four steps, and a loss where it is evaluated."""
    ms.set_context(mode=ms.PYNATIVE_MODE if "pynative" in features else ms.GRAPH_MODE)
    settings = {key: value for feature in features for key, value in PARALLEL.get(feature, {}).items()}
    if mode != "alone":
        ms.set_auto_parallel_context(**MODES[mode] | settings)
    if "offload" in features:
        ms.set_context(memory_offload="ON")
        ms.set_offload_context({"offload_param": "cpu", "auto_offload": False})
    for feature in features:
        os.environ.update(VARIABLES.get(feature, {}))
    training = Training(mode, features)
    if "sleep" in features and get_rank() == 1:
        time.sleep(3600)
    if "checkpoint" in features:
        training.run(STEPS // 2)
        file = str(FOLDER / f"saved-{get_rank()}.ckpt")
        ms.save_checkpoint(training.optimizer, file)
        saved = ms.load_checkpoint(file)
        training = Training(mode, features, seed=9)
        ms.load_param_into_net(training.net, saved)
        ms.load_param_into_net(training.optimizer, saved)
        training.run(STEPS - STEPS // 2)
    elif "second_step" in features:
        training.run(STEPS // 2)
        training.begin()
        training.run(STEPS - STEPS // 2)
    else:
        training.run(STEPS)
    losses = {"loss": training.evaluate()} if "evaluate" in features else {}
    return weights(training.net) | losses


def weights(net):
    """The first rows of every Parameter; those of all stages are in a checkpoint alone."""
    if ms.get_auto_parallel_context("pipeline_stages") == 1:
        values = {item.name: item for item in net.trainable_params()}
    else:
        file = str(FOLDER / f"weights-{get_rank()}.ckpt")
        ms.save_checkpoint(net, file)
        values = ms.load_checkpoint(file)
    return {name: value.asnumpy()[:16].astype(float).tolist() for name, value in values.items()}


def settings_of_a_new_process():
    ms.reset_auto_parallel_context()
    ms.set_context(mode=ms.PYNATIVE_MODE, memory_offload="OFF")
    reset_offload_context()
    for names in VARIABLES.values():
        for name in names:
            os.environ.pop(name, None)


def tried(pair):
    """What became of a pair in this process, and its error."""
    mode, _, names = pair.partition(":")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return {"weights": train(mode, frozenset(names.split("+")) - {""}), "caught": texts(caught)}, None
        except SporaxError as error:
            kind = "defect" if isinstance(error, SporaxDefectError) else "refused"
            return {kind: str(error), "trace": traceback.format_exc()}, error
        except Exception as error:
            return {"raw": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}, error


def texts(caught):
    return sorted({str(item.message) for item in caught})


def others_ended(pair):
    """Whether all processes soon end the pair."""
    end = time.monotonic() + 20
    while not all((FOLDER / f"{pair}.{rank}.json").exists() for rank in range(NUM)):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


init()
for pair in sys.argv[3:]:
    (FOLDER / f"{pair}.{get_rank()}.begun").touch()
    outcome, error = tried(pair)
    whole = FOLDER / f"{pair}.{get_rank()}.json"
    whole.with_suffix(".part").write_text(json.dumps(outcome))
    whole.with_suffix(".part").rename(whole)
    settings_of_a_new_process()
    if error is not None and not others_ended(pair):
        raise error
    if NUM > 1:
        comm_func.barrier()
print("all is well")
