"""What a launcher does when something happens to its processes, as a state machine without processes.

`Supervision.handle` takes one typed event (processes ended, a signal came, the grace is over …) and returns typed
instructions (start or signal these processes, start a clock, finish with this code); `supervisor` carries them out::

    RUNNING --a rank fails, the cluster fails, a signal comes--> STOPPING --every rank has ended--> FINISHED
       '-------------every process has ended well, and no one elsewhere still runs------------------^

Roles differ in their `RestartRule`. Ranks fall together: the first failure decides the exit code and is the one that is named,
what ranks do after their signal to stop does not count, and `Finish` says whether all start again. Scheduler,
servers and workers of a job with parameter servers (`Member`) are started again one by one::

    waiting --the pause is over--> running --it is done, the job is, or it was removed--> ended
       '<--killed, or a server's error--'--its own error, too many starts--> the job fails (FINISHED)
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

# Seconds for ranks to end by themselves after SIGTERM, before they are killed.
GRACE_SECONDS = 5.0
GRACEFUL_SECONDS = 120.0
"""Ranks that were requested to save and leave finish their step, agree on it, and write."""
LAST_WORDS_SECONDS = 3.0
SIGNALS_SECONDS = 2.0
"""For which an exception is not believed while other ranks run. A rank that is killed takes the others' collectives with it, and
on a busy machine their exceptions are seen before its own end.
"""
OPEN_SECONDS = 5.0
"""For which the launcher of another node may say how a rank has ended that has failed there; it may itself wait for the above."""
PARTING_SECONDS = 3.0
"""For servers to learn that the job is over, and to end by themselves."""
EARLY_SECONDS = 5.0
"""A process that fails so soon again and again would never get further."""
_QUICK_STARTS = 3
FAILED = 1
ELSEWHERE = -1
"""Stands for the local rank of a member of another node."""


class RunPhase(Enum):
    """Where a job is in its life."""

    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"


class RestartRule(Struct, frozen=True):
    """When and how soon processes of a role are started again: ranks all together, others one by one.

    Attributes:
        max_restarts: of one process, or of all ranks.
        pause_seconds, longest_pause_seconds: before a start; from the fifth of one process on twice as long each time, so that a
            broken one does not fill the machine.
        restart_codes: exit codes above 0 by which a process requests a new start.
        serves: it is there for the others: when they are done, its end is no failure, and it is not waited for long. Others end
            the job by an exit code above 0, their program's own error, which a restart would repeat.
        directs: it ends well when the job has.
    """

    max_restarts: int = 0
    pause_seconds: float = 0.05
    longest_pause_seconds: float = 2.0
    restart_codes: tuple[int, ...] = ()
    serves: bool = False
    directs: bool = False

    def pause(self, starts: int) -> float | None:
        """Seconds until the next start after so many; None where there is none any more."""
        if starts > self.max_restarts:
            return None
        doublings = min(max(0, starts - _QUICK_STARTS - 1), 10)
        return min(self.pause_seconds * 2.0**doublings, self.longest_pause_seconds)


class Member(Struct):
    """A process that is started again alone: its name, its role's policy, its number of starts, and whether it was removed."""

    name: str
    policy: RestartRule
    starts: int = 1
    is_retired: bool = False


class MemberAdded(Struct, frozen=True):
    """Event: a process is to run."""

    number: int
    member: Member


class ProcessesEnded(Struct, frozen=True):
    """Event: processes have ended; `statuses` holds exit codes by number (that of ranks: the local rank), -N for a death by
    signal N, and `seconds` how long members ran.
    """

    statuses: Mapping[int, int]
    seconds: Mapping[int, float] = {}


class JobReported(Struct, frozen=True):
    """Event: the scheduler of the servers says whether the job is done, and which members have joined it and were removed."""

    is_done: bool
    joined: frozenset[int]
    retired: frozenset[int]


class RankJoined(Struct, frozen=True):
    """Event: a local rank has registered with the scheduler."""

    local_rank: int


