"""How ranks that compute on the CPU get their memory: large buffers are kept between steps, on large pages.

A training step takes and gives back the same buffers every time. The C library (glibc) fetches those above 32 MB from the
system again at each step and returns free memory early, so every page of them is cleared and mapped again: over 8,000
page faults in a data-parallel step of an MLP of 4 layers of 1024, a third of the processor time of its ranks.
`GLIBC_TUNABLES` says otherwise. Systems with another C library ignore it.
"""

from __future__ import annotations

from collections.abc import Mapping

_VARIABLE = "GLIBC_TUNABLES"
_TUNABLES = {
    "glibc.malloc.hugetlb": 1,  # ask for transparent large pages
    "glibc.malloc.mmap_threshold": 2**30,  # bytes up to which a buffer is taken from the heap, and stays there
    "glibc.malloc.trim_threshold": 2**32,  # bytes of free heap that are kept
}


def allocation_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that make a process keep its large buffers; tunables the user has set stay as they are."""
    # Entries look like `name=value`, with colons in between.
    own = [entry for entry in environ.get(_VARIABLE, "").split(":") if entry]
    names = {entry.partition("=")[0] for entry in own}
    added = [f"{name}={value}" for name, value in _TUNABLES.items() if name not in names]
    return {_VARIABLE: ":".join([*own, *added])}
