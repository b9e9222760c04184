"""Mutable variables inside pure programs.

MindSpore programs assign to Parameters; JAX programs are pure. The bridge is a stack of *frames*. Outside every frame a
variable's value is the array it holds. Each transformation (compile, differentiate, recompute, branch) runs the user's
code inside a frame of its own: reads look for the variable in the innermost frame first, writes stay in it, and the
transformation turns what was written into results of the pure function it builds.

                 outside          jit frame           grad frame
    read  w      w.raw       →    tracer of w    →    tracer being differentiated
    write w      w.raw = a   ←    result of program ← auxiliary result of the gradient

The second thing a program depends on is *configuration*: flags such as a Cell's ``training``. Whatever may change it
calls `touch`, whatever reads it during a trace calls `depend_on`; a compiled program then knows when it is stale.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from types import TracebackType
from typing import Any, Protocol, TypeVar

import jax

from sporax.base.errors import SporaxTypeError
from sporax.base.identity import ByIdentity
from sporax.base.lazy_members import dataclass
from sporax.lowering import marks as trace_marks
from sporax.runtime.session import SESSION

Result = TypeVar("Result")


class Variable(Protocol):
    """A named, mutable holder of one array. Hashes by identity.

    The array is in one of two forms, in ``raw`` (this rank's) or in ``joint`` (see `sporax.runtime.ranks.joint_arrays`); the
    other slot is empty, and reading it changes the form. A Parameter has two more, ``parts`` and ``row`` (see
    `sporax.runtime.storage.placed_variables`, `sporax.runtime.storage.variables`).
    """

    raw: jax.Array
    joint: jax.Array
    name: str


def slot(variable: Variable, name: str) -> Any:
    """What is in a slot, or None if there is nothing in it or no such slot."""
    try:
        return object.__getattribute__(variable, name)
    except AttributeError:
        return None


class Guard(Protocol):
    """Something a trace depends on besides its inputs; equal fingerprints mean that nothing relevant changed."""

    def fingerprint(self) -> Mapping[str, Hashable]:
        """Relevant settings by name."""

    def describe(self) -> str:
        """What it is called in messages."""


class Retrace(BaseException):
    """A function of the program has changed while it was traced, so the trace begins again.

    No `Exception`, so that code being traced does not catch it.
    """


class ValueNeededError(SporaxTypeError):
    """Code requested the values of a tensor, as a numpy array, that are not known while the step is being compiled."""

    reason = "it needs the values of a tensor"
    place = ""  # in the user's files; where it is empty, the traceback shows it


class ShapeNeededError(ValueNeededError):
    """An operator needs such values to know a shape, an axis or another setting."""

    reason = "a shape or a setting depends on the values of a tensor"


def version() -> int:
    """Number that grows whenever configuration a trace may depend on has changed."""
    return SESSION.version


def touch() -> None:
    """Say that configuration changed, so compiled programs look at their guards again."""
    SESSION.version += 1


_COPIES: Mapping[type, Callable[[Any, Any], None]] = {list: list.extend, dict: dict.update, set: set.update}
"""Containers that programs may change while they are traced, and how they are filled again."""


@dataclass(slots=True, eq=False)
class Frame:
    """Values of variables inside one transformation.

    Attributes:
        values: variables this frame answers for, with their values inside it.
        compiled: what runs inside becomes part of a compiled program.
        planned: that program is sharded by a plan (`sporax.runtime.devices.global_view`), which reads marks.
        communicates: the ranks that exchange data in what ran inside.
        tags: kinds of wishes about memory by which the program is rewritten (`sporax.lowering.passes.pass_tags`).
        view: settings under which a part of what ran inside is to be sharded by a plan.
        checks: what ran inside has conditions under which the program fails.
        trains: what ran inside computes gradients of variables.
        constants: traced arrays whose values can be computed now (`sporax.runtime.state.trace_constants`), by identity.
        calls, requests: calls by Cell, and what gradients want of them (`sporax.mindspore.common.one_forward`).
        writes: how often variables were written.
        assigned: attributes that a compiled program assigns: their owner, name, and value before.
        effects: likewise, with the value after, once the frame has been left.
        copies: by Cell the names of its lists, dicts and sets, these, and what was in them before.
    """

    values: dict[Any, jax.Array] = field(default_factory=dict)
    compiled: bool = False
    planned: bool = False
    written: dict[Any, None] = field(default_factory=dict)  # a set that keeps order
    guards: dict[ByIdentity, Guard] = field(default_factory=dict)
    parent: Frame | None = None
    communicates: frozenset[int] = frozenset()
    tags: frozenset[str] = frozenset()
    view: Hashable = None
    checks: bool = False
    trains: bool = False
    constants: dict[ByIdentity, Any] = field(default_factory=dict)
    calls: dict[int, list[Any]] = field(default_factory=dict)
    requests: dict[Any, Any] = field(default_factory=dict)
    writes: int = 0
    assigned: dict[tuple[int, str], tuple[object, object]] = field(default_factory=dict)
    effects: tuple[tuple[object, str, object], ...] = ()
    copies: dict[ByIdentity, list[tuple[str, Any, Any]]] = field(default_factory=dict)

    def __enter__(self) -> Frame:
        self.parent = SESSION.tracing.frame
        SESSION.tracing.frame = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Also after an exception: a trace that fails must not leave its frame behind.
        SESSION.tracing.frame = self.parent
        # A program may be traced more than once; what it assigns is assigned when it runs.
        # What holds traced arrays means nothing after the trace.
        after = [(owner, name, getattr(owner, name)) for (_, name), (owner, _) in self.assigned.items()]
        self.effects = tuple(entry for entry in after if not _holds_traced(entry[2]))
        if kind is None:
            changed = ((key.value, name, value) for key, entries in self.copies.items() for name, value, _ in entries)
            _look_for_losses((*after, *changed))
        for (_, name), (owner, before) in self.assigned.items():
            setattr(owner, name, before)
        for _, value, before in itertools.chain(*self.copies.values()):
            value.clear()
            _COPIES[type(value)](value, before)
        if self.parent is None:
            SESSION.tracing.texts.clear()
        else:
            # What a transformation inside depends on, the program around it depends on, too.
            self.parent.guards.update(self.guards)
            self.parent.communicates |= self.communicates
            self.parent.tags |= self.tags
            self.parent.view = self.parent.view or self.view
            self.parent.checks = self.parent.checks or self.checks
            self.parent.trains = self.parent.trains or self.trains

    def read(self, variable: Variable) -> jax.Array:
        """Value of `variable` here: own, else the enclosing frame's, else the array it holds."""
        value = self.values.get(variable)
        if value is not None:
            return value
        if self.parent is not None:
            return self.parent.read(variable)
        return in_device_memory(variable.raw) if getattr(variable, "on_host", False) else variable.raw

    def write(self, variable: Variable, value: jax.Array) -> None:
        """Give `variable` a new value inside this frame."""
        # Written values also answer reads, so the order of statements is kept.
        self.values[variable] = value
        self.written[variable] = None
        self.writes += 1

    def updates(self) -> dict[Any, jax.Array]:
        """What was written, with the last value of each."""
        return {variable: self.values[variable] for variable in self.written}


def _holds_traced(value: object) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def _look_for_losses(attributes: Iterable[tuple[object, str, object]]) -> None:
    """Warn of containers with tensors of the trace that ends, which are about to be what they were before it."""
    for owner, name, value in attributes:
        if type(value) in _COPIES and _holds_traced(value):
            _warn_of_loss(type(owner).__name__, name, type(value).__name__)


@functools.cache
def _warn_of_loss(kind: str, name: str, container: str) -> None:
    warnings.warn(
        f"For '{kind}', the {container} '{name}' gets tensors in a compiled step, and has none of them after it. Assign a tuple "
        "to have them in the next step; where only this step reads them, nothing is lost.",
        stacklevel=2,
    )


class DiscoveryFrame(Frame):
    """Frame of a first, abstract trace that finds out which variables a program reads and writes."""

    __slots__ = ("found",)

    def __init__(self, planned: bool = False) -> None:
        super().__init__(compiled=True, planned=planned)
        self.found: dict[Any, int] = {}  # with numbers in this order

    def read(self, variable: Variable) -> jax.Array:
        """Value of `variable` as a tracer, so that code which branches on it fails here as it would when compiled.

        A new tracer each time: one made inside a loop body must not be met again outside of it.
        """
        value = self.values.get(variable)
        if value is not None:
            return value
        number = self.found.setdefault(variable, len(self.found))
        unmade = getattr(variable, "unmade", None)
        if self.planned and not getattr(variable, "on_host", False):
            # Where a plan shards the program, an array that is on a mesh already would leave its sharding in the trace.
            value = variable.raw if unmade is None else unmade
            return trace_marks.mark_shape(value.shape, value.dtype, number)
        if unmade is not None:
            # A lazy variable has a shape and no array, which is all that an abstract trace needs.
            array = jax.lax.full(unmade.shape, 0, unmade.dtype)
        elif getattr(variable, "on_host", False):
            # The tag makes the program fetch such variables at its start.
            note_tag("host")
            array = jax.lax.full(variable.raw.shape, 0, variable.raw.dtype)
        else:
            array = variable.raw
        return trace_marks.mark_read(array, number)

    def write(self, variable: Variable, value: jax.Array) -> None:
        """Give `variable` a new value; it counts as read too, since a program returns every variable it was given."""
        self.found.setdefault(variable, len(self.found))
        super().write(variable, value)


def current_frame() -> Frame | None:
    """The innermost frame of this thread, or None outside every transformation."""
    frame: Frame | None = SESSION.tracing.frame
    return frame


def compiling() -> bool:
    """Whether what runs now becomes part of a compiled program, so that values are not known."""
    frame = current_frame()
    while frame is not None and not frame.compiled:
        frame = frame.parent
    return frame is not None


def value_unknown() -> type[SporaxTypeError]:
    """The error for a shape or setting that is not known: `ShapeNeededError` while a step is being compiled."""
    return ShapeNeededError if compiling() else SporaxTypeError


def planning() -> bool:
    """Whether what runs now becomes part of a program that is sharded by a plan."""
    frame = current_frame()
    while frame is not None and not frame.planned:
        frame = frame.parent
    return frame is not None


def in_device_memory(array: jax.Array) -> jax.Array:
    """The array, brought from the host's memory if it is there."""
    kind = getattr(array.sharding, "memory_kind", None)
    # Arrays of other transformations have no sharding with a memory kind.
    return array if kind in (None, "device") else jax.device_put(array, array.sharding.with_memory_kind("device"))


def read(variable: Variable) -> jax.Array:
    """Value of `variable` as seen from the innermost frame."""
    frame = current_frame()
    if frame is not None:
        return frame.read(variable)
    return in_device_memory(variable.raw) if getattr(variable, "on_host", False) else variable.raw


def write(variable: Variable, value: jax.Array) -> None:
    """Set `variable` in the innermost frame, or for good outside every frame."""
    frame = current_frame()
    if frame is None:
        put(variable, value)
    else:
        frame.write(variable, value)


def put(variable: Variable, value: Any) -> None:
    """Set `variable` for good, whatever form it was in: to an array of JAX, or of numpy."""
    variable.raw = value
    # Other forms hold the value before, so they must go.
    for form in ("joint", "parts", "row"):
        with suppress(AttributeError):  # the usual case: it was in local form already
            delattr(variable, form)


def note_communication(ranks: Iterable[int]) -> None:
    """Say that these ranks exchange data in the running trace."""
    if (frame := current_frame()) is not None:
        frame.communicates |= frozenset(ranks)


def note_tag(kind: str) -> None:
    """Say that the program of the running trace is to be rewritten: `kind` names the pass."""
    if (frame := current_frame()) is not None:
        frame.tags |= {kind}


def note_assignment(owner: object, name: str) -> None:
    """Say that an attribute, which has a value, is being assigned: in a program that is compiled, at its end."""
    if (program := _program_frame()) is not None:
        program.assigned.setdefault((id(owner), name), (owner, getattr(owner, name)))


def has_assigned(owner: object, name: str) -> bool:
    """Whether the program that is compiled has assigned an attribute (`note_assignment`)."""
    program = _program_frame()
    return program is not None and (id(owner), name) in program.assigned


def _program_frame() -> Frame | None:
    """The outermost frame of a program that is compiled."""
    frame, outermost = current_frame(), None
    while frame is not None:
        outermost = frame if frame.compiled else outermost
        frame = frame.parent
    return outermost


def depend_on_cell(cell: Guard) -> None:
    """Note that the running trace depends on `cell`, whose lists, dicts and sets are what they were after it."""
    depend_on(cell)
    program = _program_frame()
    if program is not None and (key := ByIdentity(cell)) not in program.copies:
        program.copies[key] = [(name, value, value.copy()) for name, value in _containers_of(cell).items()]


def _containers_of(cell: object) -> dict[str, Any]:
    return {name: value for name, value in vars(cell).items() if type(value) in _COPIES and name[0] != "_"}


def containers() -> list[tuple[Any, str]]:
    """Where the Cells that the running trace depends on have lists, dicts and sets: Cells and names of attributes."""
    program = _program_frame()
    cells = [] if program is None else [key.value for key in program.copies]
    return [(cell, name) for cell in cells for name in _containers_of(cell)]


def note_check() -> None:
    """Say that the running trace has a condition under which the program fails."""
    if (frame := current_frame()) is not None:
        frame.checks = True


def note_training() -> None:
    """Say that the running trace computes gradients of variables."""
    if (frame := current_frame()) is not None:
        frame.trains = True


def request_plan(settings: Hashable) -> None:
    """Say that the running trace should be sharded by a plan under these settings, whatever those of the process are."""
    if (frame := current_frame()) is not None:
        frame.view = settings


def depend_on(guard: Guard) -> None:
    """Note that the running trace depends on `guard`."""
    frame = current_frame()
    if frame is not None:
        frame.guards[ByIdentity(guard)] = guard


def commit(updates: Mapping[Any, jax.Array]) -> None:
    """Write `updates` in the present frame (or for good, outside every frame)."""
    for variable, value in updates.items():
        write(variable, value)


def isolate(
    function: Callable[[], Result], values: Mapping[Any, jax.Array] | None = None
) -> tuple[Result, dict[Any, jax.Array]]:
    """Run `function` in a frame of its own; return its result and what it wrote, writing nothing outside."""
    with Frame(dict(values or {})) as frame:
        result = function()
    return result, frame.updates()