class ClusterFormed(Struct, frozen=True):
    """Event: all ranks of the job, here and elsewhere, have joined."""


class ClusterEnded(Struct, frozen=True):
    """Event: all ranks of the job have left, or it has failed; `failure` says what went wrong, as with one that did not leave
    properly, and `cause` is that rank: a local one, or ELSEWHERE; None where no single rank is the cause.
    `is_accused`: other ranks say so of it; it has not failed itself. `is_own_word`: it has said so itself, by an exception.
    `exit_code`: that rank's, 0 where it is not known; `is_open`: its launcher will say, and the event comes again.
    """

    failure: str | None
    cause: int | None = None
    is_accused: bool = False
    is_own_word: bool = False
    exit_code: int = 0
    is_open: bool = False


class SignalReceived(Struct, frozen=True):
    """Event: the launcher is to stop."""

    signum: int


class GraceExpired(Struct, frozen=True):
    """Event: the clock that `StartGrace` set has run out."""


Event = (
    MemberAdded | ProcessesEnded | JobReported
    | RankJoined | ClusterFormed | ClusterEnded | SignalReceived | GraceExpired
)  # fmt: skip


class Start(Struct, frozen=True):
    """Instruction: start a member after so many seconds."""

    number: int
    seconds: float


class SignalProcesses(Struct, frozen=True):
    """Instruction: send a signal to the process groups of these processes."""

    numbers: tuple[int, ...]
    signum: int


class StartGrace(Struct, frozen=True):
    """Instruction: send `GraceExpired` after so many seconds."""

    seconds: float


class BlameRank(Struct, frozen=True):
    """Instruction: report to the user that this rank failed, how, and quote its log."""

    local_rank: int
    status: int


class Notify(Struct, frozen=True):
    """Instruction: report something to the user."""

    text: str


class NotifyOthers(Struct, frozen=True):
    """Instruction: let the launchers and ranks of other nodes know that the job has failed."""


class Finish(Struct, frozen=True):
    """Instruction: end with this exit code, and kill members that still run; all ranks start again after a `pause` in seconds, if
    there is one.
    """

    exit_code: int
    pause: float | None = None


Instruction = Start | SignalProcesses | NotifyOthers | StartGrace | BlameRank | Notify | Finish


