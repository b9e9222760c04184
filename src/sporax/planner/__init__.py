"""Rules, costs and searches for parallel plans. Pure Python, numpy and scipy; never JAX."""
