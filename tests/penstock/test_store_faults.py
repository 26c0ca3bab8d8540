"""The store dies, comes back, is full, is restarted: clients see retriable errors and lose nothing acknowledged."""

import threading
import time

import redis
from confluent_kafka import Producer

from tests.patience import eventually
from tests.penstock.batches import batch_of
from tests.penstock.conftest import StartBroker, StoreProcess
from tests.penstock.test_log import LogClient, values

RETRIABLE = {7, 56}  # REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR


def test_while_the_store_is_away_errors_are_retriable_and_then_everything_works_again(
    start_broker: StartBroker, own_valkey: StoreProcess, topic: str
) -> None:
    broker = start_broker(store=own_valkey)
    with LogClient(broker.port) as client:
        client.create(topic)
        assert client.produce(topic, batch_of(b"before"))["error_code"] == 0
        own_valkey.kill()
        assert client.produce(topic, batch_of(b"lost"))["error_code"] in RETRIABLE
        own_valkey.start()
        eventually(lambda: client.produce(topic, batch_of(b"after"))["error_code"] == 0, "appends to work again")
        eventually(lambda: client.fetch(topic, 0)["error_code"] == 0, "fetches to work again")
        assert [value for _, value in values(client.fetch(topic, 0))] == [b"before", b"after"]


def test_a_full_store_refuses_with_a_storage_error_and_takes_records_when_there_is_room(
    start_broker: StartBroker, own_valkey: StoreProcess, topic: str
) -> None:
    broker = start_broker(store=own_valkey)
    with LogClient(broker.port) as client:
        client.create(topic)
        broker.store.config_set("maxmemory", 1)
        assert client.produce(topic, batch_of(b"a"))["error_code"] == 56
        assert client.fetch(topic, 0)["high_watermark"] == 0
        broker.store.config_set("maxmemory", 0)
        assert client.produce(topic, batch_of(b"a"))["base_offset"] == 0


def test_scripts_the_store_forgot_are_loaded_again(
    start_broker: StartBroker, own_valkey: StoreProcess, topic: str
) -> None:
    broker = start_broker(store=own_valkey)
    with LogClient(broker.port) as client:
        client.create(topic)
        broker.store.script_flush()
        assert client.produce(topic, batch_of(b"a"))["error_code"] == 0
        assert broker.store.xlen(broker.key(topic, 0, "log")) == 1


def test_an_idempotent_producer_loses_and_doubles_nothing_when_the_store_is_killed(
    start_broker: StartBroker, own_valkey: StoreProcess, topic: str
) -> None:
    broker = start_broker("--store-timeout", "1", store=own_valkey)
    errors: list[object] = []
    producer = Producer(
        {"bootstrap.servers": broker.address, "enable.idempotence": True, "linger.ms": 0, "retry.backoff.ms": 50}
    )

    def send(first: int, last: int) -> None:
        for n in range(first, last):
            producer.produce(topic, str(n), partition=0, on_delivery=lambda error, _: errors.append(error))
            producer.poll(0)

    send(0, 500)
    assert producer.flush(60) == 0
    send(500, 800)
    own_valkey.kill()
    send(800, 1000)
    own_valkey.start()
    assert producer.flush(60) == 0
    assert set(errors) == {None}
    seen: list[bytes | None] = []
    with LogClient(broker.port) as client:
        eventually(lambda: client.fetch(topic, 0)["error_code"] == 0, "fetches to work again")
        while len(seen) < 1000:
            found = [value for _, value in values(client.fetch(topic, len(seen)))]
            assert found, f"only {len(seen)} records"
            seen += found
    assert seen == [str(n).encode() for n in range(1000)]


def test_a_log_that_lost_its_tail_says_out_of_range_instead_of_skipping(
    start_broker: StartBroker, own_valkey: StoreProcess, topic: str
) -> None:
    broker = start_broker(store=own_valkey)
    with LogClient(broker.port) as client:
        client.create(topic)
        for _ in range(3):
            client.produce(topic, batch_of(b"a"))
        # What a failover to a lagging replica looks like from here: a shorter log behind a new connection.
        log, meta = broker.key(topic, 0, "log"), broker.key(topic, 0, "m")
        last, _ = broker.store.xrevrange(log, count=1)[0]
        broker.store.delete(log)
        broker.store.xadd(log, {"b": batch_of(b"a")}, id=f"0-{len(batch_of(b'a'))}")
        broker.store.hset(meta, mapping={"leo": 1, "bytes": len(batch_of(b"a"))})
        assert last
        broker.store.client_kill_filter(_type="normal", skipme=True)
        eventually(lambda: client.fetch(topic, 3)["error_code"] == 1, "the shorter log to be noticed")
        assert client.fetch(topic, 0)["high_watermark"] == 1


def test_acks_all_waits_for_replicas_when_told_to_and_says_when_they_are_missing(
    start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker("--acks-replicas", "1", "--store-timeout", "1")
    with LogClient(broker.port) as client:
        client.create(topic)
        assert client.produce(topic, batch_of(b"a"), acks=1)["error_code"] == 0
        assert client.produce(topic, batch_of(b"a"), acks=-1)["error_code"] == 20
        assert broker.store.xlen(broker.key(topic, 0, "log")) == 2, "after append, as the code says"


def test_acks_all_waits_for_the_disk_when_told_to(
    start_broker: StartBroker, own_valkey: StoreProcess, topic: str
) -> None:
    with redis.Redis(port=own_valkey.port) as store:
        store.config_set("appendfsync", "always")
    broker = start_broker("--acks-fsync", store=own_valkey)
    with LogClient(broker.port) as client:
        client.create(topic)
        assert client.produce(topic, batch_of(b"a"), acks=-1)["error_code"] == 0


def test_a_fetch_waiting_at_one_broker_is_woken_by_an_append_at_another(start_broker: StartBroker, topic: str) -> None:
    first = start_broker("--node-id", "1")
    second = start_broker("--node-id", "2", keyspace=first.keyspace)
    answers = []
    with LogClient(first.port) as near, LogClient(second.port) as far:
        near.create(topic)
        nodes = f"{{{first.keyspace}}}:nodes"
        eventually(lambda: first.store.hlen(nodes) == 2, "both leases")

        def wait() -> None:
            answers.append(near.fetch(topic, 0, wait=60_000))

        assert near.fetch(topic, 0)["high_watermark"] == 0
        thread = threading.Thread(target=wait)
        started = time.monotonic()
        thread.start()
        eventually(lambda: far.produce(topic, batch_of(b"from afar"))["error_code"] == 0, "the topic to be known there")
        thread.join(60)
        assert values(answers[0]) == [(0, b"from afar")]
        assert time.monotonic() - started < 50
