"""Run as a program by test_kills: copies one topic to another, exactly once, until somebody kills it.

Arguments: addresses, source, sink. Each round is one transaction that holds the copies and the offsets they were read
at. Whatever goes wrong ends the process: whoever started it starts it again, as after a kill.
"""

import sys

from confluent_kafka import Consumer, Producer

QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 0}
PATIENCE_S = 60.0
ROUND = 200


def main(addresses: str, source: str, sink: str) -> None:
    name = f"copy-{source}"
    consumer = Consumer(
        {
            "bootstrap.servers": addresses,
            **QUICK,
            "group.id": name,
            "group.instance.id": name,  # so that the next process takes the place of this one at once
            "session.timeout.ms": 10_000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = Producer({"bootstrap.servers": addresses, **QUICK, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    consumer.subscribe([source])
    while True:
        messages = consumer.consume(ROUND, 0.1)
        assert not [message for message in messages if message.error()], "a new process finds out what it was"
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(sink, message.value(), partition=message.partition())
        at = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
