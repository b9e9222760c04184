"""What programs of users are compiled under: a mesh of devices that are here, and names that are their own."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh

from sporax.base.errors import For, SporaxValueError
from sporax.runtime.planned.user_mesh import context_mesh

WHERE = "explain_resharding"
"""What messages call the function."""


def concrete_mesh(mesh: Any) -> Mesh:
    """A mesh of devices that are here.

    Raises:
        SporaxTypeError: no mesh.
        SporaxValueError: more devices than are here.
    """
    if isinstance(mesh, Mesh):
        return mesh
    if not isinstance(mesh, AbstractMesh | Mapping) or not mesh:
        raise For(WHERE).type_error(
            "'mesh' must be a jax.sharding.Mesh, or devices along each axis as {'data': 8}", reprlib.repr(mesh)
        )
    sizes = dict(mesh.shape) if isinstance(mesh, AbstractMesh) else dict(mesh)
    needed, here = math.prod(sizes.values()), jax.device_count()
    if needed > here:
        raise SporaxValueError(
            f"For '{WHERE}', 'mesh' must be of devices that are here, but it has {needed} and there are {here}. "
            f"`sporax explain-sharding --devices {needed} script.py:function` simulates devices, and so does "
            f"`jax.config.update('jax_num_cpu_devices', {needed})` before JAX is used."
        )
    types = mesh.axis_types if isinstance(mesh, AbstractMesh) else (AxisType.Auto,) * len(sizes)
    devices = np.array(jax.devices()[:needed], dtype=object).reshape(tuple(sizes.values()))
    return Mesh(devices, tuple(sizes), axis_types=types)


@contextmanager
def under_mesh(mesh: Mesh | None) -> Iterator[None]:
    """The context of a mesh, where it is not the one that is set."""
    if mesh is None or mesh == context_mesh():
        yield
        return
    with jax.set_mesh(mesh):
        yield


@contextmanager
def named_programs() -> Iterator[None]:
    """Compiled programs that are stored have the names of their own operators."""
    option = "jax_compilation_cache_include_metadata_in_key"
    before = getattr(jax.config, option)
    jax.config.update(option, True)
    try:
        yield
    finally:
        jax.config.update(option, before)
