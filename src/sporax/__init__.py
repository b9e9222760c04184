"""Sporax: MindSpore's distributed training, on JAX.

Names are loaded when they are first used, so ``import sporax`` itself is quick and the planner can be used without the
facade (which switches JAX to 64-bit types; see `sporax.common.tensor`).
"""

from __future__ import annotations

import importlib
from typing import Any

from sporax._version import __version__
from sporax.ir.missing import missing_name

_SUBMODULES = ("common", "communication", "context", "dataset", "ir", "mint", "nn", "ops", "parallel", "planner", "runtime", "train")

_DTYPES = [
    "bool_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "complex64",
    "complex128",
    "byte",
    "short",
    "int_",
    "long",
    "ubyte",
    "ushort",
    "uint",
    "ulong",
    "half",
    "float_",
    "single",
    "double",
    "int_type",
    "uint_type",
    "float_type",
    "complex_type",
    "number_type",
    "dtype_to_nptype",
    "dtype_to_pytype",
    "pytype_to_dtype",
    "DType",
]

# Where each top-level name lives.
_HOMES: dict[str, str] = {
    **dict.fromkeys(_DTYPES, "sporax.common.dtype"),
    **dict.fromkeys(("Tensor",), "sporax.common.tensor"),
    **dict.fromkeys(("Parameter", "ParameterTuple"), "sporax.common.parameter"),
    **dict.fromkeys(("set_seed", "get_seed"), "sporax.common.seed"),
    **dict.fromkeys(("jit", "jit_class", "recompilations", "lazy_inline", "no_inline"), "sporax.common.jit"),
    **dict.fromkeys(("value_and_grad", "grad", "get_grad", "jvp", "vjp", "GradOperation"), "sporax.common.transforms"),
    **dict.fromkeys(("GRAPH_MODE", "PYNATIVE_MODE", "set_context", "get_context", "set_device"), "sporax.context"),
    **dict.fromkeys(("tensor", "from_numpy", "is_tensor", "run_check"), "sporax.common.toplevel"),
    **dict.fromkeys(("ParallelMode", "set_auto_parallel_context", "get_auto_parallel_context"), "sporax.parallel"),
    "reset_auto_parallel_context": "sporax.parallel",
    **dict.fromkeys(("Model", "save_checkpoint", "load_checkpoint", "load_param_into_net"), "sporax.train"),
}

__all__ = ["__version__", "dtype", *_SUBMODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"sporax.{name}")
    if name == "dtype":
        return importlib.import_module("sporax.common.dtype")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise missing_name(__name__, name)


def __dir__() -> list[str]:
    return sorted(__all__)
