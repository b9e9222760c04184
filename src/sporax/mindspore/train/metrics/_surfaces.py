"""Metrics of segmentations: overlap, and distances between the surfaces of predicted and true regions.

Occlusion sensitivity: how much a classifier's score falls when a place of its input is covered.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train.metrics._metric import Array, MeanMetric, Metric, rearrange_inputs

_DISTANCES = ("euclidean", "chessboard", "taxicab")


class Dice(MeanMetric):
    """Twice what two regions share, over what both have; summed over batches, divided by the number of samples.

    Args:
        smooth: added to the denominator.

    Raises:
        SporaxTypeError, SporaxValueError: `smooth` is no positive float.
    """

    def __init__(self, smooth: float = 1e-5) -> None:
        For("Dice").typed("smooth", smooth, "a float", float)
        For("Dice").refuse(smooth <= 0, "'smooth' must be positive", smooth)
        self.smooth = smooth
        self.clear()

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take predictions and truth of one batch.

        Raises:
            SporaxValueError: their shapes differ.
        """
        y_pred, y = self._inputs(inputs, "predicted value", "true value")
        For("Dice.update").refuse(
            y_pred.shape != y.shape, "both inputs must have the same shape", y_pred.shape, y.shape
        )
        first, second = y_pred.reshape(-1), y.reshape(-1)
        both = float(first @ first + second @ second)
        self._sum += 2 * float(first @ second) / (both + self.smooth)
        self._total += y.shape[0]


class _SurfaceMetric(Metric):
    """Base of distances between surfaces; the last batch counts."""

    def __init__(self, distance_metric: str) -> None:
        name = type(self).__name__
        self.distance_metric = For(name).text("distance_metric", distance_metric, _DISTANCES)
        self.clear()

    def clear(self) -> None:
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
        For(f"{name}.update").typed("the label", label, "a number", int | float)
        if y.size == 0 or y_pred.shape != y.shape:
            raise SporaxValueError(
                f"For '{name}.update', the inputs must have one shape without zeros, but got {y_pred.shape} and {y.shape}."
            )
        predicted, true = y_pred == label, y == label
        if not (predicted.any() or true.any()):
            raise For(f"{name}.update").error(f"the label must occur in one of the inputs, but {label} does not")
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
        return np.asarray(field)[start]

    def _both_ways(self) -> tuple[Array, Array]:
        self._check_seen(self._edges is not None)
        assert self._edges is not None
        predicted, true = self._edges
        return self._distances(predicted, true), self._distances(true, predicted)


def _edge(region: Array) -> Array:
    """The points of a region that have a neighbour outside of it."""
    from scipy import ndimage

    # Erosion removes the points on the edge.
    return ndimage.binary_erosion(region) ^ region


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
        For("HausdorffDistance").typed("percentile", percentile, "a float", float | None)
        if percentile is not None and not 0 <= percentile <= 100:
            raise SporaxValueError(f"For 'HausdorffDistance', 'percentile' must be in [0, 100], but got {percentile}.")
        self.percentile = percentile
        self.directed = For("HausdorffDistance").boolean("directed", directed)
        self.crop = For("HausdorffDistance").boolean("crop", crop)
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
        self.symmetric = For(type(self).__name__).boolean("symmetric", symmetric)
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


class OcclusionSensitivity(Metric):
    """For every place of an image: score of the whole image minus score with that place covered.

    Args:
        pad_val: what places are covered with.
        margin: how far around a place is covered, to each side.
        n_batch: covered images per run of the model.
        b_box: ``[min, max]`` of each dimension (but the batch) to look at; None for everything.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
    """

    def __init__(
        self, pad_val: float = 0.0, margin: int | list[int] = 2, n_batch: int = 128, b_box: list[int] | None = None
    ) -> None:
        name = "OcclusionSensitivity"
        For(name).typed("pad_val", pad_val, "a float", float)
        For(name).typed("b_box", b_box, "a list or None", list | None)
        for value in margin if isinstance(margin, list) else [margin]:
            For(name).integer("margin", value, 0)
        self.pad_val = pad_val
        self.margin = margin
        self.n_batch = For(name).integer("n_batch", n_batch, 1)
        self.b_box = b_box
        self.clear()

    def clear(self) -> None:
        self._sensitivity: Array | None = None

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Take a model, one image ``[1, ...]`` and its label.

        Raises:
            SporaxTypeError: the model is no Cell.
            SporaxRuntimeError: more than one image or label.
            SporaxValueError: the box does not fit the image.
        """
        self._check_count(inputs, "model", "image", "label")
        model, image, label = inputs[0], self._convert_data(inputs[1]), np.asarray(inputs[2])
        if not isinstance(model, Cell):
            raise For("OcclusionSensitivity.update").type_error("the model must be a Cell", type(model).__name__)
        if image.shape[0] != 1 or label.size != 1:
            raise For("OcclusionSensitivity.update").state_error(
                f"there must be one image and one label, but got shapes {image.shape} and {label.shape}"
            )
        box = self._box(image.shape[1:])
        scores: list[Array] = []
        # All places in row-major order, the order in which `reshape` puts them back.
        positions = itertools.product(*(range(low, high + 1) for low, high in box))
        while group := tuple(itertools.islice(positions, self.n_batch)):
            covered = np.concatenate([self._covered(image, place) for place in group])
            scores.append(model(Tensor(covered)).asnumpy()[:, int(label.item())])
        baseline = model(Tensor(image)).asnumpy()[0, int(label.item())]
        shape = [high - low + 1 for low, high in box]
        self._sensitivity = baseline - np.squeeze(np.concatenate(scores).reshape(shape))

    def _covered(self, image: Array, place: tuple[int, ...]) -> Array:
        margins = self.margin if isinstance(self.margin, list) else [self.margin] * len(place)
        covered = image.copy()
        region = tuple(slice(max(0, at - margin), at + margin) for at, margin in zip(place, margins, strict=True))
        covered[(slice(None), *region)] = self.pad_val
        return covered

    def _box(self, shape: tuple[int, ...]) -> list[tuple[int, int]]:
        if self.b_box is None:
            return [(0, size - 1) for size in shape]
        if len(self.b_box) != 2 * len(shape):
            raise For("OcclusionSensitivity").error(
                f"'b_box' must have {2 * len(shape)} numbers, two per dimension", len(self.b_box)
            )
        box = []
        for low, high, size in zip(self.b_box[::2], self.b_box[1::2], shape, strict=True):
            # A negative end stands for the whole dimension.
            low, high = max(low, 0), size - 1 if high < 0 else high
            For("OcclusionSensitivity").refuse(
                not low <= high < size, f"'b_box' must lie within the image, but [{low}, {high}] does not in {size}"
            )
            box.append((low, high))
        return box

    def eval(self) -> Array:
        """The map, without dimensions of size 1.

        Raises:
            SporaxRuntimeError: no image was seen.
        """
        self._check_seen(self._sensitivity is not None)
        return np.asarray(self._sensitivity)
