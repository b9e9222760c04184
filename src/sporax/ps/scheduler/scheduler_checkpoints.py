"""What a scheduler does for global checkpoints: it asks the leaders of all slots, and has the manifest written last.

The attempts themselves are in `checkpoint_state`, what a server does in `slot_checkpoints`.
"""

from __future__ import annotations

from sporax.ps.protocol.events import End, Keep, Manifest, ManifestWritten, Reply
from sporax.ps.protocol.messages import Checkpoint, CheckpointIs, CheckpointPart, Options, ServerMessage
from sporax.ps.scheduler.checkpoint_state import CheckpointRound, first_clock
from sporax.ps.scheduler.journal import Journal, Peer

Action = Reply | Keep | Manifest | End


class CheckpointingScheduler:
    """The processes of a job, and the checkpoint that is being made of it.

    Args:
        options: settings of the job.
        journal: of this job, new or read back.
        servers: by number.
        now: present time.
    """

    def __init__(self, options: Options, journal: Journal, servers: dict[int, Peer], now: float) -> None:
        self.options = options
        self.journal = journal
        self.servers = servers
        self._round: CheckpointRound | None = None
        self._checkpoint_error = ""
        self._checkpoint_at = now + options.checkpoint_seconds
        self._now = now
        self._actions: list[Action] = []

    def _live(self) -> list[int]:
        return [index for index, peer in self.servers.items() if peer.live and index in self.journal.servers]

    def _reply(self, to: bytes, message: ServerMessage) -> None:
        self._actions.append(Reply(to, message))

    def take_checkpoint(self, sender: bytes, message: Checkpoint) -> None:
        """A command asks for a checkpoint, or how far it is."""
        if message.begin:
            self._begin_checkpoint()
        self._reply(sender, CheckpointIs(self._round is not None, self.journal.checkpoint, self._checkpoint_error))

    def _begin_checkpoint(self) -> None:
        journal = self.journal
        if self._round is not None:
            return
        self._checkpoint_error = ""
        if not self.options.checkpoint_path:
            self._checkpoint_error = "MS_PS_CHECKPOINT_PATH must name a folder when the job starts, but it was not set"
        elif not journal.initialised:
            self._checkpoint_error = "the servers have no values yet"
        else:
            clocks = [clock for index in self._live() for clock in self.servers[index].clocks.values()]
            clock = first_clock(self.options.staleness, clocks)
            self._round = CheckpointRound(journal.checkpoints + 1, clock, len(journal.slots))

    def take_checkpoint_part(self, sender: bytes, message: CheckpointPart) -> None:
        """A server answers for a slot."""
        if self._round is None:
            return
        self._round.take(message)
        if self._round.error:
            self._checkpoint_error, self._round = self._round.error, None
        elif self._round.is_complete:
            options = self.options
            facts = {"job": self.journal.job, "num_slots": options.num_slots, "staleness": options.staleness}
            number, parts = self._round.number, self._round.sorted_parts()
            self._actions.append(Manifest(options.checkpoint_path, number, facts, parts))

    def manifest_written(self, event: ManifestWritten) -> None:
        """The checkpoint is complete, or could not be made so."""
        self._checkpoint_error, self._round = event.error, None
        self.journal.checkpoint = event.folder or self.journal.checkpoint
        self._actions.append(Keep())

    def go_on_with_checkpoint(self) -> None:
        """Ask the leaders that have not answered, or begin the next checkpoint when its time has come."""
        options, journal = self.options, self.journal
        if options.checkpoint_seconds > 0 and options.checkpoint_path and self._now >= self._checkpoint_at:
            self._checkpoint_at = self._now + options.checkpoint_seconds
            self._begin_checkpoint()
        question = self._round.question(options.checkpoint_path, self._now) if self._round is not None else None
        if question is None:
            return
        # The number is on disk before any file with it exists.
        if journal.checkpoints != question.number:
            journal.checkpoints = question.number
            self._actions.append(Keep())
        for index in {holders.primary for holders in journal.slots}:
            peer = self.servers.get(index)
            if peer is not None and peer.live and peer.sender:
                self._reply(peer.sender, question)
