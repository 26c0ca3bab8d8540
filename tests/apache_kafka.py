"""Apache Kafka from its jars, one node without ZooKeeper, for tests that compare with the original or run on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aisle.embedded.kafka import missing_for_kafka, start_kafka
from aisle.embedded.supervisor import Supervisor
from aisle.log import log_answers as answers
from tests.needs import cannot

__all__ = ["JARS", "ON_KAFKA", "answers", "apache_kafka", "require_apache_kafka"]

# A broker is dear to start: one worker has it (fixture `kafka`) and runs the tests that only need some topics of it.
ON_KAFKA = [pytest.mark.xdist_group("apache-kafka"), pytest.mark.long]

JARS = Path(__file__).parent.parent / ".cache" / "kafka"


def require_apache_kafka() -> None:
    missing = missing_for_kafka(JARS)
    if missing:
        cannot(f"{missing}; deploy/fetch-kafka.sh fetches the jars where Maven is")


@contextmanager
def apache_kafka(folder: Path) -> Iterator[str]:
    """A started broker; yields its bootstrap address."""
    require_apache_kafka()
    with Supervisor(folder / "supervised", log=lambda line: None) as supervisor:
        _, address = start_kafka(supervisor, JARS, answers, auto_create=True)
        yield address
