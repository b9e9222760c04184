"""How programs run: session, state, compiled programs, ranks, storage. Works on `jax.Array`s; knows no Tensor and no Cell."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sporax.runtime import world
