"""One compiled form of a program: for shapes, static arguments and configuration (`sporax.runtime.program.program`)."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax

from sporax.base.progress import activity, reported
from sporax.ir.config.plan_settings import PlanSettings
from sporax.runtime import world
from sporax.runtime.process import compilation_cache, dry_run, step_verification
from sporax.runtime.program.signature import Signature
from sporax.runtime.ranks import local_ranks
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames
from sporax.runtime.storage.variables import InMemory, VariableStorage

if TYPE_CHECKING:
    from sporax.runtime.pipeline.pipelined_step import PipelinedStep
    from sporax.runtime.planned.step import PlannedStep

_SILENT_SECONDS = 2.0  # compilations that are over sooner leave no word


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say what is done inside when it takes seconds, and find programs that earlier runs have compiled."""
    compilation_cache.turn_on()
    started = time.perf_counter()
    with reported(speaks=world.world() is None or jax.process_index() == 0, delay=_SILENT_SECONDS), activity(what):
        yield
    SESSION.compile_seconds += time.perf_counter() - started


@dataclass(slots=True)
class Variant:
    """A compiled form, and what it depends on."""

    signature: Signature
    name: str
    written: tuple[Any, ...] = ()
    read: tuple[Any, ...] = ()
    guards: tuple[tuple[frames.Guard, Mapping[str, Hashable]], ...] = ()
    version: int = -1
    communicates: bool = False
    parts: local_ranks.Parts | None = None
    own: tuple[int, ...] = ()  # places of arguments that differ between the ranks that this process acts for
    tags: frozenset[str] = frozenset()
    filed: bool = False
    storage: VariableStorage = field(default_factory=InMemory)
    checks: bool = False
    jitted: Any = None
    executable: Any = None
    asked: PlanSettings | None = None
    requests: Mapping[Any, Any] = field(default_factory=dict)
    planned: PlannedStep | PipelinedStep | None = None
    out_tree: Any = None
    out_leaves: tuple[Any, ...] = ()
    holders: tuple[type, ...] | None = None  # types of the arguments, where all are `Session.holders`, by position

    def arrays_of(self, args: tuple[Any, ...]) -> list[jax.Array] | None:
        """The arrays in `args`, if these have the types, shapes and dtypes this variant was made for; else None."""
        # Arguments by keyword, or that are no Tensors, take the general way.
        if self.holders is None or len(args) != len(self.holders):
            return None
        arrays = []
        for arg, kind, (shape, dtype) in zip(args, self.holders, self.signature.leaves, strict=True):
            if type(arg) is not kind:
                return None
            array: jax.Array = arg.raw  # type: ignore[attr-defined]  # arguments are Tensors here
            if array.dtype != dtype or array.shape != shape:
                return None
            arrays.append(array)
        return arrays if local_ranks.positions_of_own(arrays) == self.own else None

    def lower(self, *args: Any) -> jax.stages.Lowered:
        """The program for these values of its variables and inputs, lowered and not compiled."""
        lowered: jax.stages.Lowered = self.jitted.lower(*args)
        return lowered

    def run(self, *args: Any) -> Any:
        """Run the executable, whose own dispatch is quicker than `jax.jit`'s; compile it first where need be."""
        if self.executable is not None:
            try:
                return self.executable(*args)
            except (TypeError, ValueError):
                # A variable has got another shape, dtype or placement since, and nothing ran; unless it did, and failed.
                if any(value.is_deleted() for value in args[0]):
                    raise
        if any(isinstance(array, jax.core.Tracer) for array in jax.tree.leaves(args)):
            return self.jitted(*args)  # someone else's JAX transformation: become part of it
        self.compile(*args)
        return self.executable(*args)

    def compile(self, *args: Any) -> None:
        """Compile the program for these values."""
        if dry_run.active():
            self.executable = dry_run.rehearse(self.lower(*args), self.jitted, self.name)
            return
        with waiting(f"compiling '{self.name}'"):
            self.executable = step_verification.compiled(self.jitted, self.name, args)

    def stale(self) -> str | None:
        """What changed in the configuration since this variant was traced, or None."""
        # A fingerprint names settings, so the message can say which one changed.
        for guard, before in self.guards:
            now = guard.fingerprint()
            if now == before:
                continue
            for name in {**before, **now}:
                if before.get(name) != now.get(name):
                    return f"{guard.describe()}: {name} changed from {before.get(name)!r} to {now.get(name)!r}"
        return None

    def fresh(self) -> bool:
        """Whether this variant may run as things are now."""
        now = frames.version()
        # The version is one number for all configuration; guards are compared only when it has moved.
        if self.version != now:
            if self.stale() is not None:
                return False
            self.version = now
        return True
