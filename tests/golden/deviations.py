"""Where Sporax departs from MindSpore's observed behaviour, and why: reason → cases (or dotted names).

Every entry is checked from both sides: the case must really differ. When one stops differing, its test fails and the
entry goes.
"""

from __future__ import annotations

FACTS: dict[str, tuple[str, ...]] = {
    "arrays are immutable: indexing gives a copy, never a view": (
        "x = A(); y = x[1]; x[1] = 0; (x, y)",
        "x = A(); y = x[1]; y[0] = 99; x",
        "x = A(); x[0][1] = 77; x",
    ),
    "arrays are immutable: `asnumpy` gives a copy or a read-only view, and `from_numpy` shares nothing": (
        "a=np.ones(2,np.float32); t=Tensor.from_numpy(a); a[0]=5; t",
        "t=Tensor([1.,2.]); b=t.asnumpy(); b[0]=7; t",
        "t=Tensor([1.,2.]); t.asnumpy().flags.writeable",
    ),
    "a branch on a traced tensor is an error that points to the control-flow operators": (
        "@ms.jit\ndef g(x):\n    if x.sum() > 0: return x\n    return -x\ng(F(2))",
    ),
}

SIGNATURES: dict[str, tuple[str, ...]] = {}

PROMOTION: dict[str, tuple[str, ...]] = {}


def reason(table: dict[str, tuple[str, ...]], entry: str) -> str | None:
    """Why `entry` departs, or None when it must agree."""
    return next((why for why, entries in table.items() if entry in entries), None)
