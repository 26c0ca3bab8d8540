"""Apache Kafka from its jars, one node without ZooKeeper, for tests that compare with the original or run on it."""

import shutil
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from aisle.embedded.server import free_port
from aisle.embedded.supervisor import Supervisor
from tests import children
from tests.needs import cannot

# A broker is dear to start: one worker has it (fixture `kafka`) and runs the tests that only need some topics of it.
ON_KAFKA = [pytest.mark.xdist_group("apache-kafka"), pytest.mark.long]

JARS = Path(__file__).parent.parent / ".cache" / "kafka"

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/log
num.partitions=4
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
"""


def require_apache_kafka() -> None:
    if not JARS.is_dir() or shutil.which("java") is None:
        cannot("Apache Kafka's jars or Java are missing; tests/install-programs.sh fetches the jars where Maven is")


@contextmanager
def apache_kafka(folder: Path) -> Iterator[str]:
    """A started broker; yields its bootstrap address."""
    require_apache_kafka()
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(SETTINGS.format(folder=folder, port=port, controller=controller))
    # It lives for a minute or two: compiling everything twice and collecting with many threads is not worth it.
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
    java = ["java", *quick, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{JARS}/*"]
    cluster = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    storage = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
    children.run(storage, capture_output=True, check=True)
    address = f"127.0.0.1:{port}"
    with Supervisor(folder / "supervised", log=lambda line: None) as supervisor:
        supervisor.start_program("kafka", [*java, "kafka.Kafka", str(settings)], {}, ready=lambda: answers(address))
        yield address


def answers(address: str) -> bool:
    from confluent_kafka import KafkaException

    admin = AdminClient({"bootstrap.servers": address, "log_level": 0, "socket.timeout.ms": 1000})
    try:
        return bool(admin.list_topics(timeout=1).brokers)
    except KafkaException:
        return False
