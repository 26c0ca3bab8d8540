"""Frames from somebody who means harm: mutated, truncated, absurd. The broker answers or hangs up; it never breaks."""

import asyncio
import os
import random
import struct
from typing import Any

import psutil
import pytest

from penstock.config import Address, Config
from penstock.dispatch import APIS, answer
from penstock.request import Session
from penstock.serve import running_broker
from penstock.wire.read import Malformed
from penstock.wire.schema import FieldPlan, StructPlan, request_plan
from penstock.wire.write import request_bytes
from tests.patience import eventually
from tests.penstock.batches import batch_of
from tests.penstock.conftest import StartBroker, StoreProcess
from tests.penstock.wire import RawClient

NAMES = ["", "topic", "a" * 300, "no/slash", "ünïcode", "..", "topic\0", "-1", "1"]
NUMBERS = [-(2**63), -(2**31), -1, 0, 1, 2, 5, 2**15 - 1, 2**31 - 1, 2**53, 2**63 - 1]
SIZES = {"int8": 7, "int16": 15, "error_code": 15, "uint16": 15, "int32": 31, "timedelta_i32": 31}


def random_message(dice: random.Random, plan: StructPlan) -> dict[str, Any]:
    return {field.name: random_value(dice, field) for field in plan.fields}


def random_value(dice: random.Random, field: FieldPlan) -> Any:
    has_null = field.array or field.struct is not None or field.kind in ("string", "bytes", "records")
    if has_null and field.nullable and field.tag is None and dice.random() < 0.1:
        return None
    if field.array:
        return [one_value(dice, field) for _ in range(dice.choice([0, 1, 1, 2, 5]))]
    return one_value(dice, field)


def one_value(dice: random.Random, field: FieldPlan) -> Any:
    if field.struct:
        return random_message(dice, field.struct)
    match field.kind:
        case "bool":
            return dice.random() < 0.5
        case "string":
            return dice.choice(NAMES)
        case "bytes" | "records":
            numbered = batch_of(b"x", producer_id=1, epoch=0, sequence=0)
            return dice.choice([b"", dice.randbytes(70), batch_of(b"x"), numbered])
        case "uuid":
            return dice.choice([bytes(16), dice.randbytes(16)])
        case "float64":
            return 0.5
    limit = 2 ** SIZES.get(field.kind, 63) - 1
    return max(-limit - 1 if field.kind != "uint16" else 0, min(dice.choice(NUMBERS), limit))


def mutated(dice: random.Random, frame: bytes) -> bytes:
    changed = bytearray(frame)
    for _ in range(dice.choice([0, 0, 1, 1, 2, 8])):
        if len(changed) <= 8:
            break
        at = dice.randrange(8, len(changed))
        what = dice.randrange(5)
        if what == 0:
            changed[at] ^= 1 << dice.randrange(8)
        elif what == 1:
            changed[at : at + 4] = b"\x7f\xff\xff\xff"
        elif what == 2:
            changed[at : at + 5] = b"\xff\xff\xff\xff\x0f"
        elif what == 3:
            del changed[at:]
        else:
            changed[at:at] = dice.randbytes(dice.randrange(1, 9))
    return bytes(changed)


@pytest.mark.parametrize("seed", range(6))
async def test_no_mutated_request_finds_a_bug(valkey: StoreProcess, seed: int) -> None:
    dice = random.Random(seed)
    spoken = [(key, v) for key, api in APIS.items() for v in range(max(api.low, 3 if key == 0 else 0), api.high + 1)]
    config = Config(Address("127.0.0.1", 0), valkey.url, keyspace=f"fuzz-{os.getpid()}-{seed}")
    outcomes = {"answered": 0, "refused": 0, "waiting": 0}
    async with running_broker(config) as broker:
        for _ in range(700):
            key, version = dice.choice(spoken)
            frame = request_bytes(key, version, 1, "fuzz", random_message(dice, request_plan(key, version)))[4:]
            try:
                async with asyncio.timeout(0.2):
                    await answer(broker, Session("test"), [mutated(dice, frame)])
                outcomes["answered"] += 1
            except Malformed:
                outcomes["refused"] += 1
            except TimeoutError:
                outcomes["waiting"] += 1
    assert min(outcomes["answered"], outcomes["refused"]) > 50, (
        f"{outcomes}: the fuzzer no longer reaches both ways out"
    )


def test_random_bytes_on_many_connections_leave_the_broker_well_and_small(start_broker: StartBroker) -> None:
    broker = start_broker("--max-frame-bytes", "1000000")
    assert broker.process is not None
    process = psutil.Process(broker.process.pid)
    before = process.memory_info().rss
    dice = random.Random(7)
    for _ in range(200):
        with RawClient(broker.port) as client:
            noise = dice.randbytes(dice.randrange(1, 3000))
            size = dice.choice([len(noise), len(noise) * 2, 999_999, 2**31 - 1, -5])
            client.socket.sendall(struct.pack(">i", size) + noise)
    with RawClient(broker.port) as client:
        assert client.call(18, 0, {})["error_code"] == 0
    assert process.memory_info().rss - before < 50_000_000


def test_a_large_announced_frame_takes_memory_only_as_it_arrives(start_broker: StartBroker) -> None:
    broker = start_broker()
    assert broker.process is not None
    process = psutil.Process(broker.process.pid)
    before = process.memory_info().rss
    clients = [RawClient(broker.port) for _ in range(50)]
    for client in clients:
        client.socket.sendall(struct.pack(">ihhih", 100_000_000, 0, 9, 1, -1) + b"x" * 1000)
    with RawClient(broker.port) as alive:
        assert alive.call(18, 0, {})["error_code"] == 0
    assert process.memory_info().rss - before < 50_000_000
    for client in clients:
        client.socket.close()


def test_connections_over_the_limit_are_closed_and_those_below_served(start_broker: StartBroker) -> None:
    broker = start_broker("--max-connections", "3")
    kept = [RawClient(broker.port) for _ in range(3)]
    for client in kept:
        assert client.call(18, 0, {})["error_code"] == 0
    with RawClient(broker.port) as refused:
        refused.socket.sendall(request_bytes(18, 0, 1, "x", {}))
        assert refused.read_frame() is None
    kept.pop().socket.close()

    def free_again() -> bool:
        with RawClient(broker.port) as late:
            late.socket.sendall(request_bytes(18, 0, 1, "x", {}))
            return late.read_frame() is not None

    eventually(free_again, "the place of the one that left")
    for client in kept:
        client.socket.close()


def test_a_client_that_pipelines_without_reading_is_slowed_and_loses_nothing(start_broker: StartBroker) -> None:
    broker = start_broker("--max-in-flight-bytes", "20000")
    count = 3000
    with RawClient(broker.port) as client:
        request = request_bytes(18, 3, 7, "slow", {"client_software_name": "n" * 50, "client_software_version": "v"})
        client.socket.settimeout(60)
        received = 0
        for _ in range(count // 100):
            client.socket.sendall(request * 100)
        while received < count:
            assert client.read_frame() is not None
            received += 1
    with RawClient(broker.port) as client:
        assert client.call(18, 0, {})["error_code"] == 0
