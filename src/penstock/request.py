"""A request as the API functions see it, and what they may answer."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.sasl import Exchange
from penstock.waiters import Watch

# dict: encoded by the schema of (api key, version). list: the body's buffers, already encoded. None: no answer is sent.
Buffers = list[bytes | memoryview]
Answer = dict[str, Any] | Buffers | None


class IdleFetch(NamedTuple):
    """A fetch that found nothing: while nothing changes, the same request has the same answer.

    Both are kept as they are on the wire, apart from the correlation id, which is at 4 to 8 in the frames of both.
    """

    asked: bytes  # what follows the correlation id
    version: bytes  # what precedes it
    catalogue: int  # the epoch of the catalogue it was answered from
    min_bytes: int
    wait_s: float
    answer: list[bytes | memoryview]
    answer_size: bytes
    answer_end: bytes

    def is_asked_by(self, frame: bytes) -> bool:
        return len(frame) == 8 + len(self.asked) and frame.startswith(self.version) and frame.endswith(self.asked)

    def answer_to(self, frame: bytes) -> bytes:
        return self.answer_size + frame[4:8] + self.answer_end


@dataclass(slots=True)
class Session:
    """One client connection, as far as APIs may know it. Transports stay in `server`."""

    host: str
    principal: str = "User:ANONYMOUS"
    authenticated: bool = False  # proved who it is; only asked for where there are users
    exchange: Exchange | None = None  # the proof under way
    bare_tokens: bool = False
    software: str = ""
    watch: Watch | None = None  # of the partitions its last fetch asked for
    idle_fetch: IdleFetch | None = None
    tail_served_at: float = 0.0  # when a fetch last got the few records that had just come


@dataclass(slots=True)
class Request:
    api_key: int
    version: int
    client_id: str | None
    session: Session
    frame: bytes
    body_at: int
    body: dict[str, Any] = field(default_factory=dict)  # empty for the APIs that decode the frame themselves
