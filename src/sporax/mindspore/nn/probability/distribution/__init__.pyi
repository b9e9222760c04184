"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.nn.probability.distribution._continuous import Beta as Beta
from sporax.mindspore.nn.probability.distribution._continuous import Cauchy as Cauchy
from sporax.mindspore.nn.probability.distribution._continuous import Exponential as Exponential
from sporax.mindspore.nn.probability.distribution._continuous import Gamma as Gamma
from sporax.mindspore.nn.probability.distribution._continuous import HalfNormal as HalfNormal
from sporax.mindspore.nn.probability.distribution._continuous import Laplace as Laplace
from sporax.mindspore.nn.probability.distribution._continuous import Logistic as Logistic
from sporax.mindspore.nn.probability.distribution._continuous import Normal as Normal
from sporax.mindspore.nn.probability.distribution._continuous import StudentT as StudentT
from sporax.mindspore.nn.probability.distribution._continuous import Uniform as Uniform
from sporax.mindspore.nn.probability.distribution._discrete import Bernoulli as Bernoulli
from sporax.mindspore.nn.probability.distribution._discrete import Categorical as Categorical
from sporax.mindspore.nn.probability.distribution._discrete import Geometric as Geometric
from sporax.mindspore.nn.probability.distribution._discrete import Poisson as Poisson
from sporax.mindspore.nn.probability.distribution._distribution import Distribution as Distribution
from sporax.mindspore.nn.probability.distribution._transformed import Gumbel as Gumbel
from sporax.mindspore.nn.probability.distribution._transformed import LogNormal as LogNormal
from sporax.mindspore.nn.probability.distribution._transformed import TransformedDistribution as TransformedDistribution


