import numpy as np
import pytest
from operator_cases import case, check, numbers

from sporax.mindspore import Tensor, ops

X = numbers(2, 3, 4, 5)
BOXES = np.array([[0.0, 0, 4, 4], [2, 1, 6, 7]])

CASES = {
    "ROIAlign": case(lambda x: ops.ROIAlign(2, 2, 0.5)(x, Tensor(np.array([[1.0, 1, 0, 5, 6]]))), None, X),
    "IOU": case(ops.IOU(), lambda a, b: np.array([[1.0, 12 / 48], [12 / 48, 1.0]]), BOXES, BOXES, grad=False),
    "BoundingBoxEncode": case(ops.BoundingBoxEncode(), None, BOXES, BOXES + numbers(2, 4, low=0, high=1)),
    "BoundingBoxDecode": case(lambda a, d: ops.BoundingBoxDecode((100, 100))(a, ops.BoundingBoxEncode()(a, d)), lambda a, d: d, BOXES, BOXES + 1.3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_its_reference_formula(name):
    check(CASES[name])


#: Of MindSpore's wheel: PSROIPooling(0.5, 3, 2) of two images; the first region, and the sum of each.
POOLED = [0.39297158, -0.12870052, 0.7486155, -0.26071, -0.36280602, 0.05133225, 0.12632391, 0.14750163, 0.19245878]
SUMS = [0.8804586, -2.0157394, -4.4393406, 0.7665295]


def test_position_sensitive_pooling():
    features = np.random.RandomState(0).uniform(-1, 1, (2, 2 * 3 * 3, 9, 8)).astype(np.float32)
    regions = np.array([[0, 1, 2, 9, 14], [1, 3, 1, 15, 17], [0, 5, 5, 5, 5], [1, 0, 3, 40, 7]], np.float32)
    pooled = ops.operations.nn_ops.PSROIPooling(0.5, 3, 2)(Tensor(features), Tensor(regions.reshape(2, 5, 2))).asnumpy()
    assert np.allclose(pooled[0, 0].ravel(), POOLED, atol=1e-6)
    assert np.allclose(pooled.sum((1, 2, 3)), SUMS, atol=1e-5)
    inner = ops.operations._inner_ops.PsROIPooling(3, 3, 4, 0.5, 2, 3)
    same, channel = inner(Tensor(features), Tensor(regions))
    assert np.array_equal(same.asnumpy(), pooled)
    assert channel.asnumpy()[3].ravel().tolist() == list(range(18))


def test_overlapping_boxes_are_dropped():
    boxes = Tensor([[5.0, 5, 6, 6, 0.7], [0, 0, 4, 4, 0.9], [1, 1, 4, 4, 0.8]])
    ranked, order, kept = ops.NMSWithMask(0.3)(boxes)
    assert order.tolist() == [1, 2, 0] and kept.tolist() == [True, False, True]
    assert ranked[0].tolist() == boxes[1].tolist()


def test_valid_boxes():
    boxes = Tensor([[0.0, 0, 9.5, 5], [0, 0, 9, 9], [1, 1, 2, 9.5], [-1, 0, 3, 3]])
    assert ops.check_valid(boxes, Tensor([10.0, 10, 1])).tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.ROIAlign(2, 2, 0.5, 0)(Tensor(X), Tensor(numbers(1, 5))), NotImplementedError, "'sample_num'"),
        (
            lambda: ops.operations.nn_ops.PSROIPooling(0.5, 2, 2)(Tensor(X), Tensor(numbers(1, 5, 1))),
            ValueError,
            "dim 1 of 'features' must be 8",
        ),
        (
            lambda: ops.operations._inner_ops.PsROIPooling(2, 2, 1, 0.5, 1, 3)(Tensor(X), Tensor(numbers(1, 5))),
            ValueError,
            r"must be 'group_size', but got \(2, 2\) and 3",
        ),
        (lambda: ops.iou(Tensor(BOXES), Tensor(BOXES[:, :3])), ValueError, r"\(n, 4\)"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
