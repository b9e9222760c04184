"""Linear algebra: products, decompositions, norms, banded matrices."""

from sporax.ops.linalg import banded, decompositions, factors, norms, products
