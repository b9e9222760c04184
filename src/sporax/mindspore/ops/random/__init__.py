"""Random operators: dropout, distributions, candidate sampling, masks of bits."""

from sporax.mindspore.ops.random import distributions, dropout
