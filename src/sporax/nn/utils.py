"""Helpers around Cells."""

from sporax.common.parameter import no_init_parameters

__path__: list[str] = []  # a package in MindSpore, see `sporax._module_paths`

__all__ = ["no_init_parameters"]
