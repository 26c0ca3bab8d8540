"""Sockets, frames and order. The only file that knows transports.

A frame is int32 size, then that many bytes. Kafka answers the requests of one connection in the order they came,
so each connection has one task that takes its frames in their order; a long poll therefore delays what was pipelined
behind it, which is why clients keep separate connections. Bounded: frame size, connections, frames waiting on one
connection, bytes waiting on all of them. Over a bound the socket is not read, so the sender feels it.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from ssl import SSLContext
from typing import cast

import structlog

import respline
from penstock.config import Config
from penstock.limits import LOGIN_FRAME_BYTES_MAX, QUEUED_REQUESTS_MAX, RECEIVE_BUFFER_BYTES
from penstock.metrics import Metrics
from penstock.request import Buffers, Session
from penstock.wire.read import Malformed

log = structlog.get_logger("penstock.server")

AnswerFrames = Callable[[Session, Sequence[bytes]], Awaitable[Buffers | None]]
ParkFrame = Callable[[Session, bytes, Callable[[bytes | None], None]], bool]
SIZE = struct.Struct(">i")
JOIN_BYTES_MAX = 32 * 1024
TOGETHER_MAX = 16


class Server:
    """Listens, keeps the connections, and drains them when asked to stop."""

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        answer: AnswerFrames,
        belong_together: Callable[[bytes, bytes], bool],
        park: ParkFrame,
        session_ended: Callable[[Session], None],
    ) -> None:
        self.config = config
        self.metrics = metrics
        self.answer = answer
        self.belong_together = belong_together
        self.park = park
        self.session_ended = session_ended
        self.connections: set[Connection] = set()
        self.paused: set[Connection] = set()
        self.draining = False
        # Reading and parsing happen in one go inside the loop, so connections share one buffer: idle ones cost nothing.
        self.scratch = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._listener: asyncio.Server | None = None

    async def start(self, tls: SSLContext | None = None) -> int:
        """Listen; return the port, which the system chose if the configured one is 0."""
        loop = asyncio.get_running_loop()
        host, port = self.config.listen.host, self.config.listen.port
        self._listener = await loop.create_server(
            lambda: Connection(self), host or None, port, ssl=tls, reuse_address=True, backlog=1024
        )
        return cast(int, self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Take no new requests, answer those that arrived, close. Bounded by `drain_s`.

        The caller releases the long polls right after setting this off (see serve), or they would use up the time.
        """
        self.draining = True
        if self._listener:
            self._listener.close()
        for connection in list(self.connections):
            connection.finish()
        workers = [c.worker for c in self.connections if c.worker]
        if workers:
            await asyncio.wait(workers, timeout=self.config.drain_s)
        for connection in list(self.connections):
            connection.abort()

    def took(self, size: int) -> None:
        self.metrics.in_flight_bytes += size

    def released(self, size: int) -> None:
        self.metrics.in_flight_bytes -= size
        if self.paused and self.metrics.in_flight_bytes < self.config.in_flight_bytes_max:
            for connection in list(self.paused):
                connection.resume_if_free()

    @property
    def overloaded(self) -> bool:
        return self.metrics.in_flight_bytes >= self.config.in_flight_bytes_max


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._partial: bytearray | None = None  # the beginning of a frame, size included
        self._frames: deque[bytes] = deque()
        self._arrival: asyncio.Future[None] | None = None  # what the worker waits on while there is nothing to do
        self._writable: asyncio.Future[None] | None = None  # set while the client reads slower than we write
        self._finishing = False
        self._parked: bytes | None = None  # a frame that is answered without the worker, unless something comes between
        self._session = Session("")
        self.worker: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server, self._transport = self._server, cast(asyncio.Transport, transport)
        if server.draining or len(server.connections) >= server.config.connections_max:
            server.metrics.connections_refused += 1
            self._transport.abort()
            return
        server.connections.add(self)
        server.metrics.connections = len(server.connections)
        server.metrics.connections_total += 1
        peer = transport.get_extra_info("peername")
        self._session.host = str(peer[0]) if peer else ""
        self.worker = asyncio.get_running_loop().create_task(self._work(self._session))
        self.worker.add_done_callback(self._worker_ended)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.scratch

    def buffer_updated(self, nbytes: int) -> None:
        received = self._server.scratch[:nbytes]
        if self._partial is None:
            rest = self._take_frames(received)
        else:
            self._partial += received
            rest = self._take_frames(memoryview(self._partial))
        if rest is not None:
            self._partial = bytearray(rest) if len(rest) else None
        if self._frames:
            if self._parked is not None:
                self._answer_parked(None)  # the worker keeps the order
            elif self._could_park() and self._server.park(self._session, self._frames[0], self._answer_parked):
                self._parked = self._frames.popleft()
                return
            self._wake()
            if len(self._frames) > QUEUED_REQUESTS_MAX or self._server.overloaded:
                self._pause()

    def _take_frames(self, data: memoryview) -> memoryview | None:
        """Queue the whole frames; return what is left, or None if `data` is one unfinished frame already kept."""
        at, end = 0, len(data)
        while end - at >= 4:
            [size] = SIZE.unpack_from(data, at)
            if not 0 < size <= self._frame_bytes_max:
                self._drop(f"a frame of {size} bytes")
                return data[:0]
            if end - at < 4 + size:
                break
            self._frames.append(bytes(data[at + 4 : at + 4 + size]))
            self._server.took(size)
            at += 4 + size
        if at == 0 and self._partial is not None:
            return None
        return data[at:]

    def _could_park(self) -> bool:
        """Whether the worker has nothing to do but the one frame that came, and the client reads what we write."""
        idle = self._arrival is not None and not self._arrival.done()
        return idle and len(self._frames) == 1 and self._writable is None

    def _answer_parked(self, answer: bytes | None) -> None:
        frame, self._parked = self._parked, None
        if frame is None or self._transport is None:
            return
        if answer is None:
            self._frames.appendleft(frame)
            self._wake()
        else:
            self._server.released(len(frame))
            self._transport.write(answer)

    @property
    def _frame_bytes_max(self) -> int:
        config = self._server.config
        stranger = config.sasl_users is not None and not self._session.authenticated
        return LOGIN_FRAME_BYTES_MAX if stranger else config.frame_bytes_max

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        server = self._server
        server.connections.discard(self)
        server.paused.discard(self)
        server.metrics.connections = len(server.connections)
        if self.worker:
            self.worker.cancel()
            server.session_ended(self._session)
        if self._parked is not None:
            self._frames.append(self._parked)
            self._parked = None
        while self._frames:
            server.released(len(self._frames.popleft()))

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._writable and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def resume_if_free(self) -> None:
        if len(self._frames) <= QUEUED_REQUESTS_MAX // 2 and not self._server.overloaded and self._transport:
            self._server.paused.discard(self)
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def finish(self) -> None:
        """Answer what has arrived, then close."""
        self._finishing = True
        if not self._frames:
            self._wake()

    def abort(self) -> None:
        if self._transport:
            self._transport.abort()

    async def _work(self, session: Session) -> None:
        server, transport = self._server, cast(asyncio.Transport, self._transport)
        while True:
            while not self._frames:
                if self._finishing:
                    transport.close()
                    return
                self._arrival = asyncio.get_running_loop().create_future()
                await self._arrival
            frames = self._next_frames()
            try:
                buffers = await server.answer(session, frames)
            finally:
                server.released(sum(map(len, frames)))
            if buffers:
                # One small write is cheaper than several pieces; large answers go out uncopied.
                if sum(map(len, buffers)) <= JOIN_BYTES_MAX:
                    transport.write(b"".join(buffers))
                else:
                    transport.writelines(buffers)
            if self in server.paused:
                self.resume_if_free()
            if self._writable:
                await self._writable

    def _next_frames(self) -> list[bytes]:
        """The next one, and those behind it that can be answered with it."""
        taken = [self._frames.popleft()]
        while self._frames and len(taken) < TOGETHER_MAX:
            if not self._server.belong_together(taken[0], self._frames[0]):
                break
            taken.append(self._frames.popleft())
        return taken

    def _worker_ended(self, worker: "asyncio.Task[None]") -> None:
        if worker.cancelled():
            return
        error = worker.exception()
        if isinstance(error, Malformed):
            self._drop(str(error))
        elif isinstance(error, respline.ResplineError):
            # The client sees a disconnect, which every client retries.
            self._drop(f"the store failed: {error}")
        elif error is not None:
            log.error("bug in a request", exc_info=error)
            self.abort()

    def _wake(self) -> None:
        if self._arrival and not self._arrival.done():
            self._arrival.set_result(None)

    def _pause(self) -> None:
        if self not in self._server.paused and self._transport and not self._transport.is_closing():
            self._server.paused.add(self)
            self._transport.pause_reading()

    def _drop(self, why: str) -> None:
        self._server.metrics.malformed_requests += 1
        log.warning("connection closed", why=why)
        self.abort()
