"""CTC losses of labels that programs pad."""

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops


def test_labels_from_the_blank_on_do_not_count():
    logits = Tensor(np.random.RandomState(0).randn(6, 2, 5).astype(np.float32))
    places = Tensor([[row, column] for row in range(2) for column in range(5)], ms.int64)

    def losses(*labels):
        loss, gradient = ops.CTCLoss()(logits, places, Tensor(labels, ms.int32), Tensor([6, 5], ms.int32))
        return loss.asnumpy(), gradient.asnumpy().sum(0)

    # As MindSpore 2.10 gave them on a CPU; four labels fit into five steps, ten would not.
    for padding in (4, 7):
        loss, gradient = losses(0, 1, padding, 4, 4, 2, 2, 3, 4, 4)
        np.testing.assert_allclose(loss, [5.9850297, 8.064677], rtol=1e-5)
        np.testing.assert_allclose(gradient[0], [-0.4405, -0.2704, 0.762, 1.4601, -1.5111], atol=1e-4)
    # No label at all: the blank at every step.
    steps = ops.log_softmax(logits, 2)[:, 0, 4]
    np.testing.assert_allclose(losses(4, 4, 4, 4, 4, 1, 2, 4, 4, 4)[0], [-steps.sum().asnumpy(), 2.6675134], rtol=1e-5)
