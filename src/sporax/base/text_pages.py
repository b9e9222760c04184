"""A few pages of text over HTTP, served by a thread: figures, progress, liveness."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEALTHY = "/healthz"


class TextPages:
    """Serves what functions give, until closed; `/healthz` is there always.

    Args:
        port: to listen on; 0 takes a free one.
        pages: what gives the text of each path.
        host: address to listen on.
        kind: the content type.

    Raises:
        OSError: the port is taken.
    """

    def __init__(
        self,
        port: int,
        pages: Mapping[str, Callable[[], str]],
        host: str = "127.0.0.1",
        kind: str = "text/plain; version=0.0.4",
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path)
                body = page().encode() if page is not None else b"ok\n"
                self.send_response(200 if page is not None or self.path == HEALTHY else 404)
                self.send_header("Content-Type", kind)
                self.end_headers()
                with suppress(ConnectionError):  # the client does not wait any more
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
