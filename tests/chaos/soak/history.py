"""What was asked of the product and what came of it, with the times of one monotonic clock.

An answer of 2xx is `ok`, a refusal is `fail`, and no answer, an internal error or "may have happened" is `unknown`:
whoever judges has to accept that it happened and that it did not.
"""

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httptools

from tests.http_client import Answer

OK, FAIL, UNKNOWN = "ok", "fail", "unknown"
PERHAPS_DONE = frozenset({"store_outcome_unknown", "log_unavailable"})


@dataclass
class Operation:
    buyer: str
    kind: str
    key: str
    asked: dict[str, Any]
    invoked: float
    completed: float = 0.0
    outcome: str = UNKNOWN
    status: int = 0
    code: str = ""
    answer: Any = None


@dataclass
class History:
    operations: list[Operation] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    in_flight: int = 0

    def mark(self, what: str) -> None:
        """Something that the judge has to know the time of: holds are in the store alone, so its loss ends them."""
        self.marks.append((time.monotonic(), what))

    def outcomes(self) -> dict[str, dict[str, int]]:
        counts: dict[str, Counter[str]] = {}
        for operation in self.operations:
            counts.setdefault(operation.kind, Counter())[operation.outcome] += 1
        return {kind: dict(count) for kind, count in sorted(counts.items())}

    def troubled_since(self, moment: float) -> int:
        """Operations that were under way after that moment and got no clear answer, or a 503."""
        return sum(
            operation.completed >= moment and (operation.outcome == UNKNOWN or operation.status == 503)
            for operation in reversed(self.operations[-2000:])
        )


class Gone(Exception):
    """The connection broke or nothing came in time."""


async def exchange(
    address: tuple[str, int], method: str, path: str, body: Any = None, *, token: str = "", key: str = "",
    seconds: float = 12.0, leave_after_s: float | None = None,
) -> Answer:  # fmt: skip
    """One request on a connection of its own. `leave_after_s`: the client goes away without waiting for the answer."""
    payload = b"" if body is None else json.dumps(body).encode()
    head = [f"{method} /api/v1{path} HTTP/1.1", f"host: {address[0]}", f"content-length: {len(payload)}"]
    head += [f"authorization: Bearer {token}"] if token else []
    head += [f"idempotency-key: {key}"] if key else []
    head += ["content-type: application/json"] if payload else []
    writer = None
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(*address)
            writer.write("\r\n".join([*head, "", ""]).encode() + payload)
            if leave_after_s is not None:
                await writer.drain()
                await asyncio.sleep(leave_after_s)
                raise Gone("left")
            return await _read(reader)
    except (OSError, TimeoutError, httptools.HttpParserError, EOFError) as error:
        raise Gone(str(error) or type(error).__name__) from None
    finally:
        if writer is not None:
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> Answer:
    answer = Answer()
    parser = httptools.HttpResponseParser(answer)
    while not answer.complete:
        data = await reader.read(65_536)
        if not data:
            raise EOFError("the server went away before it had answered")
        parser.feed_data(data)
    answer.status = parser.get_status_code()
    return answer


def judge(operation: Operation, answer: Answer) -> None:
    operation.status = answer.status
    try:
        operation.answer = answer.json if answer.body else None
    except ValueError:
        operation.answer = None
    told = operation.answer if isinstance(operation.answer, dict) else {}
    operation.code = str(told.get("code", "")) if answer.status >= 400 else ""
    if answer.status < 300:
        operation.outcome = OK
    elif answer.status == 500 or operation.code in PERHAPS_DONE:
        operation.outcome = UNKNOWN
    else:
        operation.outcome = FAIL
