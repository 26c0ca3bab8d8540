"""The example of docs/penstock/open-layout.md, done with the very programs it shows."""

import json
import sys

from confluent_kafka.admin import AdminClient, NewTopic

from tests import children
from tests.needs import need
from tests.penstock.conftest import BrokerProcess


def test_redis_cli_and_kcat_share_a_log(broker: BrokerProcess, topic: str) -> None:
    for program in ("redis-cli", "kcat"):
        need(program, "tests/install-programs.sh installs it on Debian")
    admin = AdminClient({"bootstrap.servers": broker.address})
    configs = {"penstock.layout": "entries", "penstock.offset.sequence.bits": "10"}
    admin.create_topics([NewTopic(topic, 1, config=configs)])[topic].result(60)
    log = f"{broker.keyspace}:{{{topic}:0}}:log"
    kcat = ["kcat", "-b", broker.address, "-t", topic, "-p", "0"]
    redis_cli = ["redis-cli", "-p", broker.store_url.rpartition(":")[2].partition("/")[0]]

    run(*kcat, "-P", "-K:", "-H", "trace=7f", given='order-1:{"total": 5}\n')
    first, *fields = run(*redis_cli, "XRANGE", log, "-", "+").splitlines()
    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
    assert pairs.pop("timestamp").isdigit()
    assert pairs == {"key": "order-1", "value": '{"total": 5}', "header.trace": "7f"}

    added = ["key", "order-2", "value", '{"total": 7}', "header.trace", "80", "colour", "red"]
    second = run(*redis_cli, "XADD", log, "*", *added).strip()
    assert run(*kcat, "-C", "-o", "beginning", "-e", "-q", "-f", "%o  %k  %s  %h\n").splitlines() == [
        f'{offset(first)}  order-1  {{"total": 5}}  trace=7f',
        f'{offset(second)}  order-2  {{"total": 7}}  trace=80,colour=red',
    ]
    assert records_shown(broker, topic) == 2


def offset(entry: str) -> int:
    milliseconds, sequence = map(int, entry.split("-"))
    return (milliseconds << 10) + sequence


def records_shown(broker: BrokerProcess, topic: str) -> int:
    flags = ["--store", broker.store_url, "--keyspace", broker.keyspace, "--json"]
    rows = json.loads(run(sys.executable, "-m", "penstock", "inspect", "topics", *flags))["topics"]
    return next(int(row["records"]) for row in rows if row["topic"] == topic)


def run(*command: str, given: str = "") -> str:
    return children.run(command, input=given, capture_output=True, text=True, timeout=120, check=True).stdout
