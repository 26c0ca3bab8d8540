"""How far each group of workers is behind, as the log itself knows it. For operators."""

from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as Spec  # type: ignore[attr-defined]

from aisle.dead_letters import ANSWER_SECONDS_MAX, LANES_MAX, find_lanes
from aisle.errors import StartupError
from aisle.log_address import Address, client_settings
from aisle.messages import BOOKING, PARTITIONS, RESERVATION, TICKETING, group, topics_to


def count_unread(address: Address) -> dict[str, int]:
    """Group -> messages it has not committed yet, of the first LANES_MAX lanes."""
    admin = AdminClient({**client_settings(address), "log_level": 0})
    known = {
        group(service, lane): sorted(set(topics_to(service, lane)))
        for lane in find_lanes(address)[:LANES_MAX]
        for service in (BOOKING, RESERVATION, TICKETING)
    }
    try:
        return {name: _unread(admin, address, name, topics) for name, topics in known.items()}
    except KafkaException as error:
        raise StartupError(f"the log does not tell how far its readers are: {error}") from None


def _unread(admin: AdminClient, address: Address, name: str, topics: list[str]) -> int:
    partitions = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
    latest: dict[TopicPartition, Any] = {at: Spec.latest() for at in partitions}  # type: ignore[no-untyped-call]
    asked = admin.list_offsets(latest, request_timeout=ANSWER_SECONDS_MAX)
    ends = {(at.topic, at.partition): future.result().offset for at, future in asked.items()}
    consumer = Consumer({**client_settings(address), "group.id": name, "enable.auto.commit": False, "log_level": 0})
    try:
        committed = consumer.committed(partitions, timeout=ANSWER_SECONDS_MAX)
    finally:
        consumer.close()
    return sum(max(0, ends[at.topic, at.partition] - max(0, at.offset)) for at in committed)
