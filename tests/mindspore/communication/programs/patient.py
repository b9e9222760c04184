"""Ranks that are slow for good reasons, each for longer than SPORAX_IDLE_TIMEOUT: nobody is taken for lost."""

import time

import jax
import jax.numpy as jnp
import numpy as np

from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import get_rank, init

init()
SECONDS = 3.5  # SPORAX_IDLE_TIMEOUT is 2
x = Tensor(np.ones(4, np.float32))
exchange = ops.AllReduce()
exchange(x).asnumpy()


def until(end):
    while time.monotonic() < end:
        yield


def compiles():
    for number, _ in enumerate(until(time.monotonic() + SECONDS)):

        def big(x, shift=float(number)):
            for _ in range(700):
                x = jnp.sin(x @ x) + shift
            return x

        jax.jit(big).lower(jax.ShapeDtypeStruct((64, 64), jnp.float32)).compile()


def decomposes():
    matrix = np.random.default_rng(0).random((900, 900))
    for number, _ in enumerate(until(time.monotonic() + SECONDS)):
        np.linalg.svd(matrix + number)


def evaluates():
    net, loss = nn.Dense(4, 4), 0.0
    for _ in until(time.monotonic() + SECONDS):
        loss += float(net(Tensor(np.ones((2, 4), np.float32))).sum())


def looks_around():
    for _ in until(time.monotonic() + SECONDS):
        time.sleep(0.2)


for work in (compiles, decomposes, evaluates, looks_around):
    if get_rank() == 1:
        work()
    assert exchange(x).asnumpy().tolist() == [2] * 4, work

time.sleep(SECONDS)  # all of them: nobody waits for anybody
assert exchange(x).asnumpy().tolist() == [2] * 4
print("all is well")
