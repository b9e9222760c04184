"""Layers whose weights are random: `mindspore.nn.probability.bnn_layers`."""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _layers: ConvReparam DenseLocalReparam DenseReparam WithBNNLossCell NormalPosterior NormalPrior normal_post_fn
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
