import jax
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops
from sporax.mindspore.runtime import _streams


@pytest.fixture
def waits(monkeypatch):
    """Shapes of the results that were waited for."""
    shapes = []
    wait = jax.block_until_ready
    monkeypatch.setattr(
        jax, "block_until_ready", lambda arrays: shapes.append([a.shape for a in arrays]) or wait(arrays)
    )
    yield shapes
    _streams.turn(False)


def test_operators_wait_for_their_results(waits):
    x = Tensor([1.0, 2.0])
    ops.exp(x)
    assert waits == []
    ms.runtime.launch_blocking()
    ops.exp(x)
    ops.topk(x, 1)
    assert waits == [[(2,)], [(1,), (1,)]] and ms.get_context("pynative_synchronize") is True


def test_the_context_turns_it_on_and_off(waits):
    ms.set_context(pynative_synchronize=True)
    ops.abs(Tensor([1.0]))
    ms.set_context(pynative_synchronize=False)
    ops.abs(Tensor([1.0]))
    assert len(waits) == 1
    with pytest.raises(TypeError, match="pynative_synchronize"):
        ms.set_context(pynative_synchronize=1)


def test_compiled_steps_do_not_wait(waits):
    ms.set_context(pynative_synchronize=True)
    ms.jit(lambda x: ops.exp(x) + 1)(Tensor([1.0]))
    assert waits == []
