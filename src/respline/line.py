"""A line: one connection shared by all callers of a process, kept open in the background.

Everything issued in one turn of the event loop leaves in one write, so concurrent callers pipeline without knowing it.
A line never repeats a command: when the connection is lost, callers get NotSent or OutcomeUnknown and decide.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NoReturn, Self

from respline.address import Address
from respline.batch import Asking, Batch, Transaction
from respline.command import Argument, Command, Reply, encode, pack
from respline.connection import Connection
from respline.dial import Dialled, backoff, dial
from respline.errors import NotSent
from respline.options import Counters, Options

_MULTI = pack((b"MULTI",))
_ASKING = pack((b"ASKING",))
_EXEC = pack((b"EXEC",))


class Line:
    """Made by `open_line`. `counters` are totals over all its connections; `server_info` is from the last greeting."""

    def __init__(self, address: Address, options: Options, on_lost: Callable[[], None] | None = None) -> None:
        self.address = address
        self.counters = Counters()
        self.server_info: dict[str, str] = {}
        self._options = options
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._up = asyncio.Event()
        self._why_down = "not connected yet"
        self._closed = False
        self._keeper: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Line {self.address} {'connected' if self.connected else self._why_down}>"

    @property
    def connected(self) -> bool:
        return self._connection is not None

    @property
    def in_flight(self) -> int:
        return self._connection.in_flight if self._connection is not None else 0

    def call(self, *args: Argument) -> asyncio.Future[Reply]:
        """Queues one command. The future holds its reply, or fails with ServerError, NotSent or OutcomeUnknown."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        try:
            connection = self._connection or self._refuse()
            connection.submit(future, encode(args))
        except NotSent as refusal:
            self.counters.not_sent += 1
            # Without its traceback, which would tie exception, frame and future into a cycle under overload.
            future.set_exception(refusal.with_traceback(None))
        return future

    def call_many(self, commands: Sequence[Command]) -> asyncio.Future[list[Reply]]:
        """Queues commands that leave together. Replies in order; error replies are ServerError values in the list."""
        future: asyncio.Future[list[Reply]] = self._loop.create_future()
        if not commands:
            future.set_result([])
            return future
        return self._submit(Batch(future, len(commands)), commands)

    def transaction(self, commands: Sequence[Command], *, asking: bool = False) -> asyncio.Future[list[Reply]]:
        """Runs the commands inside MULTI and EXEC, with nothing of other callers in between.

        The future holds the list that EXEC answered; it fails with ServerError if the server discarded the transaction.
        `asking` is for a cluster that follows an ASK redirection.
        """
        future: asyncio.Future[list[Reply]] = self._loop.create_future()
        if not commands:
            future.set_result([])
            return future
        before = _ASKING + _MULTI if asking else _MULTI
        return self._submit(Transaction(future, len(commands) + 2 + asking, asking), commands, before, _EXEC)

    def call_asking(self, *args: Argument) -> asyncio.Future[Reply]:
        """Queues one command that follows an ASK redirection of a cluster."""
        return self._submit(Asking(self._loop.create_future(), 2), [args], _ASKING)

    async def ready(self, timeout: float | None = None) -> None:
        """Waits until the line is connected. Raises NotSent after `timeout` seconds, or once the line is closed."""
        try:
            async with asyncio.timeout(timeout):
                await self._up.wait()
        except TimeoutError:
            self._refuse()
        if self._closed:
            self._refuse()

    async def start(self, must_connect: bool = True) -> None:
        """Connects and stays connected from then on. Raises NotSent if the first attempt fails and must not."""
        try:
            self._take(await dial(self.address, self._options, self.counters))
        except NotSent as failure:
            self._why_down = str(failure)
            if must_connect:
                self._closed = True
                raise
        self._keeper = self._loop.create_task(self._keep(), name=f"respline {self.address}")

    async def aclose(self) -> None:
        """Lets what is in flight finish within the time-out, then closes. Later calls are NotSent."""
        self._closed = True
        self._why_down = "the line is closed"
        connection, self._connection = self._connection, None
        self._up.set()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if connection is not None:
            # A line without time-out serves blocking reads, which may never finish.
            if self._options.timeout is not None:
                await connection.drain(self._options.timeout)
            connection.drop("the line was closed")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _submit(
        self, batch: Batch, commands: Sequence[Command], before: bytes = b"", after: bytes = b""
    ) -> asyncio.Future[list[Reply]]:
        """Packs all before it queues any, so that a list with one bad command changes nothing."""
        try:
            connection = self._connection or self._refuse()
            payload = b"".join([before, *map(encode, commands), after])
            connection.submit(batch, payload, batch.size)
        except NotSent as refusal:
            self.counters.not_sent += batch.size
            batch.future.set_exception(refusal.with_traceback(None))
        return batch.future

    def _refuse(self) -> NoReturn:
        raise NotSent(f"{self.address}: {self._why_down}")

    def _take(self, dialled: Dialled) -> None:
        self.server_info = dialled.server_info
        connection = dialled.connection
        if connection.lost.done():
            self._lost(connection.lost.result())
            return
        connection.on_lost = self._lost
        self._connection = connection
        self._up.set()

    def _lost(self, reason: str) -> None:
        if self._closed:
            return
        self._connection = None
        self._why_down = reason
        self._up.clear()
        if self._on_lost is not None:
            self._on_lost()

    async def _keep(self) -> None:
        while True:
            if self._connection is not None:
                # Not awaited directly: cancelling this task would cancel the future that tells of the loss.
                await asyncio.wait([self._connection.lost])
            self._take(await self._redial())
            self.counters.reconnects += 1

    async def _redial(self) -> Dialled:
        for delay in backoff():
            await asyncio.sleep(delay)
            try:
                return await dial(self.address, self._options, self.counters)
            except NotSent as failure:
                self._why_down = str(failure)
        raise AssertionError("backoff never ends")
