"""The processes of a job: who they are, how they find each other, and what happens when one is lost.

A layer without devices. It is read in this order:

* `environment`: this process's place in the job, from environment variables;
* `rendezvous`: how unknown processes become a numbered cluster, as a state machine; `scheduler` and `membership` are its two
  ends on the network, `ports` opens sockets and finds addresses;
* `board` and `watchdog`: which rank is behind, and how the others end when one is lost.

What the runtime needs when it joins a job is loaded then: a program of one rank has no cluster.
"""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.cluster import job_progress
    from sporax.cluster.environment import RECOVERY_VARIABLE, RESUME, SIMULATED_DEVICES, RankEnvironment
    from sporax.cluster.membership import join
    from sporax.cluster.scheduler import serve_cluster
    from sporax.cluster.watchdog import HEARTBEAT_SECONDS, SHUTDOWN_SECONDS, Watchdog, recovers

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