class Supervision(Struct):
    """The launcher's knowledge of this node's processes.

    Attributes:
        running: local ranks whose process has not ended, and members that run or will be started again.
        policy: of ranks.
        starts: of all ranks.
        members: processes that are started again alone.
        is_done: the scheduler of the servers has said so.
        is_parting: servers alone are left, and have a moment to end.
        is_stopped_by_signal: a signal came.
        ended: local ranks whose process has ended, and members that are not started again.
        joined: local ranks that have registered with the scheduler, and members that have.
        gathering: whether some rank has registered and not all ranks of the job have.
        formed: whether all ranks of the job have joined.
        waits_for_others: whether ranks of other nodes may still be at work.
        verdict: what the scheduler says went wrong, kept back while the rank concerned may still speak.
        is_open: the launcher of another node will say more in a moment.
        is_remote: the scheduler is on another node.
        blamed: local ranks that were named as those that failed first.
        phase: where the job is.
        exit_code: what the launcher will end with.
        graceful: SIGTERM requests ranks to save and leave; if all of them end well, the job has.
        leaving: ranks were requested to.
        all_well: no rank has failed.
        doubtful: exit codes of local ranks whose failure may be a consequence.
    """

    running: set[int] = field(default_factory=set)
    policy: RestartRule = RestartRule()
    starts: int = 1
    members: dict[int, Member] = field(default_factory=dict)
    is_done: bool = False
    is_parting: bool = False
    is_stopped_by_signal: bool = False
    ended: set[int] = field(default_factory=set)
    joined: set[int] = field(default_factory=set)
    gathering: bool = False
    formed: bool = False
    waits_for_others: bool = False
    verdict: ClusterEnded | None = None
    is_open: bool = False
    is_remote: bool = False
    blamed: frozenset[int] = frozenset()
    phase: RunPhase = RunPhase.RUNNING
    exit_code: int = 0
    graceful: bool = False
    leaving: bool = False
    all_well: bool = True
    doubtful: dict[int, int] = field(default_factory=dict)

    def handle(self, event: Event) -> list[Instruction]:
        """Take in one event; returns what must be done, in order."""
        match event:
            case MemberAdded(number, member):
                self.members[number] = member
                self.running.add(number)
                return [Start(number, 0.0)]
            case ProcessesEnded(statuses, seconds) if self.members:
                return [
                    todo
                    for number in statuses
                    for todo in self._member_ended(number, statuses[number], seconds[number])
                ]
            case ProcessesEnded(statuses):
                return self._ranks_ended(statuses)
            case JobReported():
                return self._job_reported(event)
            case RankJoined(local_rank):
                self.joined.add(local_rank)
                self.gathering = not self.formed
                return self._stop_if_awaited_in_vain()
            case ClusterFormed():
                self.gathering, self.formed, self.waits_for_others = False, True, True
                return []
            case ClusterEnded():
                return self._cluster_ended(event)
            case SignalReceived(signum):
                self.is_stopped_by_signal = True
                return self._signal_came(signum)
            case GraceExpired():
                return self._grace_over()

    def is_secondary_failure(self, local_rank: int) -> bool:
        """Whether what a rank writes now is about a failure that another rank has caused."""
        if self.blamed:
            return local_rank not in self.blamed
        word = self.verdict
        return word is not None and (word.is_accused or word.cause not in (None, local_rank))

    def _member_ended(self, number: int, status: int, seconds: float) -> list[Instruction]:
        """A process is gone that is started again alone, or ends the job."""
        member = self.members[number]
        policy, pause = member.policy, member.policy.pause(member.starts)
        text = f"{member.name} ended with exit code {status}"
        if self.phase is not RunPhase.RUNNING:
            return []
        if status == 0 or member.is_retired or (self.is_done and policy.serves):
            return self._leave({number})
        fails_early = status > 0 and status not in policy.restart_codes and seconds < EARLY_SECONDS
        if pause is None or (fails_early and member.starts > _QUICK_STARTS):
            return [Notify(f"{text} after {member.starts} starts"), *self._stop(exit_code_of(status))]
        if status > 0 and not policy.serves:
            return [Notify(text), *self._stop(status)]
        member.starts += 1
        return [Start(number, pause)]

    def _job_reported(self, report: JobReported) -> list[Instruction]:
        """Members that are added so late that the job is over before they join are ended: no scheduler would answer them."""
        self.is_done |= report.is_done
        self.joined |= report.joined
        for number in report.retired:
            self.members[number].is_retired = True
        policies = {number: member.policy for number, member in self.members.items()}
        late = {n for n in self.running - self.joined if not (policies[n].serves or policies[n].directs)}
        if not late or not (self.is_done or any(policies[number].directs for number in self.ended)):
            return []
        return [SignalProcesses(tuple(sorted(late)), signal.SIGKILL), *self._leave(late)]

    def _leave(self, numbers: set[int]) -> list[Instruction]:
        """Members are not started again."""
        self.running -= numbers
        self.ended |= numbers
        return self._finish_if_complete()

    def _ranks_ended(self, statuses: Mapping[int, int]) -> list[Instruction]:
        """Some processes are gone: the job goes on, stops because one failed, or is complete."""
        self.running -= statuses.keys()
        self.ended |= statuses.keys()
        failed = {local_rank: status for local_rank, status in sorted(statuses.items()) if status != 0}
        self.all_well = self.all_well and not failed
        if self.phase is not RunPhase.RUNNING or not (failed or self.doubtful):
            return self._stop_if_awaited_in_vain() or self._finish_if_complete()
        is_first = not self.doubtful
        self.doubtful |= failed
        if self._may_be_consequences():
            return [StartGrace(SIGNALS_SECONDS)] if is_first and not self.is_open else []
        return self._believe()

    def _may_be_consequences(self) -> bool:
        """Whether a rank that is killed just now, and whose end was not seen yet, could be the cause of all failures so far."""
        if self.is_open:
            return not killed_of(self.doubtful)
        # Who is the cause is known where the scheduler names another rank.
        word = self.verdict
        is_known = word and not word.is_own_word and (word.is_accused or word.cause not in self.doubtful)
        return bool(self.formed and self.running) and not is_known and not killed_of(self.doubtful)

    def _believe(self) -> list[Instruction]:
        """Name the ranks that failed, and stop the others."""
        failed = dict(sorted(self.doubtful.items()))
        self.doubtful = {}
        blamed, instructions = self._causes_among(failed)
        self.blamed = frozenset(blamed)
        # The largest code: a rank that was killed by a signal, if there is one.
        blame = [BlameRank(local_rank, status) for local_rank, status in blamed.items()]
        exit_code = self._cause_code or max(map(exit_code_of, (blamed or failed).values()))
        return [*instructions, *blame, *self._stop(exit_code)]

    def _causes_among(self, failed: Mapping[int, int]) -> tuple[Mapping[int, int], list[Instruction]]:
        """The ranks that are to blame, of those that failed, and what else there is to say."""
        word, killed = self.verdict, killed_of(failed) if self.formed else {}
        # The scheduler may have received a rank's exception before the end of the one that was killed.
        if word is None or (killed and not word.is_accused and word.cause != ELSEWHERE):
            return killed or failed, []
        if not self.formed or word.is_accused or word.cause is None or word.cause not in failed:
            # They have ended because of another one, where the scheduler names it.
            return {} if self.formed and word.cause is not None else failed, [Notify(str(word.failure))]
        # Its own end says more than the scheduler; the others' failures are secondary.
        status = failed[word.cause]
        words: list[Instruction] = []
        if self.is_remote and word.is_own_word:  # as the launchers of other nodes say it
            words = [Notify(f"{word.failure} (ended with exit code {exit_code_of(status)})")]
        return {word.cause: status}, words

    def _stop_if_awaited_in_vain(self) -> list[Instruction]:
        """Stop when a rank has ended without joining while others wait for it to join."""
        # Ranks that never call `init` are no loss while no rank waits for them.
        absent = sorted(self.ended - self.joined)
        if self.phase is not RunPhase.RUNNING or not self.gathering or not absent:
            return []
        text = f"local ranks {absent} ended without joining the job, for which local ranks {sorted(self.joined)} wait"
        return [Notify(text), *self._stop(FAILED)]

    @property
    def _cause_code(self) -> int:
        """Exit code of the rank that is the cause, on whatever node; 0 where it is not known."""
        return 0 if self.verdict is None else self.verdict.exit_code

    def _cluster_ended(self, word: ClusterEnded) -> list[Instruction]:
        """The scheduler has spoken. A local rank that failed will end in a moment and say more, so it gets that long."""
        self.gathering = self.waits_for_others = False
        was_open, self.is_open = self.is_open, word.is_open and word.cause == ELSEWHERE
        if self.phase is not RunPhase.RUNNING:
            return []
        if word.failure is None:
            return self._finish_if_complete()
        if self.members:
            return [Notify(word.failure), *self._stop(word.exit_code or FAILED)]
        self.verdict = word
        # A member is the cause only of what has been formed; launchers without the scheduler receive it only so.
        self.is_remote = self.is_remote or (word.cause is not None and not self.formed)
        self.formed = self.formed or word.cause is not None
        if was_open and not self.is_open:
            return self._grace_over()
        if self.is_open:
            return [StartGrace(OPEN_SECONDS)]
        if self.doubtful:
            return [] if self._may_be_consequences() else self._believe()
        # A moment for the rank's own error, which explains more than its loss.
        return [StartGrace(LAST_WORDS_SECONDS)]

    def _signal_came(self, signum: int) -> list[Instruction]:
        """Pass the signal on and wait for the ranks to end; whoever signals again does not want to wait."""
        if self.phase is RunPhase.RUNNING and self.doubtful:
            return self._believe()
        if self.phase is RunPhase.RUNNING and self.graceful and signum == signal.SIGTERM and self.running:
            # The others must not receive a failure: ranks still exchange data to agree on the step that they save.
            self.phase, self.exit_code, self.gathering = RunPhase.STOPPING, exit_code_of(-signum), False
            self.leaving = True
            requests = SignalProcesses(self._still_running(), signum)
            return [Notify(f"got {signal_name(signum)}: ranks save and leave"), requests, StartGrace(GRACEFUL_SECONDS)]
        if self.phase is RunPhase.RUNNING:
            return [Notify(f"got {signal_name(signum)}"), *self._stop(exit_code_of(-signum), signum)]
        return [SignalProcesses(self._still_running(), signal.SIGKILL)]

    def _grace_over(self) -> list[Instruction]:
        """Go one step further in stopping the ranks."""
        self.is_open = False
        if self.phase is RunPhase.RUNNING and self.doubtful:
            return self._believe()
        if self.phase is RunPhase.RUNNING and self.verdict is not None:
            return [Notify(str(self.verdict.failure)), *self._stop(self._cause_code or FAILED)]
        if self.phase is RunPhase.RUNNING and self.is_parting:
            return [self._finish()]
        # They have had their time to end by themselves.
        if self.phase is RunPhase.STOPPING and self.running:
            return [SignalProcesses(self._still_running(), signal.SIGKILL)]
        return []

    def _stop(self, exit_code: int, signum: int = signal.SIGTERM) -> list[Instruction]:
        """Request the ranks to end, with time to do so, and let the other nodes know."""
        self.phase, self.exit_code, self.gathering = RunPhase.STOPPING, exit_code, False
        if self.members:  # what is lost with them is restored, or was not acknowledged
            return [NotifyOthers(), self._finish()]
        requests: list[Instruction] = []
        if self.running:
            requests = [SignalProcesses(self._still_running(), signum), StartGrace(GRACE_SECONDS)]
        # The other nodes first: they would wait for ranks that are about to end.
        return [NotifyOthers(), *requests, *self._finish_if_complete()]

    def _finish_if_complete(self) -> list[Instruction]:
        """Finish when nothing runs any more, or only servers do that receive no farewell: each was being started at the end."""
        if self.phase is RunPhase.FINISHED:
            return []
        if self.running and not (self.members and all(self.members[number].policy.serves for number in self.running)):
            return []
        if self.running:
            # Those of other machines receive it through their scheduler.
            is_farewell = not self.is_parting and any(member.policy.directs for member in self.members.values())
            self.is_parting |= is_farewell
            return [StartGrace(PARTING_SECONDS)] if is_farewell else []
        if self.phase is RunPhase.RUNNING and (self.waits_for_others or self.verdict is not None):
            return []
        # All ranks have saved and left, as requested.
        if self.leaving and self.all_well:
            self.exit_code = 0
        return [self._finish()]

    def _finish(self) -> Finish:
        """The end, or that of this start of all ranks."""
        self.phase = RunPhase.FINISHED
        is_final = self.exit_code == 0 or self.is_stopped_by_signal or bool(self.members)
        return Finish(self.exit_code, None if is_final else self.policy.pause(self.starts))

    def _still_running(self) -> tuple[int, ...]:
        """The running ranks in order."""
        return tuple(sorted(self.running))


def killed_of(failed: Mapping[int, int]) -> dict[int, int]:
    """Ranks that a signal has ended; not by their own `abort`, which is also JAX's answer to the end of its coordinator."""
    return {rank: status for rank, status in failed.items() if status < 0 and status != -signal.SIGABRT}


def exit_code_of(status: int) -> int:
    """The exit code that stands for a process's end, as shells have it: 128 + N for a death by signal N."""
    return 128 - status if status < 0 else status


def signal_name(signum: int) -> str:
    """`SIGKILL (signal 9)`."""
    try:
        return f"{signal.Signals(signum).name} (signal {signum})"
    except ValueError:
        return f"signal {signum}"
