"""Python's control flow on tensors in compiled steps.

MindSpore compiles source, so its users write ``if loss > limit:`` and ``while`` on tensors. Here a step is traced, and a
tensor's value is not known then. When a tensor is met by a statement that needs its value, the function it is in is
rewritten (`_rewriter`, `_source`), and the step is traced again. A function in which that never happens stays as it is.

    tensor.__bool__ ─► meet (`_tensor_conditions`) ─► rewrite that one function ─► `Retrace` ─► the program traces the step again
                                                                        │
        rewritten code calls `flow`, which joins both ways (`_branches`) or builds a loop (`_loops`)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names
from sporax.mindspore.autograph import _tensor_conditions
from sporax.mindspore.common import tensor
from sporax.mindspore.common.jit import READ_AS_LIST, when_failed

if TYPE_CHECKING:
    from sporax.mindspore.autograph._source import is_rewritten, rewrite, start_as_global

__all__ = ["is_rewritten", "rewrite", "start_as_global"]

if not TYPE_CHECKING:  # most steps have nothing to rewrite
    __getattr__ = lazy_names(__name__)

tensor.when_unknown(_tensor_conditions.meet)
when_failed(_tensor_conditions.end)
READ_AS_LIST.append(_tensor_conditions.CommonPart)  # which says why it cannot be read
