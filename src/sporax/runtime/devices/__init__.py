"""Meshes and shardings, a plan as a program of devices, and measured rates."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sporax.runtime.devices import global_view
