"""What consumers cost that wait for nothing: many of them, each asking for nine partitions again and again in vain.

Bare protocol on asyncio instead of a client library, so that a thousand of them fit into one process and cost the
machine little beside the broker they are here to measure.
"""

import asyncio
import os
import struct
import time
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.wire.write import request_bytes

FETCH, FETCH_VERSION = 1, 11
PARTITIONS_EACH = 9
PARTITIONS_PER_TOPIC = 10
CREATE_S = 120
SETTLE_S = 5.0
MEASURE_S = 15.0


class IdleConsumer(asyncio.Protocol):
    """Sends the same fetch as soon as the last one was answered; librdkafka's own waits half a second for records."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._unread = b""
        self.answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        transport.write(self._frame)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while len(self._unread) >= 4:
            end = 4 + struct.unpack_from(">i", self._unread)[0]
            if len(self._unread) < end:
                return
            self._unread = self._unread[end:]
            self.answers += 1
            self._transport.write(self._frame)


def idle_cost(address: str, broker_pid: int, consumers: int) -> dict[str, float]:
    """Per cent of a core that the broker takes, and its memory, while nothing happens on any of their partitions."""
    partitions = consumers * PARTITIONS_EACH
    names = [f"idle-{number}" for number in range(-(-partitions // PARTITIONS_PER_TOPIC))]
    admin = AdminClient({"bootstrap.servers": address})
    wanted = [NewTopic(name, PARTITIONS_PER_TOPIC, 1) for name in names]
    for future in admin.create_topics(wanted, request_timeout=CREATE_S).values():
        future.result(CREATE_S)
    host, _, port = address.rpartition(":")
    return uvloop.run(_measured(host, int(port), names, consumers, broker_pid))


async def _measured(host: str, port: int, names: list[str], consumers: int, broker_pid: int) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    idle: list[IdleConsumer] = []
    for number in range(consumers):
        one = IdleConsumer(_frame(names, number * PARTITIONS_EACH))
        await loop.create_connection(partial(_given, one), host, port)
        idle.append(one)
    scale = min(max(consumers / 1000, 0.1), 1.0)  # a few are measured for less long
    await asyncio.sleep(SETTLE_S * scale)
    cpu, answers, started = _cpu_s(broker_pid), sum(one.answers for one in idle), time.perf_counter()
    await asyncio.sleep(MEASURE_S * scale)
    seconds = time.perf_counter() - started
    return {
        "idle_consumers": consumers,
        "idle_partitions": len(names) * PARTITIONS_PER_TOPIC,
        "idle_cpu_percent": round(100 * (_cpu_s(broker_pid) - cpu) / seconds, 2),
        "idle_fetches_per_s": round((sum(one.answers for one in idle) - answers) / seconds),
    }


def _given(consumer: IdleConsumer) -> IdleConsumer:
    return consumer


def _frame(names: list[str], first: int) -> bytes:
    wanted: dict[str, list[dict[str, int]]] = {}
    for number in range(first, first + PARTITIONS_EACH):
        row = {"partition": number % PARTITIONS_PER_TOPIC, "current_leader_epoch": -1, "fetch_offset": 0}
        row |= {"log_start_offset": -1, "partition_max_bytes": 1 << 20}
        wanted.setdefault(names[number // PARTITIONS_PER_TOPIC], []).append(row)
    message = {
        "replica_id": -1,
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 26,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": name, "partitions": rows} for name, rows in wanted.items()],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return request_bytes(FETCH, FETCH_VERSION, 7, "idle", message)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
