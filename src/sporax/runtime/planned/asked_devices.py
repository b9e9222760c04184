"""Devices, hardware, search and memory of a plan, as the call, the mesh around it or the command line ask for them."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh

from sporax.base.errors import SporaxValueError
from sporax.ir.config.plan_settings import DEVICES, HARDWARE, MEMORY, MODE, SEMI_AUTO
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import SYMBOLIC
from sporax.ir.plan import Plan
from sporax.runtime.planned.named_mesh import NamedAxes
from sporax.runtime.planned.user_mesh import mesh_around


def named_axes(devices: Any) -> NamedAxes | None:
    """The axes of the devices, where they have names."""
    if isinstance(devices, Mapping):
        return NamedAxes(tuple(devices.items()))
    if isinstance(devices, Mesh | AbstractMesh) and devices.axis_names:
        return NamedAxes(tuple((str(name), size) for name, size in devices.shape.items()), devices.axis_types)
    return None


def under_environment(
    environ: Mapping[str, str], hardware: str, mode: str, memory: int | str | None
) -> tuple[str, str, int | str | None]:
    """Hardware, mode and memory, with what the environment says instead, as for training scripts.

    Raises:
        SporaxValueError: it says what holds for training scripts alone.
    """
    # Both values belong to training scripts: symbolic costs and strategies by marks.
    for variable, value in {HARDWARE: SYMBOLIC, MODE: SEMI_AUTO}.items():
        if environ.get(variable, "").lower() == value:
            raise SporaxValueError(
                f"For 'plan', {variable} must be left out or say something else for functions of plain JAX, but got '{value}'."
            )
    return environ.get(HARDWARE) or hardware, environ.get(MODE) or mode, environ.get(MEMORY) or memory


def asked_devices(environ: Mapping[str, str], devices: Any, saved: str | None, args: Any) -> Any:
    """The devices of the call or else of the mesh around it, or the number that `sporax plan --devices` was given instead.

    Raises:
        SporaxValueError: the call brings a saved plan, which is for the devices it was made for.
    """
    asked = environ.get(DEVICES)
    if not asked:
        return mesh_around(args) if devices is None and saved is None else devices
    if saved is not None:
        count = Plan.from_json(saved).mesh.num_devices
        if count != int(asked):
            raise SporaxValueError(
                f"For 'plan', the saved plan is for {count} devices, but `sporax plan --devices` asks for {asked}."
            )
        return devices
    return int(asked)


def device_matrix(devices: Any) -> DeviceMatrix:
    """The devices of a plan, by their places among those that JAX sees."""
    if isinstance(devices, Mapping):
        return _named_matrix(devices)
    # An abstract mesh has a shape and no devices.
    if isinstance(devices, AbstractMesh):
        return DeviceMatrix(tuple(devices.axis_sizes) or (1,))
    if isinstance(devices, Mesh):
        return _of_these(devices.devices)
    if isinstance(devices, list | tuple) and devices:
        return _of_these(np.array(devices, dtype=object))
    count = jax.device_count() if devices is None else int(devices) if isinstance(devices, np.integer) else devices
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise SporaxValueError(
            f"For 'plan', 'devices' must be a number of devices, 1 or more, but got {reprlib.repr(devices)}. A list of some, as "
            "`jax.devices()` gives them, or a mesh will do as well."
        )
    return DeviceMatrix((count,))


def _named_matrix(devices: Mapping[str, int]) -> DeviceMatrix:
    """So many devices along each axis."""
    wrong = [size for size in devices.values() if not isinstance(size, int) or isinstance(size, bool) or size < 1]
    if wrong or not devices or not all(isinstance(name, str) for name in devices):
        raise SporaxValueError(
            f"For 'plan', 'devices' must say how many devices are along each axis, {{'data': 8}}, but got {devices!r}."
        )
    return DeviceMatrix(tuple(devices.values()))


def _of_these(devices: Any) -> DeviceMatrix:
    """These devices, an array."""
    ranks = {device: rank for rank, device in enumerate(jax.devices())}
    chosen = devices.reshape(-1).tolist()
    # The device itself is looked up, since another backend's devices may have equal numbers.
    strange = [entry for entry in chosen if not isinstance(entry, jax.Device) or entry not in ranks]
    if strange or len(set(chosen)) < len(chosen):
        twice = next((entry for entry in chosen if chosen.count(entry) > 1), None)
        got = f"{strange[0]!r}" if strange else f"{twice!r} twice"
        raise SporaxValueError(
            f"For 'plan', 'devices' must be different ones of the {len(ranks)} that `jax.devices()` has, but got {got}."
        )
    return DeviceMatrix(tuple(devices.shape) or (1,), (), tuple(ranks[entry] for entry in chosen))
