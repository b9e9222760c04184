"""Metrics and what they are fed. Run by their recorder, under MindSpore, and by the tests, under Sporax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_random = np.random.RandomState(7)


def _scores(*shape: int) -> np.ndarray[Any, Any]:
    return _random.rand(*shape).astype(np.float32)


def _classes(high: int, *shape: int) -> np.ndarray[Any, Any]:
    return _random.randint(0, high, shape).astype(np.int32)


def _probabilities(*shape: int) -> np.ndarray[Any, Any]:
    scores = _scores(*shape)
    return scores / scores.sum(axis=-1, keepdims=True)


_BATCHES = [(_scores(8, 4), _classes(4, 8)), (_scores(5, 4), _classes(4, 5))]
_IMAGES = [(_scores(3, 4, 5), _classes(4, 3, 5))]
_LABELS = [(_classes(2, 6, 3), _classes(2, 6, 3)), (_classes(2, 4, 3), _classes(2, 4, 3))]
_ONE_HOT = [(scores, np.eye(4, dtype=np.float32)[classes]) for scores, classes in _BATCHES]
_VALUES = [(_scores(6, 2), _scores(6, 2)), (_scores(3, 2), _scores(3, 2))]
_MASKS = [(_classes(2, 2, 3, 6, 6), _classes(2, 2, 3, 6, 6)), (_classes(2, 2, 3, 6, 6), _classes(2, 2, 3, 6, 6))]


def _blob(shift: int) -> np.ndarray[Any, Any]:
    image = np.zeros((12, 12), np.int32)
    image[2 + shift : 8, 3 : 9 - shift] = 1
    image[4:6, 5] = 0
    return image


_REGIONS = [(_blob(0), _blob(2), 1)]
_SENTENCES = [
    (
        [["the", "cat", "is", "on", "the", "mat"], ["a", "dog", "sleeps", "here", "now"]],
        [
            [["there", "is", "a", "cat", "on", "the", "mat"], ["the", "cat", "is", "on", "a", "mat"]],
            [["a", "dog", "sleeps", "here", "today"]],
        ],
    )
]

# name -> (class, constructor's arguments, batches, arguments of eval)
RECIPES: dict[str, tuple[str, dict[str, Any], list[tuple[Any, ...]], dict[str, Any]]] = {
    "accuracy": ("Accuracy", {}, _BATCHES, {}),
    "accuracy, images": ("Accuracy", {}, _IMAGES, {}),
    "accuracy, one-hot": ("Accuracy", {}, _ONE_HOT, {}),
    "accuracy, labels": ("Accuracy", {"eval_type": "multilabel"}, _LABELS, {}),
    "loss": ("Loss", {}, [(np.float32(1.5),), (np.array([1.0, 2.0, 4.0], np.float32),)], {}),
    "mae": ("MAE", {}, _VALUES, {}),
    "mse": ("MSE", {}, _VALUES, {}),
    "top 2": ("TopKCategoricalAccuracy", {"k": 2}, _BATCHES, {}),
    "top 1": ("Top1CategoricalAccuracy", {}, _ONE_HOT, {}),
    "precision": ("Precision", {}, _BATCHES, {}),
    "precision, mean": ("Precision", {}, _BATCHES, {"average": True}),
    "precision, labels": ("Precision", {"eval_type": "multilabel"}, _LABELS, {}),
    "precision, labels, mean": ("Precision", {"eval_type": "multilabel"}, _LABELS, {"average": True}),
    "recall": ("Recall", {}, _BATCHES, {}),
    "recall, labels": ("Recall", {"eval_type": "multilabel"}, _LABELS, {}),
    "recall, one-hot, mean": ("Recall", {}, _ONE_HOT, {"average": True}),
    "f1": ("F1", {}, _BATCHES, {}),
    "fbeta": ("Fbeta", {"beta": 2}, _BATCHES, {"average": True}),
    "perplexity": ("Perplexity", {}, [(_probabilities(6, 4), _classes(4, 6))], {}),
    "perplexity, ignoring": ("Perplexity", {"ignore_label": 1}, [(_probabilities(9, 4), _classes(4, 9))], {}),
    "cosine": ("CosineSimilarity", {}, [(_scores(3, 5),)], {}),
    "dot, mean": ("CosineSimilarity", {"similarity": "dot", "reduction": "mean"}, [(_scores(3, 5),)], {}),
    "cosine, sum": ("CosineSimilarity", {"reduction": "sum", "zero_diagonal": False}, [(_scores(3, 5),)], {}),
    "confusion": ("ConfusionMatrix", {"num_classes": 4}, _BATCHES, {}),
    "confusion, target": ("ConfusionMatrix", {"num_classes": 4, "normalize": "target"}, _BATCHES, {}),
    "confusion, prediction": ("ConfusionMatrix", {"num_classes": 4, "normalize": "prediction"}, _BATCHES, {}),
    "confusion, all": ("ConfusionMatrix", {"num_classes": 4, "normalize": "all"}, _BATCHES, {}),
    "confusion, scores": ("ConfusionMatrix", {"num_classes": 2}, [(_scores(9), _classes(2, 9))], {}),
    "roc": ("ROC", {"pos_label": 1}, [(_scores(9), _classes(2, 9))], {}),
    "roc, ties": ("ROC", {}, [(np.array([1, 2, 2, 3, 1, 2], np.int64), np.array([0, 1, 0, 1, 1, 0]))], {}),
    "bleu": ("BleuScore", {}, _SENTENCES, {}),
    "bleu, smooth": ("BleuScore", {"n_gram": 3, "smooth": True}, _SENTENCES, {}),
    "dice": ("Dice", {"smooth": 1e-5}, _VALUES, {}),
    "hausdorff": ("HausdorffDistance", {}, _REGIONS, {}),
    "hausdorff, percentile": (
        "HausdorffDistance",
        {"distance_metric": "taxicab", "percentile": 80.0, "directed": True},
        _REGIONS,
        {},
    ),
    "hausdorff, whole": ("HausdorffDistance", {"distance_metric": "chessboard", "crop": False}, _REGIONS, {}),
    "mean surface": ("MeanSurfaceDistance", {}, _REGIONS, {}),
    "mean surface, symmetric": ("MeanSurfaceDistance", {"symmetric": True, "distance_metric": "taxicab"}, _REGIONS, {}),
    "root mean square, symmetric": ("RootMeanSquareDistance", {"symmetric": True}, _REGIONS, {}),
}
for _rate in [
    "tpr",
    "tnr",
    "ppv",
    "npv",
    "fnr",
    "fpr",
    "fdr",
    "for",
    "ts",
    "acc",
    "ba",
    "f1",
    "mcc",
    "fm",
    "bm",
    "mk",
    "pt",
]:
    RECIPES[f"confusion rate {_rate}"] = ("ConfusionMatrixMetric", {"metric_name": _rate}, _MASKS, {})
for _decrease in ("mean", "sum"):
    _arguments = {"metric_name": "precision", "calculation_method": True, "decrease": _decrease}
    RECIPES[f"confusion rates, {_decrease}"] = ("ConfusionMatrixMetric", _arguments, _MASKS, {})
RECIPES["confusion rate, no background"] = ("ConfusionMatrixMetric", {"skip_channel": False}, _MASKS, {})


def run(train: Any, tensor: Callable[[Any], Any], name: str) -> Any:
    """The metric's result, as nested lists of floats.

    Args:
        train: module with the metrics.
        tensor: makes a Tensor of a numpy array.
        name: of the recipe.
    """
    kind, arguments, batches, options = RECIPES[name]
    metric = getattr(train, kind)(**arguments)
    for batch in batches:
        metric.update(*(tensor(value) if isinstance(value, np.ndarray | np.generic) else value for value in batch))
    return plain(metric.eval(**options))


def plain(value: Any) -> Any:
    """Arrays and sequences as nested lists of floats."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return np.asarray(value, float).tolist()
