"""Linear algebra: products, decompositions, norms, banded matrices."""

from sporax.ops.linalg import banded, decompositions, factors, matmul, norms, products
