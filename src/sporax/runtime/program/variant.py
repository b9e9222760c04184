"""One compiled form of a program: for shapes, static arguments and configuration (`sporax.runtime.program.program`).

What a compiled program takes besides its variables, and what it gives back, in the structure of the user's function.

What a program was traced for: the structure of its arguments, shapes and dtypes of arrays, values of everything else.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from sporax.base.errors import For
from sporax.base.progress import activity, reported
from sporax.ir.config.plan_settings import PlanSettings
from sporax.runtime import world
from sporax.runtime.process import compilation_cache, dry_run, step_verification
from sporax.runtime.ranks import joint_arrays, local_ranks
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames, ordered_trees
from sporax.runtime.storage.variables import InMemory, VariableStorage

if TYPE_CHECKING:
    from sporax.runtime.pipeline.pipelined_step import PipelinedStep
    from sporax.runtime.planned.step import PlannedStep


class Signature(NamedTuple):
    """What a variant was traced for."""

    tree: Any
    leaves: tuple[tuple[Any, Any], ...]  # (shape, dtype) of an array, (type, value) of anything else


class _FixedArray:
    """A numpy array as a static value: two are equal when shape, dtype and elements are.

    Attributes:
        values: a copy that cannot be written to, since a program keeps what it was traced with.
    """

    __slots__ = ("_key", "values")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.values = array.copy()
        self.values.setflags(write=False)
        self._key = (array.shape, array.dtype.str, self.values.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FixedArray) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"numpy array {self.values.dtype}{list(self.values.shape)}"


def is_array(leaf: object) -> bool:
    """Whether a leaf is an array."""
    return _is_array_type(type(leaf))


_is_array_type: Callable[[type], bool] = functools.cache(lambda kind: issubclass(kind, (jax.Array, jax.core.Tracer)))
"""`isinstance` with `jax.Array` is slow, so each type is looked at once."""


def sign(leaves: list[Any], tree: Any, name: str) -> Signature:
    """The signature of a call of the program with this name.

    Raises:
        SporaxTypeError: an argument is neither an array nor hashable.
    """
    described = [(leaf.shape, leaf.dtype) if is_array(leaf) else _static(leaf) for leaf in leaves]
    signature = Signature(tree, tuple(described))
    # A list as a static argument is refused here, with the program's name, and not in a dictionary later.
    try:
        hash(signature)
    except TypeError:
        culprit = next(leaf for leaf in leaves if not is_array(leaf) and not _hashable(leaf))
        raise For(name).type_error(
            "an argument must be a Tensor, a number, a string or a container of these", type(culprit).__name__
        ) from None
    return signature


def _static(leaf: Any) -> tuple[type, Any]:
    # The elements of an array of objects are no values that could be compared.
    if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
        return np.ndarray, _FixedArray(leaf)
    return type(leaf), leaf


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def inputs_of(signature: Signature, arrays: list[Any]) -> tuple[Any, Any]:
    """Arguments with such a signature and these arrays, by position and by name."""
    remaining = iter(arrays)
    # A type marks a static value, a shape (a tuple) marks an array.
    leaves = [_input_of(value) if isinstance(kind, type) else next(remaining) for kind, value in signature.leaves]
    args, kwargs = jax.tree.unflatten(signature.tree, leaves)
    return args, kwargs


def _input_of(value: object) -> object:
    return value.values if isinstance(value, _FixedArray) else value


def difference(before: Signature, after: Signature) -> str:
    """What differs between two signatures, in words."""
    # A changed structure is named first, since leaves cannot be compared then.
    if before.tree != after.tree:
        return f"structure of the arguments changed from {before.tree} to {after.tree}"
    for index, (old, new) in enumerate(zip(before.leaves, after.leaves, strict=True)):
        if old != new:
            return f"argument {index} changed from {_text(old)} to {_text(new)}"
    return "inputs changed"


def _text(leaf: tuple[Any, Any]) -> str:
    kind, value = leaf
    return repr(value) if isinstance(kind, type) else f"{value}{list(kind)}"


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
    peers: frozenset[int] = frozenset()  # ranks that exchange data in it
    parts: local_ranks.Parts | None = None
    own: tuple[int, ...] = ()  # places of arguments that differ between the ranks that this process acts for
    tags: frozenset[str] = frozenset()
    filed: bool = False
    storage: VariableStorage = field(default_factory=InMemory)
    checks: bool = False
    jitted: Any = None
    executable: Any = None
    requested: PlanSettings | None = None
    requests: Mapping[Any, Any] = field(default_factory=dict)
    effects: tuple[tuple[object, str, object], ...] = ()
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
            if type(arg) is not kind or getattr(arg, "static_part", None) is not None:
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
            self.executable = dry_run.for_dry_run(self.lower(*args), self.jitted, self.name)
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


class _Array:
    """Stands for an array among the leaves of a result."""

    def __repr__(self) -> str:
        return "<array>"


_ARRAY = _Array()


def assembled(variant: Variant, outputs: list[jax.Array]) -> Any:
    """Results of the program in the structure of those of the function, after what it assigns to attributes."""
    for owner, name, value in variant.effects:
        setattr(owner, name, value)
    # No static values between the arrays, so the structure can be filled directly.
    if len(outputs) == len(variant.out_leaves):  # arrays only
        return variant.out_tree.unflatten(outputs)
    remaining = iter(outputs)
    leaves = [next(remaining) if leaf is _ARRAY else leaf for leaf in variant.out_leaves]
    return jax.tree.unflatten(variant.out_tree, leaves)


def note_results(variant: Variant, result: Any) -> list[Any]:
    """Note the structure of a function's result; gives its leaves."""
    leaves, variant.out_tree = ordered_trees.flatten(result)
    variant.out_leaves = tuple(_ARRAY if isinstance(leaf, jax.Array) else leaf for leaf in leaves)
    return leaves


def joint_inputs(variant: Variant, arrays: list[jax.Array], devices: joint_arrays.Devices) -> list[jax.Array]:
    """The arrays over the devices of all ranks."""
    if variant.parts is not None:
        return variant.parts.taken(arrays, devices)
    return [joint_arrays.to_joint(array, devices) for array in arrays]
