"""Helpers around Cells."""

from sporax.mindspore.common.parameter import no_init_parameters

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = ["no_init_parameters"]
