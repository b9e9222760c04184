"""What members, launchers and the scheduler say to each other: typed records, one JSON object per line.

Problem: whoever reaches the scheduler's port may send anything. Method: every line is decoded into one of the records below,
whose fields have types and limits, before anything acts on it; a line that does not fit is a `MessageError` and never another
exception.
The order on a connection is fixed: the scheduler sends a `Challenge`, the other side answers with a `Hello` that proves that it
knows the job's token (`sporax.cluster.token`), and only then says who it is (`Register` or `Watch`).
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from sporax.cluster.environment import ProcessRole

MAX_BYTES = 65536
"""Of one message. The longest useful one lists the ranks that wait; of 4,096 ranks that is some 24 kB."""

# Small: a stranger must not make the scheduler keep much memory.
MAX_BYTES_OF_STRANGERS = 1024
"""Of everything that a peer may send before it has proved that it belongs to the job."""

_MAX_RANKS = 1 << 20
_MAX_PROCESSES = 1 << 12
"""Of one launcher: far more than a machine has devices."""
_Name = Annotated[str, Meta(max_length=255)]
_Text = Annotated[str, Meta(max_length=16384)]
_Rank = Annotated[int, Meta(ge=0, lt=_MAX_RANKS)]
_Count = Annotated[int, Meta(ge=1, le=_MAX_RANKS)]
_Port = Annotated[int, Meta(ge=0, le=65535)]
_ExitCode = Annotated[int, Meta(ge=0, le=255)]
_Digest = Annotated[str, Meta(max_length=64, pattern="^[0-9a-f]*$")]


# Unknown fields are errors, so that two versions never half understand each other.
class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="say"):
    """A message; `say` names its kind."""


class Hello(_Record, tag="hello", frozen=True):
    """The first message of every peer: its answer to the challenge; empty where it has no token."""

    proof: _Digest


class Register(_Record, tag="register", frozen=True):
    """A worker or server takes part.

    Attributes:
        role: what it does.
        node_id: its name.
        rank: the number it was started with, or None.
        size: the number of workers in its settings.
        host: address at which it can be reached.
        port: port it holds for the coordinator, should it become rank 0.
    """

    role: ProcessRole
    node_id: _Name
    rank: _Rank | None
    size: _Count
    host: _Name
    port: _Port

    def __str__(self) -> str:
        kind = "server" if self.role is ProcessRole.SERVER else "worker"
        return f"{kind} '{self.node_id}'" if self.rank is None else f"rank {self.rank} ({kind} '{self.node_id}')"


class Watch(_Record, tag="watch", frozen=True):
    """The launcher on host `node` wants reports of how the job fares, and which ranks its processes `members` are."""

    node: _Name
    members: Annotated[tuple[_Name, ...], Meta(max_length=_MAX_PROCESSES)] = ()


class Wait(_Record, tag="wait", frozen=True):
    """A worker waits for others, or goes on."""

    waits: bool


class Leave(_Record, tag="leave", frozen=True):
    """The sender is done; `failure` says what went wrong, if anything did.

    Where another rank is the cause, `accused` is that rank and `problem` says what it did, after its name; a launcher also says
    with which `exit_code` its rank has ended. A `final` failure of a launcher ends jobs that start again, too: someone has
    stopped it.
    """

    failure: _Text | None
    accused: _Rank | None = None
    problem: _Name = ""
    final: bool = False
    exit_code: _ExitCode = 0


class Challenge(_Record, tag="challenge", frozen=True):
    """The scheduler's first word: random, different for every connection; and how often the job was started again."""

    nonce: _Digest
    restart: _Rank = 0


class Welcomed(_Record, tag="welcome", frozen=True):
    """A member's place in the job."""

    rank: _Rank
    local_rank: _Rank
    local_size: _Count
    coordinator: _Name


class Refused(_Record, tag="refused", frozen=True):
    """The connection ends here, and why."""

    reason: _Text


class Awaited(_Record, tag="awaited", frozen=True):
    """These ranks wait while only ranks of the receiver's machine do not."""

    ranks: Annotated[tuple[_Rank, ...], Meta(max_length=_MAX_RANKS)]


class Numbered(_Record, tag="numbered", frozen=True):
    """The ranks of the processes that a launcher has requested, in its order."""

    ranks: Annotated[tuple[_Rank, ...], Meta(max_length=_MAX_PROCESSES)]


class Ended(_Record, tag="ended", frozen=True):
    """The job is over; `node_id` is the name of the member that is the cause, where there is one, and `exit_code` that of its
    process; where it `is_open`, its launcher will say it, and then there is a second message. `is_own_word`: that member has said
    so itself. A `final` end is none to start again after.
    """

    well: bool
    reason: _Text
    node_id: _Name = ""
    final: bool = False
    exit_code: _ExitCode = 0
    is_open: bool = False
    is_own_word: bool = False


FromMember = Register | Watch | Wait | Leave
"""Of a member or a launcher that the scheduler has let in."""
ToScheduler = Hello | FromMember
FromScheduler = Challenge | Welcomed | Refused | Awaited | Numbered | Ended

# Made once: a decoder prepares itself for its types.
_encoder = msgspec.json.Encoder()
TO_SCHEDULER: msgspec.json.Decoder[ToScheduler] = msgspec.json.Decoder(ToScheduler)
FROM_SCHEDULER: msgspec.json.Decoder[FromScheduler] = msgspec.json.Decoder(FromScheduler)


_Message = TypeVar("_Message")


class MessageError(ValueError):
    """A line is not one of the messages."""


def encode(message: ToScheduler | FromScheduler) -> bytes:
    """One message with the end of its line."""
    return _encoder.encode(message) + b"\n"


def shortened(text: str) -> str:
    """`text` as far as a message may be long: a failure can quote whatever an exception says."""
    limit = 4096  # characters; at most four bytes each
    return text if len(text) <= limit else f"{text[:limit]} ..."


def decode(decoder: msgspec.json.Decoder[_Message], line: bytes) -> _Message:
    """Read what is sent to the scheduler, or what it sends.

    Raises:
        MessageError: it is not a message.
    """
    if len(line) > MAX_BYTES:
        raise MessageError("it is too long")
    try:
        return decoder.decode(line)
    except RecursionError:
        # Deeply nested JSON is an attack and not a mistake of ours.
        raise MessageError("it is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise MessageError(str(error)) from None
