"""Objects of flax.nnx among the arguments of a planned function: split before a call, updated after it.

Problem: a step of flax.nnx changes its model and its optimizer in place, and a plan has results alone. Method: every argument
that holds objects is split into its state, a pytree of arrays, which is the argument of the plan; the traced function merges it,
and returns the new states before its own results. A state takes the place of the one before at the next step. flax is not
imported here: who has such objects has loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import jax

from sporax.base.errors import For, SporaxTypeError, SporaxValueError


@dataclass(frozen=True, slots=True)
class NnxObjects:
    """The arguments of a function that hold objects of flax.nnx.

    Attributes:
        names: of the arguments for messages, by position.
        definitions: what the objects are without their arrays, by position.
    """

    names: Mapping[int, str] = field(default_factory=dict)
    definitions: Mapping[int, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, args: Sequence[Any], keywords: Sequence[str] = ()) -> NnxObjects:
        """The objects among arguments.

        Args:
            args: the arguments, those by keyword last.

        Raises:
            SporaxValueError: two arguments share a variable: each would get an update of its own.
        """
        first = len(args) - len(keywords)
        names = {
            number: keywords[number - first] if number >= first else f"args[{number}]"
            for number, arg in enumerate(args)
            if _holds_objects(arg)
        }
        owner: dict[int, str] = {}
        for number, name in names.items():
            for variable in _variables(args[number]):
                if owner.setdefault(id(variable), name) != name:
                    raise SporaxValueError(
                        f"For 'plan', objects of flax.nnx in different arguments must have variables of their own, but "
                        f"{owner[id(variable)]} and {name} share one. Hand them over together, as a tuple."
                    )
        return cls(names, {number: _nnx().split(args[number])[0] for number in names})

    def __bool__(self) -> bool:
        return bool(self.definitions)

    def states(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments with states in place of objects.

        Raises:
            SporaxTypeError: an object is not made as the one that the plan is for.
        """
        split = list(args)
        for number, definition in self.definitions.items():
            if not _holds_objects(args[number]):
                continue  # a state already, or no object: the structure of the arguments is compared later
            made, split[number] = _nnx().split(args[number])
            if made != definition:
                raise SporaxTypeError(
                    f"For 'plan', {self.names[number]} must hold objects made as those that the plan is for, but they differ."
                )
        return tuple(split)

    def pure(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function of states: its results are the new states, then its own result.

        It raises `SporaxValueError` where the function changes what objects are made of.
        """

        @wraps(fn)
        def call(*args: Any) -> tuple[Any, ...]:
            trees: dict[int, Any] = {number: jax.tree.structure(args[number]) for number in self.definitions}
            merged = list(args)
            for number, definition in self.definitions.items():
                merged[number] = _nnx().merge(definition, args[number])
            own = fn(*merged)
            after = {number: _nnx().split(merged[number]) for number in trees}
            for number, (definition, state) in after.items():
                if definition != self.definitions[number] or jax.tree.structure(state) != trees[number]:
                    raise SporaxValueError(
                        f"For 'plan', 'fn' may change the values of the variables of {self.names[number]}, but it changes what "
                        "the objects are made of. Do this outside of the function."
                    )
            return (*(state for _, state in after.values()), own)

        return call

    def carry(self, others: Mapping[int, int]) -> dict[int, int]:
        """States that take the place of the ones before, by position of the result.

        Raises:
            SporaxValueError: the user has named others.
        """
        For("plan").refuse(
            others, "'carry' must be left out where arguments are objects of flax.nnx, which are carried", others
        )
        return dict(enumerate(self.definitions))

    def updated(self, args: Sequence[Any], results: tuple[Any, ...]) -> Any:
        """The function's own results, with the new states written into the objects; states come back where states were given."""
        *states, own = results
        pairs = dict(zip(self.definitions, states, strict=True))
        for number, state in pairs.items():
            if _holds_objects(args[number]):
                _nnx().update(args[number], state)
        if all(_holds_objects(args[number]) for number in pairs):
            return own
        return (*(state for number, state in pairs.items() if not _holds_objects(args[number])), own)


def _nnx() -> Any:
    """flax.nnx, if something has loaded it."""
    return sys.modules.get("flax.nnx")


def _is_object(value: Any) -> bool:
    nnx = _nnx()
    # Pytree is the root of modules, optimizers and metrics; older releases call it Object.
    return nnx is not None and isinstance(value, getattr(nnx, "Pytree", None) or nnx.Object)


def _holds_objects(arg: Any) -> bool:
    return _nnx() is not None and any(map(_is_object, jax.tree.leaves(arg, is_leaf=_is_object)))


def _variables(arg: Any) -> list[Any]:
    """The variables of all objects of an argument."""
    nnx = _nnx()

    def is_variable(value: Any) -> bool:
        return isinstance(value, nnx.Variable)

    return [leaf for leaf in jax.tree.leaves(arg, is_leaf=is_variable) if is_variable(leaf)]
