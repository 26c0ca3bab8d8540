"""Run as a program by test_transactions_clients: kafka-python leaves sockets to the garbage collector.

Arguments: address, topic, rounds (JSON list: commit or abort), records a round.
"""

import json
import sys

from kafka import KafkaProducer


def main(address: str, topic: str, rounds: list[bool], per_round: int) -> None:
    producer = KafkaProducer(bootstrap_servers=address, transactional_id=topic)
    producer.init_transactions()
    for number, commit in enumerate(rounds):
        producer.begin_transaction()
        sent = [producer.send(topic, f"{number}.{at}".encode(), partition=0) for at in range(per_round)]
        producer.flush(60)
        for future in sent:
            future.get(60)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4]))
