"""Sporax: MindSpore's distributed training, on JAX."""

from sporax._version import __version__

__all__ = ["__version__"]
