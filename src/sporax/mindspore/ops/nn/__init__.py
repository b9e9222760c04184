"""Operators of neural networks: activations, convolutions, pooling, normalization, losses, optimizer steps."""

from sporax.mindspore.ops.nn import (
    activation,
    adaptive_pooling,
    attention,
    convolution,
    deformable,
    distance_loss,
    inference_attention,
    loss,
    normalization,
    optimizer_steps,
    pooling,
    recurrent,
)
