"""Norms of the gradients of every rank before they are reduced: ``dump_local_norm``.

A rank whose norm differs strongly from those of the others has bad data or a bad device, which is no longer visible
after the reduction. The program computes the norms of one rank's partial sums and sends them to the host, which prints
or saves them; the step does not wait for it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sporax.ir.config.parallel_config import ParallelConfig

_lock = threading.Lock()
DEVICE_NORM = "device_local_norm"
"""Name of the norm over all gradients of a rank."""


@dataclass(frozen=True, slots=True)
class LocalNorms:
    """What is reported of the gradients of every rank.

    Attributes:
        ranks: the rank at every place of the mesh, row-major.
        by_parameter: whether the norm of every gradient is reported.
        total: whether the norm over all gradients of a rank is.
        folder: where norms are saved; "" to print them.
        saved: how many steps this process has saved in each folder. Steps are counted here, since programs carry no number.
    """

    ranks: tuple[int, ...]
    by_parameter: bool
    total: bool
    folder: str
    saved: Counter[Path] = field(compare=False)

    def watch(self, parameters: Sequence[str], gradients: Sequence[Array], place: Array) -> None:
        """Report the norms of one rank's gradients, from inside of its program.

        Args:
            parameters: names, one per gradient.
            gradients: what the rank holds of each.
            place: of the rank on the mesh, traced.
        """
        # In float32: the square of a float16 gradient overflows at 256.
        squares = [jnp.sum(jnp.square(gradient.astype(jnp.float32))) for gradient in gradients]
        named = [
            (f"local_norm__{name}", square)
            for name, square in zip(parameters, squares, strict=True)
            if self.by_parameter
        ]
        if self.total:
            named.append((DEVICE_NORM, sum(squares, jnp.zeros((), jnp.float32))))
        names = [name for name, _ in named]
        jax.debug.callback(partial(self._report, names), place, jnp.sqrt(jnp.stack([square for _, square in named])))

    # Called on the host, in a thread of XLA: nothing here may touch devices.
    def _report(self, names: Sequence[str], place: Array, norms: Array) -> None:
        rank = self.ranks[int(place)]
        values = dict(zip(names, np.asarray(norms), strict=True))
        if self.folder:
            self._save(Path(self.folder) / f"rank_{rank}", values)
        else:
            print("".join(f"{_label(name)} on rank {rank}: {value:.7g}\n" for name, value in values.items()), end="")

    def _save(self, folder: Path, values: dict[str, Any]) -> None:
        """One file for each norm, numbered by the steps that this process has saved in the folder."""
        # Callbacks of several devices of one process come from several threads.
        with _lock:
            number = self.saved[folder]
            self.saved[folder] += 1
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            np.save(folder / f"{name}_float32_{number}.npy", value)


def local_norms(config: ParallelConfig, ranks: Sequence[int], saved: Counter[Path]) -> LocalNorms | None:
    """What `config` requests to be reported; None for nothing.

    Args:
        ranks: the rank at every place of the mesh, row-major.
        saved: how many steps this process has saved in each folder; changed by programs that save.
    """
    if not (config.dump_local_norm or config.dump_device_local_norm):
        return None
    return LocalNorms(
        tuple(ranks), config.dump_local_norm, config.dump_device_local_norm, config.dump_local_norm_path, saved
    )


def _label(name: str) -> str:
    return "device local norm" if name == DEVICE_NORM else f"local norm of {name.removeprefix('local_norm__')}"
