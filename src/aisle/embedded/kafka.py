"""Apache Kafka 4 from its jars: one node that is broker and controller (KRaft), on 127.0.0.1.

For trying out and testing what runs on many machines elsewhere; its data is in `data/kafka`. Needs Java. The jars are
those that `deploy/fetch-kafka.sh` fetches, or the `libs` of an unpacked Kafka.
"""

import shutil
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from aisle.embedded.errors import EmbeddedError
from aisle.embedded.home import private_directory, write_private
from aisle.embedded.ports import remembered_ports
from aisle.embedded.process import Program
from aisle.embedded.supervisor import Supervisor

FORMAT_SECONDS = 120.0
# Small on purpose: it shares one machine with everything else. Compiling all of it twice is not worth it here.
JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]

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
auto.create.topics.enable={auto_create}
"""


def missing_for_kafka(jars: Path) -> str:
    """What is missing to start it, in words; nothing if it can be started."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if not any(jars.glob("kafka_*.jar")):
        return f"there are no jars of Apache Kafka in {jars}"
    return ""


def start_kafka(
    supervisor: Supervisor, jars: Path, answers: Callable[[str], bool], *, auto_create: bool = False
) -> tuple[Program, str]:
    """Returns when it answers: the program and its bootstrap address. `answers` asks a broker whether it is there."""
    missing = missing_for_kafka(jars)
    if missing:
        raise EmbeddedError(f"Apache Kafka cannot be started: {missing}")
    supervisor.start()
    folder = private_directory(supervisor.data.absolute() / "kafka")
    ports = remembered_ports(supervisor.data, ["kafka", "kafka-controller"])
    address = f"127.0.0.1:{ports['kafka']}"
    settings = folder / "server.properties"
    write_private(
        settings,
        SETTINGS.format(
            folder=folder,
            port=ports["kafka"],
            controller=ports["kafka-controller"],
            auto_create=str(auto_create).lower(),
        ),
    )
    java = ["java", *JVM, "-cp", f"{jars.absolute()}/*"]
    if not (folder / "log" / "meta.properties").exists():
        _format(supervisor, java, settings)
    program = supervisor.start_program(
        "kafka", [*java, "kafka.Kafka", str(settings)], {}, ready=lambda: answers(address)
    )
    return program, address


def _format(supervisor: Supervisor, java: list[str], settings: Path) -> None:
    cluster = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    argv = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
    program = supervisor.start_program("kafka-format", argv, {})
    code = program.finish(FORMAT_SECONDS)
    if code != 0:
        raise EmbeddedError(f"Apache Kafka could not format its directory: {program.last_words()}")
