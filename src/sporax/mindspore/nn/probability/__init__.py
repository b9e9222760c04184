"""Distributions, invertible functions and Bayesian layers: `mindspore.nn.probability`."""

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.nn.probability import bijector, bnn_layers, distribution

__all__ = ["bijector", "bnn_layers", "distribution"]

answer_missing_names(__name__)
