"""Messages that could not be handled: what lies on the dead-letter topics, and sending it on its way again.

For operators. A consumer group remembers up to where a lane's dead letters were replayed; each is sent back to the
topic and partition it came from, and only then counted as replayed. A crash in between sends it twice, which every
receiver can bear. This file and `log` are the only ones that know a Kafka client.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from aisle.errors import StartupError
from aisle.limits import DEAD_LETTERS_MAX, LOG_ADMIN_SECONDS_MAX
from aisle.log import RELIABLE
from aisle.log_address import Address, client_settings
from aisle.messages import dead_letters

TOPIC = re.compile(r"event-id-(.+)______dead-letters")
ANSWER_SECONDS_MAX = 10.0
LANES_MAX = 50


class DeadLetter(msgspec.Struct, frozen=True):
    """`kind` and `id` are empty where the message cannot be read at all."""

    lane: str
    offset: int
    reason: str
    topic: str
    partition: int
    buried_at: datetime
    kind: str
    id: str
    value: bytes


def find_lanes(address: Address) -> list[str]:
    """The lanes that have a dead-letter topic."""
    admin = AdminClient({**client_settings(address), "log_level": 0})
    try:
        known = admin.list_topics(timeout=ANSWER_SECONDS_MAX).topics
    except KafkaException:
        raise StartupError(f"Kafka at {address} does not answer") from None
    return sorted(match[1] for name in known if (match := TOPIC.fullmatch(name)))


def read_dead_letters(address: Address, lane: str, *, replayed_too: bool = False) -> list[DeadLetter]:
    """Up to DEAD_LETTERS_MAX of a lane, oldest first; those that were replayed are left out."""
    with _reader(address, lane) as (consumer, partition):
        low, high = consumer.get_watermark_offsets(partition, timeout=ANSWER_SECONDS_MAX)
        first = low if replayed_too else max(low, _replayed_up_to(consumer, partition))
        last = min(high, first + DEAD_LETTERS_MAX)
        consumer.assign([TopicPartition(partition.topic, partition.partition, first)])
        return list(_read(consumer, lane, last)) if first < last else []


def count_dead_letters(address: Address) -> dict[str, int]:
    """Lane -> dead letters that wait there, for lanes that have some; of the first LANES_MAX lanes."""
    waiting = {}
    for lane in find_lanes(address)[:LANES_MAX]:
        with _reader(address, lane) as (consumer, partition):
            low, high = consumer.get_watermark_offsets(partition, timeout=ANSWER_SECONDS_MAX)
            left = high - max(low, _replayed_up_to(consumer, partition)) if high > low else 0
        if left > 0:
            waiting[lane] = left
    return waiting


def replay(address: Address, lane: str, letters: Sequence[DeadLetter]) -> int:
    """Send these back where they came from, a message that was buried several times once; returns how many.

    Bytes that are no message at all are passed over: they would only come back. They stay on the topic.
    """
    newest = {(letter.topic, letter.id): letter for letter in letters if letter.kind}
    _send(address, list(newest.values()))
    with _reader(address, lane) as (consumer, partition):
        upto = max(letter.offset for letter in letters) + 1
        consumer.commit(offsets=[TopicPartition(partition.topic, partition.partition, upto)], asynchronous=False)
    return len(newest)


@contextmanager
def _reader(address: Address, lane: str) -> Iterator[tuple[Consumer, TopicPartition]]:
    consumer = Consumer(
        {
            **client_settings(address),
            "group.id": f"event-id-{lane}_____dead-letters--{lane}",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        yield consumer, TopicPartition(dead_letters(lane), 0)
    except KafkaException as error:
        raise StartupError(f"the dead letters of lane {lane} cannot be read: {error}") from None
    finally:
        consumer.close()


def _replayed_up_to(consumer: Consumer, partition: TopicPartition) -> int:
    [committed] = consumer.committed([partition], timeout=ANSWER_SECONDS_MAX)
    return int(committed.offset)  # negative where nothing was replayed yet


def _read(consumer: Consumer, lane: str, last: int) -> Iterator[DeadLetter]:
    while True:
        message = consumer.poll(ANSWER_SECONDS_MAX)
        if message is None:
            raise StartupError(f"the dead letters of lane {lane} do not come")
        if message.error() is not None:
            raise StartupError(f"the dead letters of lane {lane} cannot be read: {message.error()}")
        letter = _letter(lane, message)
        yield letter
        if letter.offset >= last - 1:
            return


def _letter(lane: str, message: Any) -> DeadLetter:
    headers = {name: (value or b"").decode(errors="replace") for name, value in message.headers() or ()}
    value = message.value() or b""
    kind, id = _who(value)
    return DeadLetter(
        lane=lane,
        offset=message.offset(),
        reason=headers.get("reason", ""),
        topic=headers.get("topic", ""),
        partition=int(headers.get("partition", "0")),
        buried_at=datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
        kind=kind,
        id=id,
        value=value,
    )


def _who(value: bytes) -> tuple[str, str]:
    try:
        found = msgspec.json.decode(value, type=_Who)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return "", ""
    return found.type, found.id


class _Who(msgspec.Struct):
    type: str
    id: str


def _send(address: Address, letters: Sequence[DeadLetter]) -> None:
    producer = Producer({**client_settings(address), "log_level": 0, **RELIABLE})
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            failed.append(error)

    for letter in letters:
        producer.produce(letter.topic, letter.value, None, letter.partition, on_delivery=delivered)
    left = producer.flush(LOG_ADMIN_SECONDS_MAX)
    if failed or left:
        raise StartupError(f"{left + len(failed)} messages were not taken by the log; nothing counts as replayed")
