"""Operators of neural networks: activations, convolutions, pooling, normalization, losses, optimizer steps."""

from sporax.ops.nn import (
    activation,
    convolution,
    ctc,
    distance_loss,
    fractional_pooling,
    functional_normalization,
    gated_activation,
    loss,
    normalization,
    optimizer_steps,
    pooling,
    spatial_convolution,
)
