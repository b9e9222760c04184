"""Probability distributions: `mindspore.nn.probability.distribution`."""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.nn.probability.distribution._continuous import (
    Beta,
    Cauchy,
    Exponential,
    Gamma,
    HalfNormal,
    Laplace,
    Logistic,
    Normal,
    StudentT,
    Uniform,
)
from sporax.mindspore.nn.probability.distribution._discrete import Bernoulli, Categorical, Geometric, Poisson
from sporax.mindspore.nn.probability.distribution._distribution import Distribution
from sporax.mindspore.nn.probability.distribution._transformed import Gumbel, LogNormal, TransformedDistribution

__all__ = [
    "Distribution",
    "TransformedDistribution",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Cauchy",
    "Exponential",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfNormal",
    "Laplace",
    "Logistic",
    "LogNormal",
    "Normal",
    "Poisson",
    "StudentT",
    "Uniform",
]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
