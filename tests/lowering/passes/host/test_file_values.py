"""Arguments in files: read before their first use in each part of a step, written when their new value is there."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from sporax.lowering.passes.host.file_values import with_filed_arguments
from sporax.lowering.rewriter import flat

W0, W1, X = np.eye(3, dtype=np.float32), np.full((3, 3), 0.5, np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
TOKEN = jnp.int32(0)


class File:
    """An array in memory that notes what happens to it."""

    def __init__(self, name, values, log):
        self.name, self.values, self.log = name, values, log
        self.shape, self.dtype = values.shape, values.dtype

    def read(self):
        self.log.append(("read", self.name))
        return self.values

    def write(self, array):
        self.log.append(("write", self.name))
        self.values = np.array(array)

    def prefetch(self):
        self.log.append(("prefetch", self.name))


def step(w0, w1, x):
    """New weights and the loss."""
    loss, gradients = jax.value_and_grad(lambda w0, w1: (jnp.sin(x @ w0) @ w1).sum(), (0, 1))(w0, w1)
    return w0 - gradients[0], w1 - gradients[1], loss


def run(steps=1):
    log = []
    files = {0: File("w0", W0, log), 1: File("w1", W1, log)}
    closed = flat(jax.make_jaxpr(step)(W0, W1, X))
    program = jax.jit(jaxpr_as_fun(with_filed_arguments(closed, files, 2, 2)))
    tokens, losses = [TOKEN, TOKEN], []
    for _ in range(steps):
        *tokens, loss = program(*tokens, X)
        losses.append(float(loss))
    jax.block_until_ready(tokens)
    return files, log, losses


def test_steps_with_files_are_those_with_arrays():
    files, _, losses = run(steps=2)
    w0, w1, first = step(W0, W1, X)
    w0, w1, second = step(w0, w1, X)
    np.testing.assert_allclose(losses, [first, second], rtol=1e-6)
    np.testing.assert_allclose(files[0].values, w0, rtol=1e-6)
    np.testing.assert_allclose(files[1].values, w1, rtol=1e-6)


def test_a_value_is_read_for_every_part_and_the_next_one_ahead():
    _, log, _ = run()
    reads = [name for event, name in log if event == "read"]
    assert reads.count("w0") >= 2  # forward pass and update; its backward pass reads the activation alone
    assert reads.count("w1") >= 2
    ahead = [name for event, name in log if event == "prefetch"]
    assert set(ahead) <= {"w0", "w1"}
    assert ahead


def test_a_write_waits_for_all_reads_of_the_old_value():
    _, log, _ = run()
    for name in ("w0", "w1"):
        events = [event for event, own in log if own == name and event != "prefetch"]
        assert events[-1] == "write"
        assert events.count("write") == 1


def test_each_write_depends_on_every_read_of_the_old_value():
    log = []
    files = {0: File("w0", W0, log), 1: File("w1", W1, log)}
    program = with_filed_arguments(flat(jax.make_jaxpr(step)(W0, W1, X)), files, 2, 2)
    calls = [eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "io_callback"]
    reads = [eqn for eqn in calls if len(eqn.outvars) == 2]
    writes = [eqn for eqn in calls if len(eqn.outvars) == 1]
    assert len(writes) == 2
    waited_for = {var for eqn in writes for var in eqn.invars}
    assert waited_for.issuperset(eqn.outvars[1] for eqn in reads)


def test_an_argument_that_is_not_updated_is_read_and_its_token_stays():
    log = []
    file = File("w0", W0, log)
    closed = flat(jax.make_jaxpr(lambda w, x: (x @ w).sum())(W0, X))
    (total,) = jax.jit(jaxpr_as_fun(with_filed_arguments(closed, {0: file}, 0, 1)))(TOKEN, X)
    assert float(total) == float(X.sum())
    assert log == [("read", "w0")]
