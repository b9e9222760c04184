"""Operators of neural networks: activations, convolutions, pooling, normalization, losses, optimizer steps."""

from sporax.mindspore.ops.nn import (
    activation,
    adaptive_pooling,
    attention,
    convolution,
    ctc,
    deformable,
    distance_loss,
    fractional_pooling,
    inference_attention,
    loss,
    normalization,
    optimizer_steps,
    paged_attention,
    pooling,
    recurrent,
)
