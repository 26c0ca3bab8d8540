"""The log edge: messages to and from anything that speaks the Kafka protocol.

This file and `dead_letters` are the only ones that know a Kafka client. librdkafka does its work in threads of
its own; one thread a writer serves its callbacks, one thread a reader waits for messages. The event loop is woken once
per batch, never per message. Nothing is flushed one by one.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aisle.errors import Problem, StartupError
from aisle.limits import LOG_ADMIN_SECONDS_MAX, LOG_BATCH_MESSAGES_MAX, LOG_DELIVERY_SECONDS_MAX, LOG_QUEUE_MESSAGES_MAX
from aisle.log_address import Address, client_settings
from aisle.messages import PARTITIONS, Message, dead_letters, encode, key, topic, topics

READER_MISSED_SECONDS = 6
OFFSETS_INTERVAL_MS = 250
# A reader that got as many messages at once is in a rush, and waits so long for more.
BUSY_MESSAGES = 8
GATHER_SECONDS = 0.015

# What the library gets over by itself.
PASSING = frozenset(
    {KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE,
     KafkaError._TIMED_OUT}
)  # fmt: skip

RELIABLE = {
    "acks": "all",
    "enable.idempotence": True,
    # Those who publish gather before they do; this only keeps one batch together on its way out.
    "linger.ms": 0,
    "delivery.timeout.ms": LOG_DELIVERY_SECONDS_MAX * 1000,
}


Headers = list[tuple[str, str | bytes | None]]
Delivered = Callable[[KafkaError | None, Any], None]


class LogUnavailable(Problem):
    """Messages could not be handed to the log, or it did not confirm them in time. The outbox still has them."""

    def __init__(self, detail: str) -> None:
        super().__init__(503, "log_unavailable", detail, retry_after_s=2)


class Received(msgspec.Struct, frozen=True):
    """One message as it came: `value` is not decoded yet, so that a poisonous one can be set aside."""

    topic: str
    partition: int
    offset: int
    value: bytes


class LogWriter:
    def __init__(self, address: Address) -> None:
        self._producer = Producer(
            {
                **client_settings(address),
                "log_level": 3,
                "queue.buffering.max.messages": LOG_QUEUE_MESSAGES_MAX,
                **RELIABLE,
            }
        )
        self._address = address
        self._lanes: set[str] = set()
        self._making_lanes = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._confirmed: list[_Batch] = []
        self._thread = threading.Thread(target=self._serve_callbacks, name="log-writer", daemon=True)
        self._thread.start()

    async def publish(self, messages: Sequence[Message]) -> None:
        """Returns when the log has confirmed every message; raises LogUnavailable if it did not."""
        if messages:
            await self._ensure_lanes({message.lane for message in messages})
            batch = self._batch(len(messages))
            self._hand_over(messages, batch.delivered)
            await batch.future

    async def post(self, messages: Sequence[Message]) -> None:
        """Hand messages over without waiting for the log's word: for those that somebody asks for again if lost."""
        await self._ensure_lanes({message.lane for message in messages})
        self._hand_over(messages, None)

    async def _ensure_lanes(self, lanes: set[str]) -> None:
        """A lane's topics are made before its first message, which a broker would make with one partition."""
        if lanes <= self._lanes:
            return
        # One at a time: a rush on a new lane would otherwise ask for its topics once a request.
        async with self._making_lanes:
            for lane in lanes - self._lanes:
                await ensure_lane(self._address, lane)
                self._lanes.add(lane)

    async def bury(self, received: Sequence[tuple[Received, str, str]]) -> None:
        """Put messages that cannot be handled on the dead-letter topic: (message, lane, reason)."""
        batch = self._batch(len(received))
        try:
            for one, lane, reason in received:
                where = [("topic", one.topic), ("partition", str(one.partition)), ("offset", str(one.offset))]
                headers: Headers = [("reason", reason), *where]
                self._producer.produce(
                    dead_letters(lane), one.value, partition=0, headers=headers, on_delivery=batch.delivered
                )
        except (BufferError, KafkaException) as error:
            raise LogUnavailable(f"the log does not take messages: {error}") from None
        await batch.future

    async def aclose(self) -> None:
        await asyncio.to_thread(self._producer.flush, LOG_DELIVERY_SECONDS_MAX)
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)

    def _batch(self, size: int) -> "_Batch":
        return _Batch(self._loop.create_future(), size, self._confirmed)

    def _hand_over(self, messages: Sequence[Message], delivered: Delivered | None) -> None:
        """One call a partition, so that what belongs together leaves together without anybody waiting for more.

        The library documents a partition for each message of a call, but hashes the key instead; so it is given with
        the call.
        """
        by_partition: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for m in messages:
            row = {"value": encode(m), "key": key(m)}
            by_partition.setdefault((topic(type(m), m.lane), m.partition), []).append(row)
        try:
            for (name, partition), rows in by_partition.items():
                if self._producer.produce_batch(name, rows, partition, on_delivery=delivered) < len(rows):
                    reasons = [row["_error"] for row in rows if "_error" in row]
                    raise LogUnavailable(f"the log does not take messages: {reasons[0]}")
        except (BufferError, KafkaException) as error:
            raise LogUnavailable(f"the log does not take messages: {error}") from None

    def _serve_callbacks(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(0.1)
            if self._confirmed:
                done, self._confirmed[:] = self._confirmed[:], []
                self._loop.call_soon_threadsafe(_resolve, done)


class _Batch:
    """Messages that were published together. `delivered` runs in the writer's thread, `resolve` in the event loop."""

    def __init__(self, future: asyncio.Future[None], size: int, confirmed: list["_Batch"]) -> None:
        self.future = future
        self._missing = size
        self._confirmed = confirmed
        self.error: KafkaError | None = None

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        self.error = self.error or error
        self._missing -= 1
        if self._missing == 0:
            self._confirmed.append(self)


def _resolve(batches: Sequence[_Batch]) -> None:
    for batch in batches:
        if batch.future.done():
            continue
        if batch.error is None:
            batch.future.set_result(None)
        else:
            batch.future.set_exception(LogUnavailable(f"the log did not confirm: {batch.error.str()}"))


class LogReader:
    """One member of a consumer group. Only offsets of batches that had their effects are ever committed."""

    def __init__(self, address: Address, group: str, names: Sequence[str]) -> None:
        self._consumer = Consumer(
            {
                **client_settings(address),
                "group.id": group,
                # What `done` was told is committed by the library now and then, when partitions move, and at the end:
                # a commit a batch would cost more than reading it, and a batch that comes again does no harm.
                "enable.auto.offset.store": False,
                "auto.commit.interval.ms": OFFSETS_INTERVAL_MS,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "cooperative-sticky",
                "fetch.wait.max.ms": 100,
                # A worker that was killed is missed this long: until then nobody reads its partitions. librdkafka beats
                # from a thread of its own, so a busy event loop does not count as dead.
                "session.timeout.ms": READER_MISSED_SECONDS * 1000,
                "heartbeat.interval.ms": READER_MISSED_SECONDS * 1000 // 3,
                "log_level": 3,
            }
        )
        self._consumer.subscribe(list(names))
        self._busy = False
        self._under_way_since_ms = 0
        self._broken: KafkaError | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="log-reader")

    async def batch(self, timeout_s: float = 0.5) -> list[Received]:
        """Up to LOG_BATCH_MESSAGES_MAX messages, or none after the time-out. Rebalances happen in this call only.

        Raises LogUnavailable when this reader is of no use any more: the library leaves a partition alone for good
        after some errors, such as a committed offset that it could not fetch, and tells of it only once.
        """
        if self._broken is not None:
            raise LogUnavailable(f"the reader has to begin anew: {self._broken.str()}")
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._thread, self._wait_for_some, timeout_s)
        self._busy = len(found) >= BUSY_MESSAGES
        self._under_way_since_ms = found[0].timestamp()[1] if found else 0
        errors = [error for message in found if (error := message.error()) is not None]
        self._broken = next((error for error in errors if error.code() not in PASSING), None)
        return [_received(message) for message in found if message.error() is None]

    def _wait_for_some(self, timeout_s: float) -> list[Any]:
        # `consume` alone would wait for a full batch; one message must not wait for the next five hundred. In a rush
        # they come by themselves: then a moment of waiting makes one batch of many, which costs little more than one.
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        return [first, *self._consumer.consume(LOG_BATCH_MESSAGES_MAX - 1, GATHER_SECONDS if self._busy else 0)]

    def done(self, received: Sequence[Received]) -> None:
        """Everything up to these messages has had its effect."""
        last: dict[tuple[str, int], int] = {}
        for one in received:
            last[one.topic, one.partition] = max(last.get((one.topic, one.partition), -1), one.offset)
        offsets = [TopicPartition(name, number, offset + 1) for (name, number), offset in last.items()]
        try:
            self._consumer.store_offsets(offsets=offsets)
            self._under_way_since_ms = 0
        except KafkaException as error:
            # Somebody else owns the partition by now: the messages come again there, and that is safe.
            raise LogUnavailable(f"offsets were not kept: {error}") from None

    async def lag(self) -> tuple[int, float]:
        """Messages that wait for this reader as far as its client knows, and the age of the oldest under way, in s."""
        loop = asyncio.get_running_loop()
        messages = await loop.run_in_executor(self._thread, self._count_waiting)
        since_ms = self._under_way_since_ms
        return messages, max(0.0, time.time() - since_ms / 1000) if since_ms > 0 else 0.0

    def _count_waiting(self) -> int:
        waiting = 0
        try:
            for at in self._consumer.position(self._consumer.assignment()):
                _, high = self._consumer.get_watermark_offsets(at, cached=True)
                # Before the first message after a start the client does not know where it stands.
                waiting += max(0, high - at.offset) if at.offset >= 0 else 0
        except (KafkaException, RuntimeError):
            return 0  # the reader has just been closed, or its partitions are on their way to somebody else
        return waiting

    async def aclose(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._consumer.close)
        self._thread.shutdown()


