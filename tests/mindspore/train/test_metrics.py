"""Metrics: equal to MindSpore's where it records them, to their definitions elsewhere, and picky about inputs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import metric_recipes
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, train

RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "metrics.json").read_text())["metrics"]


@pytest.mark.parametrize("name", metric_recipes.RECIPES)
def test_equal_to_mindspore(name: str) -> None:
    actual, expected = metric_recipes.run(train, Tensor, name), RECORDED[name]
    if isinstance(expected, list) and expected and isinstance(expected[0], list):
        assert len(actual) == len(expected)
        for mine, theirs in zip(actual, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-12)
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-12)


def test_roc_of_several_classes_is_one_against_the_rest() -> None:
    scores = np.random.RandomState(3).rand(12, 3)
    classes = np.arange(12) % 3
    metric = train.ROC(class_num=3)
    metric.update(Tensor(scores), Tensor(classes))
    curves = metric.eval()
    for label in range(3):
        single = train.ROC(pos_label=1)
        single.update(Tensor(scores[:, label]), Tensor((classes == label).astype(np.int32)))
        for mine, expected in zip(curves, single.eval(), strict=True):
            np.testing.assert_array_equal(mine[label], expected)


def test_auc_is_the_area_under_points_in_order() -> None:
    x, y = np.array([0.0, 0.5, 1.0]), np.array([0.0, 1.0, 1.0])
    assert train.auc(x, y) == 0.75
    assert train.auc(x[::-1], y[::-1]) == 0.75
    assert train.auc(x[[1, 0, 2]], y[[1, 0, 2]], reorder=True) == 0.75
    with pytest.raises(ValueError, match="rise or fall throughout"):
        train.auc(x[[1, 0, 2]], y)
    with pytest.raises(TypeError, match="'x' must be a numpy array, but got list"):
        train.auc([0, 1], y)
    with pytest.raises(ValueError, match="same length >= 2, but got 2 and 3"):
        train.auc(x[:2], y)


@pytest.mark.parametrize(("symmetric", "expected"), [(False, (9 + 4 + 1) / 3), (True, math.sqrt((9 + 4 + 1) / 3))])
def test_the_root_mean_square_distance_has_a_root_where_it_is_symmetric(symmetric: bool, expected: float) -> None:
    """MindSpore 2.10 leaves the root out otherwise."""
    first, second = np.zeros((9, 9), np.int32), np.zeros((9, 9), np.int32)
    first[4, 1:4] = second[4, 4:7] = 1
    metric = train.RootMeanSquareDistance(symmetric=symmetric)
    metric.update(Tensor(first), Tensor(second), 1)
    assert metric.eval() == pytest.approx(expected)


def test_an_empty_region_is_infinitely_far() -> None:
    region, empty = np.ones((3, 3), np.int32), np.zeros((3, 3), np.int32)
    for kind in ("HausdorffDistance", "MeanSurfaceDistance", "RootMeanSquareDistance"):
        assert getattr(train, kind)()(Tensor(region), Tensor(empty), 1) == math.inf
        assert getattr(train, kind)()(Tensor(empty), Tensor(region), 1) == math.inf


def test_occlusion_finds_the_pixel_that_matters() -> None:
    class Corner(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x[:, 0, 1:2, 2]

    metric = train.OcclusionSensitivity(margin=1, n_batch=5)
    image = Tensor(np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4))
    metric.update(Corner(), image, Tensor([0]))
    expected = np.zeros((3, 4))
    expected[1:3, 2:4] = 6  # a place with margin 1 covers itself and the one before in each dimension
    np.testing.assert_array_equal(metric.eval(), expected)
    metric = train.OcclusionSensitivity(margin=1, b_box=[0, 0, 1, 2, 2, -1])
    metric.update(Corner(), image, Tensor([0]))
    np.testing.assert_array_equal(metric.eval(), np.full((2, 2), 6))


def test_indexes_choose_the_inputs() -> None:
    metric = train.MAE().set_indexes([2, 0])
    metric.update(Tensor([1.0]), "ignored", Tensor([3.0]))
    assert metric.eval() == 2
    with pytest.raises(
        ValueError,
        match="the argument .indexes. must be a list and all its elements must be int, please check whether it is correct",
    ):
        metric.set_indexes("a")


def test_own_metrics_work_in_a_model(make_data: Any, make_model: Any) -> None:
    class Count(train.Metric):
        def __init__(self) -> None:
            self.clear()

        def clear(self) -> None:
            self.count = 0

        @train.rearrange_inputs
        def update(self, *inputs: Any) -> None:
            self.count += len(self._convert_data(inputs[0]))

        def eval(self) -> int:
            return self.count

    assert make_model(metrics={"count": Count()}).eval(make_data()) == {"count": 6}


def test_names_and_functions() -> None:
    assert {"accuracy", "acc", "F1", "loss", "mae", "top_5_accuracy", "occlusion_sensitivity"} <= set(train.names())
    assert isinstance(train.get_metric_fn("topk", 3), train.TopKCategoricalAccuracy)
    with pytest.raises(KeyError, match="must be one of"):
        train.get_metric_fn("nonsense")
    for name in train.metrics.__all__:
        assert getattr(ms.train, name) is getattr(train.metrics, name)


@pytest.mark.parametrize("name", sorted({kind for kind, *_ in metric_recipes.RECIPES.values()}))
def test_eval_before_update_is_refused(name: str) -> None:
    kind, arguments, _, _ = next(recipe for recipe in metric_recipes.RECIPES.values() if recipe[0] == name)
    with pytest.raises(RuntimeError, match=f"'{name}.eval', there must be samples"):
        getattr(train, kind)(**arguments).eval()


SCORES, CLASSES = Tensor(np.ones((4, 3), np.float32)), Tensor(np.array([0, 1, 2, 0]))


@pytest.mark.parametrize(
    ("name", "arguments", "inputs", "error", "text"),
    [
        ("Accuracy", {}, (SCORES,), ValueError, "2 inputs"),
        ("Accuracy", {}, (SCORES, "text"), TypeError, "must be Tensors, lists or numpy arrays, but got str"),
        ("Accuracy", {}, (SCORES, CLASSES[:2]), ValueError, r"but got \(2,\) and \(4, 3\)"),
        ("Accuracy", {"eval_type": "multilabel"}, (SCORES, SCORES * 2), ValueError, "must be 0 or 1"),
        ("Recall", {"eval_type": "multilabel"}, (SCORES, CLASSES), ValueError, "the same shape"),
        ("Precision", {}, (SCORES, CLASSES + 1), ValueError, "true classes must be below 3"),
        ("Loss", {}, (SCORES,), ValueError, "at most 1 dimension, but got 2"),
        ("MAE", {}, (SCORES, CLASSES), ValueError, "the same size"),
        ("Perplexity", {}, (SCORES, CLASSES[:3]), RuntimeError, "one row per label"),
        ("CosineSimilarity", {}, (CLASSES,), ValueError, "must be a matrix"),
        ("ConfusionMatrix", {"num_classes": 2}, (SCORES, CLASSES), ValueError, r"true classes must be in \[0, 2\)"),
        ("ConfusionMatrixMetric", {}, (SCORES, CLASSES), ValueError, "one shape"),
        ("ROC", {"class_num": 2}, (SCORES, CLASSES), ValueError, "number of predicted classes, 3, but got 2"),
        ("ROC", {"class_num": 3, "pos_label": 1}, (SCORES, CLASSES), ValueError, "'pos_label' must be None"),
        ("ROC", {}, (CLASSES, CLASSES * 0 + 5), ValueError, "positive samples"),
        ("BleuScore", {}, ([["a"]], []), ValueError, "references for every sentence, but got 1"),
        ("Dice", {}, (SCORES, CLASSES), ValueError, "the same shape"),
        ("HausdorffDistance", {}, (SCORES, SCORES, 7), ValueError, "must occur in one of the inputs, but 7"),
        ("HausdorffDistance", {}, (SCORES, SCORES, "a"), TypeError, "label must be a number"),
        ("OcclusionSensitivity", {}, (3, SCORES, CLASSES), TypeError, "must be a Cell"),
    ],
)
def test_wrong_inputs_are_refused(
    name: str, arguments: dict[str, Any], inputs: tuple[Any, ...], error: type[Exception], text: str
) -> None:
    metric = getattr(train, name)(**arguments)

    def run() -> None:
        metric.update(*inputs)
        metric.eval()

    with pytest.raises(error, match=text):
        run()


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("Accuracy", {"eval_type": "x"}, TypeError),
        ("TopKCategoricalAccuracy", {"k": 0}, ValueError),
        ("TopKCategoricalAccuracy", {"k": 1.5}, TypeError),
        ("Fbeta", {"beta": 0}, ValueError),
        ("Perplexity", {"ignore_label": "a"}, TypeError),
        ("CosineSimilarity", {"similarity": "x"}, ValueError),
        ("CosineSimilarity", {"zero_diagonal": 1}, TypeError),
        ("ConfusionMatrix", {"num_classes": 2, "normalize": "x"}, ValueError),
        ("ConfusionMatrix", {"num_classes": 2, "threshold": 1}, TypeError),
        ("ConfusionMatrixMetric", {"metric_name": "x"}, NotImplementedError),
        ("ConfusionMatrixMetric", {"decrease": "x"}, ValueError),
        ("ConfusionMatrixMetric", {"decrease": "none", "calculation_method": True}, ValueError),
        ("BleuScore", {"n_gram": 5}, ValueError),
        ("Dice", {"smooth": -1.0}, ValueError),
        ("HausdorffDistance", {"distance_metric": "x"}, ValueError),
        ("HausdorffDistance", {"percentile": 101.0}, ValueError),
        ("MeanSurfaceDistance", {"symmetric": 1}, TypeError),
        ("OcclusionSensitivity", {"margin": -1}, ValueError),
    ],
)
def test_wrong_arguments_are_refused(name: str, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=f"For '{name}'"):
        getattr(train, name)(**arguments)
