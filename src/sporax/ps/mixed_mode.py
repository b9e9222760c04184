"""Mixed mode: where workers that also exchange data with each other meet (`sporax.cluster`), next to the scheduler."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

from sporax.base.errors import SporaxError
from sporax.cluster.environment import RankEnvironment
from sporax.cluster.scheduler import serve_cluster


def serve_ranks(variables: Mapping[str, str]) -> None:
    """Let workers that exchange data with each other meet, in a thread; in other jobs no one comes."""
    place = RankEnvironment.from_environ({**variables, "MS_ROLE": "MS_SCHED", "MS_SERVER_NUM": "0"})

    def serve() -> None:
        with suppress(SporaxError, OSError):  # the ranks tell their users what was wrong
            serve_cluster(place, log=lambda _: None)

    threading.Thread(target=serve, name="sporax-rendezvous", daemon=True).start()
