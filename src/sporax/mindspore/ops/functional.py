"""`mindspore.ops.functional`, which scripts import as ``F``: the functions of `sporax.mindspore.ops` and what makes gradients."""

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common.transforms import (
    GradOperation,
    get_grad,
    grad,
    jacfwd,
    jacrev,
    jvp,
    value_and_grad,
    vjp,
    vmap,
)
from sporax.mindspore.ops._core.operator import FUNCTIONS

globals().update(FUNCTIONS)

__all__ = ["GradOperation", "get_grad", "grad", "jacfwd", "jacrev", "jvp", "value_and_grad", "vjp", "vmap", *FUNCTIONS]

answer_missing_names(__name__)
