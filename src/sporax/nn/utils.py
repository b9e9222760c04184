"""Helpers around Cells."""

from sporax.common.parameter import no_init_parameters

__all__ = ["no_init_parameters"]
