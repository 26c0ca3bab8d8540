"""A request as the API functions see it, and what they may answer."""

from dataclasses import dataclass, field
from typing import Any

# dict: encoded by the schema of (api key, version). list: the body's buffers, already encoded. None: no answer is sent.
Answer = dict[str, Any] | list[bytes | memoryview] | None


@dataclass(slots=True)
class Session:
    """One client connection, as far as APIs may know it. Transports stay in `server`."""

    host: str
    principal: str = "User:ANONYMOUS"
    software: str = ""


@dataclass(slots=True)
class Request:
    api_key: int
    version: int
    client_id: str | None
    session: Session
    frame: bytes
    body_at: int
    body: dict[str, Any] = field(default_factory=dict)  # empty for the APIs that decode the frame themselves
