"""Parameters dealt to the ranks: the same training, each Parameter's state on its owner alone; and cut arrays in files."""

import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops
from sporax.mindspore.communication import get_group_size, get_rank, init
from sporax.runtime.ranks import joint_arrays

init()
RANK, SIZE = get_rank(), get_group_size()


def train(optimizer, mode, dealt):
    ms.set_context(mode=mode)
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, enable_parallel_optimizer=dealt)
    ms.set_seed(3)
    net = nn.SequentialCell(nn.Dense(6, 8), nn.Tanh(), nn.Dense(8, 3))
    result = optimizer(net.trainable_params())
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), result)
    rng = np.random.default_rng(5 + RANK)
    losses = [
        float(step(Tensor(rng.normal(size=(4, 6)), ms.float32), Tensor(rng.normal(size=(4, 3)), ms.float32)).asnumpy())
        for _ in range(3)
    ]
    return losses, [p.asnumpy() for p in net.trainable_params()], result


def check_dealt(optimizer, mode):
    losses, weights, _ = train(optimizer, mode, False)
    dealt_losses, dealt_weights, result = train(optimizer, mode, True)
    np.testing.assert_allclose(dealt_losses, losses, rtol=1e-6)
    for index, (actual, expected) in enumerate(zip(dealt_weights, weights, strict=True)):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-7)
        both = ops.AllGather()(Tensor(actual).expand_dims(0)).asnumpy()
        np.testing.assert_array_equal(both[0], both[1])
        moved = any(getattr(result, slot)[index].asnumpy().any() for slot in result.slots)
        assert moved == (index % SIZE == RANK)


def check_cut_checkpoint(directory):
    """Rows over ranks, an array that is whole everywhere, and bfloat16; with collectives before and after."""
    mesh = joint_arrays.mesh(joint_arrays.all_devices())
    values = np.arange(SIZE * 6, dtype=np.float32).reshape(SIZE * 2, 3)
    for name, spec, dtype in (("rows", ("rank", None), "float32"), ("whole", (), "bfloat16")):
        sharding = NamedSharding(mesh, PartitionSpec(*spec))
        cut = jax.make_array_from_callback(values.shape, sharding, lambda where, to=dtype: values[where].astype(to))
        holder = Parameter(Tensor(np.zeros(values.shape, np.float32)), name=name)
        holder.raw = cut
        path = directory / f"{name}_{RANK}.ckpt"
        ms.save_checkpoint([holder], str(path))
        np.testing.assert_array_equal(ms.load_checkpoint(str(path))[name].asnumpy().astype(np.float32), values)
        assert ops.AllReduce()(Tensor(1.0)).asnumpy() == SIZE


OPTIMIZERS = (nn.AdamWeightDecay, lambda params: nn.Lamb(params, 1e-2), nn.AdaFactor)
for make in OPTIMIZERS:
    for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
        check_dealt(make, mode)
check_cut_checkpoint(Path(sys.argv[1]))
print("all is well")
