"""Metrics in Prometheus' text format, served by a thread at ``/metrics``; also a liveness page at ``/healthz``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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


class MetricsPage:
    """Serves what `read` gives, until closed.

    Args:
        port: of all addresses of this machine; 0 takes a free one.
        read: gives the present values.
        host: address to listen on.
    """

    def __init__(self, port: int, read: Callable[[], Mapping[str, float]], host: str = "127.0.0.1") -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = exposition(read()).encode() if self.path == "/metrics" else b"ok\n"
                self.send_response(200 if self.path in ("/metrics", "/healthz") else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                # No length is sent: HTTP/1.0 ends the body with the connection.
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Stay silent."""

        self._http = ThreadingHTTPServer((host, port), Handler)
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
