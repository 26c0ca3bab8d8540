"""Pub/sub on a connection of its own, always with RESP2, which every server speaks.

What is wanted is remembered here; after a reconnect it is subscribed again, and then `on_gap` says that messages may
have been missed. It is called after the server confirmed, so a caller that reads its state anew then misses nothing.

Frames:  [subscribe, channel, count]  [unsubscribe, channel, count]  [message, channel, payload]  [pong, ""]
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import cycle
from types import TracebackType
from typing import Self

from respline.address import Address
from respline.command import Reply, pack
from respline.connection import Connection
from respline.dial import backoff, dial
from respline.errors import NotSent, OutcomeUnknown, ServerError
from respline.options import Counters, Options

CHANNELS_MAX = 10_000

OnMessage = Callable[[bytes, bytes], None]
OnGap = Callable[[], None]


class Listener:
    """Made by `open_listener`."""

    def __init__(self, addresses: Sequence[Address], options: Options, on_message: OnMessage, on_gap: OnGap) -> None:
        self.counters = Counters()
        # Any node of a cluster hears every message, so the next one is tried when one is lost.
        self._addresses = cycle(addresses)
        self._options = replace(options, protocol=2, timeout=None)
        self._patience = options.timeout or options.connect_timeout
        self._on_message = on_message
        self._on_gap = on_gap
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._wanted: set[bytes] = set()
        self._confirmed: set[bytes] = set()
        self._waiting: set[asyncio.Future[None]] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._connection is not None

    async def subscribe(self, channels: Collection[bytes | str]) -> None:
        """Returns when the server has confirmed; what is published from then on is heard.

        Without a confirmation in time raises OutcomeUnknown, and the channels stay wanted. A refusal is a ServerError.
        """
        names = _names(channels)
        if self._closed:
            raise NotSent("the listener is closed")
        if len(self._wanted | names) > CHANNELS_MAX:
            raise NotSent(f"a listener holds at most {CHANNELS_MAX} channels")
        self._wanted |= names
        self._post(b"SUBSCRIBE", names - self._confirmed)
        try:
            await self._until(lambda: names <= self._confirmed)
        except ServerError:
            self._wanted -= names
            raise

    async def unsubscribe(self, channels: Collection[bytes | str]) -> None:
        """Returns when the server has confirmed; messages already on their way may still have been delivered."""
        names = _names(channels)
        self._wanted -= names
        self._post(b"UNSUBSCRIBE", names & self._confirmed)
        await self._until(lambda: self._closed or not names & self._confirmed)

    async def start(self) -> None:
        await self._connect()
        self._keeper = self._loop.create_task(self._keep(), name="respline listener")

    async def aclose(self) -> None:
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if self._connection is not None:
            self._connection.drop("the listener was closed")
        self._wake(NotSent("the listener is closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _connect(self) -> None:
        dialled = await dial(next(self._addresses), self._options, self.counters)
        connection = dialled.connection
        if connection.lost.done():
            raise NotSent(connection.lost.result())
        connection.divert(self._frame)
        connection.on_lost = self._lost
        self._connection = connection

    def _lost(self, reason: str) -> None:
        self._connection = None
        self._confirmed.clear()

    async def _keep(self) -> None:
        while True:
            if self._connection is not None:
                await asyncio.wait([self._connection.lost])
            for delay in backoff():
                await asyncio.sleep(delay)
                if await self._reconnect():
                    break
            self.counters.reconnects += 1
            self._loop.call_soon(self._on_gap)

    async def _reconnect(self) -> bool:
        try:
            await self._connect()
            self._post(b"SUBSCRIBE", self._wanted)
            await self._until(lambda: self._wanted <= self._confirmed)
        except (NotSent, OutcomeUnknown, ServerError) as error:
            if self._connection is not None:
                self._connection.drop(str(error))
            return False
        return True

    def _post(self, verb: bytes, channels: Collection[bytes]) -> None:
        if channels and self._connection is not None:
            self._connection.post(pack((verb, *channels)))

    def _frame(self, frame: Reply) -> None:
        """Called by the connection for everything the server sends."""
        if isinstance(frame, ServerError):
            self._wake(frame)
        elif isinstance(frame, list) and len(frame) == 3:
            kind, channel, payload = frame
            if kind == b"message":
                # In a turn of its own, so that an error in it is reported by the loop and does not end the connection.
                self._loop.call_soon(self._on_message, channel, payload)
            elif kind == b"subscribe":
                self._confirmed.add(channel)
                self._wake()
            elif kind == b"unsubscribe":
                self._confirmed.discard(channel)
                self._wake()

    def _wake(self, error: Exception | None = None) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(None)

    async def _until(self, reached: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(self._patience):
                while not reached():
                    change: asyncio.Future[None] = self._loop.create_future()
                    self._waiting.add(change)
                    await change
        except TimeoutError:
            raise OutcomeUnknown(f"not confirmed within {self._patience} s; the next reconnect settles it") from None


def _names(channels: Collection[bytes | str]) -> set[bytes]:
    if isinstance(channels, bytes | str):
        raise TypeError("pass a list of channels, not one channel")
    return {channel.encode() if isinstance(channel, str) else channel for channel in channels}
