"""Importing many modules without looking for garbage.

Problem: the facade and JAX are a thousand modules with 150,000 objects that live as long as the process. Python's collector looks
at them again and again while they are made, in each full collection afterwards, and once more when the process ends: a third of
the CPU time of a process that does little. Method: the collector rests during the import, and what is there afterwards is frozen:
collections pass it over. Objects whose last reference goes away are freed as before. Reference: `gc.freeze` of Python's library.
"""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType

from sporax.base.collector import gc_paused

_FEWEST_MODULES = 200
"""That an import must have loaded; one that finds most of them there has made few objects."""
_MOST_MODULES = 600
"""Above which a program has more objects than that, JAX among them; to count objects takes longer than to count modules."""
_MOST_OBJECTS = 50_000
"""That a program may have made before. An interpreter with NumPy has 20,000; those of a program that has more are not frozen with
the modules, as cycles among them could not be freed."""


def import_module(name: str) -> ModuleType:
    """`importlib.import_module`; the collector rests, and passes over what is there where many modules were loaded."""
    if name in sys.modules or not gc.isenabled():
        return importlib.import_module(name)
    modules = len(sys.modules)
    few = modules < _MOST_MODULES and len(gc.get_objects()) < _MOST_OBJECTS
    with gc_paused():
        module = importlib.import_module(name)
        if few and len(sys.modules) - modules >= _FEWEST_MODULES:
            gc.freeze()
    return module
