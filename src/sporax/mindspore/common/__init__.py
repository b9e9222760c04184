"""Tensors, Parameters, dtypes, initializers, seeds, compilation and differentiation: `mindspore.common`."""

from typing import TYPE_CHECKING, Any

from sporax.mindspore._names.missing import missing_name
from sporax.mindspore.common import dtype, initializer, seed
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.api import JitConfig, ms_memory_recycle, mutable
from sporax.mindspore.common.api import _no_grad as _no_grad
from sporax.mindspore.common.dtype import DType as DType
from sporax.mindspore.common.generator import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    set_rng_state,
)
from sporax.mindspore.common.jit import jit, jit_class, lazy_inline, recompilations
from sporax.mindspore.common.parameter import Parameter, ParameterTuple, no_init_parameters
from sporax.mindspore.common.seed import get_seed, set_seed
from sporax.mindspore.common.sparse_tensor import COOTensor, CSRTensor, RowTensor, SparseTensor
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.common.tensor import wrap as wrap

__all__ = [
    "dtype",
    "initializer",
    "seed",
    "jit",
    "jit_class",
    "lazy_inline",
    "ms_memory_recycle",
    "recompilations",
    "Parameter",
    "ParameterTuple",
    "no_init_parameters",
    "JitConfig",
    "Generator",
    "default_generator",
    "initial_seed",
    "get_rng_state",
    "set_rng_state",
    "manual_seed",
    "get_seed",
    "set_seed",
    "COOTensor",
    "CSRTensor",
    "RowTensor",
    "SparseTensor",
    "Tensor",
    "mutable",
]

if not TYPE_CHECKING:  # checkers should see a missing name themselves

    def __getattr__(name: str) -> Any:
        # Dtypes are many, so they are looked up instead of listed.
        if not name.startswith("__") and name in vars(dtype):
            return getattr(dtype, name)
        return missing_name(__name__, name)
