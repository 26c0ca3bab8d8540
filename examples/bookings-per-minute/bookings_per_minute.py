"""Bookings per minute and event, computed from Aisle's topics with Quix Streams.

    python bookings_per_minute.py --broker 127.0.0.1:9092 --lane shared

Prints one JSON object a line whenever a minute changes: event, minute, bookings, seats, value (minor units). Stops by
itself when nothing has come for `--idle` seconds, or never with 0. Needs `quixstreams` and nothing of Aisle.
"""

import argparse
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from quixstreams import Application, State
from quixstreams.dataframe.windows import Count, Sum

TOPIC = (
    "event-id-{lane}______update-booking-status-to-pending-payment______seat-reservation-service___to___booking-service"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--broker", required=True, help="host:port of Penstock or Apache Kafka")
    parser.add_argument("--lane", default="shared", help="an event's own id, or `shared` (the default)")
    parser.add_argument("--group", default="bookings-per-minute")
    parser.add_argument("--state", default=".state", help="where the windows are kept between runs")
    parser.add_argument("--idle", type=float, default=0, help="stop after so many quiet seconds")
    arguments = parser.parse_args()
    application = Application(
        broker_address=arguments.broker,
        consumer_group=arguments.group,
        auto_offset_reset="earliest",
        state_dir=arguments.state,
        loglevel="WARNING",
    )
    orders = application.dataframe(application.topic(TOPIC.format(lane=arguments.lane), value_deserializer="json"))
    per_event = orders.apply(facts).group_by("event", key_serializer="str", key_deserializer="str")
    minutes = (
        per_event.filter(is_first_time, stateful=True)
        .tumbling_window(timedelta(minutes=1), grace_ms=timedelta(seconds=10))
        .agg(bookings=Count(), seats=Sum("seats"), value=Sum("value"))
        .current()
    )
    minutes.update(show, metadata=True)
    application.run(timeout=arguments.idle)


def facts(message: dict[str, Any]) -> dict[str, Any]:
    parts = message["parts"]
    return {
        "event": str(message["event"]),
        "booking": message["booking"],
        "seats": sum(len(part["seats"]) for part in parts),
        "value": sum(len(part["seats"]) * part["price"] for part in parts),
    }


def is_first_time(order: dict[str, Any], state: State) -> bool:
    """Aisle's log delivers at least once, so a booking may come again: only its first message counts."""
    if state.get(order["booking"]):
        return False
    state.set(order["booking"], True)
    return True


def show(minute: dict[str, Any], event: str, timestamp: int, headers: object) -> None:
    began = datetime.fromtimestamp(minute["start"] / 1000, UTC)
    figures = {name: minute[name] for name in ("bookings", "seats", "value")}
    print(json.dumps({"event": int(event), "minute": began.isoformat(), **figures}), flush=True)


if __name__ == "__main__":
    main()
