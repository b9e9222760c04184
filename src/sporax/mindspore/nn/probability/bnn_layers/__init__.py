"""Layers whose weights are random: `mindspore.nn.probability.bnn_layers`."""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.nn.probability.bnn_layers._layers import (
    ConvReparam,
    DenseLocalReparam,
    DenseReparam,
    WithBNNLossCell,
)
from sporax.mindspore.nn.probability.bnn_layers._weights import NormalPosterior, NormalPrior, normal_post_fn

__all__ = [
    "ConvReparam",
    "DenseReparam",
    "DenseLocalReparam",
    "NormalPrior",
    "NormalPosterior",
    "normal_post_fn",
    "WithBNNLossCell",
]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
