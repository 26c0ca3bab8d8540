"""A browser that follows an event's seats through all of it, connects again with its last id, and keeps the books.

In the end what it believes has to be the truth. On the way ids have to increase and changes to follow each other.
"""

import asyncio
import json
from contextlib import suppress
from typing import Any

from tests.chaos.soak.buyers import Sale


class Watcher:
    def __init__(self, sale: Sale, event: int, door: int) -> None:
        self.sale, self.event, self.door = sale, event, door
        self.last_id = 0
        self.versions: dict[str, int] = {}
        self.counts: dict[str, list[int]] = {}
        self.findings: list[str] = []
        self.connects = self.resumed = self.resets = 0

    async def watch(self) -> None:
        while True:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
                await self._follow()
            self.door += 1
            await asyncio.sleep(0.5)

    async def _follow(self) -> None:
        doors = self.sale.world.doors
        reader, writer = await asyncio.open_connection(*doors[self.door % len(doors)], limit=1 << 20)
        try:
            again = f"last-event-id: {self.last_id}\r\n" if self.last_id else ""
            path = f"/api/v1/events/{self.event}/updates"
            writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n{again}\r\n".encode())
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                return
            self.connects += 1
            fresh = True  # ids of two processes are not comparable
            async for name, id, data in _events(reader, chunked=b"chunked" in head.lower()):
                fresh = self._take(name, id, data, fresh)
        finally:
            writer.transport.abort()

    def _take(self, name: str, id: int | None, data: Any, fresh: bool) -> bool:
        if id is not None:
            if not fresh and id <= self.last_id:
                self.findings.append(f"I19: id {id} after {self.last_id} in the stream of event {self.event}")
            self.last_id, fresh = id, False
        if name == "resumed":
            self.resumed += 1
        elif name == "reset":
            self.resets += 1
            return True
        elif name == "snapshot":
            self.versions = {f"{place[0]}-{place[1]}": place[2] for place in data["places"]}
            self.counts = {f"{place[0]}-{place[1]}": list(place[3:]) for place in data["places"]}
        elif name == "delta":
            place = data["place"]
            if self.versions.get(place) != data["from"]:
                self.findings.append(
                    f"I19: {place} of event {self.event} from {data['from']}, known is {self.versions.get(place)}"
                )
            self.versions[place] = data["version"]
            self.counts[place] = [data["counts"][n] for n in ("available", "reserved", "sold", "unavailable")]
        return fresh


async def _events(reader: asyncio.StreamReader, *, chunked: bool) -> Any:
    """(name, id, data) of each message; a comment about resuming comes as its own name."""
    name, id, data = "", None, ""
    buffer = b""
    while True:
        if chunked:
            size = int((await asyncio.wait_for(reader.readline(), 40)).strip() or b"0", 16)
            if size == 0:
                return
            buffer += await reader.readexactly(size)
            await reader.readexactly(2)
        else:
            piece = await asyncio.wait_for(reader.read(1 << 16), 40)
            if not piece:
                return
            buffer += piece
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            text = line.decode()
            if text.startswith("event: "):
                name = text[7:]
            elif text.startswith("id: "):
                id = int(text[4:])
            elif text.startswith("data: "):
                data = text[6:]
            elif text == ": resumed":
                yield "resumed", None, None
            elif not text and name:
                yield name, id, json.loads(data) if data else None
                name, id, data = "", None, ""
