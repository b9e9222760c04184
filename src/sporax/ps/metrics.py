"""Metrics in Prometheus' text format, served by a thread at ``/metrics``; also a liveness page at ``/healthz``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sporax.base.text_pages import TextPages


def exposition(values: Mapping[str, float], labels: Mapping[str, str] | None = None) -> str:
    """Values in Prometheus' text format, each called ``sporax_ps_<name>``."""
    return expositions([(labels or {}, values)])


def expositions(entries: Sequence[tuple[Mapping[str, str], Mapping[str, float]]]) -> str:
    """Values of several processes, told apart by labels; the format wants all samples of one name together, typed once."""
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


class MetricsPage(TextPages):
    """Serves what `read` gives, until closed.

    Args:
        port: of all addresses of this machine; 0 takes a free one.
        read: gives the present values.
        host: address to listen on.
    """

    def __init__(self, port: int, read: Callable[[], Mapping[str, float]], host: str = "127.0.0.1") -> None:
        super().__init__(port, {"/metrics": lambda: exposition(read())}, host)
