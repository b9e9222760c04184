"""How far a job is, for others: rank 0 answers requests over HTTP.

Problem: an operator, or a person, wants to know step, loss and speed of a job without reading its logs. Method: where
SPORAX_PROGRESS_PORT is set, as the Kubernetes operator does for worker 0, the process serves its last report as JSON under
`/progress`. Only what was reported is served: a request never makes training wait. `Model.train` reports by itself; a loop of
one's own calls `report_progress`.
"""

from __future__ import annotations

import math
import os
import threading
import warnings

from msgspec import Struct, json

from sporax.base.errors import For, named
from sporax.base.text_pages import TextPages
from sporax.cluster.environment import RankEnvironment
from sporax.ir.variables import read

PATH = "/progress"


class ProgressReport(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The last report.

    Attributes:
        step: steps made since training started in this process.
        epoch: from 1 on; 0 is unknown.
        loss: of the last step, as text, since JSON has no nan; "" is unknown.
        samples_per_second: of this process, as text; "" is unknown.
    """

    step: int
    epoch: int = 0
    loss: str = ""
    samples_per_second: str = ""


class ProgressServer:
    """Serves the last report of this process.

    Args:
        port: to listen on; 0 takes a free one.
        host: address to listen on.
    """

    def __init__(self, port: int, host: str) -> None:
        self.last = ProgressReport(step=0)
        pages = {PATH: lambda: json.encode(self.last).decode()}
        self._pages = TextPages(port, pages, host, "application/json")
        self.port = self._pages.port

    def close(self) -> None:
        """Stop serving."""
        self._pages.close()


class _OfProcess:
    """The server of this process, once it is requested."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_open = False
        self._server: ProgressServer | None = None

    def server(self) -> ProgressServer | None:
        """The server; None where none is requested, where this is not rank 0, and where the port is taken."""
        with self._lock:
            if not self._is_open:
                self._is_open, self._server = True, _open()
            return self._server


_PROCESS = _OfProcess()


def _open() -> ProgressServer | None:
    port, host = read(os.environ, "SPORAX_PROGRESS_PORT"), read(os.environ, "SPORAX_PROGRESS_HOST")
    if not port or RankEnvironment.from_environ(os.environ).rank:
        return None
    try:
        return ProgressServer(port, host)
    except OSError as error:
        warnings.warn(
            f"For 'SPORAX_PROGRESS_PORT', progress cannot be reported: port {port} of {host} cannot be used: {error.strerror}.",
            stacklevel=2,
        )
        return None


def is_requested() -> bool:
    """Whether someone wants to know this process's progress, so that reporting it has an effect."""
    return _PROCESS.server() is not None


def report_progress(
    step: int, *, loss: float | None = None, samples_per_second: float | None = None, epoch: int = 0
) -> None:
    """Say how far this process is; nothing happens where no server is requested (it is for rank 0 of a job on Kubernetes).

    Args:
        step: steps made since training started.
        loss: of the last step.
        samples_per_second: samples of this process per second.
        epoch: from 1 on; 0 where there is none.

    Raises:
        SporaxTypeError: `step` or `epoch` is no whole number.
        SporaxValueError: one of them is negative.

    Example:
        >>> sporax.report_progress(40, loss=0.25, samples_per_second=812.0)
    """
    for name, number in (("step", step), ("epoch", epoch)):
        if not isinstance(number, int) or isinstance(number, bool):
            raise For("report_progress").type_error(f"{named(name)} must be a whole number", type(number).__name__)
        For("report_progress").refuse(number < 0, f"'{name}' must be at least 0", number)
    server = _PROCESS.server()
    if server is not None:
        server.last = ProgressReport(
            step=step, epoch=epoch, loss=_text(loss), samples_per_second=_text(samples_per_second)
        )


def _text(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if math.isfinite(value) else str(float(value))
