"""Tensors, Parameters, dtypes, initializers, seeds, compilation and differentiation: `mindspore.common`."""

from typing import Any

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes_in
from sporax.mindspore.common import dtype

_HOMES = {name: f"{__name__}.{name}" for name in ("dtype", "initializer", "seed")} | homes_in(
    __name__,
    """
    jit: jit jit_class lazy_inline recompilations
    api: JitConfig ms_memory_recycle mutable
    parameter: Parameter ParameterTuple no_init_parameters
    generator: Generator default_generator initial_seed get_rng_state set_rng_state manual_seed
    seed: get_seed set_seed
    sparse_tensor: COOTensor CSRTensor RowTensor SparseTensor
    tensor: Tensor
    """,
)
_OURS = {"dtypes": f"{__name__}.dtype"} | homes_in(__name__, "api: _no_grad dtype: DType tensor: wrap")
"""Names of modules of Sporax, which MindSpore does not have here."""

__all__ = [*_HOMES]
_found, __dir__ = door(__name__, _HOMES, unlisted=_OURS)


def __getattr__(name: str) -> Any:
    # Dtypes are many, so they are looked up instead of listed.
    return getattr(dtype, name) if not name.startswith("__") and name in vars(dtype) else _found(name)
