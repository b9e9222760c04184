"""Metrics by the names that `Model` takes for them."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxKeyError, SporaxTypeError
from sporax.mindspore._names.missing import resolved
from sporax.mindspore.train.metrics._metric import Metric

_BY_NAME: dict[str, str] = {
    "accuracy": "Accuracy",
    "acc": "Accuracy",
    "precision": "Precision",
    "recall": "Recall",
    "F1": "F1",
    "cosine_similarity": "CosineSimilarity",
    "topk": "TopKCategoricalAccuracy",
    "top_1_accuracy": "Top1CategoricalAccuracy",
    "top_5_accuracy": "Top5CategoricalAccuracy",
    "mae": "MAE",
    "mse": "MSE",
    "loss": "Loss",
    "perplexity": "Perplexity",
    "confusion_matrix": "ConfusionMatrix",
    "confusion_matrix_metric": "ConfusionMatrixMetric",
    "roc": "ROC",
    "auc": "auc",
    "bleu_score": "BleuScore",
    "dice": "Dice",
    "hausdorff_distance": "HausdorffDistance",
    "mean_surface_distance": "MeanSurfaceDistance",
    "root_mean_square_distance": "RootMeanSquareDistance",
    "occlusion_sensitivity": "OcclusionSensitivity",
}


def names() -> list[str]:
    """Names that `Model(metrics={...})` and `get_metric_fn` know."""
    return sorted(_BY_NAME)


def get_metric_fn(name: str, *args: Any, **kwargs: Any) -> Any:
    """The metric called `name`, made with these arguments.

    Raises:
        SporaxKeyError: there is none.
    """
    if name not in _BY_NAME:
        raise SporaxKeyError(f"For 'get_metric_fn', the name must be one of {names()}, but got {name!r}.")
    return resolved(f"sporax.mindspore.train.metrics:{_BY_NAME[name]}")(*args, **kwargs)


def get_metrics(metrics: Any) -> dict[str, Metric] | None:
    """A set of names, or a dict of metrics, as a dict of metrics.

    Raises:
        SporaxTypeError: something else.
        SporaxKeyError: a name is unknown.
    """
    if metrics is None:
        return None
    if isinstance(metrics, set):
        # Sorted, so that results are printed in the same order in each run.
        return {name: get_metric_fn(name) for name in sorted(metrics)}
    if not isinstance(metrics, dict):
        raise SporaxTypeError(f"For 'Model', 'metrics' must be None, a dict or a set, but got {metrics!r}.")
    for name, metric in metrics.items():
        if not isinstance(name, str) or not isinstance(metric, Metric):
            raise SporaxTypeError(
                f"For 'Model', 'metrics' must map strings to Metrics, but got {type(name).__name__} -> "
                f"{type(metric).__name__}."
            )
    return metrics
