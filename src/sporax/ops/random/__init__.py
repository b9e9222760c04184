"""Random operators: dropout, distributions, candidate sampling, masks of bits."""

from sporax.ops.random import candidate_sampling, distributions, dropout, masks
