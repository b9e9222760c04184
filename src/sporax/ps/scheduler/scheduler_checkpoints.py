"""What a scheduler does for global checkpoints: it queries the leaders of all slots, and has the manifest written last.

It knows no sockets or files: which slots have been written, and for which clock. What a server does is in `synchronous_state`.

In synchronous mode all slots are written at one clock. The scheduler proposes the highest clock that it knows of; a slot
that is already beyond it says so, and the scheduler proposes a later one, further away each time. In the other modes every
slot is written as it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from sporax.ps.protocol import messages
from sporax.ps.protocol.events import End, Keep, Manifest, ManifestWritten, Reply
from sporax.ps.scheduler.journal import Journal, Peer

# Seconds between two questions to the same leaders.
_QUERY_SECONDS = 0.5
# Clocks; further ahead a slot would be held up for too long.
_LARGEST_MARGIN = 1024


class CheckpointRound(Struct):
    """One attempt after the other, until all slots are written.

    Attributes:
        number: of the attempt, and of the folder.
        clock: at which slots are written; -1: as they are.
        num_slots: in all.
        error: why there will be none.
    """

    number: int
    clock: int
    num_slots: int
    parts: dict[int, messages.CheckpointPart] = field(default_factory=dict)
    error: str = ""
    _margin: int = 1
    _requested: float = -1e9

    @property
    def is_complete(self) -> bool:
        """Whether all slots have been written."""
        return len(self.parts) == self.num_slots

    def take(self, part: messages.CheckpointPart) -> None:
        """A server answers for a slot."""
        # A server may still answer for an attempt that was given up.
        if part.number != self.number:
            return
        if part.error:
            self.error = part.error
        elif part.is_late:
            # A folder of its own for each attempt, so that files of two clocks never mix.
            self.number += 1
            self.clock = max(self.clock, part.clock) + self._margin
            self._margin = min(2 * self._margin, _LARGEST_MARGIN)
            # As if never queried: the new attempt begins at once.
            self.parts, self._requested = {}, -1e9
        else:
            self.parts[part.slot] = part

    def question(self, path: str, now: float) -> messages.TakeCheckpoint | None:
        """What to send to all leaders now, again and again until they have answered."""
        if self.is_complete or now - self._requested < _QUERY_SECONDS:
            return None
        self._requested = now
        return messages.TakeCheckpoint(self.number, self.clock, path)


def first_clock(staleness: int, clocks: Iterable[int]) -> int:
    """The clock to try first."""
    # -1: without a common clock every slot is written as it is.
    return max(clocks, default=0) if staleness == 0 else -1


Action = Reply | Keep | Manifest | End


class CheckpointingScheduler:
    """The processes of a job, and the checkpoint that is being made of it.

    Args:
        options: settings of the job.
        journal: of this job, new or read back.
        servers: by number.
        now: present time.
    """

    def __init__(self, options: messages.Options, journal: Journal, servers: dict[int, Peer], now: float) -> None:
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

    def _reply(self, to: bytes, message: messages.ServerMessage) -> None:
        self._actions.append(Reply(to, message))

    def take_checkpoint(self, sender: bytes, message: messages.Checkpoint) -> None:
        """A command requests a checkpoint, or queries how far it is."""
        if message.begin:
            self._begin_checkpoint()
        self._reply(
            sender, messages.CheckpointReply(self._round is not None, self.journal.checkpoint, self._checkpoint_error)
        )

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

    def take_checkpoint_part(self, sender: bytes, message: messages.CheckpointPart) -> None:
        """A server answers for a slot."""
        if self._round is None:
            return
        self._round.take(message)
        if self._round.error:
            self._checkpoint_error, self._round = self._round.error, None
        elif self._round.is_complete:
            options = self.options
            facts = {"job": self.journal.job, "num_slots": options.num_slots, "staleness": options.staleness}
            number, parts = self._round.number, [part for _, part in sorted(self._round.parts.items())]
            self._actions.append(Manifest(options.checkpoint_path, number, facts, parts))

    def manifest_written(self, event: ManifestWritten) -> None:
        """The checkpoint is complete, or could not be made so."""
        self._checkpoint_error, self._round = event.error, None
        self.journal.checkpoint = event.folder or self.journal.checkpoint
        self._actions.append(Keep())

    def continue_checkpoint(self) -> None:
        """Query the leaders that have not answered, or begin the next checkpoint when its time has come."""
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
