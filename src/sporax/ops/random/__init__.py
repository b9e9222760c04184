"""Random operators: dropout, distributions, candidate sampling."""

from sporax.ops.random import candidate_sampling, distributions, dropout
