"""Probability distributions: `mindspore.nn.probability.distribution`."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _continuous: Beta Cauchy Exponential Gamma HalfNormal Laplace Logistic Normal StudentT Uniform
    _discrete: Bernoulli Categorical Geometric Poisson
    _distribution: Distribution
    _transformed: Gumbel LogNormal TransformedDistribution
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
