"""Layers of `mindspore.mint.nn`."""

from sporax.ir.missing import missing_names
from sporax.mint.nn import functional

__all__ = ["functional"]

__getattr__ = missing_names(__name__)