def _received(message: Any) -> Received:
    return Received(message.topic(), message.partition(), message.offset(), message.value() or b"")


@asynccontextmanager
async def open_writer(address: Address) -> AsyncIterator[LogWriter]:
    writer = LogWriter(address)
    try:
        yield writer
    finally:
        await writer.aclose()


@asynccontextmanager
async def open_reader(address: Address, group: str, names: Sequence[str]) -> AsyncIterator[LogReader]:
    reader = LogReader(address, group, names)
    try:
        yield reader
    finally:
        await reader.aclose()


async def require_log(address: Address, timeout_s: float) -> None:
    """Raise StartupError with one sentence if nothing that speaks the protocol answers there."""
    told: list[KafkaError] = []
    settings = client_settings(address) | {"log_level": 0, "error_cb": told.append}
    admin = AdminClient(settings)
    try:
        await asyncio.to_thread(admin.list_topics, timeout=timeout_s)
    except KafkaException:
        admin.poll(0)
        why = {error.code(): error.str() for error in told}
        if KafkaError._AUTHENTICATION in why:
            raise StartupError(f"Kafka at {address} refused the user name or password") from None
        if KafkaError._SSL in why:
            raise StartupError(f"Kafka at {address}: TLS failed: {why[KafkaError._SSL]}") from None
        raise StartupError(f"Kafka at {address} does not answer") from None


def log_answers(address: Address) -> bool:
    """True if a broker is there: for those who start one and wait for it."""
    admin = AdminClient({**client_settings(address), "log_level": 0, "socket.timeout.ms": 1000})
    try:
        return bool(admin.list_topics(timeout=1).brokers)
    except KafkaException:
        return False


async def ensure_lane(address: Address, lane: str) -> None:
    """Create the topics of a lane that are missing. Safe to repeat and to run from many processes."""
    admin = AdminClient({**client_settings(address), "log_level": 3})
    wanted = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=-1) for name in topics(lane)]
    wanted.append(NewTopic(dead_letters(lane), num_partitions=1, replication_factor=-1))
    for future in admin.create_topics(
        wanted, operation_timeout=LOG_ADMIN_SECONDS_MAX, request_timeout=LOG_ADMIN_SECONDS_MAX
    ).values():
        try:
            await asyncio.wrap_future(future)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise LogUnavailable(f"a topic of lane {lane} could not be created: {error}") from None
