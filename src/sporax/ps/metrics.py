"""Metrics in Prometheus' text format, served by a thread at ``/metrics``; also a liveness page at ``/healthz``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sporax.base.text_pages import TextPages


def expositions(entries: Sequence[tuple[Mapping[str, str], Mapping[str, float]]]) -> str:
    """Values of several processes, distinguished by labels; the format wants all samples of one name together, typed once."""
    samples: dict[str, list[str]] = {}
    for labels, values in entries:
        inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
        suffix = f"{{{inside}}}" if inside else ""
        for name, value in values.items():
            # 17 digits keep every float64.
            samples.setdefault(name, []).append(f"sporax_ps_{name}{suffix} {value:.17g}")
    lines = []
    for name in sorted(samples):
        lines += [f"# TYPE sporax_ps_{name} gauge", *samples[name]]
    return "\n".join(lines) + "\n"


def metrics_page(port: int, read: Callable[[], Mapping[str, float]]) -> TextPages:
    """Serves what `read` gives on a port, until closed; 0 takes a free one."""
    return TextPages(port, {"/metrics": lambda: expositions([({}, read())])})
