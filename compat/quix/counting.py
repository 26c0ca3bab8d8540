"""A stateful Quix Streams application with the exactly-once guarantee, to be killed and started again.

Arguments: broker, source, sink, group, state directory, die after how many messages (0: never).
It keeps a running count and total for every key and says both for every message. Run by tests/penstock/
test_transactions_quix.py in an environment of its own, since Quix Streams pins an older confluent-kafka than ours.
"""

import os
import signal
import sys
from typing import Any

from quixstreams import Application, State


def main(broker: str, source: str, sink: str, group: str, state_dir: str, die_after: int) -> None:
    application = Application(
        broker_address=broker,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_every=40,
        commit_interval=0.5,
        state_dir=state_dir,
        # A killed process stays a member of the group until its session ends.
        consumer_extra_config={"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000},
        # A killed process leaves a transaction behind; the next one waits until it is aborted.
        producer_extra_config={"transaction.timeout.ms": 6000},
        loglevel="WARNING",
    )
    seen = 0

    def count(value: dict[str, Any], state: State) -> dict[str, Any]:
        nonlocal seen
        seen += 1
        if seen == die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        number, total = state.get("number", 0) + 1, state.get("total", 0) + value["amount"]
        state.set("number", number)
        state.set("total", total)
        return {"number": number, "total": total}

    frame = application.dataframe(application.topic(source, value_deserializer="json"))
    frame = frame.apply(count, stateful=True)
    frame.to_topic(application.topic(sink, value_serializer="json"))
    application.run(timeout=12)


if __name__ == "__main__":
    main(*sys.argv[1:6], int(sys.argv[6]))
