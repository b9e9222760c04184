"""Mixed precision: `mindspore.amp`.

`_precision` decides which Cells compute in half precision, and builds a whole training step; `_scalers` keeps small
gradients from vanishing there.
"""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in

_HOMES = homes_in(
    __name__,
    """
    _precision: auto_mixed_precision custom_mixed_precision get_black_list get_white_list build_train_network
    _scalers: DynamicLossScaleManager DynamicLossScaler FixedLossScaleManager LossScaleManager LossScaler
        StaticLossScaler all_finite
    """,
)

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
