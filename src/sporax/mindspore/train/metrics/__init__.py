"""Metrics: what `Model.eval` computes. Numbers equal MindSpore's."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes

_HOMES = {
    **homes("sporax.mindspore.train.metrics._by_name", "names get_metric_fn get_metrics"),
    **homes("sporax.mindspore.train.metrics._classes", "F1 Fbeta Precision Recall"),
    **homes("sporax.mindspore.train.metrics._confusion", "ConfusionMatrix ConfusionMatrixMetric"),
    **homes("sporax.mindspore.train.metrics._curves", "ROC auc"),
    **homes("sporax.mindspore.train.metrics._metric", "Metric rearrange_inputs"),
    **homes("sporax.mindspore.train.metrics._occlusion", "OcclusionSensitivity"),
    **homes(
        "sporax.mindspore.train.metrics._simple",
        """
        MAE MSE Accuracy CosineSimilarity Loss Perplexity Top1CategoricalAccuracy Top5CategoricalAccuracy
        TopKCategoricalAccuracy
        """,
    ),
    **homes(
        "sporax.mindspore.train.metrics._surfaces",
        """
        Dice HausdorffDistance MeanSurfaceDistance RootMeanSquareDistance
        """,
    ),
    **homes("sporax.mindspore.train.metrics._text", "BleuScore"),
}

__all__ = [name for name in _HOMES if name != "get_metrics"]
__getattr__, __dir__ = door(__name__, _HOMES)
