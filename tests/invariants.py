"""What must hold between any two events in the state machines of clusters, launchers and parameter servers."""

from __future__ import annotations

from sporax.cluster.environment import ProcessRole
from sporax.cluster.rendezvous import Cluster, ClusterPhase
from sporax.launch.jobs.supervision import RunPhase, Supervision
from sporax.ps.client.client_state import ClientState
from sporax.ps.scheduler.scheduler_state import SchedulerState
from sporax.ps.server.server_state import ServerState


def check_cluster(cluster: Cluster) -> None:
    workers = [member for member in cluster.members.values() if member.role is ProcessRole.WORKER]
    assert len(workers) <= cluster.size
    assert len(cluster.members) - len(workers) <= cluster.server_num
    assert not cluster.watchers.keys() & cluster.members.keys()
    assert cluster.requested.keys() == cluster.watchers.keys()
    assert bool(cluster.failure) == (cluster.phase is ClusterPhase.FAILED)
    assert cluster.ranks.keys() <= cluster.members.keys()
    assert (cluster.phase is ClusterPhase.GATHERING) <= (not cluster.ranks)
    ranks = [
        rank for connection, rank in cluster.ranks.items() if cluster.members[connection].role is ProcessRole.WORKER
    ]
    assert len(set(ranks)) == len(ranks)
    assert set(ranks) <= set(range(cluster.size))
    assert cluster.waiting <= cluster.members.keys()
    assert not cluster.waiting & cluster.awaited


def check_job(job: Supervision) -> None:
    assert not job.running & job.ended
    assert job.phase is not RunPhase.FINISHED or not job.running or job.members
    assert job.phase is not RunPhase.STOPPING or job.exit_code != 0
    assert not (job.gathering and job.formed)


def check_scheduler(scheduler: SchedulerState) -> None:
    journal, members = scheduler.journal, scheduler.members
    for holders in journal.slots:
        assert holders.primary >= 0
        assert holders.primary != holders.backup
        assert holders.backup >= 0 or not holders.synced
    clocks = [entry.clock for entry in journal.members]
    assert sorted(clocks) == clocks
    assert (members.hold is None) == (members._change is None)


def check_server(server: ServerState) -> None:
    assert not set(server.leads) & set(server.follows)
    for slot, lead in server.leads.items():
        state = server.states[slot]
        for position, flight in enumerate(lead.flights):
            assert flight.record.lsn == state.lsn + 1 + position
        assert lead.backup is not None or not (lead.needs_backup or lead.image_sent or lead.synced)
        assert not lead.synced or lead.needs_backup
        assert lead.flights or all(part.push.source.clock == state.clock for part in lead.pending.values())
    for slot, follow in server.follows.items():
        assert slot in server.states
        assert follow.leader.index != server.index


def check_client(client: ClientState) -> None:
    for request, entry in client.open.items():
        assert request == entry.request
        assert entry.sent_to is None or client.view is not None
