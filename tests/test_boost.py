"""`boost.GradientAccumulation`."""

import numpy as np
import pytest

from sporax import Tensor, boost, nn, set_context


@pytest.mark.parametrize("mode", [0, 1])
def test_gradients_are_used_at_every_second_call(mode):
    set_context(mode=mode)
    network = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
    accumulate = boost.GradientAccumulation(2, nn.SGD(network.trainable_params(), 1.0))
    seen = []
    for number in range(4):
        grads = (Tensor(np.full((1, 2), number + 1.0, np.float32)), Tensor(np.ones(1, np.float32)))
        loss = accumulate(Tensor(float(number)), grads)
        assert float(loss) == number
        seen.append((float(network.weight[0, 0]), float(network.bias[0])))
    assert seen == [(1.0, 0.0), (-0.5, -1.0), (-0.5, -1.0), (-4.0, -2.0)]


def test_mindspores_paths_lead_to_it():
    from sporax.boost.grad_accumulation import gradient_accumulation_op, gradient_clear_op

    assert gradient_accumulation_op is boost.gradient_accumulation_op
    assert gradient_clear_op is boost.gradient_clear_op
