"""The examples of the reference: a call of each name and what it gives, in `tools/examples/`, as a Python shell has them.

    python tools/_examples.py        # runs all calls and writes what they give now

A new name needs its call: a line with `# name` in the file of its page, and below it what one types into a shell, where `NAMES`
are known. Calls of random operators show shapes. Where a docstring has an example, there is none here; `WITHOUT` says why a name
has none at all.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sporax.mindspore as ms

FOLDER = Path(__file__).with_name("examples")
PAGES = ("sporax.mindspore.Tensor", "sporax.mindspore.mint", "sporax.mindspore.nn", "sporax.mindspore.ops")
"""Pages whose names have examples."""
NAMES = {name: getattr(ms, name) for name in ("Parameter", "Tensor", "mint", "nn", "ops")} | {"ms": ms, "np": np}
BEGINNING = """\
import numpy as np
import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, mint, nn, ops
"""
"""What all examples begin with."""

WITHOUT = {
    "sporax.mindspore.ops": {
        "they need several ranks, or show nothing with one": (
            "AllGather AllGatherV AllReduce AlltoAll AlltoAllV AlltoAllVC Barrier BatchISendIRecv Broadcast CollectiveGather "
            "CollectiveScatter NeighborExchange NeighborExchangeV2 Receive Reduce ReduceScatter ReduceScatterV Send"
        ),
        "they write files or raise, and give nothing": (
            "Assert DumpGradient HistogramSummary ImageSummary ScalarSummary TensorDump TensorSummary tensordump"
        ),
        "they are of accelerators of Huawei": (
            "NPUAllocFloatStatus NPUClearFloatStatus NPUClearFloatStatusV2 NPUGetFloatStatus NPUGetFloatStatusV2"
        ),
        "they are for writing operators": "CustomOpBuilder CustomRegOp DataType Primitive prim_attr_register",
        "their smallest call is a page long": "PagedAttention PagedAttentionMask ReshapeAndCache moe_init_routing_v2",
    },
    "sporax.mindspore.mint": {"its smallest call is a page long": "batch_norm_gather_stats_with_counts"},
    "sporax.mindspore.nn": {"it is a block that shows nothing": "no_init_parameters"},
    "sporax.mindspore.Tensor": {
        "it is another number each time": "data_ptr",
        "they give nothing": "data_sync flush_from_cache forget_initializer make_at register_hook unmade",
        "they exchange capsules with other libraries": "from_dlpack to_dlpack",
    },
}
"""Page -> why names have no example -> which."""


def examples(page: str) -> dict[str, str]:
    """Name -> its example, of a page of the reference."""
    parts = re.split(r"(?m)^# (\w+)\n", _file(page).read_text()) if page in PAGES else []
    return {name: text.rstrip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _file(page: str) -> Path:
    return FOLDER / f"{page.rpartition('.')[2]}.txt"


def run(example: str) -> str:
    """The example with what its calls give now."""
    return "\n".join(_lines(example))


def _lines(example: str) -> Iterator[str]:
    names: dict[str, Any] = dict(NAMES)
    ms.set_seed(1)
    for statement in doctest.DocTestParser().get_examples(example + "\n"):
        yield ">>> " + statement.source.rstrip().replace("\n", "\n... ")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(statement.source, "<example>", "single"), names)
        if printed.getvalue().strip():
            yield printed.getvalue().rstrip()


def main() -> int:
    """Write all files again. Returns the exit status."""
    failed = 0
    for page in PAGES:
        parts = []
        for name, text in examples(page).items():
            try:
                parts.append(f"# {name}\n{run(text)}\n")
            except Exception as error:
                print(f"{page}.{name}: {type(error).__name__}: {error}", file=sys.stderr)
                parts.append(f"# {name}\n{text}\n")
                failed += 1
        _file(page).write_text("\n".join(parts))
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
