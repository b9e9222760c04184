"""Train one network on handwritten digits with its weights on parameter servers; the same script for all roles.

    sporax k8s submit examples/08-kubernetes/4-parameter-server.yaml         on a cluster
    sporax run --worker_num 2 --server_num 1 examples/08-kubernetes/train.py [--steps 60]

Each worker takes its share of every batch; servers average the gradients and move the weights. Which samples a step is for,
`sporax.mindspore.sample_ranges` says: a worker that takes the place of a killed one goes on at the step in which that one died.
So every sample counts once, and with synchronous training (the default) the losses do not depend on who was restarted
meanwhile.
"""

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np

import mindspore as ms
import mindspore.dataset as ds
import sporax.mindspore
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init
from mindspore.dataset import transforms, vision

DATA = Path(__file__).resolve().parents[1] / "data" / "digits"


def main() -> int:
    parser = argparse.ArgumentParser(description="Training with parameter servers on handwritten digits.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16, help="images of each worker in a step")
    parser.add_argument(
        "--workers", type=int, default=0, help="workers at the start, for a job whose number of workers changes"
    )
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps, to watch a job")
    options = parser.parse_args()

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_ps_context(enable_ps=True)
    init()  # the scheduler and the servers serve in here until the job is over
    rank, num_ranks = get_rank(), get_group_size()
    ms.set_seed(1)

    net = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 10))
    net.set_param_ps()
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)

    data = ds.MnistDataset(str(DATA), usage="train", shuffle=False)
    scale = [vision.Rescale(1.0 / 255.0, 0.0), vision.Normalize(mean=(0.31,), std=(0.38,)), vision.HWC2CHW()]
    data = data.map(scale, input_columns="image").map(transforms.TypeCast(ms.int32), input_columns="label")
    images, labels = map(np.stack, zip(*data.create_tuple_iterator(num_epochs=1, output_numpy=True), strict=True))

    workers = options.workers or num_ranks
    first = last = 0.0
    # Epoch after epoch: sample n is image n modulo their number. The total must be the same in all workers.
    for samples in sporax.mindspore.sample_ranges(options.steps * options.batch * workers, options.batch):
        places = np.array(samples) % len(images)
        last = float(step(ms.Tensor(images[places]), ms.Tensor(labels[places])))
        first = first or last
        print(f"step {samples.start // (options.batch * workers) + 1} loss {last:.9g}", flush=True)
        time.sleep(options.pause)
    print(f"rank {rank} of {num_ranks}: loss {first:.3f} -> {last:.4f}")
    return 0 if last < math.log(10) else 1  # better than guessing one of ten digits


if __name__ == "__main__":
    sys.exit(main())
