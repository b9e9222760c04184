"""Parameters that several pipeline stages use."""

from __future__ import annotations

from sporax.base.errors import SporaxTypeError
from sporax.mindspore.nn.cell import Cell


def sync_pipeline_shared_parameters(net: Cell) -> None:
    """Give all stages the same values of Parameters that they share.

    Differs from MindSpore: nothing has to be done. A Parameter has one value, in the first stage that uses it, and every
    step brings it to the other stages by itself.

    Raises:
        SporaxTypeError: `net` is not a Cell.
    """
    # Nothing else is done: the runtime stores such a Parameter once.
    if not isinstance(net, Cell):
        raise SporaxTypeError.must("sync_pipeline_shared_parameters", "net", "be a Cell", type(net).__name__)
