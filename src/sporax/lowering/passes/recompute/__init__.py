"""Recomputation: the backward pass computes again what the forward pass need not keep."""
