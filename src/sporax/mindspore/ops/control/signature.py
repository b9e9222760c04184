"""`mindspore.ops.signature`: how operators that the user declares describe their arguments.

`PrimitiveWithInfer` asks its methods for shapes and dtypes; a class's `__mindspore_signature__` is data that it does not need.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

sig_dtype = enum.IntEnum("sig_dtype", [*(f"T{i or ''}" for i in range(10)), "T_EMPTY_DEFAULT_VALUE"], start=0)
sig_rw = enum.IntEnum("sig_rw", "RW_READ RW_WRITE RW_REF RW_EMPTY_DEFAULT_VALUE", start=0)
_KINDS = "POSITIONAL_KEYWORD VAR_POSITIONAL KEYWORD_ONLY VAR_KEYWARD EMPTY_DEFAULT_VALUE"
sig_kind = enum.IntEnum("sig_kind", [f"KIND_{kind}" for kind in _KINDS.split()], start=0)


class Signature(NamedTuple):
    """An argument: its name, whether it is written, how it is passed, its default, and the group of arguments of its dtype."""

    name: str = "var"
    rw: Any = sig_rw.RW_READ
    kind: Any = sig_kind.KIND_POSITIONAL_KEYWORD
    default: Any = sig_kind.KIND_EMPTY_DEFAULT_VALUE
    dtype: Any = sig_dtype.T_EMPTY_DEFAULT_VALUE


make_sig = Signature
