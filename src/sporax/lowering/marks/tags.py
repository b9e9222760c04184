"""How the user's wishes about memory are written in name stacks.

A tag is one component of a name stack, ``recompute-12-mo``: it survives differentiation, is on every equation that was
traced inside, and of several the innermost one counts. Paths of operators leave tags out (`without_tags`).

A name scope around communication: it says what is sent, and for what, in the text of the compiled program and in profiles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import fields

import jax

from sporax.base.lazy_members import dataclass
from sporax.ir.marks import next_number

_TAG = re.compile(r"recompute-(\d+)-([a-z]*)")
_OFFLOAD = "offload-"
_OFFLOADED = re.compile(rf"{_OFFLOAD}\d+-\d+")
_LETTERS: Mapping[str, str] = {
    "k": "keep",
    "o": "output_recompute",
    "m": "mp_comm_recompute",
    "p": "parallel_optimizer_comm_recompute",
    "s": "recompute_slice_activation",
}


@dataclass(frozen=True, slots=True)
class RecomputeTag:
    """What is said of the equations of one call of a Cell or operator.

    Attributes:
        number: of the call.
        keep: nothing is computed again here (`Primitive.recompute(False)`).
        output_recompute: the results are computed again, too.
        mp_comm_recompute: results of collectives that a plan inserts are computed again, too.
        parallel_optimizer_comm_recompute: weights are gathered again from where optimizer parallelism keeps them.
        recompute_slice_activation: what enters is kept in slices and gathered when it is needed again.
    """

    number: int
    keep: bool = False
    output_recompute: bool = False
    mp_comm_recompute: bool = True
    parallel_optimizer_comm_recompute: bool = False
    recompute_slice_activation: bool = False

    @property
    def scope(self) -> str:
        """The component of a name stack that says so."""
        letters = "".join(letter for letter, name in _LETTERS.items() if getattr(self, name))
        return f"recompute-{self.number}-{letters}"


def new_tag(**settings: bool) -> RecomputeTag:
    """A tag for one more call, with settings as the attributes of `RecomputeTag`."""
    return RecomputeTag(next_number(), **settings)


KEEP = RecomputeTag(0, keep=True)
"""For operators that are kept although they are in a recomputed Cell."""


def innermost_tag(stack: str) -> RecomputeTag | None:
    """What a name stack says; None where it says nothing.

    Example:
        >>> innermost_tag("Step/jvp(net)/recompute-12-mo/fc").output_recompute
        True
    """
    matches = _TAG.findall(stack)
    if not matches:
        return None
    number, letters = matches[-1]
    # Letters say what is on; defaults of the class would turn others on as well.
    unset = {field.name: False for field in fields(RecomputeTag) if field.name != "number"}
    return RecomputeTag(int(number), **{**unset, **{_LETTERS[letter]: True for letter in letters}})


def path_of_tag(stack: str) -> str:
    """A name stack down to the Cell or operator on which its innermost tag was set.

    Example:
        >>> path_of_tag("Step/jvp(net)/recompute-12-mo/fc/MatMul")
        'Step/jvp(net)/recompute-12-mo/fc'
    """
    last = list(_TAG.finditer(stack))[-1]
    head = len(stack) - len(stack[last.end() :].lstrip("/)"))
    stop = next((place for place in range(head, len(stack)) if stack[place] in "/)"), len(stack))
    return stack[:stop]


def offload_scope(number: int, prefetch: int) -> str:
    """The component of a name stack that says that values of a call wait for the backward pass in host memory.

    Args:
        prefetch: how many calls earlier they are brought back.
    """
    return f"{_OFFLOAD}{number}-{prefetch}"


def is_offloaded(stack: str) -> bool:
    """Whether a name stack says that values wait for the backward pass in host memory (`offload_scope`)."""
    return _OFFLOADED.search(stack) is not None


def without_tags(parts: list[str]) -> list[str]:
    """The components of a path that are not tags."""
    return [part for part in parts if not _TAG.fullmatch(part) and not part.startswith(_OFFLOAD)]


_PREFIX = "communication:"
# Paths of operators leave out parts with a colon.
_PURPOSE = re.compile(rf"{_PREFIX}([^/]*)")


def communication_scope(purpose: str, path: str = "") -> AbstractContextManager[None]:
    """Names what is traced inside.

    Args:
        purpose: for people: ``"gradient of fc.weight"``.
        path: of the operator that it is for.
    """
    name = f"{_PREFIX}{purpose.replace('/', '.')}"
    return jax.named_scope(f"{path}/{name}" if path else name)


def purposes_of(stack: str) -> list[str]:
    """What a name stack says of communication.

    Example:
        >>> purposes_of("step/fc/communication:gradient of fc.weight")
        ['gradient of fc.weight']
    """
    return _PURPOSE.findall(stack)
