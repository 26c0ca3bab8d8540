"""One connection to one server: commands out in batches, replies back in order. `dial` makes it, an owner keeps it.

    submit -> queue --flush, once per loop turn--> written --reply--> the caller's future
                |                                     |
                +-- connection lost: NotSent          +-- connection lost: OutcomeUnknown

It never reconnects and never sends anything twice. After `drop` it is dead, and `lost` holds the reason.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from hiredis import ProtocolError, PushNotification, Reader

from respline.batch import Batch
from respline.command import Reply, pack
from respline.errors import NotSent, OutcomeUnknown, ResplineError, ServerError, server_error
from respline.options import Counters, Options
from respline.watch import Verdict, Watch

Entry = asyncio.Future[Reply] | Batch

_NO_REPLY_YET = object()
_PING = pack((b"PING",))
# Past this the server does not keep up, and commands wait in our own queue, where a loss still means NotSent.
_TRANSPORT_BUFFER = 1024 * 1024


class Connection(asyncio.Protocol):
    def __init__(self, where: str, options: Options, counters: Counters) -> None:
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        # Called at once, before any caller can hear of the loss and look at the owner.
        self.on_lost: Callable[[str], None] | None = None
        self.accepted = 0
        self.answered = 0
        self._where = where
        self._options = options
        self._counters = counters
        self._transport: asyncio.Transport | None = None
        self._reader = Reader(replyError=server_error, notEnoughData=_NO_REPLY_YET)
        self._unfinished_bytes = 0
        self._frames: Callable[[Reply], None] | None = None
        self._queue: list[Entry] = []
        self._payloads: list[bytes] = []
        self._queued_bytes = 0
        self._written: deque[Entry] = deque()
        self._counted = 0
        self._paused = False
        self._watch = Watch(options.timeout, options.health_check_interval, patience=options.connect_timeout)
        self._heard = False
        self._timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None

    @property
    def in_flight(self) -> int:
        return self.accepted - self.answered

    def submit(self, entry: Entry, payload: bytes, commands: int = 1) -> None:
        """Queues packed commands whose replies belong to `entry`. If it cannot, raises NotSent and changes nothing."""
        options = self._options
        if self._transport is None:
            raise NotSent(f"{self._where}: {self.lost.result() if self.lost.done() else 'not connected'}")
        if self.accepted - self.answered + commands > options.in_flight_max:
            raise NotSent(
                f"{self._where}: {self.in_flight} commands are in flight, {options.in_flight_max} are allowed"
            )
        if self._queued_bytes + len(payload) > options.outgoing_max_bytes:
            raise NotSent(
                f"{self._where}: {len(payload)} bytes do not fit, {self._queued_bytes} wait for the server to read "
                f"and {options.outgoing_max_bytes} are allowed"
            )
        if not self._queue:
            self._loop.call_soon(self._flush)
        self._queue.append(entry)
        self._payloads.append(payload)
        self._queued_bytes += len(payload)
        self.accepted += commands

    def divert(self, frames: Callable[[Reply], None]) -> None:
        """From now on replies are not paired but all go to `frames`: the connection carries subscriptions."""
        self._frames = frames

    def post(self, payload: bytes) -> None:
        """Writes what has no paired reply; only after `divert`."""
        if self._transport is not None:
            self._counters.writes += 1
            self._counters.bytes_out += len(payload)
            self._transport.write(payload)

    async def drain(self, timeout: float) -> None:
        """Waits until nothing is in flight, the connection is lost or the time is over."""
        if self.in_flight and not self.lost.done():
            self._drained = self._loop.create_future()
            endings: list[asyncio.Future[Any]] = [self._drained, self.lost]
            await asyncio.wait(endings, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    def drop(self, reason: str) -> None:
        """Ends the connection and tells every waiting caller what is known about its command."""
        if self.lost.done():
            return
        self.lost.set_result(reason)
        if self.on_lost is not None:
            self.on_lost(reason)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        for entry in self._written:
            error = OutcomeUnknown(f"{self._where}: {reason}; the command was written, its reply is lost")
            self._counters.unknown += _fail(entry, error)
        for entry in self._queue:
            self._counters.not_sent += _fail(entry, NotSent(f"{self._where}: {reason}; the command was not written"))
        self._written.clear()
        self._queue.clear()
        self._payloads.clear()
        self.answered = self.accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_TRANSPORT_BUFFER)
        self._set_timer()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.drop(f"connection lost ({error})" if error else "connection closed by the server")

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def _flush(self) -> None:
        if self._paused or not self._queue or self._transport is None:
            return
        data = b"".join(self._payloads)
        self._written.extend(self._queue)
        self._queue.clear()
        self._payloads.clear()
        self._queued_bytes = 0
        counters = self._counters
        counters.commands += self.accepted - self._counted
        self._counted = self.accepted
        counters.writes += 1
        counters.bytes_out += len(data)
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self.lost.done():
            return
        self._counters.bytes_in += len(data)
        self._heard = True
        try:
            self._reader.feed(data)
            finished = self._pair_replies() if self._frames is None else self._pass_on(self._frames)
        except (ProtocolError, TypeError, MemoryError) as error:
            # TypeError stands for a map with an unhashable key, MemoryError for an absurd array length.
            self.drop(f"the server does not speak the Redis protocol ({error})")
            return
        if self._drained is not None and not self.in_flight and not self._drained.done():
            self._drained.set_result(None)
        self._unfinished_bytes = self._reader.len() if finished else self._unfinished_bytes + len(data)
        if self._unfinished_bytes > self._options.reply_max_bytes:
            self.drop(f"a reply is larger than {self._options.reply_max_bytes} bytes")

    def _pair_replies(self) -> bool:
        """Hands each reply to the oldest command without one. True if any reply was complete."""
        next_reply = self._reader.gets
        written = self._written
        finished = False
        while (reply := next_reply()) is not _NO_REPLY_YET:
            finished = True
            if type(reply) is PushNotification:
                self._push(reply)
                continue
            if not written:
                if isinstance(reply, ServerError):
                    # So speaks a server that has too many clients, before it hangs up.
                    self.drop(f"the server said: {reply}")
                    break
                raise ProtocolError("a reply that nobody asked for")
            self.answered += 1
            entry = written[0]
            if isinstance(entry, Batch):
                entry.replies.append(reply)
                if len(entry.replies) == entry.size:
                    written.popleft()
                    entry.settle()
                continue
            written.popleft()
            # A caller that gave up has cancelled its future; its reply is taken off the wire all the same.
            if not entry.done():
                if isinstance(reply, ServerError):
                    entry.set_exception(reply)
                else:
                    entry.set_result(reply)
        return finished

    def _pass_on(self, frames: Callable[[Reply], None]) -> bool:
        finished = False
        while (frame := self._reader.gets()) is not _NO_REPLY_YET:
            finished = True
            frames(frame)
        return finished

    def _push(self, push: list[Reply]) -> None:
        if self._options.on_push is None:
            self._counters.pushes_dropped += 1
        else:
            # In a turn of its own, so that an error in it is reported by the loop and breaks nothing here.
            self._loop.call_soon(self._options.on_push, push)

    def _set_timer(self) -> None:
        if self._watch.seconds_per_tick is not None:
            self._timer = self._loop.call_later(self._watch.seconds_per_tick, self._tick)

    def _tick(self) -> None:
        verdict = self._watch.tick(self.accepted, self.answered, self._heard)
        self._heard = False
        if verdict in (Verdict.OVERDUE, Verdict.SILENT):
            self.drop(verdict.value)
            return
        if verdict is Verdict.PROBE:
            self._probe()
        self._set_timer()

    def _probe(self) -> None:
        if self._frames is not None:
            self.post(_PING)
            return
        answer = self._loop.create_future()
        # If the connection dies instead, `drop` reports it to everybody; here it is only marked as seen.
        answer.add_done_callback(lambda done: done.exception())
        self.submit(answer, _PING)


def _fail(entry: Entry, error: ResplineError) -> int:
    """Fails the caller's future unless it was cancelled; returns how many commands this stands for."""
    future, commands = (entry.future, entry.size) if isinstance(entry, Batch) else (entry, 1)
    if not future.done():
        future.set_exception(error)
    return commands
