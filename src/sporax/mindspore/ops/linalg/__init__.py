"""Linear algebra: products, decompositions, norms, banded matrices."""

from sporax.mindspore.ops.linalg import banded, decompositions, norms, products
