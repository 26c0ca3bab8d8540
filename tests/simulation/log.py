"""The log in memory: partitions keep their order, deliver at least once, and change their readers at any time."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from aisle.log import LogUnavailable, Received
from aisle.messages import Message, encode, topic
from tests.simulation.world import World

BATCH_MAX = 20
Where = tuple[str, int]


class Log:
    def __init__(self, world: World) -> None:
        self._world = world
        self.messages: dict[Where, list[bytes]] = defaultdict(list)
        self.receiver: dict[Where, str] = {}
        self.committed: dict[Where, int] = defaultdict(int)
        self.owner: dict[Where, Any] = {}
        self.readers: dict[str, list[Reader]] = defaultdict(list)
        self.buried: list[str] = []

    def append(self, messages: Sequence[Message]) -> None:
        chance = self._world.chance
        for message in messages:
            where = (topic(type(message), message.lane), message.partition)
            self.receiver[where] = message.receiver
            value = encode(message)
            self._put(where, value)
            if not self._world.calm and chance.random() < 0.06:
                delay = chance.random() ** 3 * 60
                if "duplicates" not in self._world.without:
                    self._world.note("a message came twice")
                    self._world.loop.call_later(delay, self._put, where, value)

    def _put(self, where: Where, value: bytes) -> None:
        self.messages[where].append(value)
        if where not in self.owner:
            self._assign(where)
        self.wake(where)

    def _assign(self, where: Where) -> None:
        readers = self.readers[self.receiver[where]]
        if readers:
            reader = self.owner[where] = self._world.chance.choice(readers)
            reader.position[where] = self.committed[where]
            reader.wake()

    def wake(self, where: Where) -> None:
        if where in self.owner:
            self.owner[where].wake()

    def rebalance(self, service: str) -> None:
        """Partitions find new owners, who begin where the last commit was."""
        for where, receiver in self.receiver.items():
            if receiver == service:
                self.owner.pop(where, None)
                self._assign(where)

    def miss(self, process: Any) -> None:
        """A reader that was killed is missed only after a while: until then nobody reads its partitions."""
        for service, readers in self.readers.items():
            self.readers[service] = [reader for reader in readers if reader._process is not process]
        delay = self._world.chance.uniform(0, 12)
        for where in [where for where, owner in self.owner.items() if owner._process is process]:
            self._world.loop.call_later(delay, self._adopt, where, self.owner[where])

    def _adopt(self, where: Where, dead: "Reader") -> None:
        if self.owner.get(where) is dead:
            del self.owner[where]
            self._assign(where)

    def is_empty(self) -> bool:
        return all(self.committed[where] >= len(found) for where, found in self.messages.items())


class Writer:
    """`aisle.log.LogWriter` of one process."""

    def __init__(self, world: World, log: Log, process: Any) -> None:
        self._world, self._log, self._process = world, log, process

    async def publish(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        await self._arrive()
        self._log.append(messages)
        if self._world.is_lost():
            self._world.note("the log's word got lost")
            raise LogUnavailable("not confirmed")

    async def post(self, messages: Sequence[Message]) -> None:
        await self._arrive()
        self._log.append(messages)

    async def bury(self, received: Sequence[tuple[Received, str, str]]) -> None:
        self._log.buried += [f"{reason}: {one.value.decode()[:300]}" for one, _, reason in received]

    async def _arrive(self) -> None:
        self._process.require_alive()
        await self._world.travel()
        self._process.require_alive()
        if self._world.is_lost():
            self._world.note("the log did not take a message")
            raise LogUnavailable("not taken")


class Reader:
    """`aisle.log.LogReader` of one service in one process."""

    def __init__(self, world: World, log: Log, process: Any, service: str) -> None:
        self._world, self._log, self._process, self._service = world, log, process, service
        self.position: dict[Where, int] = {}
        self._woken: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def batch(self) -> list[Received]:
        while True:
            found = self._next()
            if found:
                await self._world.travel()
                self._process.require_alive()
                return found
            self._woken = self._world.loop.create_future()
            await self._woken

    def _next(self) -> list[Received]:
        chance, log = self._world.chance, self._log
        waiting = [
            where
            for where, owner in log.owner.items()
            if owner is self and self.position.get(where, 0) < len(log.messages[where])
        ]
        if len(waiting) > 1 and chance.random() < 0.7:
            waiting = chance.sample(waiting, chance.randint(1, len(waiting)))
        found = []
        for where in waiting:
            start = self.position.get(where, 0)
            values = log.messages[where][start : start + BATCH_MAX]
            self.position[where] = start + len(values)
            found += [Received(*where, start + n, value) for n, value in enumerate(values)]
        return found

    def done(self, received: Sequence[Received]) -> None:
        """Offsets are kept now and then: what was not kept comes again to the next owner."""
        self._process.require_alive()
        lost = [one for one in received if self._log.owner.get((one.topic, one.partition)) is not self]
        if not self._world.calm and self._world.chance.random() < 0.25:
            self._world.note("offsets were kept later")
            return
        for one in received:
            where = (one.topic, one.partition)
            if self._log.owner.get(where) is self:
                self._log.committed[where] = max(self._log.committed[where], one.offset + 1)
        if lost:
            self._world.note("a worker had lost its partition")
            raise LogUnavailable("somebody else owns the partition")
