"""How programs run: state, compiled programs, random numbers. Works on `jax.Array`s; knows no Tensor and no Cell."""

from sporax.ir.missing import missing_names
from sporax.runtime.memory import set_memory

__all__ = ["set_memory"]

__getattr__ = missing_names(__name__)
