"""`mindspore.ops.composite`, which scripts import as ``C``: what applies functions to structures, clips and draws."""

from typing import TYPE_CHECKING

from sporax.common.transforms import GradOperation
from sporax.ir.missing import missing_names
from sporax.ops._core.operator import FUNCTIONS, PRIMITIVES

__path__: list[str] = []  # a package in MindSpore, see `sporax._module_paths`

__all__ = [
    "GradOperation",
    *("HyperMap", "Map", "MultitypeFuncGraph"),
    *("clip_by_global_norm", "clip_by_value", "gamma", "laplace", "multinomial", "normal", "poisson", "uniform"),
]

globals().update({name: each for name, each in {**FUNCTIONS, **PRIMITIVES}.items() if name in __all__})

if not TYPE_CHECKING:  # checkers shall see a missing name themselves
    __getattr__ = missing_names(__name__)
