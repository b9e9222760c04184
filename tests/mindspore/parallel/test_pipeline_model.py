"""`Model` trains, evaluates and predicts with a network in pipeline stages as with one on one device."""

import numpy as np
from pipeline_cases import IDS, LABELS, VOCABULARY, Loss, Net, settings, straight

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn
from sporax.mindspore.dataset import NumpySlicesDataset
from sporax.mindspore.parallel.nn import PipelineCell


def batches():
    return NumpySlicesDataset((IDS, LABELS), ["ids", "labels"], shuffle=False).batch(16)


class EvaluationCell(nn.Cell):
    """Loss, predicted classes and labels of a batch."""

    def __init__(self, net):
        super().__init__()
        self.net, self.criterion = net, nn.CrossEntropyLoss()

    def construct(self, ids, labels):
        logits = self.net(ids).reshape(-1, VOCABULARY)
        labels = labels.reshape(-1)
        return self.criterion(logits, labels), logits, labels


def results(stages):
    """What evaluation and prediction give after some training."""
    settings(stages, dataset_strategy="full_batch")
    ms.set_seed(1)
    net = Net(straight(2))
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    evaluation = EvaluationCell(net)
    model = ms.Model(
        PipelineCell(Loss(net), 4),
        optimizer=optimizer,
        eval_network=evaluation,
        eval_indexes=[0, 1, 2],
        metrics={"accuracy", "loss"},
    )
    model.train(1, batches(), dataset_sink_mode=False)
    evaluated = model.eval(batches(), dataset_sink_mode=False)
    predicted = ms.Model(net).predict(Tensor(IDS)).asnumpy()
    return evaluated, predicted


def test_evaluation_and_prediction_after_training():
    context.set_context(mode=context.PYNATIVE_MODE)  # compiles less than a step
    expected, one = results(1)
    context.set_context(mode=context.GRAPH_MODE)
    got, many = results(2)
    assert set(got) == {"accuracy", "loss"}
    np.testing.assert_allclose(got["loss"], expected["loss"], rtol=1e-4)
    assert got["accuracy"] == expected["accuracy"]
    np.testing.assert_allclose(many, one, rtol=2e-3, atol=2e-4)
