"""Run as a program by test_clients: kafka-python leaves sockets to the garbage collector, so it gets its own process.

Arguments: address, topic, compression, count. Prints what it read as JSON: [offset, key, value, headers] rows.
"""

import json
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition


def main(address: str, topic: str, compression: str, count: int) -> None:
    kind = None if compression == "none" else compression
    producer = KafkaProducer(bootstrap_servers=address, compression_type=kind)
    headers = [("trace", b"1"), ("trace", b"2")]
    values = [f"value {n}".encode() * 5 for n in range(count)]
    sent = [producer.send(topic, value, key=b"k", partition=0, headers=headers) for value in values]
    producer.flush(60)
    assert [future.get(60).offset for future in sent] == list(range(count))
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    seen: list[object] = []
    while len(seen) < count:
        for m in (m for rows in consumer.poll(30_000).values() for m in rows):
            seen.append([m.offset, m.key.decode(), m.value.decode(), [[k, v.decode()] for k, v in m.headers]])
    assert consumer.end_offsets([partition]) == {partition: count}
    consumer.close()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
