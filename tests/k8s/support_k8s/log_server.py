"""What an API server requests from a kubelet to read a log: `/containerLogs/NAMESPACE/POD/CONTAINER` over TLS."""

from __future__ import annotations

import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


class LogServer:
    """Serves what `read` gives for a pod's name; with `follow=true` until `is_over` says that the pod has ended."""

    def __init__(self, folder: Path, read: Callable[[str], str], is_over: Callable[[str], bool]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                place = urlsplit(self.path)
                options, pod = parse_qs(place.query), place.path.split("/")[3]
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.end_headers()
                text = read(pod)
                if "tailLines" in options:
                    text = "".join(text.splitlines(keepends=True)[-int(options["tailLines"][0]) :])
                self.wfile.write(text.encode())
                written = len(read(pod))
                while options.get("follow") == ["true"]:
                    ended = is_over(pod)
                    more = read(pod)[written:]
                    self.wfile.write(more.encode())
                    self.wfile.flush()
                    written += len(more)
                    if ended:
                        return
                    time.sleep(0.05)

            def log_message(self, format: str, *args: object) -> None:
                """Stay silent."""

        key, certificate = folder / "kubelet.key", folder / "kubelet.crt"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kubelet"]
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.1,), daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
