"""Metrics of segmentations: overlap, and distances between the surfaces of predicted and true regions."""

from __future__ import annotations

from typing import Any

import numpy as np

from sporax.base.errors import SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.train._checks import check_bool, check_text
from sporax.mindspore.train.metrics._metric import Array, Metric, rearrange_inputs

_DISTANCES = ("euclidean", "chessboard", "taxicab")


class Dice(Metric):
    """Twice what two regions share, over what both have; summed over batches, divided by the number of samples.

    Args:
        smooth: added to the denominator.

    Raises:
        SporaxTypeError, SporaxValueError: `smooth` is no positive float.
    """

    def __init__(self, smooth: float = 1e-5) -> None:
        check_type("Dice", "smooth", smooth, "a float", float)
        if smooth <= 0:
            raise SporaxValueError(f"For 'Dice', 'smooth' must be positive, but got {smooth}.")
        self.smooth = smooth
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._sum = 0.0
        self._total = 0

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take predictions and truth of one batch.

        Raises:
            SporaxValueError: their shapes differ.
        """
        y_pred, y = self._inputs(inputs, "predicted value", "true value")
        if y_pred.shape != y.shape:
            raise SporaxValueError(
                f"For 'Dice.update', both inputs must have the same shape, but got {y_pred.shape} and {y.shape}."
            )
        first, second = y_pred.reshape(-1), y.reshape(-1)
        both = float(first @ first + second @ second)
        self._sum += 2 * float(first @ second) / (both + self.smooth)
        self._total += y.shape[0]

    def eval(self) -> float:
        """The coefficient.

        Raises:
            SporaxRuntimeError: no sample was seen.
        """
        self._check_seen(self._total)
        return self._sum / self._total


class _SurfaceMetric(Metric):
    """Base of distances between surfaces; the last batch counts."""

    def __init__(self, distance_metric: str) -> None:
        name = type(self).__name__
        self.distance_metric = check_text(name, "distance_metric", distance_metric, _DISTANCES)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._edges: tuple[Array, Array] | None = None

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take predicted and true labels of one image or volume, and the label whose region is meant.

        Raises:
            SporaxTypeError: the label is no number.
            SporaxValueError: shapes differ or are empty, or the label occurs in neither.
        """
        name = type(self).__name__
        self._check_count(inputs, "predicted value", "true value", "label")
        y_pred, y = map(self._convert_data, inputs[:2])
        label = inputs[2]
        if not isinstance(label, int | float):
            raise SporaxTypeError(f"For '{name}.update', the label must be a number, but got {type(label).__name__}.")
        if y.size == 0 or y_pred.shape != y.shape:
            raise SporaxValueError(
                f"For '{name}.update', the inputs must have one shape without zeros, but got {y_pred.shape} and {y.shape}."
            )
        predicted, true = y_pred == label, y == label
        if not (predicted.any() or true.any()):
            raise SporaxValueError(
                f"For '{name}.update', the label must occur in one of the inputs, but {label} does not."
            )
        self._edges = self._edges_of(predicted, true)

    def _edges_of(self, predicted: Array, true: Array) -> tuple[Array, Array]:
        return _edge(predicted), _edge(true)

    def _distances(self, start: Array, end: Array) -> Array:
        """Distance of each point of the edge `start` to the edge `end`."""
        # No surface is infinitely far away.
        if not end.any():
            return np.full(int(start.sum()), np.inf)
        from scipy import ndimage  # a quarter of a second, for the few who need it

        # The transform gives each point's distance to the nearest zero, hence the negation.
        if self.distance_metric == "euclidean":
            field = ndimage.distance_transform_edt(~end)
        else:
            field = ndimage.distance_transform_cdt(~end, metric=self.distance_metric)
        distances: Array = np.asarray(field)[start]
        return distances

    def _both_ways(self) -> tuple[Array, Array]:
        self._check_seen(self._edges is not None)
        assert self._edges is not None
        predicted, true = self._edges
        return self._distances(predicted, true), self._distances(true, predicted)


def _edge(region: Array) -> Array:
    """The points of a region that have a neighbour outside of it."""
    from scipy import ndimage

    # Erosion removes the points on the edge.
    edge: Array = ndimage.binary_erosion(region) ^ region
    return edge


class HausdorffDistance(_SurfaceMetric):
    """The largest distance from a point of one surface to the other surface.

    Args:
        distance_metric: ``"euclidean"``, ``"chessboard"`` or ``"taxicab"``.
        percentile: this percentile of the distances instead of the largest.
        directed: from the prediction to the truth only.
        crop: look only at the box that holds both regions.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(
        self,
        distance_metric: str = "euclidean",
        percentile: float | None = None,
        directed: bool = False,
        crop: bool = True,
    ) -> None:
        if percentile is not None and not isinstance(percentile, float):
            raise SporaxTypeError.must("HausdorffDistance", "percentile", "be a float", type(percentile).__name__)
        if percentile is not None and not 0 <= percentile <= 100:
            raise SporaxValueError(f"For 'HausdorffDistance', 'percentile' must be in [0, 100], but got {percentile}.")
        self.percentile = percentile
        self.directed = check_bool("HausdorffDistance", "directed", directed)
        self.crop = check_bool("HausdorffDistance", "crop", crop)
        super().__init__(distance_metric)

    def _edges_of(self, predicted: Array, true: Array) -> tuple[Array, Array]:
        if self.crop:
            positions = np.nonzero(predicted | true)
            box = tuple(slice(int(place.min()), int(place.max()) + 1) for place in positions)
            # Dimensions of size 1 go away, as in MindSpore: an edge there would be the whole region.
            predicted, true = np.squeeze(predicted[box]), np.squeeze(true[box])
        return _edge(predicted), _edge(true)

    def eval(self) -> float:
        """The distance; infinite if one of the regions is empty.

        Raises:
            SporaxRuntimeError: no batch was seen.
        """
        forth, back = self._both_ways()
        return self._reduced(forth) if self.directed else max(self._reduced(forth), self._reduced(back))

    def _reduced(self, distances: Array) -> float:
        # No point of an edge: the region is empty.
        if distances.size == 0:
            return float("inf")
        # MindSpore takes a percentile of 0 for none, too.
        return float(np.percentile(distances, self.percentile) if self.percentile else distances.max())


class MeanSurfaceDistance(_SurfaceMetric):
    """The mean distance from the points of the predicted surface to the true one.

    Args:
        symmetric: the mean of both directions.
        distance_metric: ``"euclidean"``, ``"chessboard"`` or ``"taxicab"``.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(self, symmetric: bool = False, distance_metric: str = "euclidean") -> None:
        self.symmetric = check_bool(type(self).__name__, "symmetric", symmetric)
        super().__init__(distance_metric)

    def eval(self) -> float:
        """The distance; infinite if a region is empty.

        Raises:
            SporaxRuntimeError: no batch was seen.
        """
        means = [self._mean(distances) for distances in self._both_ways()]
        return self._result(sum(means) / 2 if self.symmetric else means[0])

    def _mean(self, distances: Array) -> float:
        return float(distances.mean()) if distances.size else float("inf")

    def _result(self, mean: float) -> float:
        return mean


class RootMeanSquareDistance(MeanSurfaceDistance):
    """The root of the mean squared distance between surfaces; arguments as for `MeanSurfaceDistance`.

    As in MindSpore 2.10, the root is left out when ``symmetric=False``: the result is the mean square.
    """

    def _mean(self, distances: Array) -> float:
        return super()._mean(distances.astype(float) ** 2)

    def _result(self, mean: float) -> float:
        return float(np.sqrt(mean)) if self.symmetric else mean
