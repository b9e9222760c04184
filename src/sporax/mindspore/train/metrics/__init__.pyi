"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.train.metrics._classes import F1 as F1
from sporax.mindspore.train.metrics._classes import Fbeta as Fbeta
from sporax.mindspore.train.metrics._classes import Precision as Precision
from sporax.mindspore.train.metrics._classes import Recall as Recall
from sporax.mindspore.train.metrics._confusion import ConfusionMatrix as ConfusionMatrix
from sporax.mindspore.train.metrics._confusion import ConfusionMatrixMetric as ConfusionMatrixMetric
from sporax.mindspore.train.metrics._curves import BleuScore as BleuScore
from sporax.mindspore.train.metrics._curves import ROC as ROC
from sporax.mindspore.train.metrics._curves import auc as auc
from sporax.mindspore.train.metrics._metric import Metric as Metric
from sporax.mindspore.train.metrics._metric import get_metric_fn as get_metric_fn
from sporax.mindspore.train.metrics._metric import names as names
from sporax.mindspore.train.metrics._metric import rearrange_inputs as rearrange_inputs
from sporax.mindspore.train.metrics._simple import Accuracy as Accuracy
from sporax.mindspore.train.metrics._simple import CosineSimilarity as CosineSimilarity
from sporax.mindspore.train.metrics._simple import Loss as Loss
from sporax.mindspore.train.metrics._simple import MAE as MAE
from sporax.mindspore.train.metrics._simple import MSE as MSE
from sporax.mindspore.train.metrics._simple import Perplexity as Perplexity
from sporax.mindspore.train.metrics._simple import Top1CategoricalAccuracy as Top1CategoricalAccuracy
from sporax.mindspore.train.metrics._simple import Top5CategoricalAccuracy as Top5CategoricalAccuracy
from sporax.mindspore.train.metrics._simple import TopKCategoricalAccuracy as TopKCategoricalAccuracy
from sporax.mindspore.train.metrics._surfaces import Dice as Dice
from sporax.mindspore.train.metrics._surfaces import HausdorffDistance as HausdorffDistance
from sporax.mindspore.train.metrics._surfaces import MeanSurfaceDistance as MeanSurfaceDistance
from sporax.mindspore.train.metrics._surfaces import OcclusionSensitivity as OcclusionSensitivity
from sporax.mindspore.train.metrics._surfaces import RootMeanSquareDistance as RootMeanSquareDistance


