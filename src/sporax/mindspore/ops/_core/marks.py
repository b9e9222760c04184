"""Marks of operators, `add_prim_attr(name, value)`: which there are, and what each may be.

Problem: a mark is any name with any value, so a mistyped name, or a value that no code expects, did nothing. Method: a table of
the marks that something reads, each with its check; others are kept, since programs keep notes there, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError, check_type

Check = Callable[[str, str, Any], None]
"""``check(operator, mark, value)`` raises where the value is none."""


def _flag(operator: str, mark: str, value: Any) -> None:
    check_type(operator, mark, value, "a bool", bool)


def _natural(operator: str, mark: str, value: Any) -> None:
    check_type(operator, mark, value, "an int", int, takes_bool=False)
    if value < 0:
        raise SporaxValueError(f"For '{operator}', '{mark}' must be >= 0, but got {value}.")


def _target(operator: str, mark: str, value: Any) -> None:
    if value not in ("", "CPU", "GPU", "Ascend"):  # "": none is asked for
        raise SporaxRuntimeError(
            f"For '{operator}', '{mark}' ('device_target' of set_device) must be 'CPU', 'GPU' or 'Ascend', but got {value!r}."
        )


def _strategy(operator: str, mark: str, value: Any) -> None:
    if value is not None:
        strategy_form(operator, mark, value)


def _generation(operator: str, mark: str, value: Any) -> None:
    if value != "data_parallel":
        raise SporaxValueError(f"For '{operator}', '{mark}' must be 'data_parallel', but got {value!r}.")


def _of_lookup(operator: str, mark: str, value: Any) -> None:
    # The rows themselves are checked with the table, when the step is planned.
    if operator not in LOOKUPS:
        tell_unread(operator, mark, f"only lookups ({', '.join(sorted(LOOKUPS))}) have rows that can be split by hand")


def _anything(operator: str, mark: str, value: Any) -> None:
    """Checked by who sets it, or a note."""


LOOKUPS = frozenset({"Gather", "GatherV2", "SparseGatherV2", "EmbeddingLookup"})
"""Operators that read `manual_split`."""

MARKS: dict[str, Check] = {
    "recompute": _flag,
    "offload": _natural,
    "primitive_target": _target,
    "stage": _natural,
    "place": _natural,
    "in_strategy": _strategy,
    "out_strategy": _strategy,
    "strategy_gen_mode": _generation,
    "manual_split": _of_lookup,
    "manual_split_with_offset": _of_lookup,
    "self_define_shard": _flag,
    "enable_nd_tp": _flag,
    "forward_reduce_scatter": _flag,
    "input_names": _anything,
    "output_names": _anything,
}
"""Those that something reads."""


def check_mark(operator: str, mark: str, value: Any) -> None:
    """Check a mark of an operator; one that nothing reads is told.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxRuntimeError: a value that it must not have.
    """
    if mark in MARKS:
        MARKS[mark](operator, mark, value)
    else:
        tell_unread(operator, mark, "nothing reads a mark of this name")


def tell_unread(operator: str, mark: str, why: str) -> None:
    """Warn of a mark that nothing reads.

    Args:
        operator: its name.
        mark: its name.
        why: nothing reads it.
    """
    warnings.warn(f"For '{operator}', the mark '{mark}' has no effect: {why}.", stacklevel=5)


def strategy_form(name: str, what: str, strategy: Any) -> str:
    """``"tuple"`` or ``"layout"``: what a strategy is written in.

    Raises:
        SporaxTypeError: neither.
    """
    check_type(name, what, strategy, "a tuple", tuple)
    form = "tuple"
    for entry in strategy:
        # By attributes and not by type: Layouts are of a layer above.
        if hasattr(entry, "tensor_map") or hasattr(entry, "to_dict"):
            form = "layout"
        elif not isinstance(entry, tuple):
            raise SporaxTypeError(f"For '{name}', the entries of '{what}' must be tuples or Layouts. Got {entry!r}.")
        # A tuple among the numbers is an axis that several device axes shard.
        elif any(not isinstance(slices, int | tuple) or isinstance(slices, bool) for slices in entry):
            raise SporaxTypeError(f"For '{name}', the numbers of slices in '{what}' must be ints, but got {entry!r}.")
    return form
