"""Metrics: what `Model.eval` computes. Numbers equal MindSpore's."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _confusion: ConfusionMatrix ConfusionMatrixMetric ROC auc BleuScore
    _metric: Metric rearrange_inputs names get_metric_fn get_metrics
    _simple: MAE MSE Accuracy CosineSimilarity Loss Perplexity Top1CategoricalAccuracy Top5CategoricalAccuracy
        TopKCategoricalAccuracy F1 Fbeta Precision Recall
    _surfaces: Dice HausdorffDistance MeanSurfaceDistance RootMeanSquareDistance OcclusionSensitivity
    """,
)

__all__ = [name for name in _HOMES if name != "get_metrics"]
__getattr__, __dir__ = door(__name__, _HOMES)
